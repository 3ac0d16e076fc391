use std::collections::BTreeSet;

use serde_json::json;
use waystone_testkit::audit::audit;
use waystone_testkit::harness::private_dir;
use waystone_testkit::kill::list_all;
use waystone_testkit::process::{McpProcess, binary, command};

const PROCESSES: u64 = 24;
const SAVES: u64 = 200;

#[test]
fn many_processes_save_into_one_session() {
    let directory = private_dir();
    let start = || {
        let mut command = command(&binary("waystone"), directory.path());
        McpProcess::start_with(command.arg("mcp").env("WAYSTONE_MAX_CHECKPOINTS", "10000")).unwrap()
    };
    let acknowledged: Vec<String> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..PROCESSES)
            .map(|writer| {
                scope.spawn(move || {
                    let mut process = start();
                    let ids: Vec<String> = (0..SAVES)
                        .map(|n| {
                            let arguments = json!({ "sessionId": "one", "context": { "writer": writer, "n": n } });
                            let saved = process.call("workflow_checkpoint_save", arguments).unwrap();
                            let saved = saved.unwrap_or_else(|error| panic!("{error}"));
                            assert_eq!(saved["status"], "SAVED");
                            saved["checkpointId"].as_str().unwrap().to_owned()
                        })
                        .collect();
                    assert!(process.finish().unwrap().success());
                    ids
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(acknowledged.len() as u64, PROCESSES * SAVES);
    let distinct: BTreeSet<&str> = acknowledged.iter().map(String::as_str).collect();
    assert_eq!(distinct.len(), acknowledged.len());

    let mut process = start();
    let listed = list_all(&mut process).unwrap();
    assert_eq!(listed.iter().map(String::as_str).collect::<BTreeSet<_>>(), distinct);
    let mut contents = BTreeSet::new();
    for id in &listed {
        let loaded = process.call("workflow_checkpoint_load", json!({ "checkpointId": id })).unwrap().unwrap();
        contents.insert((loaded["context"]["writer"].as_u64().unwrap(), loaded["context"]["n"].as_u64().unwrap()));
    }
    assert_eq!(contents.len() as u64, PROCESSES * SAVES);
    process.finish().unwrap();
    assert_eq!(audit(directory.path()), Vec::<String>::new());
}
