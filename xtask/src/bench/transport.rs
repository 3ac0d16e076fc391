//! A small call, beside a tool that does nothing and a process that only echoes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use waystone_testkit::process::McpProcess;

use super::client::{Ground, call_line, load_latest_line, save_line, timed};
use super::report::{Report, Sample, ratio};
use super::{Options, Programs};

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = Ground::new();
    let mut ours = ground.start(&programs.waystone, "data", Vec::new())?;
    let mut empty = McpProcess::start_with(&mut Command::new(&programs.empty))?;
    let mut echo = Echo::start(&programs.echo)?;
    timed(&mut ours, &save_line(0, "small", &json!({ "n": 1 })))?;
    let load = load_latest_line("small");
    let list = call_line(1, "workflow_checkpoint_list", &json!({ "sessionId": "small", "limit": 1 }));
    let nothing = call_line(1, "empty", &json!({ "sessionId": "small" }));
    let mut samples: [Sample; 4] = std::array::from_fn(|_| Sample::default());
    for n in 0..options.rounds * 4 + 50 {
        let times = [
            timed(&mut ours, &load)?,
            timed(&mut empty, &nothing)?,
            timed(&mut ours, &list)?,
            echo.round_trip(&nothing)?,
        ];
        if n >= 50 {
            samples.iter_mut().zip(times).for_each(|(sample, time)| sample.push(time));
        }
    }
    let [load, nothing, list, echoed] = &samples;
    let beside =
        |sample: &Sample| format!("{sample}; {} empty, {} echo", ratio(sample, nothing), ratio(sample, echoed));
    report.note("a line there and back (echo)", echoed);
    report.note("an empty tool of the same SDK", format_args!("{nothing}; {} echo", ratio(nothing, echoed)));
    report.figure("load the latest 10 bytes", beside(load), "1.5 x empty");
    report.figure("list 1", beside(list), "1.5 x empty");
    Ok(())
}

struct Echo {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Echo {
    fn start(binary: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(binary).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("its standard input is a pipe")?;
        let stdout = BufReader::new(child.stdout.take().context("its standard output is a pipe")?);
        Ok(Self { child, stdin, stdout })
    }

    fn round_trip(&mut self, line: &str) -> anyhow::Result<Duration> {
        let mut answer = String::new();
        let started = Instant::now();
        self.stdin.write_all(format!("{line}\n").as_bytes())?;
        self.stdout.read_line(&mut answer)?;
        Ok(started.elapsed())
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
