//! Other users of the machine, and what they may have put in our way. Root is needed to be another user.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{McpProcess, ServeProcess, binary, command};

const NOBODY: &str = "65534";

fn waystone(data_dir: &Path, arguments: &[&str]) -> Output {
    command(&binary("waystone"), data_dir).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A shell of another user.
fn as_nobody(script: &str) -> String {
    assert!(rustix::process::geteuid().is_root(), "this test must be run by root, to be another user with setpriv");
    let shell = ["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "bash", "-c", script];
    let output = Command::new("setpriv").args(shell).output().expect("setpriv (util-linux) is needed");
    said(&output)
}

/// Sends a request through a shell's own sockets, and reads the answer unless it closes at once.
fn request(address: &str, request: &str, waits: bool) -> String {
    let (host, port) = address.split_once(':').unwrap();
    let wait = if waits { "cat <&3" } else { "exec 3>&-" };
    format!("exec 3<>/dev/tcp/{host}/{port} && printf '{request}' >&3; {wait}")
}

const STATUS: &str = r"GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
const SAVE: &str = r#"POST /api/checkpoints HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 19\r\nConnection: close\r\n\r\n{"context":{"n":1}}"#;

fn get_status(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(STATUS.replace(r"\r\n", "\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn another_user_is_not_let_in_unless_that_was_allowed() {
    let directory = private_dir();
    let server = ServeProcess::start(&binary("waystone"), directory.path()).unwrap();
    let refused = as_nobody(&request(&server.address, STATUS, true));
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("by another user"), "{refused}");
    let refused = as_nobody(&request(&server.address, SAVE, true));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    for _ in 0..20 {
        as_nobody(&request(&server.address, SAVE, false));
    }
    let own = get_status(&server.address);
    assert!(own.starts_with("HTTP/1.1 200") && own.contains("\"sessionCount\":0"), "{own}");

    let directory = private_dir();
    let mut open = command(&binary("waystone"), directory.path());
    let open = ServeProcess::start_with(open.args(["serve", "--allow-other-users"])).unwrap();
    let answer = as_nobody(&request(&open.address, STATUS, true));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn another_user_can_read_and_list_nothing_of_ours() {
    let directory = private_dir();
    let data = directory.path().join("data");
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let mut process = McpProcess::start(&binary("waystone"), &data).unwrap();
    let context = serde_json::json!({ "sessionId": "s", "context": { "n": 1 } });
    process.call("workflow_checkpoint_save", context).unwrap().unwrap();
    let data = data.display();
    for script in [
        format!("ls {data}"),
        format!("cat {data}/waystone.db"),
        format!("cat {data}/lock"),
        format!("echo > {data}/planted"),
        format!("cat /proc/{}/environ", process.pid()),
        format!("ls /proc/{}/fd/", process.pid()),
    ] {
        let answer = as_nobody(&script);
        assert!(answer.contains("Permission denied") || answer.contains("not permitted"), "{script}: {answer}");
    }
}

/// Everything under a folder, with its mode.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = vec![(folder.to_owned(), folder.metadata().unwrap().permissions().mode() & 0o777)];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(modes(&path)),
            false => found.push((path.clone(), path.metadata().unwrap().permissions().mode() & 0o777)),
        }
    }
    found
}

#[test]
fn files_are_this_users_alone_whatever_the_umask() {
    for umask in ["000", "022", "077", "0777"] {
        let directory = private_dir();
        let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
        fs::write(&file, r#"{"n":1}"#).unwrap();
        let script = format!("umask {umask}; exec \"$0\" \"$@\"");
        let run = |arguments: &[&str]| {
            let mut shell = command(Path::new("sh"), &data);
            let output = shell.args(["-c", &script]).arg(binary("waystone")).args(arguments).output().unwrap();
            assert!(output.status.success(), "{umask}: {}", said(&output));
        };
        run(&["checkpoint", "save", "s", file.to_str().unwrap()]);
        run(&["backup"]);
        run(&["session", "export", "s"]);
        run(&["session", "delete", "s", "--yes", "--purge"]);
        let found = modes(&data);
        assert!(found.len() > 10, "{found:?}");
        for (path, mode) in found {
            assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{umask}: {}", path.display());
        }
    }
}

#[test]
fn what_was_planted_in_the_data_directory_is_refused_and_left_alone() {
    let files = [
        "waystone.db",
        "waystone.db-wal",
        "waystone.db-shm",
        "lock",
        "write.lock",
        "mirror.lock",
        "maintenance.lock",
        "reserve",
        "config.json",
        "rebuilt.db",
    ];
    let folders = ["contexts", "backups", "exports", "logs", "run", "damaged", "rebuild", "prompts"];
    for name in files.iter().chain(&folders) {
        let directory = private_dir();
        let (data, victim) = (directory.path().join("data"), directory.path().join("victim"));
        let plant: [&dyn Fn(&Path); 3] =
            [&|path| symlink(&victim, path).unwrap(), &|path| drop(UnixListener::bind(path).unwrap()), &|path| {
                assert!(Command::new("mkfifo").arg(path).status().unwrap().success())
            }];
        for plant in plant {
            fs::create_dir(&data).unwrap();
            fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).unwrap();
            match folders.contains(name) {
                true => fs::create_dir(&victim).unwrap(),
                false => fs::write(&victim, "untouched").unwrap(),
            }
            plant(&data.join(name));
            for arguments in [&["status"][..], &["status", "--read-only"], &["doctor", "--repair"]] {
                let output = waystone(&data, arguments);
                let said = said(&output);
                assert!(!output.status.success() && said.contains(name), "{name} {arguments:?}: {said}");
            }
            match folders.contains(name) {
                true => assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{name}"),
                false => assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched", "{name}"),
            }
            fs::remove_dir_all(&data).unwrap();
            let _ = fs::remove_file(&victim).or_else(|_| fs::remove_dir(&victim));
        }
    }
}

#[test]
fn a_session_s_folder_that_is_a_link_is_neither_written_nor_read() {
    let directory = private_dir();
    let (data, victim) = (directory.path().join("data"), directory.path().join("victim"));
    let file = directory.path().join("context.json");
    fs::write(&file, r#"{"n":1}"#).unwrap();
    fs::create_dir(&victim).unwrap();
    let save = |session: &str| waystone(&data, &["checkpoint", "save", session, file.to_str().unwrap()]);
    assert!(save("other").status.success());
    symlink(&victim, data.join("contexts/s")).unwrap();
    assert!(save("s").status.success(), "the database has it");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    fs::copy(
        fs::read_dir(data.join("contexts/other")).unwrap().next().unwrap().unwrap().path(),
        victim.join("a.json.zst"),
    )
    .unwrap();
    let doctor = said(&waystone(&data, &["doctor"]));
    assert!(doctor.contains("symbolic link"), "{doctor}");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
    assert!(said(&waystone(&data, &["checkpoint", "show", "--latest", "s"])).contains("\"n\": 1"));
}

#[test]
fn a_link_to_the_data_directory_itself_is_the_users_own() {
    let directory = private_dir();
    let (data, link) = (directory.path().join("data"), directory.path().join("link"));
    assert!(waystone(&data, &["status"]).status.success());
    symlink(&data, &link).unwrap();
    assert!(waystone(&link, &["status"]).status.success());
}

#[test]
fn a_crash_leaves_no_image_of_the_memory() {
    let directory = private_dir();
    let process = McpProcess::start(&binary("waystone"), directory.path()).unwrap();
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
}

/// Gives all of it to another user, who cannot write there either.
fn hand_over(folder: &Path) {
    let (owner, folder) = (format!("{NOBODY}:{NOBODY}"), folder.to_str().unwrap());
    for arguments in [["chown", "-R", &owner, folder], ["chmod", "-R", "a-w", folder]] {
        assert!(Command::new(arguments[0]).args(&arguments[1..]).status().unwrap().success());
    }
}

#[test]
fn where_nothing_can_be_written_what_is_there_is_read_unless_a_log_has_more() {
    let directory = private_dir();
    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (data, file) = (directory.path().join("data"), directory.path().join("context.json"));
    fs::write(&file, r#"{"n":1}"#).unwrap();
    assert!(waystone(&data, &["checkpoint", "save", "s", file.to_str().unwrap()]).status.success());
    let show = format!(
        "{} --data-dir {} checkpoint show --latest s --read-only",
        binary("waystone").display(),
        data.display()
    );
    hand_over(&data);
    let shown = as_nobody(&show);
    assert!(shown.contains("\"n\": 1"), "{shown}");
    let written = as_nobody(&show.replace("show --latest s", &format!("save s {}", file.display())));
    assert!(written.contains("only reads"), "{written}");

    let wal = data.join("waystone.db-wal");
    fs::write(&wal, "changes that were not folded back").unwrap();
    hand_over(&data);
    let refused = as_nobody(&show);
    assert!(refused.contains("has a log with changes in it"), "{refused}");
}
