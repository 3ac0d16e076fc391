//! Waystone's own data in a workspace, such as one that is a home directory.

use std::fs;

use serde_json::{Value, json};
use waystone_connect::workspace::Bounds;

use super::{Place, call_within, contents};

/// In private files. Nothing that is asked for contains it, so whoever says it has read it.
const SECRET: &str = "canary-sings-7d41";
const QUERY: &str = "canary-sings";

/// A home directory with a data directory and, elsewhere, a key.
fn place() -> (Place, Bounds) {
    let place = Place::with([
        ("inside.txt", "in here"),
        ("share/inside.txt", "in here too"),
        ("share/waystone/config.json", SECRET),
        ("share/waystone/backups/one.db", SECRET),
        ("waystone.key", SECRET),
    ]);
    let bounds = Bounds { private: vec![place.path("share/waystone"), place.path("waystone.key")], umask: None };
    (place, bounds)
}

async fn check(place: &Place, bounds: &Bounds, tool: &str, arguments: Value, expected: &str) {
    let (said, is_error) = call_within(bounds, place.path("").to_str().unwrap(), tool, arguments.clone()).await;
    assert_eq!(said, expected, "{tool} {arguments}");
    assert_eq!(is_error, expected.contains("own data"), "{tool} {arguments}");
}

fn refused(path: &str) -> String {
    format!("`{path}` belongs to Waystone's own data, which no tool may use: do without it")
}

#[tokio::test]
async fn what_is_listed_and_searched_leaves_out_what_is_private() {
    let (place, bounds) = place();
    let shallow = "share/inside.txt (11 bytes)";
    check(&place, &bounds, "list_files", json!({ "path": "share" }), shallow).await;
    let deep = "inside.txt (7 bytes)\nshare/\nshare/inside.txt (11 bytes)\nwaystone.key (17 bytes)";
    check(&place, &bounds, "list_files", json!({ "glob": "**" }), deep).await;
    let found = "inside.txt:1: in here\nshare/inside.txt:1: in here too\n[passed over: files that cannot be read (1)]";
    check(&place, &bounds, "search_files", json!({ "query": "in here" }), found).await;
    let (said, _) =
        call_within(&bounds, place.path("").to_str().unwrap(), "search_files", json!({ "query": QUERY })).await;
    assert!(!said.contains(SECRET) && said.contains("no line contains"), "{said}");
}

#[tokio::test]
async fn no_path_leads_to_what_is_private() {
    let (place, bounds) = place();
    let before = contents(place.outer.path(), &place.path("none"));
    let absolute = place.path("share/waystone/config.json").display().to_string();
    for (path, file) in [
        ("share/waystone", "share/waystone/config.json"),
        ("share/waystone/backups", "share/waystone/backups/one.db"),
        ("share/../share/waystone", "share/./waystone//config.json"),
        ("share/waystone", absolute.as_str()),
        ("share/waystone", "waystone.key"),
    ] {
        let path_shown = path.replace("share/../", "");
        let shown = file.replace("./", "").replace("//", "/");
        let shown = shown.strip_prefix(place.path("").to_str().unwrap()).unwrap_or(&shown);
        check(&place, &bounds, "list_files", json!({ "path": path }), &refused(&path_shown)).await;
        check(&place, &bounds, "search_files", json!({ "path": path, "query": QUERY }), &refused(&path_shown)).await;
        check(&place, &bounds, "read_file", json!({ "path": file }), &refused(shown)).await;
        check(&place, &bounds, "search_files", json!({ "path": file, "query": QUERY }), &refused(shown)).await;
        check(&place, &bounds, "write_file", json!({ "path": file, "content": "new" }), &refused(shown)).await;
    }
    let made = "share/waystone/prompts/new.md";
    check(&place, &bounds, "write_file", json!({ "path": made, "content": "new" }), &refused(made)).await;
    assert_eq!(contents(place.outer.path(), &place.path("none")), before);
}

#[cfg(unix)]
#[tokio::test]
async fn no_link_leads_to_what_is_private_and_those_that_lead_elsewhere_are_followed() {
    use std::os::unix::fs::symlink;
    let (place, bounds) = place();
    symlink("share/waystone", place.path("link")).unwrap();
    symlink("share/waystone/config.json", place.path("file-link")).unwrap();
    symlink("share", place.path("around")).unwrap();
    for (path, file) in [("link", "link/config.json"), ("around/waystone", "around/waystone/config.json")] {
        check(&place, &bounds, "list_files", json!({ "path": path }), &refused(path)).await;
        check(&place, &bounds, "search_files", json!({ "path": path, "query": QUERY }), &refused(path)).await;
        check(&place, &bounds, "read_file", json!({ "path": file }), &refused(file)).await;
    }
    check(&place, &bounds, "read_file", json!({ "path": "file-link" }), &refused("file-link")).await;
    check(&place, &bounds, "read_file", json!({ "path": "around/inside.txt" }), "in here too").await;
    check(&place, &bounds, "list_files", json!({ "path": "around" }), "around/inside.txt (11 bytes)").await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_data_directory_that_is_named_by_a_link_is_known_by_what_it_is() {
    use std::os::unix::fs::symlink;
    let (place, _) = place();
    let link = place.outer.path().join("data");
    symlink(place.path("share/waystone"), &link).unwrap();
    let bounds = Bounds { private: vec![link], umask: None };
    let path = "share/waystone/config.json";
    check(&place, &bounds, "read_file", json!({ "path": path }), &refused(path)).await;
}

#[tokio::test]
async fn a_workspace_in_the_data_directory_is_refused() {
    let (place, bounds) = place();
    let expected = "the workspace is in Waystone's own data directory: ask the user for another".to_owned();
    for workspace in ["share/waystone", "share/waystone/backups"] {
        let workspace = place.path(workspace);
        let listed = call_within(&bounds, workspace.to_str().unwrap(), "list_files", json!({})).await;
        assert_eq!(listed, (expected.clone(), true));
    }
    let beside = place.path("share/waystone-work");
    fs::create_dir(&beside).unwrap();
    let listed = call_within(&bounds, beside.to_str().unwrap(), "list_files", json!({})).await;
    assert_eq!(listed, ("[the folder is empty]".to_owned(), false));
}
