//! Tools that work in a folder, as the engine calls them.

mod argument;
mod escape;
mod list_files;
mod private;
mod read_file;
mod search_files;
mod swap;
mod write_file;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use waystone_connect::workspace::{self, Bounds};

/// A workspace, inside of a folder that no tool may see.
struct Place {
    outer: TempDir,
}

impl Place {
    fn new() -> Self {
        let outer = TempDir::new().unwrap();
        fs::create_dir(outer.path().join("workspace")).unwrap();
        Self { outer }
    }

    /// With files of these names and contents; one that ends in `/` is a folder.
    fn with<const N: usize>(files: [(&str, &str); N]) -> Self {
        let place = Self::new();
        for (path, content) in files {
            place.put(path, content);
        }
        place
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let full = self.path(path);
        if path.ends_with('/') {
            fs::create_dir_all(full).unwrap();
        } else {
            fs::create_dir_all(full.parent().unwrap()).unwrap();
            fs::write(full, content).unwrap();
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.outer.path().join("workspace").join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// What a tool says, and whether that is an error.
    async fn call(&self, tool: &str, arguments: Value) -> (String, bool) {
        call(self.path("").to_str().unwrap(), tool, arguments).await
    }

    /// What a tool says that does what it is asked for.
    async fn ok(&self, tool: &str, arguments: Value) -> String {
        let (text, is_error) = self.call(tool, arguments).await;
        assert!(!is_error, "{text}");
        text
    }

    async fn refusal(&self, tool: &str, arguments: Value) -> String {
        let (text, is_error) = self.call(tool, arguments).await;
        assert!(is_error, "{text}");
        text
    }
}

async fn call(workspace: &str, tool: &str, arguments: Value) -> (String, bool) {
    call_within(&Bounds::default(), workspace, tool, arguments).await
}

async fn call_within(bounds: &Bounds, workspace: &str, tool: &str, arguments: Value) -> (String, bool) {
    let output = workspace::call(bounds, workspace, tool, arguments.as_object().unwrap()).await;
    (output.content.as_str().unwrap().to_owned(), output.is_error)
}

/// Everything under `folder` but what is under `without`: what files hold, and where links lead.
fn contents(folder: &Path, without: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap().file_type();
        if path == without {
            continue;
        } else if kind.is_dir() {
            found.extend(contents(&path, without));
            found.insert(path, "folder".to_owned());
        } else if kind.is_symlink() {
            let target = path.read_link().unwrap();
            found.insert(path, format!("link to {}", target.display()));
        } else {
            let content = fs::read_to_string(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

#[test]
fn there_are_four_tools_and_only_write_file_changes_anything() {
    let tools = workspace::tools();
    let marks: Vec<_> = tools.iter().map(|tool| (tool.name.as_str(), tool.read_only, tool.idempotent)).collect();
    let expected = [
        ("read_file", true, true),
        ("list_files", true, true),
        ("search_files", true, true),
        ("write_file", false, false),
    ];
    assert_eq!(marks, expected);
    assert!(tools.iter().all(|tool| workspace::has(&tool.name)));
    assert!(!workspace::has("run_shell"));
}

#[test]
fn every_argument_of_a_tool_is_described() {
    for tool in workspace::tools() {
        let schema = Value::Object(tool.input_schema);
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false);
        for (name, property) in schema["properties"].as_object().unwrap() {
            assert!(property["type"].is_string() && property["description"].is_string(), "{} {name}", tool.name);
        }
        for name in schema["required"].as_array().unwrap() {
            assert!(schema["properties"].get(name.as_str().unwrap()).is_some(), "{} {name}", tool.name);
        }
    }
}

#[tokio::test]
async fn a_workspace_that_is_no_folder_is_an_error_that_does_not_name_it() {
    let place = Place::with([("file.txt", "text")]);
    for (workspace, expected) in [
        ("src", "the workspace is not an absolute path: ask the user for another".to_owned()),
        ("", "the workspace is not an absolute path: ask the user for another".to_owned()),
        (place.path("gone").to_str().unwrap(), "the workspace does not exist: ask the user to make it".to_owned()),
        (
            place.path("file.txt").to_str().unwrap(),
            "the workspace is not a folder: ask the user for another".to_owned(),
        ),
    ] {
        for tool in ["list_files", "read_file", "search_files", "write_file"] {
            let arguments = match tool {
                "list_files" => json!({}),
                "read_file" => json!({ "path": "file.txt" }),
                "search_files" => json!({ "query": "text" }),
                _ => json!({ "path": "file.txt", "content": "" }),
            };
            assert_eq!(call(workspace, tool, arguments).await, (expected.clone(), true), "{tool} in {workspace:?}");
        }
    }
}

#[tokio::test]
async fn an_absolute_path_inside_of_the_workspace_is_taken_as_a_relative_one() {
    let place = Place::with([("src/lib.rs", "fn main() {}\n")]);
    let absolute = |path: &str| place.path(path).to_str().unwrap().to_owned();
    assert_eq!(place.ok("read_file", json!({ "path": absolute("src/lib.rs") })).await, "fn main() {}\n");
    assert_eq!(place.ok("list_files", json!({ "path": absolute("src") })).await, "src/lib.rs (13 bytes)");
    let found = place.ok("search_files", json!({ "query": "main", "path": absolute("src/../src") })).await;
    assert_eq!(found, "src/lib.rs:1: fn main() {}");
    let made = place.ok("write_file", json!({ "path": absolute("new.txt"), "content": "new" })).await;
    assert_eq!(made, "made `new.txt`: 3 bytes");
}

#[cfg(unix)]
#[tokio::test]
async fn a_workspace_may_be_reached_through_a_link_and_named_by_either_path() {
    let place = Place::with([("file.txt", "text")]);
    let link = place.outer.path().join("link");
    std::os::unix::fs::symlink(place.path(""), &link).unwrap();
    let workspace = link.to_str().unwrap();
    for path in ["file.txt".to_owned(), format!("{workspace}/file.txt"), place.path("file.txt").display().to_string()] {
        assert_eq!(call(workspace, "read_file", json!({ "path": path })).await, ("text".to_owned(), false), "{path}");
    }
}
