//! Searching files.

use serde_json::json;

use super::Place;

fn project() -> Place {
    Place::with([
        ("src/lib.rs", "use std::fs;\n\nfn Main() {}\nfn main() {} // main\r\n"),
        ("src/deep/mod.rs", "main"),
        ("notes.txt", "the MAIN thing\nstra\u{df}e a.b (c)\n"),
        (".git/config", "main"),
    ])
}

#[tokio::test]
async fn lines_are_found_in_the_order_of_paths_each_once() {
    let place = project();
    let expected = "notes.txt:1: the MAIN thing\nsrc/deep/mod.rs:1: main\nsrc/lib.rs:3: fn Main() {}\n\
        src/lib.rs:4: fn main() {} // main";
    assert_eq!(place.ok("search_files", json!({ "query": "main" })).await, expected);
}

#[tokio::test]
async fn a_query_with_a_capital_is_taken_as_it_is_written() {
    let place = project();
    assert_eq!(place.ok("search_files", json!({ "query": "Main" })).await, "src/lib.rs:3: fn Main() {}");
    assert_eq!(place.ok("search_files", json!({ "query": "MAIN" })).await, "notes.txt:1: the MAIN thing");
    assert_eq!(place.ok("search_files", json!({ "query": "MaiN" })).await, "[no line contains `MaiN`]");
}

#[tokio::test]
async fn a_query_is_plain_text() {
    let place = project();
    for (query, expected) in [
        ("a.b (c)", "notes.txt:2: stra\u{df}e a.b (c)"),
        ("a.*b", "[no line contains `a.*b`]"),
        ("STRA\u{df}E", "[no line contains `STRA\u{df}E`]"),
        ("stra\u{df}e", "notes.txt:2: stra\u{df}e a.b (c)"),
    ] {
        assert_eq!(place.ok("search_files", json!({ "query": query })).await, expected);
    }
}

#[tokio::test]
async fn path_and_glob_say_where_to_search() {
    let place = project();
    for (path, glob, expected) in [
        ("src", "mod.rs", "src/deep/mod.rs:1: main"),
        ("src", "deep/*", "src/deep/mod.rs:1: main"),
        ("notes.txt", "*", "notes.txt:1: the MAIN thing"),
        (".", "*.txt", "notes.txt:1: the MAIN thing"),
        (".", "*.toml", "[no line contains `main`]"),
    ] {
        let arguments = json!({ "query": "main", "path": path, "glob": glob });
        assert_eq!(place.ok("search_files", arguments).await, expected, "{path} {glob}");
    }
    let expected = "`gone` does not exist: list_files shows what there is";
    assert_eq!(place.refusal("search_files", json!({ "query": "main", "path": "gone" })).await, expected);
}

#[tokio::test]
async fn a_query_of_nothing_or_of_lines_is_refused() {
    let place = project();
    for query in ["", "a\nb", &"x".repeat(1025)] {
        let expected = "`query` must be a text within one line, of 1 to 1024 bytes";
        assert_eq!(place.refusal("search_files", json!({ "query": query })).await, expected);
    }
}

#[tokio::test]
async fn binary_and_large_files_are_passed_over_and_counted() {
    let place = Place::with([("text", "main")]);
    place.put("nul", b"main\0");
    place.put("latin", b"main \xe9");
    place.put("large", format!("main\n{}", "x".repeat(8 * 1024 * 1024)));
    let expected = "text:1: main\n[passed over: files that are not text in UTF-8 (2)]\n[passed over: files that are too large (1)]";
    assert_eq!(place.ok("search_files", json!({ "query": "main" })).await, expected);
}

#[tokio::test]
async fn a_long_line_is_cut_around_what_was_found() {
    let place = Place::with([
        ("a", &format!("needle{}", "x".repeat(400))),
        ("b", &format!("{}needle{}", "\u{fc}".repeat(400), "y".repeat(400))),
        ("c", &format!("{}needle", "z".repeat(400))),
    ]);
    let expected = format!(
        "a:1: needle{}…\nb:1: …{}needle{}…\nc:1: …{}needle",
        "x".repeat(294),
        "\u{fc}".repeat(60),
        "y".repeat(234),
        "z".repeat(60)
    );
    assert_eq!(place.ok("search_files", json!({ "query": "needle" })).await, expected);
}

#[tokio::test]
async fn too_many_hits_are_cut_and_that_is_said() {
    let place = Place::with([("a", &"main\n".repeat(200))]);
    assert_eq!(place.ok("search_files", json!({ "query": "main" })).await.lines().count(), 200);

    place.put("b", "main");
    let said = place.ok("search_files", json!({ "query": "main" })).await;
    let (hits, note) = said.rsplit_once('\n').unwrap();
    assert_eq!((hits.lines().count(), hits.lines().last()), (200, Some("a:200: main")));
    assert_eq!(note, "[cut: there is more than fits into one answer; narrow it down with `path` or `glob`]");
}

#[tokio::test]
async fn a_hit_takes_one_line_whatever_is_in_it() {
    let place = Place::with([("a", "\tmain\u{2028}b:1: forged\r\u{1b}[2K")]);
    assert_eq!(place.ok("search_files", json!({ "query": "main" })).await, "a:1: \tmain b:1: forged  [2K");
}
