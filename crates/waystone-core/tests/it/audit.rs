//! The log of operations as an audit: whatever is done to it shows, in the store and in an export.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use waystone_core::Result;
use waystone_core::api::{AuditChain, AuditHead, AuditRecord, Exact, ListAudit, VerifiedAudit};
use waystone_core::audit::{Walk, verify_file};
use waystone_core::clock::{Clock, Timestamp};
use waystone_store::Root;
use waystone_testkit::harness::{key, private_dir};
use waystone_testkit::{Harness, audit};

const NONE: [i64; 0] = [];

/// A log of at least so many records: saves, loads and prunes.
async fn log_of(records: u64) -> Harness {
    let mut h = Harness::new();
    for n in 0..records / 10 {
        h.clock.advance_ms(10);
        let saved = h.save("s", json!({ "n": n })).await;
        for _ in 0..9 {
            h.load(&saved.checkpoint_id).await;
        }
    }
    h.restart().await;
    h
}

async fn verify(h: &Harness, kept: Option<&AuditHead>) -> VerifiedAudit {
    h.engine.verify_audit(&h.scope, kept, |_, _| {}).await.unwrap()
}

/// The numbers of the first bad record of each chain.
async fn bad(h: &Harness) -> Vec<i64> {
    let verified = verify(h, None).await;
    assert_eq!(verified.sound, verified.broken.is_empty());
    verified.broken.iter().map(|broken| broken.seq).collect()
}

/// Changes the database behind the back of the store, with another one at hand in which to keep things.
fn change(h: &Harness, aside: &Path, sql: &str) {
    let file = aside.join("aside.db");
    std::fs::File::options().create(true).append(true).open(&file).unwrap();
    let attach = format!("ATTACH '{}' AS aside;", file.display());
    audit::open(h.data_dir()).execute_batch(&(attach + sql)).unwrap();
}

/// Chains, records and head of an export.
fn parse(export: &str) -> (Vec<AuditChain>, Vec<AuditRecord>, AuditHead) {
    let lines: Vec<&str> = export.lines().collect();
    let (top, end): (Value, Value) =
        (serde_json::from_str(lines[0]).unwrap(), serde_json::from_str(lines[lines.len() - 1]).unwrap());
    let records = lines[1..lines.len() - 1].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let chains = serde_json::from_value(top["chains"].clone()).unwrap();
    (chains, records, serde_json::from_value(end["head"].clone()).unwrap())
}

/// The record with one byte changed in each place that its hash covers, and in the hash itself.
fn flipped(record: &AuditRecord) -> Vec<AuditRecord> {
    let flip = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] = if bytes[middle] == b'0' { b'1' } else { b'0' };
        String::from_utf8(bytes).unwrap()
    };
    let payload = record.payload.as_ref().unwrap();
    vec![
        AuditRecord { seq: record.seq ^ 1 << 20, ..record.clone() },
        AuditRecord { at: Timestamp::from_ms(record.at.ms() ^ 1), ..record.clone() },
        AuditRecord { actor: flip(&record.actor), ..record.clone() },
        AuditRecord { kind: flip(&record.kind), ..record.clone() },
        AuditRecord { subject: Exact(flip(&record.subject.0)), ..record.clone() },
        AuditRecord { payload: Some(Exact(flip(&payload.0))), ..record.clone() },
        AuditRecord { payload_hash: flip(&record.payload_hash), ..record.clone() },
        AuditRecord { hash: flip(&record.hash), ..record.clone() },
    ]
}

#[tokio::test]
async fn every_record_that_is_flipped_removed_swapped_or_inserted_is_named() {
    let h = log_of(1000).await;
    let (chains, records, head) = parse(&h.export_audit().await.unwrap());
    assert!(records.len() >= 1000, "{}", records.len());
    // The first bad record of a log that goes on after a walk in this way.
    let named = |walk: &Walk, rest: &[&AuditRecord]| {
        let mut walk = walk.clone();
        for record in rest {
            walk.step(record);
            if !walk.broken().is_empty() {
                break;
            }
        }
        walk.end(&head).broken.first().map(|broken| broken.seq)
    };
    let mut walk = Walk::new(chains);
    for (at, record) in records.iter().enumerate() {
        let (seq, rest) = (Some(record.seq), records[at + 1..].iter().collect::<Vec<_>>());
        for changed in flipped(record) {
            assert_eq!(named(&walk, &[&[&changed][..], &rest].concat()), seq, "{changed:?}");
        }
        assert_eq!(named(&walk, &rest), seq, "{seq:?} was removed");
        if let Some(next) = rest.first() {
            assert_eq!(named(&walk, &[&[*next, record][..], &rest[1..]].concat()), seq, "{seq:?} was swapped");
        }
        let mut without = walk.clone();
        without.step(&AuditRecord { payload: None, ..record.clone() });
        walk.step(record);
        assert_eq!((without.last_seq(), without.broken()), (walk.last_seq(), &[][..]), "{seq:?} without its payload");
        let after = Some(record.seq + 1);
        assert_eq!(named(&walk, &[&[record][..], &rest].concat()), after, "{seq:?} stands twice");
        let inserted = AuditRecord { seq: record.seq + 1, ..record.clone() };
        assert_eq!(named(&walk, &[&[&inserted][..], &rest].concat()), after, "one was inserted after {seq:?}");
    }
    assert_eq!(walk.end(&head).broken, []);
}

#[tokio::test]
async fn what_is_done_to_rows_shows_and_what_is_erased_does_not_harm() {
    let h = log_of(60).await;
    let end = verify(&h, None).await.head.seq;
    let aside = private_dir();
    let sql = |sql: &str| change(&h, aside.path(), sql);
    assert_eq!(bad(&h).await, NONE);
    sql("UPDATE operation SET payload = NULL WHERE seq % 3 = 0");
    assert_eq!(bad(&h).await, NONE, "erased payloads leave their hashes");

    let check = async |change: &str, back: &str, seq: i64| {
        sql(change);
        assert_eq!(bad(&h).await, [seq], "{change}");
        let doctor = h.check_copies().await;
        let subjects: Vec<&str> = doctor.findings.iter().map(|finding| finding.subject.as_str()).collect();
        assert!(subjects.contains(&format!("operation {seq}").as_str()), "{change}: {subjects:?}");
        sql(back);
        assert_eq!(bad(&h).await, NONE, "{back}");
    };
    sql("CREATE TABLE aside.kept AS SELECT * FROM operation");
    let back = "DELETE FROM operation; INSERT INTO operation SELECT * FROM kept";
    for (change, seq) in [
        ("UPDATE operation SET actor = 'mallory' WHERE seq = 7", 7),
        ("UPDATE operation SET kind = CAST(x'ff' AS TEXT) WHERE seq = 8", 8),
        ("UPDATE operation SET hash = x'00' WHERE seq = 9", 9),
        ("UPDATE operation SET payload = 7 WHERE seq = 10", 10),
        ("UPDATE operation SET payload = payload || ' ' WHERE seq = 10", 10),
        ("DELETE FROM operation WHERE seq = 1", 1),
        ("DELETE FROM operation WHERE seq = 20", 20),
        ("UPDATE operation SET seq = 1000 WHERE seq = 20; UPDATE operation SET seq = 20 WHERE seq = 21;
          UPDATE operation SET seq = 21 WHERE seq = 1000", 20),
        ("UPDATE operation SET seq = -seq WHERE seq >= 30; UPDATE operation SET seq = 1 - seq WHERE seq < 0;
          INSERT INTO operation SELECT space, 30, at_ms, actor, kind, project, subject, payload, payload_hash, hash, undoes, undone
          FROM operation WHERE seq = 29", 30),
    ] {
        check(change, back, seq).await;
    }
    check(&format!("DELETE FROM operation WHERE seq = {end}"), back, end).await;
    let last = verify(&h, None).await.head;
    // Whoever cuts the end off and says so in the log leaves no sign there.
    sql(&format!(
        "DELETE FROM operation WHERE seq > {end} - 5;
         UPDATE space SET operation_seq = {end} - 5, operation_hash = (SELECT hash FROM operation WHERE seq = {end} - 5)"
    ));
    assert_eq!(bad(&h).await, NONE);
    let cut = verify(&h, Some(&last)).await;
    assert_eq!((cut.sound, cut.broken[0].seq), (false, end), "{cut:?}");
    let rewritten = AuditHead { seq: 3, hash: last.hash };
    assert_eq!(verify(&h, Some(&rewritten)).await.broken[0].seq, 3);
}

#[tokio::test]
async fn a_repair_or_restore_opens_another_chain_that_says_after_which_record() {
    let mut h = log_of(20).await;
    let backup = h.engine.back_up(&h.scope, None).await.unwrap().path;
    h.save("s", json!({ "since": "the backup" })).await;
    let lost = verify(&h, None).await.head;
    h.close_mirrored().await;
    let clock: Arc<dyn Clock> = h.clock.clone();
    waystone_store::restore_from(
        Root { path: h.data_dir(), key: key().as_ref(), seals: key().is_some() },
        backup.as_ref(),
        &clock,
        &mut |_, _| {},
    )
    .unwrap();
    h.restart().await;
    let verified = verify(&h, None).await;
    assert_eq!((verified.chains, verified.sound), (2, true), "{verified:?}");
    assert!(verified.head.seq > lost.seq, "numbers are not used again");
    let against = verify(&h, Some(&lost)).await;
    assert_eq!(against.broken[0].seq, lost.seq, "what came after the backup is gone, and that shows");

    let aside = private_dir();
    let sql = |sql: &str| change(&h, aside.path(), sql);
    let last: i64 = audit::open(h.data_dir())
        .query_row("SELECT max(seq) FROM operation WHERE seq < (SELECT max(first_seq) FROM chain)", [], |row| {
            row.get(0)
        })
        .unwrap();
    sql("CREATE TABLE aside.kept AS SELECT * FROM operation");
    sql(&format!("DELETE FROM operation WHERE seq = {last}"));
    assert_eq!(bad(&h).await, [last], "the last record of a chain that ended");
    sql(
        "DELETE FROM operation; INSERT INTO operation SELECT * FROM kept; UPDATE operation SET actor = 'mallory' WHERE seq = 3",
    );
    assert_eq!(bad(&h).await, [3], "an earlier chain");
    assert_eq!(h.findings().await, [], "the doctor looks at the newest chain");
    sql("UPDATE operation SET actor = 'mallory'");
    assert_eq!(bad(&h).await.len(), 2, "the first of each chain");
}

#[tokio::test]
async fn an_export_verifies_elsewhere_and_shows_what_was_done_to_it() {
    let h = log_of(50).await;
    let export = h.export_audit().await.unwrap();
    let check = |text: &str| -> Result<VerifiedAudit> { verify_file(text.as_bytes(), None, |_| {}) };
    assert_eq!(check(&export).unwrap(), verify(&h, None).await);
    let lines: Vec<&str> = export.split_inclusive('\n').collect();
    let first = |lines: &[&str]| check(&lines.concat()).unwrap().broken.first().map(|broken| broken.seq);
    for at in 1..lines.len() - 1 {
        let seq = Some(at as i64);
        assert_eq!(first(&[&lines[..at], &lines[at + 1..]].concat()), seq, "removed");
        let twice = first(&[&lines[..=at], &lines[at..]].concat());
        assert_eq!(twice, seq.map(|seq| seq + 1), "stands twice");
        let changed = lines[at].replace("tester", "taster");
        assert_eq!(first(&[&lines[..at], &[changed.as_str()], &lines[at + 1..]].concat()), seq, "changed");
    }
    for (text, why) in [
        (lines[..lines.len() - 1].concat(), "ends before"),
        (lines.concat() + lines[1], "goes on after"),
        (lines[1..].concat(), "line 1"),
        (String::new(), "empty"),
        (lines[0].to_owned() + "{}\n", "line 2"),
    ] {
        let refused = check(&text).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let kept = verify(&h, None).await.head;
    let wrong = AuditHead { seq: kept.seq, hash: "00".repeat(32) };
    assert!(verify_file(export.as_bytes(), Some(&kept), |_| {}).unwrap().sound);
    assert_eq!(verify_file(export.as_bytes(), Some(&wrong), |_| {}).unwrap().broken[0].seq, kept.seq);
}

#[tokio::test]
async fn records_are_listed_by_who_what_when_and_about_which_session() {
    let h = Harness::new();
    for n in 0..5 {
        h.clock.advance_ms(1000);
        h.save(&format!("s{}", n % 2), json!({ "n": n })).await;
    }
    let list = async |request: Value| {
        let request: ListAudit = serde_json::from_value(request).unwrap();
        h.engine.list_audit(&h.scope, request).await.unwrap()
    };
    let seqs = async |request: Value| list(request).await.records.iter().map(|record| record.seq).collect::<Vec<_>>();
    let all = list(json!({})).await.records;
    assert_eq!(all.iter().map(|record| record.seq).collect::<Vec<_>>(), [5, 4, 3, 2, 1]);
    assert_eq!(seqs(json!({ "sessionId": "s1" })).await, [4, 2]);
    assert_eq!(seqs(json!({ "sessionId": "s" })).await, NONE, "an id is not found in a longer one");
    assert_eq!(seqs(json!({ "actor": "tester", "kind": "checkpoint.saved", "until": all[1].at })).await, [3, 2, 1]);
    assert_eq!(seqs(json!({ "since": all[1].at })).await, [5, 4]);
    assert_eq!(seqs(json!({ "actor": "someone else" })).await, NONE);
    let first = list(json!({ "limit": 2, "sessionId": "s0" })).await;
    let cursor = first.next_cursor.unwrap();
    assert_eq!(first.records.iter().map(|record| record.seq).collect::<Vec<_>>(), [5, 3]);
    assert_eq!(seqs(json!({ "limit": 2, "sessionId": "s0", "cursor": cursor })).await, [1]);
    for wrong in [json!({ "limit": 0 }), json!({ "limit": 1001 }), json!({ "kind": "k".repeat(129) })] {
        let request: ListAudit = serde_json::from_value(wrong.clone()).unwrap();
        assert_eq!(h.engine.list_audit(&h.scope, request).await.unwrap_err().code(), "INVALID_INPUT", "{wrong}");
    }
}
