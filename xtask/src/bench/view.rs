//! Views: what it costs to fit a context into a budget.

use std::time::Instant;

use serde_json::{Value, json};
use waystone_core::classify::{Rules, classify_all};
use waystone_testkit::contexts::Random;

use super::client::{Changing, Ground, call_line, timed};
use super::operation::beside_table;
use super::report::{Report, Sample, shown};
use super::{Options, Programs};

pub(super) fn measure(programs: &Programs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let ground = Ground::new();
    let mut process = ground.start(&programs.waystone, "view", Vec::new())?;
    let (mut compress, mut ping) = (Sample::default(), Sample::default());
    let first = timed(&mut process, &compress_line(0))?;
    for n in 1..=options.scaled(60, 5) {
        compress.push(timed(&mut process, &compress_line(n as u64))?);
        ping.push(timed(&mut process, &json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string())?);
    }
    report.note("first view, with the tokenizer loaded", shown(first));
    report.figure("100 KB of messages, 5 times smaller", &compress, "40 ms");
    report.note("a ping beside it", &ping);
    report.section("the rest of contract 003's table");
    report.note("compression of 100 KB", beside_table(&compress, ["10 ms", "20 ms", "50 ms", "100 ms"]));
    let classes = beside_table(&classify(options.rounds), ["1 ms", "5 ms", "10 ms", "50 ms"]);
    report.note("classification, 33 KB, in process", classes);
    Ok(())
}

/// Every key of a context of 33 KB. No call does that alone.
fn classify(rounds: usize) -> Sample {
    let mut changing = Changing::of_33_kb();
    let mut sample = Sample::default();
    for _ in 0..rounds {
        let context = changing.next().as_object().expect("a context is an object");
        let started = Instant::now();
        std::hint::black_box(classify_all(context, &Rules::default()));
        sample.push(started.elapsed());
    }
    sample
}

/// A context of 100 KB that differs with `seed`: messages of an agent, and what its tools printed.
fn compress_line(seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut messages: Vec<Value> = Vec::new();
    let mut bytes = 0;
    while bytes < 100_000 {
        let said = format!("I look at src/module_{}/file_{}.rs next.", random.below(40), random.below(40));
        let lines = (0..40).map(|n| format!("{n}: {} = value_{}", random.text(50), random.below(1000)));
        let printed = lines.collect::<Vec<_>>().join("\n");
        bytes += said.len() + printed.len() + 60;
        messages.push(json!({ "role": "assistant", "content": said }));
        messages.push(json!({ "role": "tool", "content": printed }));
    }
    let context = json!({ "userGoal": "keep going", "messages": messages });
    call_line(1, "workflow_context_compress", &json!({ "context": context, "ratio": 5 }))
}
