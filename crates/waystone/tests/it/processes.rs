//! Processes of the binary that share a data directory.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use waystone_testkit::audit::audit;
use waystone_testkit::fault::kill::list_all;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, ServeProcess, binary, command};

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

/// Reads lines until one contains `wanted`, and returns that one.
fn read_until(lines: &mut impl BufRead, wanted: &str) -> String {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended before `{wanted}`");
    }
    line
}

/// Each event arrives by itself, with nothing saved after it that could push it.
#[test]
fn a_server_tells_in_order_what_another_process_saved() {
    let directory = private_dir();
    let server = ServeProcess::start(&binary("waystone"), directory.path()).unwrap();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut stream = BufReader::new(stream);
    read_until(&mut stream, "text/event-stream");

    let mut writer = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    let mut save = |n: u64| {
        let saved = writer.call("workflow_checkpoint_save", json!({ "sessionId": "s", "context": { "n": n } }));
        saved.unwrap().unwrap()["checkpointId"].as_str().unwrap().to_owned()
    };
    for n in 0..10 {
        let id = save(n);
        read_until(&mut stream, &id);
    }
    let ids: Vec<String> = (10..30).map(save).collect();
    for (n, id) in ids.iter().enumerate() {
        read_until(&mut stream, &format!("id: {}", n + 11));
        assert!(read_until(&mut stream, "data:").contains(id.as_str()), "event {} is another's", n + 11);
    }
    writer.finish().unwrap();
}

/// The file that holds the second copy of a checkpoint, once there is one.
fn mirror_of(process: &mut McpProcess, id: &serde_json::Value) -> String {
    let asked = Instant::now();
    loop {
        let loaded = process.call("workflow_checkpoint_load", json!({ "checkpointId": id })).unwrap().unwrap();
        if let Some(path) = loaded["blobPath"].as_str() {
            return path.to_owned();
        }
        assert!(asked.elapsed() < Duration::from_secs(60), "{id} was not mirrored");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_is_saved_is_mirrored_soon_and_after_a_crash_by_whoever_comes_next() {
    let directory = private_dir();
    let start = || McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    let save = |process: &mut McpProcess, n: u64| {
        let arguments = json!({ "sessionId": "s", "context": { "n": n } });
        process.call("workflow_checkpoint_save", arguments).unwrap().unwrap()["checkpointId"].clone()
    };
    let mut process = start();
    let first = save(&mut process, 1);
    let path = directory.path().join(mirror_of(&mut process, &first));
    let second = save(&mut process, 2);
    process.child.kill().unwrap();
    drop(process);

    let lines = || String::from_utf8(zstd::decode_all(std::fs::File::open(&path).unwrap()).unwrap()).unwrap();
    let mut process = start();
    mirror_of(&mut process, &second);
    assert_eq!(lines(), "{\"n\":1}\n{\"n\":2}\n");
    save(&mut process, 3);
    assert!(process.finish().unwrap().success());
    assert_eq!(lines(), "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n", "a clean end leaves nothing to do");
}
