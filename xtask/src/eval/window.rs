//! Windows over real agent runs that are four times longer: how often what was sent is sent again as it was, what that costs where a cache
//! has its prices, and how much of what the model used in its next message it could see. Beside it everything, and the newest that fit.

mod replay;
mod run;

use std::path::PathBuf;

use crate::say;
use replay::{Figures, replay};
use run::{Run, Way, read};

/// Of tokens that a cache has, and of those that are written to it.
const READ_PRICE: f64 = 0.1;
const WRITE_PRICE: f64 = 1.25;
const BUDGET_MIN: u64 = 2000;

const WAYS: [(&str, Way); 3] =
    [("waystone", Way::Window), ("everything", Way::Everything), ("newest that fit", Way::Newest)];

pub(super) fn run(files: &[PathBuf]) -> anyhow::Result<()> {
    let mut tables = Vec::new();
    for file in files {
        let runs = read(file)?;
        let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let joined = Run::join(&runs);
        let title = format!("{name}: {} runs, each with a quarter of its tokens, at least {BUDGET_MIN}", runs.len());
        tables.push((title, rows(&runs)?));
        let title = format!("{name}: one after another, {} tokens in a quarter of them", joined.tokens());
        tables.push((title, rows(&[joined])?));
    }
    for (title, rows) in tables {
        say(title);
        say(
            "                    calls  steps  same prefix  billed tokens  used words in view  or a handle  facts in view  or a handle",
        );
        rows.iter().for_each(say);
    }
    Ok(())
}

/// A line for each way: sums over all calls, and what a run is billed on average.
fn rows(runs: &[Run]) -> anyhow::Result<Vec<String>> {
    let mut rows = Vec::new();
    for (name, way) in WAYS {
        let mut sum = Figures::default();
        for run in runs {
            let budget = (run.tokens() / 4).max(BUDGET_MIN);
            sum.add(&replay(run, way, budget)?);
        }
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        rows.push(format!(
            "  {name:<16} {:>6} {:>6} {:>12.3} {:>14.0} {:>19.3} {:>12.3} {:>14.3} {:>12.3}",
            sum.calls,
            sum.steps,
            share(sum.same, sum.followed),
            sum.billed / runs.len() as f64,
            share(sum.words.in_view, sum.words.all),
            share(sum.words.at_hand, sum.words.all),
            share(sum.facts.in_view, sum.facts.all),
            share(sum.facts.at_hand, sum.facts.all),
        ));
    }
    Ok(rows)
}
