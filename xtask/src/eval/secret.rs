//! Planted secrets that are found, and ordinary source code in which something is found that is none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};
use waystone_core::secret::{Policy, Secrets};
use waystone_testkit::secrets::{Planted, near_misses, personal, planted};

use crate::{root, say};

const SEED: u64 = 20261116;

/// Found, of how many, and the places where one was missed.
type Found<'a> = BTreeMap<&'a str, (usize, usize, BTreeMap<&'a str, usize>)>;

pub(super) fn run(folders: &[PathBuf]) -> anyhow::Result<()> {
    let secrets = Secrets::new(Policy::Redact, Policy::Off, Vec::new());
    tell("secrets", &secrets, &planted(SEED));
    tell("personal data", &Secrets::new(Policy::Off, Policy::Redact, Vec::new()), &personal(SEED));
    let near = near_misses(SEED);
    let fired: Vec<&str> =
        near.iter().filter(|(_, text)| !secrets.find(text).is_empty()).map(|(what, _)| *what).collect();
    say(format_args!("near misses: {} of {} found, goal 0 {fired:?}", fired.len(), near.len()));
    alarms("this repository", &secrets, root(), &tracked()?)?;
    for folder in folders {
        let files = files_of(folder)?;
        alarms(&folder.display().to_string(), &secrets, folder, &files)?;
    }
    Ok(())
}

fn tell(what: &str, secrets: &Secrets, planted: &[Planted]) {
    let mut by_rule = Found::new();
    for one in planted {
        let mut value = one.value.clone();
        secrets.shown().map(|cover| cover.value(&mut value)).unwrap_or_default();
        let entry = by_rule.entry(one.rule).or_default();
        entry.1 += 1;
        match one.is_in(&value) {
            true => *entry.2.entry(one.shape).or_default() += 1,
            false => entry.0 += 1,
        }
    }
    for (rule, (found, all, missed)) in &by_rule {
        let missed = if missed.is_empty() { String::new() } else { format!("  missed: {missed:?}") };
        say(format_args!("{rule:20} {found:4} of {all:4}{missed}"));
    }
    let (found, all) = by_rule.values().fold((0, 0), |sum, entry| (sum.0 + entry.0, sum.1 + entry.1));
    let share = 100.0 * found as f64 / all as f64;
    say(format_args!("{what}: {found} of {all} found, {share:.1} %, goal 95"));
}

fn alarms(what: &str, secrets: &Secrets, folder: &Path, files: &[PathBuf]) -> anyhow::Result<()> {
    let (mut bytes, mut by_rule, mut seconds) = (0, BTreeMap::<String, Vec<String>>::new(), 0.0);
    for path in files {
        let Ok(text) = fs::read_to_string(folder.join(path)) else { continue };
        bytes += text.len();
        let started = Instant::now();
        let found = secrets.find(&text);
        seconds += started.elapsed().as_secs_f64();
        for (rule, range) in found {
            let line = text[..range.start].matches('\n').count() + 1;
            by_rule.entry(rule.to_owned()).or_default().push(format!("{}:{line}", path.display()));
        }
    }
    ensure!(bytes > 0, "{} has no text", folder.display());
    for (rule, places) in &by_rule {
        say(format_args!("{rule:20} {:4}  {}", places.len(), places[..places.len().min(5)].join(" ")));
    }
    let count: usize = by_rule.values().map(Vec::len).sum();
    let share = count as f64 * 100_000.0 / bytes as f64;
    let speed = bytes as f64 / 1e6 / seconds;
    let (files, kilobytes) = (files.len(), bytes / 1000);
    say(format_args!(
        "{what}: {count} alarms in {kilobytes} KB of {files} files, {share:.3} in 100 KB, goal 1; {speed:.0} MB/s"
    ));
    Ok(())
}

/// The files that git knows.
fn tracked() -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("git").arg("ls-files").current_dir(root()).output().context("git")?;
    Ok(String::from_utf8(listed.stdout)?.lines().map(PathBuf::from).collect())
}

/// Source code below a folder.
fn files_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    const ENDINGS: &[&str] = &[
        "rs", "py", "js", "ts", "tsx", "go", "java", "c", "h", "cpp", "rb", "toml", "json", "yml", "yaml", "md", "sh",
    ];
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("{} cannot be read", next.display()))? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
                files.push(path.strip_prefix(folder)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}
