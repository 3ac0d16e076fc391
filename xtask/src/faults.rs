//! Long fault runs. Their quick forms are tests.

mod print;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::ensure;
use clap::Subcommand;
use tokio::task::JoinSet;
use waystone_testkit::fault::kill::{self, Plan, Report};
use waystone_testkit::fault::power::{self, Disk};
use waystone_testkit::fault::{corrupt, errno, full, import, key, readers, repair, segment, tool_call, turn};
use waystone_testkit::harness::{make_private, private_dir};
use waystone_testkit::process::binary;

use crate::{run_optimized, say, sh};
use print::{print, print_errno, print_full, print_readers, print_repair, print_segment, print_tool, print_turn};

/// In so many parts the longest run is divided.
const PARTS: usize = 4;

#[derive(Debug, Subcommand)]
pub(crate) enum Fault {
    /// Kill writers with kill -9 and look whether everything acknowledged is there
    Kill {
        #[arg(long, default_value_t = 1000)]
        kills: u32,
        #[arg(long, default_value_t = 4)]
        writers: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Kill processes in the middle of what they do to segments, and look whether each thing is done in whole or not at all
    Segment {
        #[arg(long, default_value_t = 1000)]
        kills: u32,
        #[arg(long, default_value_t = 4)]
        writers: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Kill servers in the middle of turns, after each transition and anywhere, and look whether the next process ends them and
    /// readers miss nothing
    Turn {
        /// How often at each point
        #[arg(long, default_value_t = 100)]
        kills: u32,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Kill servers in the middle of turns in which tools run that leave a trace, and look whether one ran twice
    Tool {
        /// How often at each point
        #[arg(long, default_value_t = 100)]
        kills: u32,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Let very many readers follow one conversation, some slow, some that go and come back
    Readers {
        #[arg(long, default_value_t = 2000)]
        readers: usize,
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Cut the power of file systems in the middle of saves: images of ext4 and XFS (needs root, e2fsprogs and xfsprogs), and one
    /// that loses every byte that was not synced (needs nothing)
    Power {
        #[arg(long, default_value_t = 200)]
        cuts: u32,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Which of them
        #[arg(long = "on", value_parser = ["simulated", "ext4", "xfs"], default_values = ["simulated", "ext4", "xfs"])]
        systems: Vec<String>,
    },
    /// Damage each copy in every way, and look whether it is noticed and healed from the other
    Corrupt {
        /// How many ways to garble the database
        #[arg(long, default_value_t = 500)]
        databases: usize,
    },
    /// Let each call that touches the disk fail once, with every error that a disk gives
    Errno {
        /// Only every so many-th call
        #[arg(long, default_value_t = 1)]
        step: usize,
        /// Only calls of this kind: write, fsync, open, mkdir, rename or unlink
        #[arg(long)]
        kind: Option<String>,
        /// Only with this error: EIO, ENOSPC, EDQUOT or short
        #[arg(long)]
        error: Option<String>,
    },
    /// Kill `doctor --repair` before each of its calls that touch the disk, and look whether the next repair ends what
    /// it began
    Repair {
        /// Only every so many-th call
        #[arg(long, default_value_t = 1)]
        step: usize,
    },
    /// Kill `key rotate` and `key encrypt-store` before each of their calls that touch the disk, and look whether doing it once more
    /// ends it
    Key {
        /// Only every so many-th call
        #[arg(long, default_value_t = 1)]
        step: usize,
    },
    /// Import documents that are spoilt or made to take all memory, and kill imports before each of their calls that touch the disk
    Import {
        /// How many spoilt documents
        #[arg(long, default_value_t = 10_000)]
        cases: u32,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Kill only before every so many-th call
        #[arg(long, default_value_t = 1)]
        step: usize,
    },
    /// Fill a disk of 16 MB again and again under many writers (needs root, to mount it)
    Full {
        #[arg(long, default_value_t = 50)]
        fills: u32,
        #[arg(long, default_value_t = 8)]
        writers: usize,
    },
}

pub(crate) fn run(fault: Fault) -> anyhow::Result<()> {
    sh("cargo", &["build", "--workspace", "--bins"])?;
    match fault {
        Fault::Kill { kills, writers, seed } => {
            in_directory(|folder| judge("kill -9", &kill::run(&plan(folder, kills, writers, seed)?)?))
        }
        Fault::Segment { kills, writers, seed } => {
            in_directory(|folder| print_segment(&segment::run(&plan(folder, kills, writers, seed)?)?))
        }
        Fault::Turn { kills, seed } => in_directory(|folder| {
            let plan = turn::plan(binary("waystone"), folder, kills, seed);
            print_turn(&tokio::runtime::Runtime::new()?.block_on(turn::run(&plan))?)
        }),
        Fault::Tool { kills, seed } => in_directory(|folder| {
            let (binary, witness, data_dir) = (binary("waystone"), binary("waystone-witness"), folder.to_owned());
            let plan = tool_call::Plan { binary, witness, data_dir, kills, seed };
            print_tool(&tokio::runtime::Runtime::new()?.block_on(tool_call::run(&plan))?)
        }),
        // What many readers cost is looked at, too.
        Fault::Readers { .. } if cfg!(debug_assertions) => run_optimized(),
        Fault::Readers { readers, seconds, seed } => in_directory(|folder| {
            let (binary, data_dir) = (binary("waystone"), folder.to_owned());
            let plan = readers::Plan { binary, data_dir, readers, seconds, seed };
            print_readers(&tokio::runtime::Runtime::new()?.block_on(readers::run(&plan))?)
        }),
        Fault::Power { cuts, seed, systems } => run_power(cuts, seed, &systems),
        // It runs in this process, and most of its time is spent in hashes and compression.
        Fault::Corrupt { .. } if cfg!(debug_assertions) => run_optimized(),
        Fault::Corrupt { databases } => tokio::runtime::Runtime::new()?.block_on(corrupt(databases)),
        Fault::Errno { step, kind, error } => in_directory(|folder| {
            let (binary, folder) = (binary("waystone"), folder.to_owned());
            let scenarios = errno::Scenario::ALL.to_vec();
            let plan = errno::Plan { binary, folder, first: 1, step, scenarios, kind, error };
            print_errno(&errno::run(&plan, |done| say(done))?)
        }),
        Fault::Repair { step } => {
            let plan = repair::Plan { binary: binary("waystone"), calls: DISK.map(|kind| (kind, 1, step)).to_vec() };
            print_repair(&tokio::runtime::Runtime::new()?.block_on(repair::run(&plan))?)
        }
        Fault::Key { step } => {
            let plan = repair::Plan { binary: binary("waystone"), calls: DISK.map(|kind| (kind, 1, step)).to_vec() };
            print_repair(&key::run(&plan)?)
        }
        // Most of its time is spent in reading what is sent.
        Fault::Import { .. } if cfg!(debug_assertions) => run_optimized(),
        Fault::Import { cases, seed, step } => tokio::runtime::Runtime::new()?.block_on(run_import(cases, seed, step)),
        Fault::Full { fills, writers } => in_directory(|folder| {
            let elsewhere = private_dir();
            let (binary, folder, aside) = (binary("waystone"), folder.to_owned(), elsewhere.path().to_owned());
            print_full(&full::run(&full::Plan { binary, folder, aside, fills, writers })?)
        }),
    }
}

/// Kinds of calls that touch the disk.
const DISK: [&str; 6] = ["write", "fsync", "open", "mkdir", "rename", "unlink"];

fn run_power(cuts: u32, seed: u64, systems: &[String]) -> anyhow::Result<()> {
    systems.iter().try_for_each(|system| {
        in_directory(|folder| {
            let plan = plan(folder, cuts, 1, seed)?;
            let progress = |cut: u32| {
                if cut.is_multiple_of(50) {
                    say(format_args!("{system}: {cut} of {cuts}"))
                }
            };
            let report = match system.as_str() {
                "simulated" => power::run(&plan, Disk::Honest)?,
                kind => power::image::cut(&plan, kind, folder, progress)?,
            };
            judge(&format!("power cuts, {system}"), &report)
        })
    })
}

fn in_directory(work: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    work(private_dir().path())
}

fn plan(folder: &Path, kills: u32, writers: u64, seed: u64) -> anyhow::Result<Plan> {
    let data_dir = folder.join("data");
    make_private(&data_dir)?;
    Ok(Plan { binary: binary("waystone"), data_dir, kills, writers, seed, preload: Vec::new() })
}

fn judge(what: &str, report: &Report) -> anyhow::Result<()> {
    say("");
    say(what);
    print(report)
}

/// What each kind of damage came to. They have nothing in common, so they run side by side, the longest in several parts.
async fn corrupt(databases: usize) -> anyhow::Result<()> {
    let mut jobs: JoinSet<(&str, corrupt::Report)> = JoinSet::new();
    jobs.spawn(async { ("a file of 1 KB, each byte", corrupt::mirrors(1000, 1, (0, 1)).await) });
    jobs.spawn(async { ("a file of 64 KB, each 8 bytes", corrupt::mirrors(64_000, 8, (0, 1)).await) });
    for part in 0..PARTS {
        let job = corrupt::mirrors(1_000_000, 64, (part, PARTS));
        jobs.spawn(async { ("a file of 1 MB, each 64 bytes", job.await) });
    }
    jobs.spawn(async { ("files exchanged", corrupt::swapped().await) });
    jobs.spawn(async { ("rows", corrupt::rows(50).await) });
    // A repair may not end, and then it is to be seen where.
    let progress = move |done: usize| {
        if done.is_multiple_of(50) {
            say(format_args!("databases: {done} of {databases}"));
        }
    };
    jobs.spawn(async move { ("databases", corrupt::databases(databases, progress).await) });
    let mut reports: BTreeMap<&str, corrupt::Report> = BTreeMap::new();
    while let Some(done) = jobs.join_next().await {
        let (what, report) = done?;
        say(format_args!("done: {what}, {} cases; {} runs are left", report.cases, jobs.len()));
        let before = reports.remove(what).unwrap_or_default();
        reports.insert(what, before.and(report));
    }
    say("");
    let mut is_sound = true;
    for (what, report) in reports {
        let (unnoticed, unhealed) = (report.unnoticed.len(), report.unhealed.len());
        say(format_args!("{what:30} {:6} cases, {unnoticed} unnoticed, {unhealed} not healed", report.cases));
        report.unnoticed.iter().chain(&report.unhealed).take(10).for_each(say);
        is_sound &= unnoticed + unhealed == 0;
    }
    ensure!(is_sound, "not everything was noticed and healed");
    Ok(())
}

async fn run_import(cases: u32, seed: u64, step: usize) -> anyhow::Result<()> {
    let binary = binary("waystone");
    let mut outcomes = import::bomb::run(&binary)?;
    let is_refused = outcomes.iter().all(|outcome| (400..500).contains(&outcome.status));
    let peak_kb = outcomes.iter().map(|outcome| outcome.peak_kb).max().unwrap_or_default();
    outcomes.push(import::bomb::large_session(&binary, 200 << 20)?);
    outcomes.push(import::bomb::large_project(&binary, 200 << 20)?);
    say("done: bombs");
    let spoilt = import::fuzz(seed, cases).await;
    say("done: spoilt documents");
    let killed = import::kill::run(&import::kill::Plan { binary, step }).await?;
    spoilt.panics.iter().chain(&spoilt.half_imported).chain(&killed.wrong).take(10).for_each(say);
    say("");
    for outcome in &outcomes {
        let (sent, peak) = (outcome.sent_bytes as f64 / 1e6, outcome.peak_kb as f64 / 1e3);
        let import::bomb::Outcome { name, status, code, .. } = outcome;
        say(format_args!("{name:<38} {sent:6.1} MB sent, {status} {code:<24} peak {peak:6.1} MB"));
    }
    say(format_args!("bombs, peak memory      {:.1} MB", peak_kb as f64 / 1e3));
    say(format_args!("spoilt documents        {}", spoilt.cases));
    say(format_args!("  taken whole           {}", spoilt.taken));
    for (code, count) in &spoilt.refused {
        say(format_args!("  refused {code:<22} {count}"));
    }
    say(format_args!("  panics                {}", spoilt.panics.len()));
    say(format_args!("  half-imported         {}", spoilt.half_imported.len()));
    say(format_args!("imports killed          {}, of which found done {}", killed.kills, killed.imported));
    say(format_args!("  wrong afterwards      {}", killed.wrong.len()));
    ensure!(is_refused, "a bomb was taken");
    ensure!(peak_kb <= import::bomb::PEAK_KB_MAX, "bombs took {peak_kb} kB");
    ensure!(
        spoilt.panics.is_empty() && spoilt.half_imported.is_empty() && killed.wrong.is_empty(),
        "not everything held"
    );
    Ok(())
}
