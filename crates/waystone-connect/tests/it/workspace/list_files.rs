//! Listing folders.

use serde_json::json;

use super::Place;

fn project() -> Place {
    Place::with([
        ("src/lib.rs", "12345"),
        ("src/deep/er/mod.rs", "1"),
        ("src.txt", ""),
        ("README.md", "123"),
        ("empty/", ""),
        (".git/config", "hidden"),
        ("src/.git", "hidden"),
        (".gitignore", "target"),
    ])
}

#[tokio::test]
async fn a_folder_is_listed_one_level_deep_and_sorted() {
    let place = project();
    let root = ".gitignore (6 bytes)\nREADME.md (3 bytes)\nempty/\nsrc.txt (0 bytes)\nsrc/";
    assert_eq!(place.ok("list_files", json!({})).await, root);
    assert_eq!(place.ok("list_files", json!({ "path": "./" })).await, root);
    assert_eq!(place.ok("list_files", json!({ "path": "src" })).await, "src/deep/\nsrc/lib.rs (5 bytes)");
    assert_eq!(place.ok("list_files", json!({ "path": "empty" })).await, "[the folder is empty]");
}

#[tokio::test]
async fn a_glob_finds_files_and_folders_at_any_depth() {
    let place = project();
    for (path, glob, expected) in [
        (".", "*.rs", "src/deep/er/mod.rs (1 byte)\nsrc/lib.rs (5 bytes)"),
        (".", "**/*.rs", "src/deep/er/mod.rs (1 byte)\nsrc/lib.rs (5 bytes)"),
        (".", "src/*.rs", "src/lib.rs (5 bytes)"),
        (".", "./src/*.rs", "src/lib.rs (5 bytes)"),
        (".", "*.{md,txt}", "README.md (3 bytes)\nsrc.txt (0 bytes)"),
        (".", "src/*/", "src/deep/"),
        ("src", "deep/**", "src/deep/er/\nsrc/deep/er/mod.rs (1 byte)"),
        ("src", "src/*.rs", "[nothing matches]"),
        (".", "config", "[nothing matches]"),
        (
            ".",
            "**",
            ".gitignore (6 bytes)\nREADME.md (3 bytes)\nempty/\nsrc.txt (0 bytes)\nsrc/\nsrc/deep/\nsrc/deep/er/\n\
             src/deep/er/mod.rs (1 byte)\nsrc/lib.rs (5 bytes)",
        ),
    ] {
        let said = place.ok("list_files", json!({ "path": path, "glob": glob })).await;
        assert_eq!(said, expected, "{path} {glob}");
    }
}

#[tokio::test]
async fn a_list_that_is_too_long_is_cut_and_says_so() {
    let place = Place::new();
    for number in 0..1_000 {
        place.put(&format!("many/{number:04}"), "");
    }
    let whole = place.ok("list_files", json!({ "path": "many" })).await;
    assert_eq!(whole.lines().count(), 1_000);
    assert!(whole.ends_with("many/0999 (0 bytes)"));

    place.put("many/0000a", "");
    let said = place.ok("list_files", json!({ "path": "many" })).await;
    let lines: Vec<_> = said.lines().collect();
    assert_eq!((lines.len(), lines[1], lines[999]), (1_001, "many/0000a (0 bytes)", "many/0998 (0 bytes)"));
    assert_eq!(lines[1_000], "[cut: there is more than fits into one answer; narrow it down with `path` or `glob`]");
}

#[tokio::test]
async fn what_is_no_folder_is_refused() {
    let place = project();
    let expected = "`src.txt` is not a folder, or a part of it is none: list_files shows what there is";
    assert_eq!(place.refusal("list_files", json!({ "path": "src.txt" })).await, expected);
    let expected = "`gone` does not exist: list_files shows what there is";
    assert_eq!(place.refusal("list_files", json!({ "path": "gone" })).await, expected);
}

#[cfg(unix)]
#[tokio::test]
async fn links_are_listed_and_not_entered_or_told_where_they_lead() {
    let place = Place::with([("folder/file", "text")]);
    std::os::unix::fs::symlink("folder", place.path("inside")).unwrap();
    std::os::unix::fs::symlink("/etc", place.path("outside")).unwrap();
    let all = "folder/\nfolder/file (4 bytes)\ninside (link)\noutside (link)";
    assert_eq!(place.ok("list_files", json!({ "glob": "**" })).await, all);
    assert_eq!(place.ok("list_files", json!({ "path": "inside" })).await, "inside/file (4 bytes)");
    let expected = "`outside` is a link that leads out of the workspace: use files inside of it";
    assert_eq!(place.refusal("list_files", json!({ "path": "outside" })).await, expected);
}

#[cfg(unix)]
#[tokio::test]
async fn a_name_takes_one_line_whatever_is_in_it() {
    let place = Place::with([("a\nb (9 bytes)\u{202e}", "")]);
    assert_eq!(place.ok("list_files", json!({})).await, "a\\nb (9 bytes)\\u{202e} (0 bytes)");
}

#[tokio::test]
async fn folders_that_are_too_deep_are_counted_and_not_entered() {
    let place = Place::new();
    place.put(&format!("{}file", "d/".repeat(70)), "");
    let said = place.ok("list_files", json!({ "glob": "**" })).await;
    assert_eq!(said.lines().count(), 65);
    assert!(said.ends_with("[passed over: folders that cannot be read (1)]"), "{said}");
    let refusal = place.refusal("list_files", json!({ "path": "d/".repeat(65) })).await;
    assert_eq!(refusal, "the path has more than 64 parts: give a shorter one");
}
