use waystone_testkit::fault::corrupt;
use waystone_testkit::fault::errno::{self, Scenario};
use waystone_testkit::fault::kill::{self, Plan, Report, make_private};
use waystone_testkit::fault::power::{self, Disk};
use waystone_testkit::harness::private_dir;
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
    assert_eq!((report.lost, report.torn), (vec![], vec![]));
}

#[test]
fn a_store_that_acknowledges_before_its_commit_is_caught() {
    let report = check("waystone-eager", 12, kill::run);
    assert!(!report.lost.is_empty(), "the kill test did not notice");
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

fn assert_healed(report: &corrupt::Report, cases_min: usize) {
    assert!(report.cases >= cases_min, "{} cases", report.cases);
    assert_eq!((&report.unnoticed[..], &report.unhealed[..]), (&[][..], &[][..]));
}

#[tokio::test]
async fn every_byte_of_a_file_that_is_damaged_is_noticed_and_healed() {
    assert_healed(&corrupt::mirrors(1000, 4).await, 700);
    assert_healed(&corrupt::swapped().await, 20);
}

#[tokio::test]
async fn a_row_that_is_damaged_is_noticed_and_healed() {
    assert_healed(&corrupt::rows(2).await, 22);
}

#[tokio::test]
async fn a_database_that_is_gone_or_garbled_is_brought_back() {
    assert_healed(&corrupt::databases(40).await, 40);
}

/// Lets calls fail with one error, every `step`-th of each kind or of one. The long form is `cargo xtask faults errno`.
fn check_calls(program: &str, step: usize, scenarios: &[Scenario], kind: Option<&str>) -> errno::Report {
    let directory = private_dir();
    let report = errno::run(&errno::Plan {
        binary: binary(program),
        folder: directory.path().to_owned(),
        first: 1,
        step,
        scenarios: scenarios.to_vec(),
        kind: kind.map(str::to_owned),
        error: Some("EIO".to_owned()),
    })
    .unwrap();
    assert!(report.injected.values().sum::<u32>() > 0, "nothing failed");
    report
}

#[test]
fn acknowledged_checkpoints_and_deletions_survive_calls_that_fail() {
    let report = check_calls("waystone", 23, &Scenario::ALL, None);
    assert_eq!(report.problems(), Vec::<&String>::new());
}

/// What SQLite cannot open for writing it opens for reading: then every save of the process failed.
#[test]
fn a_file_that_could_not_be_opened_once_stops_no_later_save() {
    let report = check_calls("waystone", 1, &[Scenario::Save], Some("open"));
    assert_eq!(report.problems(), Vec::<&String>::new());
}

#[test]
fn a_store_that_acknowledges_saves_that_failed_is_caught() {
    let report = check_calls("waystone-blind", 23, &[Scenario::Save], Some("write"));
    assert!(!report.lost.is_empty(), "the run did not notice");
}
