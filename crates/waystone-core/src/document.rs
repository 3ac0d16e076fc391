//! A document read one part at a time, whoever wrote it: no more of it is held than its largest part, and nothing in it is believed.
//!
//! The outermost object is taken apart here byte by byte, each part of it is parsed on its own. So how much memory a document takes is
//! bounded by what a part may have, and by how many there may be. What a part must be is in [`crate::api`], what becomes of it in
//! `engine/document.rs`.

use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;

use crate::api::{CheckpointRecord, ProjectRecord, SegmentRecord, SessionRecord, SnapshotRecord, TaskRecord};
use crate::error::{Error, IMPORTED, Result};
use crate::json::{self, DEPTH_MAX};

/// The newest version that is written and read.
pub const VERSION: u64 = 1;
pub const SESSION: &str = "waystone.session";
pub const PROJECT: &str = "waystone.project";

/// What stands around a context: the document, a list, and a checkpoint.
const DEPTH_AROUND: usize = 3;
/// What is only a name or a number has no more bytes.
const WORD_BYTES_MAX: u64 = 1024;
/// What is said of a session or project itself: marks and rules are the most of it.
const HEADER_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Of each list, so many items are read.
const CHECKPOINTS_MAX: usize = 100_000;
pub(crate) const SEGMENTS_MAX: usize = 200_000;
const TASKS_MAX: usize = 10_000;
const SNAPSHOTS_MAX: usize = 10_000;

/// What a document has besides its format and version, in this order: one of it, or a list of so many.
type Section = (&'static str, Option<usize>);
const SESSION_SECTIONS: &[Section] = &[("session", None), ("checkpoints", Some(CHECKPOINTS_MAX))];
const PROJECT_SECTIONS: &[Section] = &[
    ("project", None),
    ("tasks", Some(TASKS_MAX)),
    ("segments", Some(SEGMENTS_MAX)),
    ("snapshots", Some(SNAPSHOTS_MAX)),
];

/// They cannot be sorted here, as little of a document is held.
const ORDER: &str = "its parts are read one by one, in this order: format, version, then session, checkpoints, or project, tasks, segments, snapshots";
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// One part of a document.
#[derive(Debug)]
pub enum Part {
    Session(SessionRecord),
    Checkpoint {
        record: CheckpointRecord<'static>,
        /// Without white space.
        context: String,
    },
    Project(ProjectRecord),
    Task(TaskRecord),
    Segment(SegmentRecord),
    Snapshot(SnapshotRecord),
}

/// A document that is being read.
pub struct Reader<R> {
    source: BufReader<R>,
    bytes_read: u64,
    bytes_max: u64,
    part_bytes_max: u64,
    /// What is still to come; the first of them has begun if there is a count.
    sections: &'static [Section],
    items: Option<usize>,
    stage: Stage,
}

#[derive(PartialEq)]
enum Stage {
    Beginning,
    Sections,
    End,
}

impl<R: Read> Reader<R> {
    /// Reads up to `bytes_max` in all, and up to `part_bytes_max` of one part.
    pub fn new(source: R, bytes_max: u64, part_bytes_max: u64) -> Self {
        let source = BufReader::with_capacity(64 * 1024, source);
        let (sections, items, stage) = (&[][..], None, Stage::Beginning);
        Self { source, bytes_read: 0, bytes_max, part_bytes_max, sections, items, stage }
    }

    /// The next part; `None` after the last one, when the document has ended as it should.
    pub fn next_part(&mut self) -> Result<Option<Part>> {
        if self.stage == Stage::Beginning {
            self.read_beginning()?;
        }
        while let [(name, count_max), rest @ ..] = self.sections {
            let Some(count_max) = *count_max else {
                self.read_name(name, b',')?;
                self.sections = rest;
                let text = self.read_value(HEADER_BYTES_MAX)?;
                return parse(name, None, text).map(Some);
            };
            let at = match self.items {
                Some(items) => items,
                None => {
                    self.read_name(name, b',')?;
                    self.expect(b'[')?;
                    0
                }
            };
            let next = self.peek()?;
            if next == b']' {
                self.expect(b']')?;
                (self.sections, self.items) = (rest, None);
                continue;
            }
            if at > 0 {
                self.expect(b',')?;
            }
            if at == count_max {
                return Err(wrong(format!("it has more than {count_max} {name}")));
            }
            self.items = Some(at + 1);
            let text = self.read_value(self.part_bytes_max)?;
            return parse(name, Some(at), text).map(Some);
        }
        if self.stage != Stage::End {
            self.stage = Stage::End;
            self.expect(b'}')?;
            self.expect_nothing()?;
        }
        Ok(None)
    }

    /// Editors of some systems put it before a text.
    fn skip_byte_order_mark(&mut self) -> Result<()> {
        if self.fill()?.starts_with(BYTE_ORDER_MARK) {
            self.consume(BYTE_ORDER_MARK.len())?;
        }
        Ok(())
    }

    fn read_beginning(&mut self) -> Result<()> {
        self.skip_byte_order_mark()?;
        // Compressed with gzip or zstd: what it becomes is not known before it is.
        if let [0x1f, 0x8b, ..] | [0x28, 0xb5, ..] = self.fill()? {
            return Err(wrong("it is compressed; unpack it first"));
        }
        self.read_name("format", b'{')?;
        let format: String = self.read_word("format")?;
        self.sections = match format.as_str() {
            SESSION => SESSION_SECTIONS,
            PROJECT => PROJECT_SECTIONS,
            _ => return Err(wrong(format!("its format is `{format}`, not {SESSION} or {PROJECT}"))),
        };
        self.read_name("version", b',')?;
        self.stage = Stage::Sections;
        match self.read_word::<u64>("version")? {
            // An older version is read here, when there is one: its parts become those of the present one in `parse`.
            VERSION => Ok(()),
            0 => Err(wrong("its version is 0, which there never was")),
            newer => Err(wrong(format!(
                "its version is {newer}, this program reads up to {VERSION}; upgrade it to import the document"
            ))),
        }
    }

    fn read_word<T: for<'a> Deserialize<'a>>(&mut self, name: &str) -> Result<T> {
        let text = self.read_value(WORD_BYTES_MAX)?;
        serde_json::from_slice(&text).map_err(|error| wrong(format!("{name}: {error}")))
    }

    /// Reads `before`, and then the name of what must come next.
    fn read_name(&mut self, name: &str, before: u8) -> Result<()> {
        if before == b',' && self.peek()? == b'}' {
            return Err(wrong(format!("{name} is missing")));
        }
        self.expect(before)?;
        if self.peek()? != b'"' {
            return Err(wrong(format!("{name} is missing")));
        }
        let found = self.read_value(WORD_BYTES_MAX)?;
        let found: String = serde_json::from_slice(&found).map_err(|error| wrong(error.to_string()))?;
        if found != name {
            return Err(wrong(match name {
                // As a conversation does that was exported.
                "format" if found == "id" => {
                    "it is no session and no project that was exported; conversations cannot be imported yet".to_owned()
                }
                "format" => format!("it begins with `{found}` and not with `{name}`; {ORDER}"),
                _ => format!("`{found}` stands where {name} must; {ORDER}"),
            }));
        }
        self.expect(b':')
    }

    fn fill(&mut self) -> Result<&[u8]> {
        self.source.fill_buf().map_err(|error| wrong(format!("it cannot be read: {error}")))
    }

    fn consume(&mut self, bytes: usize) -> Result<()> {
        self.source.consume(bytes);
        self.bytes_read += bytes as u64;
        match self.bytes_read > self.bytes_max {
            true => Err(too_large(self.bytes_read, self.bytes_max)),
            false => Ok(()),
        }
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Result<u8> {
        loop {
            let buffer = self.fill()?;
            let space = buffer.iter().take_while(|byte| is_space(byte)).count();
            match buffer.get(space).copied() {
                Some(byte) => return self.consume(space).map(|()| byte),
                None if buffer.is_empty() => return Err(wrong("it ends in the middle")),
                None => self.consume(space)?,
            }
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<()> {
        let found = self.peek()?;
        if found != wanted {
            let (found, wanted) = (char::from(found), char::from(wanted));
            let why = if self.bytes_read == 0 { ": it is not what an export writes" } else { "" };
            let (found, at) = (found.escape_default(), self.bytes_read);
            let message = format!("`{found}` at byte {at} where `{wanted}` must be{why}");
            return Err(wrong(message));
        }
        self.consume(1)
    }

    fn expect_nothing(&mut self) -> Result<()> {
        while !self.fill()?.is_empty() {
            let buffer = self.fill()?;
            let (length, is_space) = (buffer.len(), buffer.iter().all(is_space));
            if !is_space {
                return Err(wrong("something follows after its end"));
            }
            self.consume(length)?;
        }
        Ok(())
    }

    /// The text of the next value, as far as brackets and quotes say. Whether it is JSON is seen when it is parsed.
    fn read_value(&mut self, bytes_max: u64) -> Result<Vec<u8>> {
        let depth_max = DEPTH_MAX + DEPTH_AROUND;
        self.peek()?;
        let (mut text, mut scan) = (Vec::new(), Scan::default());
        loop {
            let left = (bytes_max + 1).saturating_sub(text.len() as u64);
            let buffer = self.fill()?;
            if buffer.is_empty() {
                return Err(wrong("it ends in the middle"));
            }
            let length = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let taken = scan.take(&buffer[..length]);
            text.extend_from_slice(&buffer[..taken]);
            self.consume(taken)?;
            if scan.depth > depth_max {
                return Err(wrong(json::too_deep()));
            }
            if scan.is_done {
                return Ok(text);
            }
            if text.len() as u64 > bytes_max {
                let (what, actual) = ("a part of the document", text.len() as u64);
                return Err(Error::PayloadTooLarge { what, actual, max: bytes_max });
            }
        }
    }
}

/// How far into a value we are.
#[derive(Default)]
struct Scan {
    depth: usize,
    is_string: bool,
    is_escaped: bool,
    is_done: bool,
}

impl Scan {
    /// How many of the bytes belong to the value. It ends with its last bracket or quote, or before what cannot be in a number or a word.
    fn take(&mut self, bytes: &[u8]) -> usize {
        for (at, &byte) in bytes.iter().enumerate() {
            if self.is_string {
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => {
                        self.is_string = false;
                        self.is_done = self.depth == 0;
                    }
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.is_string = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' if self.depth > 0 => {
                        self.depth -= 1;
                        self.is_done = self.depth == 0;
                    }
                    b'}' | b']' | b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' if self.depth == 0 => {
                        self.is_done = true;
                        return at;
                    }
                    _ => {}
                }
            }
            if self.is_done || self.depth > DEPTH_MAX + DEPTH_AROUND {
                return at + 1;
            }
        }
        bytes.len()
    }
}

/// Makes a part of its text.
fn parse(section: &str, at: Option<usize>, text: Vec<u8>) -> Result<Part> {
    let place = at.map_or_else(|| section.to_owned(), |at| format!("{section}[{at}]"));
    let named = |error: serde_json::Error| wrong(format!("{place}: {}", json::describe(&error)));
    Ok(match section {
        "session" => Part::Session(serde_json::from_slice(&text).map_err(named)?),
        "checkpoints" => parse_checkpoint(&place, text)?,
        "project" => Part::Project(serde_json::from_slice(&text).map_err(named)?),
        "tasks" => Part::Task(serde_json::from_slice(&text).map_err(named)?),
        "segments" => Part::Segment(serde_json::from_slice(&text).map_err(named)?),
        _ => Part::Snapshot(serde_json::from_slice(&text).map_err(named)?),
    })
}

/// The context is cut out of the text of its checkpoint, so that it is not held twice.
fn parse_checkpoint(place: &str, mut text: Vec<u8>) -> Result<Part> {
    let record: CheckpointRecord<'_> =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("{place}: {}", json::describe(&error))))?;
    let Some(context) = record.context else { return Err(wrong(format!("{place}: context is missing"))) };
    let start = context.get().as_ptr() as usize - text.as_ptr() as usize;
    let end = start + context.get().len();
    let record = CheckpointRecord { context: None, ..record };
    text.truncate(end);
    text.drain(..start);
    json::compact(&mut text);
    let context = String::from_utf8(text).map_err(|error| wrong(format!("{place}: {error}")))?;
    Ok(Part::Checkpoint { record, context })
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

fn wrong(message: impl Into<String>) -> Error {
    Error::InvalidInput(format!("the document: {}", message.into()))
}

fn too_large(actual: u64, max: u64) -> Error {
    Error::PayloadTooLarge { what: IMPORTED, actual, max }
}
