//! A person who deletes something while one call fails, and tries again if it was not acknowledged.

use std::io;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::stage::{Prepared, SESSIONS, Stage};
use super::{PROCESS_MAX, Plan, Promises, Report, Scenario};
use crate::process::command;
use crate::watchdog::Watchdog;

pub(super) fn play(plan: &Plan, prepared: &Prepared, stage: &Stage, report: &mut Report) -> io::Result<Promises> {
    let mut of_other =
        prepared.saved.iter().filter(|(session, ..)| *session == SESSIONS[1]).map(|(_, id, _)| id.clone());
    let (noun, id, deleted) = match stage.scenario {
        Scenario::DeleteSession | Scenario::PurgeSession => ("session", SESSIONS[1].to_owned(), of_other.collect()),
        _ => of_other.next().map(|id| ("checkpoint", id.clone(), vec![id])).unwrap(),
    };
    let mut arguments = vec!["--json", noun, "delete", &id, "--yes"];
    arguments.extend(stage.scenario.is_purge().then_some("--purge"));
    let promises = Promises { saved: Vec::new(), deleted };
    let is_acknowledged = delete(stage.command(&plan.binary)?.args(&arguments), stage, report)?;
    if stage.is_cut() {
        stage.cut_power()?;
    }
    if !is_acknowledged && !delete(command(&plan.binary, &stage.data_dir).args(&arguments), stage, report)? {
        report.wrong.push(format!("{stage}: it cannot be deleted when the fault is over"));
        return Ok(Promises::default());
    }
    Ok(promises)
}

/// Whether it is deleted, by this process or by one before it.
fn delete(command: &mut Command, stage: &Stage, report: &mut Report) -> io::Result<bool> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let watchdog = Watchdog::over(child.id(), PROCESS_MAX)?;
    let Output { status, stderr, .. } = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&stderr);
    let error: Value = said.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    match status.code() {
        _ if watchdog.has_bitten() => report.hangs.push(stage.to_string()),
        _ if said.contains("panicked") => report.panics.push(format!("{stage}: {said}")),
        Some(0) => {
            report.count("deleted");
            return Ok(true);
        }
        Some(3) => report.count("refused to start"),
        Some(1) => {
            report.count_error(stage, &error);
            return Ok(error["error"]["code"].as_str().is_some_and(|code| code.ends_with("_NOT_FOUND")));
        }
        _ => report.wrong.push(format!("{stage}: the process ended with {status}: {said}")),
    }
    Ok(false)
}
