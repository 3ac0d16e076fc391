use super::*;
use crate::api::{Hit, Origin, Session};
use crate::canon::Hash;

const NOW_MS: i64 = 1_700_000_000_000;
const HOUR_MS: i64 = 60 * 60 * 1000;
const COMMIT_HERE: &str = "0123456789abcdef0123456789abcdef01234567";

/// A session of the own project, used some hours ago, that began like no other.
fn session(id: &str, hours_ago: i64) -> Resumable {
    Resumable {
        session: Session {
            id: id.parse().unwrap(),
            project_id: "own".parse().unwrap(),
            name: None,
            created_at: Timestamp::from_ms(0),
            last_accessed_at: Timestamp::from_ms(NOW_MS - hours_ago * HOUR_MS),
            tags: Vec::new(),
            origin: Origin::Agent,
            conversation: false,
            workflow_id: None,
            total_size_bytes: 1,
            checkpoint_count: 1,
            critical_keys: Vec::new(),
            context_rules: Vec::new(),
            warnings: Vec::new(),
        },
        accessed_seq: 1_000_000 - hours_ago,
        correlation: Hash::of(id.as_bytes()),
        newest: "c".parse().unwrap(),
        newest_origin: Origin::Agent,
        newest_name: None,
        newest_bytes: 1,
        git: None,
        is_named: false,
        hit: None,
    }
}

fn on(branch: &str, head: &str, one: Resumable) -> Resumable {
    Resumable { git: Git::new(Some(branch.to_owned()), Some(head.to_owned())), ..one }
}

fn hit(why: &'static str, score: f64, one: Resumable) -> Resumable {
    Resumable { hit: Some(Hit { score, why, snippet: String::new(), line: None, age: String::new() }), ..one }
}

fn elsewhere(mut one: Resumable) -> Resumable {
    one.session.project_id = "other".parse().unwrap();
    one
}

fn of_workflow(mut one: Resumable) -> Resumable {
    one.session.workflow_id = Some("deploy".parse().unwrap());
    one
}

fn begun_like(other: &str, one: Resumable) -> Resumable {
    Resumable { correlation: Hash::of(other.as_bytes()), ..one }
}

/// Asks from the branch `feat/x`, with or without words and a workflow.
fn ask(found: Vec<Resumable>, query: Option<&str>, workflow: Option<&str>) -> (Vec<Ranked>, bool) {
    let (project, workflow) = ("own".parse().unwrap(), workflow.map(|id| id.parse().unwrap()));
    let git = Git::new(Some("feat/x".to_owned()), Some(COMMIT_HERE.to_owned()));
    let (workflow, git, now) = (workflow.as_ref(), git.as_ref(), Timestamp::from_ms(NOW_MS));
    let asked = Asked { project: &project, workflow, query, git, now };
    let ranked = rank(found, &asked);
    let is_clear = is_clear(&ranked, &asked);
    (ranked, is_clear)
}

#[test]
fn each_sign_moves_a_session_before_those_without_it() {
    let other = "fedcba9876543210fedcba9876543210fedcba98";
    let check = |found: Vec<Resumable>, query: Option<&str>, workflow: Option<&str>, order: &[&str], clear: bool| {
        // In whatever order they come.
        for turned in [false, true] {
            let mut found = found.clone();
            if turned {
                found.reverse();
            }
            let (ranked, is_clear) = ask(found, query, workflow);
            let ids: Vec<&str> = ranked.iter().map(|one| one.found.session.id.as_str()).collect();
            assert_eq!((&ids[..], is_clear), (order, clear), "{query:?} {workflow:?}");
        }
    };
    let (words, flow) = (Some("auth token"), Some("deploy"));
    check(vec![], None, None, &[], false);
    check(vec![session("a", 900)], None, None, &["a"], true);
    check(vec![session("a", 900)], words, None, &["a"], false);
    check(vec![session("a", 2), session("b", 1)], None, None, &["b", "a"], false);
    check(vec![session("a", 0), session("b", 9000)], None, None, &["a", "b"], false);
    check(vec![session("a", 1), on("feat/x", other, session("b", 90))], None, None, &["b", "a"], true);
    check(
        vec![on("feat/x", other, session("a", 1)), on("main", COMMIT_HERE, session("b", 2))],
        None,
        None,
        &["b", "a"],
        false,
    );
    let (here, newer) = (on("feat/x", COMMIT_HERE, session("b", 30)), on("feat/x", COMMIT_HERE, session("c", 3)));
    check(vec![session("a", 1), here.clone(), newer], None, None, &["c", "b", "a"], false);
    check(vec![here.clone(), hit("words", 0.8, session("w", 90))], words, None, &["w", "b"], true);
    check(vec![here.clone(), hit("meaning", 0.2, session("m", 90))], words, None, &["b", "m"], false);
    let both = vec![hit("words and meaning", 1.0, session("w", 90)), hit("words", 0.9, session("v", 1))];
    check(both, words, None, &["v", "w"], false);
    check(vec![here.clone(), of_workflow(session("f", 90))], None, flow, &["f", "b"], true);
    check(vec![here.clone(), Resumable { is_named: true, ..session("n", 90) }], words, None, &["n", "b"], true);
    check(vec![here.clone(), elsewhere(session("e", 0))], None, None, &["b"], true);
    check(vec![here.clone(), elsewhere(hit("meaning", 0.2, session("e", 0)))], words, None, &["b"], false);
    let outside = elsewhere(hit("words", 1.0, session("e", 0)));
    check(vec![here.clone(), outside.clone()], words, None, &["e", "b"], true);
    check(vec![outside, hit("words", 0.1, session("w", 90))], words, None, &["w", "e"], false);
    let foreign = elsewhere(of_workflow(on("feat/x", COMMIT_HERE, session("e", 0))));
    check(vec![foreign.clone()], None, flow, &["e"], false);
    check(vec![foreign, of_workflow(session("f", 90))], None, flow, &["f", "e"], false);
}

#[test]
fn what_speaks_for_a_session_is_said() {
    let (ranked, _) = ask(
        vec![
            of_workflow(on("feat/x", COMMIT_HERE, hit("words", 1.0, session("a", 2)))),
            elsewhere(hit("words", 0.5, session("b", 72))),
        ],
        Some("auth\u{1b} token"),
        Some("deploy"),
    );
    let first = [
        "workflow `deploy`",
        "matches `auth  token`",
        "same git commit `0123456789ab`",
        "same git branch `feat/x`",
        "last used 2 h ago",
    ];
    assert_eq!(ranked[0].why, first);
    assert_eq!(ranked[1].why, ["matches `auth  token`", "in another project, `other`", "last used 3 days ago"]);
    let (ranked, _) = ask(vec![hit("meaning", 0.2, session("a", 0))], Some(&"é".repeat(100)), None);
    assert_eq!(ranked[0].why[0], format!("is close in meaning to `{}…`", "é".repeat(60)));
}

#[test]
fn of_sessions_that_began_alike_the_newest_stands_for_all() {
    let runs = vec![
        on("feat/x", COMMIT_HERE, begun_like("a", session("a", 90))),
        begun_like("a", session("b", 9)),
        begun_like("a", session("c", 30)),
        elsewhere(begun_like("a", session("e", 1))),
        session("d", 1),
    ];
    let shown = |ranked: &[Ranked]| -> Vec<(String, Vec<String>)> {
        let alike = |one: &Ranked| one.started_alike.iter().map(ToString::to_string).collect();
        ranked.iter().map(|one| (one.found.session.id.to_string(), alike(one))).collect()
    };
    let group = |id: &str, alike: &[&str]| (id.to_owned(), alike.iter().map(ToString::to_string).collect::<Vec<_>>());
    let (ranked, is_clear) = ask(runs.clone(), None, None);
    assert_eq!(shown(&ranked), [group("b", &["c", "a"]), group("d", &[])]);
    assert!(is_clear, "runs of the same work do not compete with each other");
    let asked = runs.into_iter().map(|one| match one.session.id.as_str() {
        "c" => hit("words", 0.5, one),
        "e" => hit("words", 1.0, one),
        _ => one,
    });
    let (ranked, _) = ask(asked.collect(), Some("auth"), None);
    assert_eq!(shown(&ranked), [group("c", &["b", "a"]), group("e", &[]), group("d", &[])]);
}

#[test]
fn of_sessions_that_began_alike_one_on_another_branch_stands_for_none_on_this() {
    let runs = vec![
        on("feat/x", "f00d", begun_like("a", session("here", 90))),
        on("main", "f00d", begun_like("a", session("there", 1))),
    ];
    let (ranked, _) = ask(runs, None, None);
    assert_eq!(ranked[0].found.session.id.as_str(), "here");
    assert_eq!(ranked[0].why[0], "same git branch `feat/x`");
}
