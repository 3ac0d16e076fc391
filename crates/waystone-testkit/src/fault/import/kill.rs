//! Kills an import before each of its calls that touch the disk, in turn: afterwards all of it is there, or nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::valid;
use crate::Harness;
use crate::audit::audit;
use crate::contexts::Random;
use crate::harness::{copy_dir, private_dir};
use crate::process::command;
use crate::shim::{self, Call};

#[derive(Debug, Clone)]
pub struct Plan {
    pub binary: PathBuf,
    /// Only every so many-th call.
    pub step: usize,
}

#[derive(Debug, Default)]
pub struct Report {
    pub kills: u32,
    /// Those after which all of it was there.
    pub imported: u32,
    pub wrong: Vec<String>,
}

pub async fn run(plan: &Plan) -> io::Result<Report> {
    let mut random = Random::new(6);
    let (h, empty) = (Harness::new(), Harness::new());
    valid::make_session(&h, "s", 60, &mut random).await;
    valid::make_project(&h, "p", 40, &mut random).await;
    let documents =
        [h.export_session("s").await, h.export_project("p").await].map(|document| document.map_err(io::Error::other));
    h.engine.close().await;
    empty.engine.close().await;
    let mut report = Report::default();
    for document in documents {
        let document = document?;
        for kind in ["write", "fsync", "open"] {
            for at in (1..).step_by(plan.step) {
                let call = Call { kind, errno: -1, at };
                if !kill_one(plan, empty.data_dir(), &document, call, &mut report).await? {
                    break;
                }
            }
        }
    }
    Ok(report)
}

/// Whether there was such a call.
async fn kill_one(plan: &Plan, empty: &Path, document: &str, call: Call, report: &mut Report) -> io::Result<bool> {
    let (directory, folder) = (private_dir(), private_dir());
    let (root, log, file) = (directory.path(), folder.path().join("faults"), folder.path().join("document.json"));
    copy_dir(empty, root);
    fs::write(&log, "")?;
    fs::write(&file, document)?;
    let mut import = command(&plan.binary, root);
    import.args(["session", "import"]).arg(&file).envs(shim::fail(call, root, &log, None)?);
    let status = import.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    let fault = fs::read_to_string(&log)?;
    let case = format!("{} {} on {:?}", call.kind, call.at, fault.trim());
    let is_killed = !fault.is_empty();
    if status.success() == is_killed {
        report.wrong.push(format!("{case}: it ended with {status}"));
    }
    let h = Harness::on(directory);
    let found = match document.contains("waystone.session") {
        true => h.export_session("s").await,
        false => h.export_project("p").await,
    };
    match &found {
        Ok(found) if found == document => report.imported += u32::from(is_killed),
        Ok(_) => report.wrong.push(format!("{case}: it is there in part")),
        Err(error) if is_killed && error.http_status() == 404 => {}
        Err(error) => report.wrong.push(format!("{case}: {error}")),
    }
    let problems = audit(h.data_dir());
    if !problems.is_empty() {
        report.wrong.push(format!("{case}: {problems:?}"));
    }
    report.kills += u32::from(is_killed);
    h.engine.close().await;
    Ok(is_killed)
}
