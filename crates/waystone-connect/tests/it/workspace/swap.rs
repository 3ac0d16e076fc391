//! Someone who puts links in the place of folders and files while tools work with them.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use super::{Place, contents};

const SECRET: &str = "canary-sings-7d41";
const SECRET_NAME: &str = "unspoken-name.txt";
/// Of calls and of swaps, at least; of calls not many more.
const ROUNDS: usize = 250;
const ROUNDS_MAX: usize = 2_000;

fn calls() -> [(&'static str, Value); 8] {
    [
        ("read_file", json!({ "path": "spot/canary.txt" })),
        ("read_file", json!({ "path": "file" })),
        ("list_files", json!({ "path": "spot" })),
        ("list_files", json!({ "glob": "**" })),
        ("search_files", json!({ "query": "canary-sings" })),
        ("search_files", json!({ "query": "canary-sings", "path": "spot" })),
        ("write_file", json!({ "path": "spot/canary.txt", "content": "written by a tool" })),
        ("write_file", json!({ "path": "spot/made/new.txt", "content": "written by a tool" })),
    ]
}

#[test]
fn folders_and_files_that_become_links_meanwhile_lead_to_nothing_outside() {
    let place = Place::with([("spot/canary.txt", "in here"), ("file", "in here")]);
    let outside = place.outer.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for name in ["canary.txt", SECRET_NAME] {
        fs::write(outside.join(name), SECRET).unwrap();
    }
    symlink(&outside, place.path("spot-link")).unwrap();
    symlink(outside.join("canary.txt"), place.path("file-link")).unwrap();
    let before = contents(&outside, Path::new(""));

    let (swaps, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let exchange = |one: &str, other: &str| {
        renameat_with(CWD, place.path(one), CWD, place.path(other), RenameFlags::EXCHANGE).unwrap();
        swaps.fetch_add(1, Ordering::Relaxed);
    };
    let said = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                exchange("spot", "spot-link");
                exchange("file", "file-link");
            }
        });
        let calling = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut said = Vec::new();
            for round in 0..ROUNDS_MAX {
                if round >= ROUNDS && swaps.load(Ordering::Relaxed) >= ROUNDS {
                    break;
                }
                for (tool, arguments) in calls() {
                    said.push((tool, runtime.block_on(place.call(tool, arguments)).0));
                }
            }
            said
        });
        let said = calling.join();
        is_over.store(true, Ordering::Relaxed);
        said.unwrap()
    });

    assert!(swaps.into_inner() >= ROUNDS && said.len() >= 8 * ROUNDS);
    for (tool, text) in said {
        assert!(!text.contains(SECRET) && !text.contains(SECRET_NAME), "{tool}: {text}");
    }
    assert_eq!(contents(&outside, Path::new("")), before);
}
