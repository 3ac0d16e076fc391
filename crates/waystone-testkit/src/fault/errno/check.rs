//! What must be true after a run, whatever failed in it: looked at by processes for which nothing fails.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::process::Stdio;

use serde_json::{Value, json};

use super::stage::{Prepared, Stage};
use super::{Promises, Report};
use crate::audit::audit;
use crate::fault::kill::list_all;
use crate::process::{McpProcess, binary, command};

pub(super) fn everything_holds(
    prepared: &Prepared,
    stage: &Stage,
    promises: &Promises,
    report: &mut Report,
) -> io::Result<()> {
    let before = prepared.saved.iter().map(|(_, id, context)| (id.clone(), context.clone()));
    let saved: Vec<(String, Value)> = before.chain(promises.saved.iter().cloned()).collect();
    look(stage, &saved, promises, report)?;
    doctor(stage, &[], report)?;
    report.lost.extend(audit(&stage.data_dir).into_iter().map(|problem| format!("{stage}: {problem}")));
    if !promises.deleted.is_empty() && !stage.is_cut() {
        for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
            let _ = fs::remove_file(stage.data_dir.join(name));
        }
        doctor(stage, &["--repair"], report)?;
        look(stage, &saved, promises, report)?;
    }
    Ok(())
}

/// What is saved loads, also when it is deleted: that is kept for a while. What is deleted is not listed, and what is removed is gone.
fn look(stage: &Stage, saved: &[(String, Value)], promises: &Promises, report: &mut Report) -> io::Result<()> {
    let mut process = McpProcess::start(&binary("waystone"), &stage.data_dir)?;
    let is_removed = |id: &String| stage.scenario.is_purge() && promises.deleted.contains(id);
    for (id, context) in saved {
        match process.call("workflow_checkpoint_load", json!({ "checkpointId": id }))? {
            Ok(_) if is_removed(id) => report.lost.push(format!("{stage}: {id} was removed and is back")),
            Err(error) if is_removed(id) && error["error"]["code"] == "CHECKPOINT_NOT_FOUND" => {}
            Ok(loaded) if loaded["context"] == *context => {}
            Ok(_) => report.lost.push(format!("{stage}: {id} is another context than was saved")),
            Err(error) => report.lost.push(format!("{stage}: {id}: {}", error["error"]["message"])),
        }
    }
    let listed: BTreeSet<String> = list_all(&mut process)?.into_iter().collect();
    let is_deleted = |id: &String| promises.deleted.contains(id);
    let back = promises.deleted.iter().filter(|id| listed.contains(*id));
    let missing = saved.iter().map(|(id, _)| id).filter(|id| !is_deleted(id) && !listed.contains(*id));
    report.lost.extend(back.map(|id| format!("{stage}: {id} was deleted and is back")));
    report.lost.extend(missing.map(|id| format!("{stage}: {id} is not listed")));
    let status = process.finish()?;
    if !status.success() {
        report.wrong.push(format!("{stage}: afterwards a process ended with {status}"));
    }
    Ok(())
}

fn doctor(stage: &Stage, arguments: &[&str], report: &mut Report) -> io::Result<()> {
    let mut command = command(&binary("waystone"), &stage.data_dir);
    let done = command.args(["--json", "doctor"]).args(arguments).stdin(Stdio::null()).output()?;
    let found: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    if !done.status.success() || found["sound"] != true {
        let said = String::from_utf8_lossy(&done.stderr);
        report.lost.push(format!("{stage}: doctor {arguments:?} says {found}, {said}"));
    }
    Ok(())
}
