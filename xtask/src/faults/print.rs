//! What the runs came to, in lines; an error where not everything held.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use waystone_testkit::fault::kill::Report;
use waystone_testkit::fault::{errno, full, readers, repair, segment, tool_call, turn};

use crate::say;

pub(super) fn print(report: &Report) -> anyhow::Result<()> {
    say(format_args!("kills                   {}", report.kills));
    if report.rounds_of_house > 0 {
        say(format_args!("house kept beside       {}", report.rounds_of_house));
    }
    say(format_args!("acknowledged            {}", report.acknowledged));
    say(format_args!("acknowledged, lost      {}", report.lost.len()));
    say(format_args!("visible, half-written   {}", report.torn.len()));
    let mut starts = report.starts.clone();
    starts.sort_unstable();
    if let (Some(median), Some(longest)) = (starts.get(starts.len() / 2), starts.last()) {
        let ms = |time: &Duration| time.as_secs_f64() * 1000.0;
        say(format_args!("start to ready          median {:.1} ms, longest {:.1} ms", ms(median), ms(longest)));
    }
    ensure!(report.lost.is_empty() && report.torn.is_empty(), "lost: {:?}, torn: {:?}", report.lost, report.torn);
    Ok(())
}

pub(super) fn print_segment(report: &segment::Report) -> anyhow::Result<()> {
    report.lost.iter().chain(&report.half_applied).take(10).for_each(say);
    say(format_args!("kills                   {}", report.kills));
    say(format_args!("  before a disk call    {}", report.kills_at_call));
    for (kind, (times, done)) in &report.under_way {
        say(format_args!("  in {kind:<18} {times}, found done {done}"));
    }
    say(format_args!("acknowledged            {}", report.acknowledged));
    say(format_args!("acknowledged, lost      {}", report.lost.len()));
    say(format_args!("half-applied            {}", report.half_applied.len()));
    ensure!(report.lost.is_empty() && report.half_applied.is_empty(), "not everything held");
    Ok(())
}

pub(super) fn print_readers(report: &readers::Report) -> anyhow::Result<()> {
    report.wrong.iter().take(10).for_each(say);
    let mut requests = report.requests.clone();
    requests.sort_unstable();
    let ms = |at: usize| requests.get(at.min(requests.len().saturating_sub(1))).copied().unwrap_or_default();
    say(format_args!("readers                 {}", report.readers));
    say(format_args!("events                  {}", report.events));
    say(format_args!(
        "came back               {}, of which not at the first try {}",
        report.reconnects, report.refused
    ));
    say(format_args!("resyncs                 {}", report.resyncs));
    say(format_args!("peak memory             {:.1} MB", report.peak_kb as f64 / 1e3));
    let (median, p95) = (ms(requests.len() / 2), ms(requests.len() * 95 / 100));
    say(format_args!("another request         median {median:.1?}, p95 {p95:.1?}"));
    say(format_args!("wrong                   {}", report.wrong.len()));
    ensure!(report.wrong.is_empty(), "not everything held");
    ensure!(report.peak_kb < 500_000, "they took {} kB", report.peak_kb);
    Ok(())
}

fn print_kills(wrong: &[String], kills: &BTreeMap<String, u32>) {
    wrong.iter().take(10).for_each(say);
    for (point, kills) in kills {
        say(format_args!("kills at {point:<40} {kills}"));
    }
}

pub(super) fn print_turn(report: &turn::Report) -> anyhow::Result<()> {
    print_kills(&report.wrong, &report.kills);
    say(format_args!("turns that were under way  {}", report.cut));
    say(format_args!("resyncs                    {}", report.resyncs));
    say(format_args!("wrong afterwards           {}", report.wrong.len()));
    ensure!(report.wrong.is_empty(), "not everything held");
    Ok(())
}

pub(super) fn print_tool(report: &tool_call::Report) -> anyhow::Result<()> {
    print_kills(&report.wrong, &report.kills);
    say(format_args!("turns that were under way      {}", report.cut));
    say(format_args!("approvals that went on waiting {}", report.survived));
    say(format_args!("calls of unknown outcome       {}", report.unknown));
    say(format_args!("wrong afterwards               {}", report.wrong.len()));
    ensure!(report.wrong.is_empty(), "not everything held");
    Ok(())
}

pub(super) fn print_errno(report: &errno::Report) -> anyhow::Result<()> {
    for problem in report.problems() {
        say(problem);
    }
    say(format_args!("runs                    {}", report.runs));
    for ((kind, error), count) in &report.injected {
        say(format_args!("fault {:<17} {count}", format!("{kind} {error}")));
    }
    for (answer, count) in &report.answers {
        say(format_args!("answer {answer:<24} {count}"));
    }
    say(format_args!("acknowledged            {}", report.acknowledged));
    say(format_args!("acknowledged, lost      {}", report.lost.len()));
    say(format_args!("panics                  {}", report.panics.len()));
    say(format_args!("hangs                   {}", report.hangs.len()));
    say(format_args!("otherwise wrong         {}", report.wrong.len()));
    ensure!(report.problems().is_empty(), "not everything held");
    Ok(())
}

pub(super) fn print_full(report: &full::Report) -> anyhow::Result<()> {
    let problems = || report.lost.iter().chain(&report.failed_reads).chain(&report.wrong);
    problems().for_each(say);
    say(format_args!("fills                   {}", report.fills));
    say(format_args!("saves acknowledged      {}", report.acknowledged));
    for (reason, count) in &report.refused {
        say(format_args!("saves refused, {reason:<8} {count}"));
    }
    say(format_args!("acknowledged, lost      {}", report.lost.len()));
    say(format_args!("reads                   {}", report.reads));
    say(format_args!("reads failed            {}", report.failed_reads.len()));
    say(format_args!("otherwise wrong         {}", report.wrong.len()));
    say(format_args!("rounds of house         {}, {} refused", report.rounds_of_house, report.refused_house));
    let longest = report.pauses.iter().max().copied().unwrap_or_default();
    say(format_args!("freeing to next save    longest {:.1} ms", longest.as_secs_f64() * 1000.0));
    say(format_args!("data at the end         {} KiB", report.data_bytes / 1024));
    ensure!(problems().next().is_none(), "not everything held");
    Ok(())
}

pub(super) fn print_repair(report: &repair::Report) -> anyhow::Result<()> {
    say(format_args!("{} kills, {} that were not ended by the next", report.kills, report.wrong.len()));
    report.wrong.iter().take(10).for_each(say);
    ensure!(report.wrong.is_empty(), "not everything was brought back");
    Ok(())
}
