//! Where the key of a sealed data directory comes from, how it is changed, and how a plain directory gets one.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_testkit::audit;
use waystone_testkit::harness::{copy_dir, private_dir};
use waystone_testkit::process::{McpProcess, binary, command};

use crate::seal::{CANARY, files_with, said, say_everywhere};

/// A data directory, and variables that name its key.
struct Place {
    directory: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Place {
    fn with(variables: &[(&'static str, &str)]) -> Self {
        let variables = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Self { directory: private_dir(), variables }
    }

    /// A plain one, with all that a client can say in it.
    fn plain() -> Self {
        let place = Self::with(&[]);
        place.fill();
        place
    }

    fn fill(&self) {
        let mut process = McpProcess::start_with(&mut self.command(&["mcp"])).unwrap();
        say_everywhere(&mut process);
        assert!(process.finish().unwrap().success());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(&binary("waystone"), &self.data());
        // No keychain of who runs the tests is asked.
        command.args(arguments).env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent");
        command.envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    fn run(&self, arguments: &[&str]) -> Value {
        let output = self.command(&[&["--json"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What a command that fails says.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        said(&output)
    }

    fn set(&mut self, variables: &[(&'static str, &str)]) {
        self.variables = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    }

    /// All that can be read of it, but for when it was read.
    fn all(&self) -> Value {
        let session = self.command(&["session", "export", "s", "--output", "-"]).output().unwrap();
        let project = self.command(&["segment", "export", "--project", "default", "--output", "-"]).output();
        let project = project.ok().filter(|output| output.status.success()).map(|output| output.stdout);
        let mut document: Value = serde_json::from_slice(&session.stdout).unwrap();
        document["exportedAt"] = Value::Null;
        json!({
            "session": document,
            "project": project.map(|bytes| String::from_utf8(bytes).unwrap().lines().skip(1).collect::<Vec<_>>().join("\n")),
            "segments": self.run(&["segment", "list", "--project", "default"]),
            "found": self.run(&["checkpoint", "list", "--query", CANARY])["total"],
            "tasks": self.run(&["task", "list", "--project", "default"]),
        })
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const PASSPHRASE: (&str, &str) = ("WAYSTONE_PASSPHRASE", "correct horse battery");
const ENCRYPTION: (&str, &str) = ("WAYSTONE_ENCRYPTION", "enabled");

#[test]
fn a_passphrase_opens_what_it_sealed_also_when_only_the_files_are_left() {
    let mut place = Place::with(&[PASSPHRASE, ENCRYPTION]);
    place.fill();
    let before = place.all();
    assert_eq!(files_with(&place.data(), CANARY.as_bytes()), Vec::<PathBuf>::new());
    assert!(place.run(&["status"])["encrypted"].as_bool().unwrap());
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = std::fs::remove_file(place.data().join(name));
    }
    std::fs::remove_dir_all(place.data().join("backups")).ok();
    place.set(&[("WAYSTONE_PASSPHRASE", "correct horse batterx")]);
    assert!(place.refused(&["doctor", "--repair"]).contains("another key"));
    place.set(&[PASSPHRASE]);
    place.run(&["doctor", "--repair"]);
    assert_eq!(place.all()["session"], before["session"], "the salt stands in every file");

    place.set(&[("WAYSTONE_PASSPHRASE", "wrong horse battery")]);
    assert!(place.refused(&["status"]).contains("another key"));
    place.set(&[]);
    assert!(place.refused(&["status"]).contains("WAYSTONE_PASSPHRASE"));
    let short = Place::with(&[("WAYSTONE_PASSPHRASE", "short"), ENCRYPTION]);
    assert!(short.refused(&["status"]).contains("at least 8"));
    assert!(!short.data().join("waystone.db").exists());
    let both = Place::with(&[PASSPHRASE, ENCRYPTION, ("WAYSTONE_KEY_FILE", "/key")]);
    assert!(both.refused(&["status"]).contains("both set"));
}

#[test]
fn a_key_that_was_written_down_opens_what_a_passphrase_sealed() {
    let mut place = Place::with(&[PASSPHRASE, ENCRYPTION]);
    place.fill();
    let (before, file) = (place.all(), place.path("written"));
    place.run(&["key", "export", "--output", text(&file)]);
    place.set(&[("WAYSTONE_KEY_FILE", text(&file))]);
    assert_eq!(place.all(), before);
    // What is saved with it names the salt too.
    let mut process = McpProcess::start_with(&mut place.command(&["mcp"])).unwrap();
    process.call("workflow_checkpoint_save", json!({ "sessionId": "new", "context": { "n": 1 } })).unwrap().unwrap();
    assert!(process.finish().unwrap().success());
    std::fs::remove_dir_all(place.data().join("contexts/s")).unwrap();
    place.set(&[PASSPHRASE]);
    std::fs::remove_dir_all(place.data().join("backups")).ok();
    std::fs::remove_file(place.data().join("waystone.db")).unwrap();
    place.run(&["doctor", "--repair"]);
    assert_eq!(place.run(&["checkpoint", "show", "--latest", "new"])["context"], json!({ "n": 1 }));
}

#[test]
fn a_directory_whose_key_was_changed_opens_with_the_new_one_alone() {
    let mut place = Place::with(&[PASSPHRASE, ENCRYPTION]);
    place.fill();
    place.run(&["backup"]);
    let (before, file) = (place.all(), place.path("new"));
    assert!(place.refused(&["key", "rotate"]).contains("--output"), "where the new one goes must be said");
    place.run(&["key", "rotate", "--output", text(&file)]);
    assert!(place.refused(&["status"]).contains("not with a passphrase"));
    place.set(&[("WAYSTONE_KEY_FILE", text(&file))]);
    assert_eq!(place.all(), before);
    assert!(place.run(&["audit", "verify"])["sound"].as_bool().unwrap());
    place.run(&["doctor"]);
    // Every copy is under the new key.
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = std::fs::remove_file(place.data().join(name));
    }
    place.run(&["doctor", "--repair"]);
    assert_eq!(place.all(), before, "from the backup");
    std::fs::remove_dir_all(place.data().join("backups")).unwrap();
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = std::fs::remove_file(place.data().join(name));
    }
    place.run(&["doctor", "--repair"]);
    assert_eq!(place.all()["session"], before["session"], "from the files");

    let again = text(&file).to_owned();
    assert!(
        place.refused(&["key", "rotate", "--output", &again]).contains("is not overwritten"),
        "no key is written over"
    );
    place.variables.push(("WAYSTONE_NEW_PASSPHRASE", "another horse".to_owned()));
    place.run(&["key", "rotate", "--passphrase"]);
    place.set(&[("WAYSTONE_PASSPHRASE", "another horse")]);
    assert_eq!(place.all()["session"], before["session"]);
}

#[test]
fn a_key_is_not_changed_while_someone_has_the_directory_open() {
    let mut place = Place::with(&[PASSPHRASE, ENCRYPTION]);
    let process = McpProcess::start_with(&mut place.command(&["mcp"])).unwrap();
    let file = place.path("new");
    assert!(place.refused(&["key", "rotate", "--output", text(&file)]).contains("in use by process"));
    assert!(!file.exists(), "no key was made for it");
    assert!(process.finish().unwrap().success());
    place.set(&[]);
    let plain = Place::plain();
    assert!(plain.refused(&["key", "rotate", "--output", text(&file)]).contains("not sealed"));
    assert!(plain.refused(&["key", "export"]).contains("no key that opens"));
}

#[test]
fn a_plain_directory_that_is_sealed_keeps_everything_and_leaves_nothing_plain() {
    let mut place = Place::plain();
    place.run(&["session", "rename", "s", CANARY]);
    place.run(&["backup"]);
    let before = place.all();
    assert!(!files_with(&place.data(), CANARY.as_bytes()).is_empty());
    assert!(
        place.refused(&["key", "encrypt-store", "--yes"]).contains("WAYSTONE_KEY_FILE"),
        "there is no keychain here"
    );
    assert_eq!(place.all(), before);

    let key = place.path("key");
    place.run(&["key", "generate", "--output", text(&key)]);
    place.set(&[("WAYSTONE_KEY_FILE", text(&key))]);
    place.run(&["key", "encrypt-store", "--yes"]);
    assert_eq!(files_with(&place.data(), CANARY.as_bytes()), Vec::<PathBuf>::new());
    assert_eq!(place.all(), before);
    assert!(place.run(&["audit", "verify"])["sound"].as_bool().unwrap());
    place.run(&["key", "encrypt-store", "--yes"]);
    assert_eq!(place.all(), before, "twice is as good as once");

    // It goes on as it would have.
    place.fill();
    let undone = place.run(&["undo", "--list", "--project", "default"]);
    assert!(undone["operations"].as_array().is_some_and(|operations| !operations.is_empty()), "{undone}");
    assert_eq!(files_with(&place.data(), CANARY.as_bytes()), Vec::<PathBuf>::new());
    for name in ["waystone.db", "waystone.db-wal", "waystone.db-shm"] {
        let _ = std::fs::remove_file(place.data().join(name));
    }
    place.run(&["doctor", "--repair"]);
    assert_eq!(place.run(&["session", "show", "s"])["name"], CANARY);
    place.set(&[]);
    assert!(place.refused(&["status"]).contains("there is no key"));
}

#[test]
fn a_document_sealed_for_someone_opens_with_their_identity_alone() {
    let place = Place::plain();
    let identity = age::x25519::Identity::generate();
    let (file, key) = (place.path("document.age"), place.path("identity"));
    std::fs::write(&key, age::secrecy::ExposeSecret::expose_secret(&identity.to_string())).unwrap();
    let recipient = identity.to_public().to_string();
    place.run(&["session", "export", "s", "--recipient", &recipient, "--output", text(&file)]);
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"age-encryption.org/v1"));
    assert!(!bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()));

    let other = Place::with(&[PASSPHRASE, ENCRYPTION]);
    assert!(other.refused(&["session", "import", text(&file)]).contains("--identity"));
    let stranger = place.path("stranger");
    let made = age::x25519::Identity::generate().to_string();
    std::fs::write(&stranger, age::secrecy::ExposeSecret::expose_secret(&made)).unwrap();
    assert!(
        other.refused(&["session", "import", text(&file), "--identity", text(&stranger)]).contains("does not open")
    );
    let mut changed = bytes.clone();
    let last = changed.len() - 20;
    changed[last] ^= 1;
    let broken = place.path("broken.age");
    std::fs::write(&broken, changed).unwrap();
    other.refused(&["session", "import", text(&broken), "--identity", text(&key)]);
    assert_eq!(other.run(&["session", "list"])["sessions"], json!([]), "nothing of it came in");
    other.run(&["session", "import", text(&file), "--identity", text(&key)]);
    let [here, there] = [&place, &other].map(|place| place.run(&["checkpoint", "show", "--latest", "s"]));
    assert_eq!(here["context"], there["context"]);
    // In a sealed directory an export that is sealed has its usual place.
    let exported = other.run(&["session", "export", "s", "--recipient", &recipient]);
    assert!(exported["path"].as_str().unwrap().ends_with(".json.age"), "{exported}");
    assert_eq!(files_with(&other.data(), CANARY.as_bytes()), Vec::<PathBuf>::new());
    assert!(place.refused(&["session", "export", "s", "--recipient", "age1nobody"]).contains("age-keygen"));
}

#[test]
fn a_directory_of_an_older_format_is_sealed_and_nothing_plain_is_left_of_it() {
    let mut place = Place::with(&[]);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../waystone-testkit/golden/6-housekeeping");
    copy_dir(&golden, &place.data());
    std::fs::remove_file(place.data().join("expected.json")).unwrap();
    let copy = Place::with(&[]);
    copy_dir(&place.data(), &copy.data());
    let listed = copy.run(&["checkpoint", "list", "--limit", "100"]);
    place.set(&[PASSPHRASE]);
    place.run(&["key", "encrypt-store", "--yes"]);
    let sealed = place.run(&["checkpoint", "list", "--limit", "100"]);
    assert_eq!(sealed["checkpoints"], listed["checkpoints"]);
    let mut backups = std::fs::read_dir(place.data().join("backups")).unwrap();
    let database = backups.next().unwrap().unwrap().path().join("waystone.db");
    assert!(backups.next().is_none(), "that of the older format is gone");
    let sql = "SELECT wrapped_key FROM space";
    let wrapped: Option<Vec<u8>> =
        audit::open(database.parent().unwrap()).query_row(sql, [], |row| row.get(0)).unwrap();
    assert!(wrapped.is_some());
    let aside = std::fs::read_dir(place.data().join("damaged")).into_iter().flatten().count();
    assert_eq!(aside, 0, "nor is the database that was replaced");
}

#[test]
fn what_is_damaged_is_healed_before_the_key_is_changed_or_it_is_not_changed() {
    let mut place = Place::plain();
    let before = place.all();
    let key = place.path("key");
    place.run(&["key", "generate", "--output", text(&key)]);
    place.set(&[("WAYSTONE_KEY_FILE", text(&key))]);
    let garble = |sql: &str| audit::open(&place.data()).execute_batch(sql).unwrap();
    garble("UPDATE checkpoint_bytes SET bytes = zeroblob(20)");
    place.run(&["key", "encrypt-store", "--yes"]);
    assert_eq!(place.all(), before, "healed from the files first");

    garble("UPDATE checkpoint_bytes SET bytes = zeroblob(20)");
    for file in files_with(&place.data().join("contexts"), b"wsealed1") {
        std::fs::write(file, b"garbage").unwrap();
    }
    std::fs::remove_dir_all(place.data().join("backups")).unwrap();
    let new = place.path("new");
    assert!(place.refused(&["key", "rotate", "--output", text(&new)]).contains("not everything is whole"));
    assert!(!new.exists());
}

#[test]
fn a_sealed_backup_is_restored_into_a_new_directory_with_its_passphrase_alone() {
    let mut place = Place::with(&[PASSPHRASE, ENCRYPTION]);
    place.fill();
    let (before, backup) = (place.all(), place.path("backup"));
    place.run(&["backup", text(&backup)]);
    std::fs::remove_dir_all(place.data()).unwrap();
    place.set(&[PASSPHRASE]);
    place.run(&["restore-from", text(&backup), "--yes"]);
    assert_eq!(place.all(), before);
    assert!(place.run(&["status"])["encrypted"].as_bool().unwrap());

    place.set(&[("WAYSTONE_PASSPHRASE", "wrong horse battery")]);
    assert!(
        place.refused(&["key", "export"]).contains("no key that opens"),
        "a key that opens nothing is not written down"
    );
    place.set(&[PASSPHRASE]);
    let inside = place.data().join("key");
    assert!(place.refused(&["key", "export", "--output", text(&inside)]).contains("in the data directory"));
    let inside = place.data().join("plain.json");
    assert!(place.refused(&["session", "export", "s", "--output", text(&inside)]).contains("--recipient"));
}
