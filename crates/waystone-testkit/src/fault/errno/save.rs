//! An agent that saves and loads while one call fails. Whatever fails, it asks once more, and then it must work.

use std::io;

use serde_json::{Value, json};

use super::stage::{Prepared, SESSIONS, Stage};
use super::{PROCESS_MAX, Plan, Promises, Report};
use crate::contexts::Random;
use crate::process::McpProcess;
use crate::watchdog::Watchdog;

/// The exit code of a process that cannot use the store, as `waystone --help` has it.
const EXIT_STORE: i32 = 3;

pub(super) fn play(plan: &Plan, prepared: &Prepared, stage: &Stage, report: &mut Report) -> io::Result<Promises> {
    let process = McpProcess::spawn(stage.command(&plan.binary)?.arg("mcp"))?;
    let watchdog = Watchdog::over(process.pid(), PROCESS_MAX)?;
    let mut agent = Agent { process, stage, report, promises: Promises::default(), is_volatile: false };
    let is_started = agent.process.initialize().is_ok();
    let is_answered = is_started && agent.work(prepared).is_ok();
    let Agent { mut process, promises, .. } = agent;
    if is_answered && stage.is_cut() {
        process.child.kill()?;
        process.child.wait()?;
        stage.cut_power()?;
        return Ok(promises);
    }
    let status = process.end()?;
    match status.code() {
        _ if watchdog.has_bitten() => report.hangs.push(stage.to_string()),
        Some(0) if is_answered => {}
        Some(EXIT_STORE) if !is_started => report.count("refused to start"),
        _ => report.wrong.push(format!("{stage}: the process ended with {status}")),
    }
    Ok(promises)
}

struct Agent<'a> {
    process: McpProcess,
    stage: &'a Stage,
    report: &'a mut Report,
    promises: Promises,
    is_volatile: bool,
}

impl Agent<'_> {
    /// Fails only when the process does not answer.
    fn work(&mut self, prepared: &Prepared) -> io::Result<()> {
        let large = json!({ "n": 3, "text": Random::new(7).text(30_000) });
        for (session, context) in [
            ("new", json!({ "n": 1 })),
            (SESSIONS[0], json!({ "n": 2 })),
            (SESSIONS[0], json!({ "n": 2 })),
            (SESSIONS[0], large),
        ] {
            self.save(session, &context)?;
        }
        if !self.is_volatile {
            self.load(&prepared.saved[0].1, &prepared.saved[0].2)?;
            if let Some((id, context)) = self.promises.saved.first().cloned() {
                self.load(&id, &context)?;
            }
        }
        self.save("new", &json!({ "n": 4 }))
    }

    fn save(&mut self, session: &str, context: &Value) -> io::Result<()> {
        let saved = self.call("workflow_checkpoint_save", &json!({ "sessionId": session, "context": context }))?;
        let (Some(status), Some(id)) = (saved["status"].as_str(), saved["checkpointId"].as_str()) else {
            return Ok(());
        };
        self.report.count(status);
        self.is_volatile |= status == "VOLATILE";
        if !self.is_volatile {
            self.promises.saved.push((id.to_owned(), context.clone()));
        } else if self.stage.fault().is_none() || saved["warnings"].as_array().is_none_or(Vec::is_empty) {
            self.report.wrong.push(format!("{}: volatile without a fault or without a warning", self.stage));
        }
        Ok(())
    }

    fn load(&mut self, id: &str, context: &Value) -> io::Result<()> {
        let loaded = self.call("workflow_checkpoint_load", &json!({ "checkpointId": id }))?;
        match loaded["context"] == *context {
            true => self.report.count("loaded"),
            false => self.report.lost.push(format!("{}: {id} loads as {loaded}", self.stage)),
        }
        Ok(())
    }

    /// Asks up to twice. Only one call fails, so the second answer is a success; otherwise it is null.
    fn call(&mut self, tool: &str, arguments: &Value) -> io::Result<Value> {
        for _ in 0..2 {
            match self.process.call(tool, arguments.clone())? {
                Ok(reply) => return Ok(reply),
                Err(error) => self.report.count_error(self.stage, &error),
            }
        }
        self.report.wrong.push(format!("{}: {tool} fails also when the fault is over", self.stage));
        Ok(Value::Null)
    }
}
