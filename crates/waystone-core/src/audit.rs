//! When the audit holds: what the hash of a record covers, and the one walk along all records that finds the first bad one of each chain.
//!
//! The walk is pure, so that the doctor, `audit verify` and the check of an exported file are the same code. Whoever can write to the
//! store can write a chain that holds; what such a one did shows against a head that was kept elsewhere.

mod file;

use std::borrow::Cow;
use std::collections::VecDeque;

use serde_json::Value;

use crate::api::{AuditChain, AuditHead, AuditRecord, BrokenRecord, VerifiedAudit};
use crate::canon::Hash;
use crate::clock::Timestamp;

pub use file::{head_line, record_line, top_line, verify_file};

/// The first part that the hash of a record covers: the form of the others.
const HASH_VERSION: &[u8] = &[1];

/// Kinds of the records that open another chain.
const OPENING: [&str; 2] = ["store.rebuilt", "store.restored"];
/// The field in which such a record names the one before it.
pub const CONTINUES: &str = "continues";

/// The hash of a record.
pub fn chain(
    previous: &[u8],
    seq: i64,
    at: Timestamp,
    actor: &str,
    kind: &str,
    subject: &str,
    payload_hash: &[u8],
) -> Hash {
    Hash::of_parts(&[
        HASH_VERSION,
        previous,
        &seq.to_be_bytes(),
        &at.ms().to_be_bytes(),
        actor.as_bytes(),
        kind.as_bytes(),
        subject.as_bytes(),
        payload_hash,
    ])
}

/// Whether a record has the hash that follows from the one before it. A payload that was erased leaves its hash.
fn follows(record: &AuditRecord, previous: &str) -> bool {
    let (Ok(previous), Ok(payload_hash)) = (hex::decode(previous), hex::decode(&record.payload_hash)) else {
        return false;
    };
    let AuditRecord { seq, at, actor, kind, subject, .. } = record;
    let is_payload = |payload: &str| Hash::of(payload.as_bytes()).0[..] == payload_hash[..];
    record.payload.as_ref().is_none_or(|payload| is_payload(&payload.0))
        && chain(&previous, *seq, *at, actor, kind, &subject.0, &payload_hash).to_string() == record.hash
}

/// A walk along records, from low numbers to high.
#[derive(Debug, Clone)]
pub struct Walk {
    /// Those that have not begun.
    chains: VecDeque<AuditChain>,
    chain_count: u64,
    /// The last good record, or where a chain begins.
    last: AuditHead,
    records: u64,
    /// Whether the next record is the first of a chain, and not of the first chain.
    opens: bool,
    /// Whether a bad record of this chain was met: those after it follow from nothing.
    is_broken: bool,
    broken: Vec<BrokenRecord>,
}

impl Walk {
    /// Along these chains, of which the first begins with the first record.
    pub fn new(mut chains: Vec<AuditChain>) -> Self {
        chains.sort_by_key(|chain| chain.first_seq);
        let (chain_count, mut chains) = (chains.len() as u64, VecDeque::from(chains));
        let last = match chains.pop_front() {
            Some(first) => AuditHead { seq: first.first_seq - 1, hash: first.genesis },
            None => AuditHead { seq: 0, hash: String::new() },
        };
        Self { chains, chain_count, last, records: 0, opens: false, is_broken: false, broken: Vec::new() }
    }

    /// Along the newest of these chains only: a repair has dealt with what came before.
    pub fn of_newest(chains: Vec<AuditChain>) -> Self {
        Self::new(chains.into_iter().max_by_key(|chain| chain.first_seq).into_iter().collect())
    }

    /// The number of the last good record, or of the last one before its chain.
    pub fn last_seq(&self) -> i64 {
        self.last.seq
    }

    /// How many records were looked at.
    pub fn records(&self) -> u64 {
        self.records
    }

    pub fn broken(&self) -> &[BrokenRecord] {
        &self.broken
    }

    fn refuse(&mut self, seq: i64, why: impl Into<Cow<'static, str>>) {
        if !std::mem::replace(&mut self.is_broken, true) {
            self.broken.push(BrokenRecord { seq, why: why.into() });
        }
    }

    /// Looks at the next record.
    pub fn step(&mut self, record: &AuditRecord) {
        self.records += 1;
        while let Some(next) = self.chains.pop_front_if(|next| next.first_seq <= record.seq) {
            self.enter(next, record);
        }
        let expected = self.last.seq + 1;
        match record.seq {
            seq if seq > expected => self.refuse(expected, format!("is missing; {seq} comes next")),
            seq if seq < expected => self.refuse(expected, format!("is missing; {seq} stands in its place")),
            seq if !follows(record, &self.last.hash) => {
                self.refuse(seq, "does not have the hash that it was written with");
            }
            seq if self.opens && !OPENING.contains(&record.kind.as_str()) => {
                self.refuse(seq, "begins another chain and tells of no repair or restore");
            }
            _ => {}
        }
        self.opens = false;
        if !self.is_broken {
            self.last = AuditHead { seq: record.seq, hash: record.hash.clone() };
        }
    }

    /// Leaves a chain for the next, which says after which record it begins.
    fn enter(&mut self, next: AuditChain, opening: &AuditRecord) {
        if let Some(before) = continues(opening).filter(|_| opening.seq == next.first_seq) {
            let bad = match before.seq {
                seq if seq > self.last.seq => self.last.seq + 1,
                seq if seq < self.last.seq => seq + 1,
                seq => seq,
            };
            if before != self.last {
                self.refuse(bad, format!("is not what was there when record {} was written", opening.seq));
            }
        }
        self.last = AuditHead { seq: next.first_seq - 1, hash: next.genesis };
        (self.opens, self.is_broken) = (true, false);
    }

    /// What was found, given the head that the log itself has.
    pub fn end(mut self, head: &AuditHead) -> VerifiedAudit {
        for unopened in std::mem::take(&mut self.chains) {
            self.last = AuditHead { seq: unopened.first_seq - 1, hash: unopened.genesis };
            (self.opens, self.is_broken) = (true, false);
        }
        if head.seq > self.last.seq {
            self.refuse(self.last.seq + 1, "is missing, the newest of the log");
        } else if head.seq < self.last.seq {
            self.refuse(head.seq + 1, "is more than the log says it has");
        } else if head.hash != self.last.hash {
            self.refuse(head.seq, "is not the one that the log says is its newest");
        }
        let sound = self.broken.is_empty();
        let (records, chains) = (self.records, self.chain_count);
        VerifiedAudit { records, chains, head: head.clone(), broken: self.broken, sound }
    }
}

/// The record that the first of a chain says was the last before it.
fn continues(opening: &AuditRecord) -> Option<AuditHead> {
    let payload: Value = serde_json::from_str(&opening.payload.as_ref()?.0).ok()?;
    serde_json::from_value(payload.get(CONTINUES)?.clone()).ok()
}

impl VerifiedAudit {
    /// The same, where a head that was kept elsewhere is not in the log: `found` is what its number has there.
    #[must_use]
    pub fn against(mut self, kept: &AuditHead, found: Option<&str>) -> Self {
        let why = match found {
            Some(hash) if hash == kept.hash => return self,
            // There was no record yet.
            None if kept.seq == 0 => return self,
            Some(_) => "is another one than that which was kept as the head: the log was rewritten",
            None => {
                "was kept as the head and is not in the log: its end was cut off, or the store restored from before"
            }
        };
        self.broken.push(BrokenRecord { seq: kept.seq, why: why.into() });
        self.broken.sort_by_key(|broken| broken.seq);
        self.sound = false;
        self
    }
}
