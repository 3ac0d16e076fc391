//! Quick forms of the faults in `testkit/src/fault/`, on the binary: killed, with a failing or damaged disk, nothing acknowledged is lost.

use waystone_testkit::fault::corrupt;
use waystone_testkit::fault::errno::{self, Scenario};
use waystone_testkit::fault::kill::{self, Plan, Report};
use waystone_testkit::fault::power::{self, Disk};
use waystone_testkit::fault::{import, key, readers, repair, segment, tool_call, turn};
use waystone_testkit::harness::{make_private, private_dir};
use waystone_testkit::process::binary;

/// Runs `fault` on a fresh directory. The long forms are `cargo xtask faults`.
fn check(program: &str, kills: u32, fault: impl Fn(&Plan) -> std::io::Result<Report>) -> Report {
    let directory = private_dir();
    let data_dir = directory.path().join("data");
    make_private(&data_dir).unwrap();
    let plan = Plan { binary: binary(program), data_dir, kills, writers: 4, seed: 3, preload: Vec::new() };
    let report = fault(&plan).unwrap();
    assert_eq!(report.kills, kills);
    assert!(report.acknowledged > 0, "nothing was acknowledged");
    report
}

#[test]
fn acknowledged_checkpoints_survive_kill_9() {
    let report = check("waystone", 40, kill::run);
    assert!(report.kills_at_end > 0, "no kill met a process that was writing its mirror files");
    assert!(report.rounds_of_house > 0);
    assert_eq!((report.lost, report.torn), (vec![], vec![]));
}

#[test]
fn a_store_that_acknowledges_before_its_commit_is_caught() {
    let report = check("waystone-eager", 12, kill::run);
    assert!(!report.lost.is_empty(), "the kill test did not notice");
}

/// The long form is `cargo xtask faults segment`.
fn kill_in_segments(program: &str, kills: u32) -> segment::Report {
    let directory = private_dir();
    let data_dir = directory.path().to_owned();
    let plan = Plan { binary: binary(program), data_dir, kills, writers: 4, seed: 5, preload: Vec::new() };
    let report = segment::run(&plan).unwrap();
    assert_eq!(report.kills, kills);
    assert!(report.acknowledged > 0, "nothing was acknowledged");
    report
}

#[test]
fn what_is_done_to_segments_survives_kill_9_in_whole_or_not_at_all() {
    let report = kill_in_segments("waystone", 20);
    assert!(report.kills_at_call > 0, "no kill met a process before a call to the disk");
    assert_eq!((report.lost, report.half_applied), (vec![], vec![]));
}

#[test]
fn a_store_that_acknowledges_segments_before_its_commit_is_caught() {
    let report = kill_in_segments("waystone-eager", 8);
    assert!(!report.lost.is_empty(), "the kill test did not notice");
}

/// The long form is `cargo xtask faults turn`.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_server_is_killed_is_ended_by_the_next_and_readers_miss_nothing() {
    let directory = private_dir();
    let report = turn::run(&turn::plan(binary("waystone"), directory.path(), 2, 7)).await.unwrap();
    assert_eq!(report.wrong, Vec::<String>::new());
    assert!(report.cut >= 8, "only {} turns were under way", report.cut);
}

/// The long form is `cargo xtask faults tool`.
#[tokio::test(flavor = "multi_thread")]
async fn no_tool_runs_twice_however_its_server_is_killed() {
    let directory = private_dir();
    let (binary, witness, data_dir) = (binary("waystone"), binary("waystone-witness"), directory.path().to_owned());
    let report = tool_call::run(&tool_call::Plan { binary, witness, data_dir, kills: 2, seed: 5 }).await.unwrap();
    assert_eq!(report.wrong, Vec::<String>::new());
    assert!(report.cut >= 12 && report.survived > 0, "{report:?}");
}

/// The long form is `cargo xtask faults readers`.
#[tokio::test(flavor = "multi_thread")]
async fn many_readers_of_a_conversation_that_come_and_go_miss_nothing() {
    let directory = private_dir();
    let data_dir = directory.path().to_owned();
    let plan = readers::Plan { binary: binary("waystone"), data_dir, readers: 150, seconds: 3, seed: 3 };
    let report = readers::run(&plan).await.unwrap();
    assert_eq!(report.wrong, Vec::<String>::new());
    assert!(report.reconnects > 0, "no one came back");
}

#[test]
fn acknowledged_checkpoints_survive_a_power_cut() {
    let report = check("waystone", 10, |plan| power::run(plan, Disk::Honest));
    assert_eq!((report.lost, report.torn), (vec![], vec![]));
}

#[test]
fn a_disk_that_ignores_fsync_is_caught() {
    let report = check("waystone", 3, |plan| power::run(plan, Disk::IgnoresSync));
    assert!(!report.lost.is_empty(), "the power test did not notice");
}

#[test]
fn what_is_in_files_is_there_after_a_power_cut_that_takes_the_database_too() {
    let directory = private_dir();
    let wrong = power::lose_database(&binary("waystone"), directory.path()).unwrap();
    assert_eq!(wrong, Vec::<String>::new());
}

fn assert_healed(report: &corrupt::Report, cases_min: usize) {
    assert!(report.cases >= cases_min, "{} cases", report.cases);
    assert_eq!((&report.unnoticed[..], &report.unhealed[..]), (&[][..], &[][..]));
}

#[tokio::test]
async fn every_byte_of_a_file_that_is_damaged_is_noticed_and_healed() {
    assert_healed(&corrupt::mirrors(1000, 4, (0, 1)).await, 700);
    assert_healed(&corrupt::swapped().await, 20);
}

#[tokio::test]
async fn a_row_that_is_damaged_is_noticed_and_healed() {
    assert_healed(&corrupt::rows(2).await, 22);
}

#[tokio::test]
async fn a_database_that_is_gone_or_garbled_is_brought_back() {
    assert_healed(&corrupt::databases(40, |_| {}).await, 40);
}

/// Lets calls fail, every `step`-th of each kind or of one. The long form is `cargo xtask faults errno`.
fn check_calls(program: &str, change: impl FnOnce(&mut errno::Plan)) -> errno::Report {
    let directory = private_dir();
    let mut plan = errno::Plan {
        binary: binary(program),
        folder: directory.path().to_owned(),
        first: 1,
        step: 23,
        scenarios: vec![Scenario::Save],
        kind: None,
        error: Some("EIO".to_owned()),
    };
    change(&mut plan);
    let report = errno::run(&plan, |_| ()).unwrap();
    assert!(report.injected.values().sum::<u32>() > 0, "nothing failed");
    report
}

#[test]
fn acknowledged_checkpoints_and_deletions_survive_calls_that_fail() {
    let report = check_calls("waystone", |plan| plan.scenarios = Scenario::ALL.to_vec());
    assert_eq!(report.problems(), Vec::<&String>::new());
}

#[test]
fn a_disk_that_is_full_for_a_moment_stops_no_save_and_a_short_write_is_made_good() {
    let full = check_calls("waystone", |plan| {
        (plan.first, plan.step, plan.error) = (5, 70, Some("ENOSPC".to_owned()));
    });
    assert_eq!(full.problems(), Vec::<&String>::new());
    assert!(
        !full.answers.contains_key("STORAGE_UNAVAILABLE, full"),
        "room is made, and it is tried again: {:?}",
        full.answers
    );
    let short = check_calls("waystone", |plan| {
        (plan.first, plan.step, plan.error) = (3, 40, Some("short".to_owned()));
    });
    assert_eq!(short.problems(), Vec::<&String>::new());
}

/// What SQLite cannot open for writing it opens for reading: then every save of the process failed.
#[test]
fn a_file_that_could_not_be_opened_once_stops_no_later_save() {
    let report = check_calls("waystone", |plan| (plan.step, plan.kind) = (1, Some("open".to_owned())));
    assert_eq!(report.problems(), Vec::<&String>::new());
}

#[test]
fn a_store_that_acknowledges_saves_that_failed_is_caught() {
    let report = check_calls("waystone-blind", |plan| plan.kind = Some("write".to_owned()));
    assert!(!report.lost.is_empty(), "the run did not notice");
}

/// The long form is `cargo xtask faults repair`.
#[tokio::test]
async fn a_repair_that_is_killed_before_any_of_its_calls_is_ended_by_the_next() {
    let calls = vec![("rename", 1, 1), ("fsync", 2, 20)];
    let report = repair::run(&repair::Plan { binary: binary("waystone"), calls }).await.unwrap();
    assert_eq!(report.wrong, Vec::<String>::new());
    assert!(report.kills > 10, "{} kills", report.kills);
}

/// The long form is `cargo xtask faults key`.
#[test]
fn a_change_of_the_key_that_is_killed_before_any_of_its_calls_is_ended_by_the_next() {
    let calls = vec![("rename", 1, 1), ("unlink", 1, 5), ("fsync", 2, 20)];
    let report = key::run(&repair::Plan { binary: binary("waystone"), calls }).unwrap();
    assert_eq!(report.wrong, Vec::<String>::new());
    assert!(report.kills > 10, "{} kills", report.kills);
}

/// The long form is `cargo xtask faults import`.
#[tokio::test]
async fn an_import_that_is_killed_before_any_of_its_calls_is_there_in_whole_or_not_at_all() {
    let report = import::kill::run(&import::kill::Plan { binary: binary("waystone"), step: 7 }).await.unwrap();
    assert_eq!(report.wrong, Vec::<String>::new());
    assert!(report.kills > 10, "{} kills", report.kills);
}
