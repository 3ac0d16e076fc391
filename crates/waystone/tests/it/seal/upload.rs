//! What is sent to a sealed directory, and where it stands until it is in there.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::ServeProcess;

use super::{CANARY, Place, files_with};

/// What stands in the files without a name that a process has open.
fn nameless_files(pid: u32) -> Vec<Vec<u8>> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|entry| entry.unwrap().path());
    let is_nameless = |path: &PathBuf| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().ends_with(" (deleted)") && path.metadata().is_ok_and(|metadata| metadata.is_file())
    };
    open.filter(is_nameless).filter_map(|path| std::fs::read(path).ok()).collect()
}

#[test]
fn a_document_that_is_uploaded_stands_in_no_file_while_it_comes_in() {
    const SENT: usize = 3 * 1024 * 1024;
    let (from, temporary) = (Place::new(), private_dir());
    let file = from.directory.path().join("context.json");
    std::fs::write(&file, json!({ "text": CANARY.repeat(SENT / CANARY.len() * 2) }).to_string()).unwrap();
    from.run(&["checkpoint", "save", "s", file.to_str().unwrap()]);
    let document = from.sealed(&["session", "export", "s", "--output", "-"]).output().unwrap().stdout;

    let place = Place::new();
    let server = ServeProcess::start_with(place.sealed(&["serve"]).env("TMPDIR", temporary.path())).unwrap();
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let (host, length) = (&server.address, document.len());
    let head = format!(
        "POST /api/import HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&document[..SENT]).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let spooled = loop {
        let files = nameless_files(server.pid());
        if files.iter().any(|bytes| bytes.len() >= SENT / 2) {
            break files;
        }
        assert!(Instant::now() < until, "what comes in is written to a file");
        std::thread::yield_now();
    };
    let has_word = |bytes: &[u8]| bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
    assert!(has_word(&document[..SENT]) && !spooled.iter().any(|bytes| has_word(bytes)));
    stream.write_all(&document[SENT..]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    drop(server);
    assert_eq!(files_with(&place.data(), CANARY.as_bytes()), Vec::<PathBuf>::new());
    assert_eq!(files_with(temporary.path(), CANARY.as_bytes()), Vec::<PathBuf>::new());
}
