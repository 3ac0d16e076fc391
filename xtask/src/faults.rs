//! Long fault runs. Their quick forms are tests.

use std::time::Duration;

use anyhow::ensure;
use clap::Subcommand;
use waystone_testkit::harness::private_dir;
use waystone_testkit::kill::{self, Plan, Report};
use waystone_testkit::power::{self, Disk};
use waystone_testkit::process::binary;

use crate::{say, sh};

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
    /// Kill a writer and lose every byte that was not synced
    Power {
        #[arg(long, default_value_t = 200)]
        cuts: u32,
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

pub(crate) fn run(fault: Fault) -> anyhow::Result<()> {
    sh("cargo", &["build", "--workspace", "--bins"])?;
    let directory = private_dir();
    let data_dir = directory.path().join("data");
    kill::make_private(&data_dir)?;
    let plan =
        |kills, writers, seed| Plan { binary: binary("waystone"), data_dir, kills, writers, seed, preload: Vec::new() };
    let report = match fault {
        Fault::Kill { kills, writers, seed } => kill::run(&plan(kills, writers, seed))?,
        Fault::Power { cuts, seed } => power::run(&plan(cuts, 1, seed), Disk::Honest)?,
    };
    print(&report);
    ensure!(report.lost.is_empty() && report.torn.is_empty(), "lost: {:?}, torn: {:?}", report.lost, report.torn);
    Ok(())
}

fn print(report: &Report) {
    say(format_args!("kills                   {}", report.kills));
    say(format_args!("acknowledged            {}", report.acknowledged));
    say(format_args!("acknowledged, lost      {}", report.lost.len()));
    say(format_args!("visible, half-written   {}", report.torn.len()));
    let mut starts = report.starts.clone();
    starts.sort_unstable();
    if let (Some(median), Some(longest)) = (starts.get(starts.len() / 2), starts.last()) {
        let ms = |time: &Duration| time.as_secs_f64() * 1000.0;
        say(format_args!("start to ready          median {:.1} ms, longest {:.1} ms", ms(median), ms(longest)));
    }
}
