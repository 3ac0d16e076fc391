//! Paths and links that lead out, through every tool: nothing outside is read or written.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::{Place, contents};

/// In files outside. Nothing that is asked for contains it, so whoever says it has read it.
const SECRET: &str = "canary-sings-7d41";
/// What is searched for: a part of it.
const QUERY: &str = "canary-sings";
/// Of a file outside: whoever says it has listed the folder.
const SECRET_NAME: &str = "unspoken-name.txt";

/// Names of links in the workspace, and where they lead. `{outer}` is the folder around it.
const LINKS: [(&str, &str); 26] = [
    ("absolute-file", "{outer}/canary.txt"),
    ("absolute-folder", "{outer}/outside"),
    ("absolute-back", "{outer}/workspace/sub"),
    ("relative-file", "../canary.txt"),
    ("relative-folder", "../outside"),
    ("hidden-in-dots", "sub/./../sub/../../outside"),
    ("up", ".."),
    ("up-and-back", "../workspace"),
    ("root", "/"),
    ("etc", "/etc"),
    ("proc-root", "/proc/self/root"),
    ("proc-outer", "/proc/self/root{outer}"),
    ("proc-cwd", "/proc/self/cwd"),
    ("proc-fd", "/proc/self/fd"),
    ("chain", "chain-2"),
    ("chain-2", "sub/chain-3"),
    ("sub/chain-3", "../chain-4"),
    ("chain-4", "../outside"),
    ("sub/up", "../.."),
    ("sub/file", "../../canary.txt"),
    ("dangling-file", "../outside/made.txt"),
    ("dangling-folder", "../made"),
    ("loop", "loop-2"),
    ("loop-2", "loop"),
    ("self", "self"),
    ("new\nline", "../outside"),
];

/// What is added to a link. None is the name of a file of the system: were we to write there, it would be to new files.
const ENDS: [&str; 10] = [
    "",
    "/",
    "/.",
    "/canary.txt",
    "//outside/./canary.txt",
    "/../canary.txt",
    "/workspace/../canary.txt",
    "/new-canary.txt",
    "/made/deep/new-canary.txt",
    "{outer}/canary.txt",
];

/// Ways to write "up" that some program takes for it.
const UPS: [&str; 18] = [
    "../",
    "..//",
    ".././",
    "./../",
    "sub/../../",
    "..\\",
    "%2e%2e/",
    "%2e%2e%2f",
    "..%2f",
    "..%5c",
    "%252e%252e%252f",
    "..%c0%af",
    "..;/",
    "....//",
    ".../",
    "\u{ff0e}\u{ff0e}/",
    "..\u{2215}",
    "..\u{200b}/",
];

fn place() -> Place {
    let place = Place::with([("inside.txt", "in here"), ("sub/inside.txt", "in here too")]);
    let outer = place.outer.path();
    fs::create_dir(outer.join("outside")).unwrap();
    for path in ["canary.txt", "outside/canary.txt", &format!("outside/{SECRET_NAME}")] {
        fs::write(outer.join(path), format!("a {SECRET} song\n")).unwrap();
    }
    for (name, target) in LINKS {
        symlink(target.replace("{outer}", outer.to_str().unwrap()), place.path(name)).unwrap();
    }
    assert!(std::process::Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    place
}

fn hostile_paths(outer: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (link, _) in LINKS {
        for end in ENDS {
            for start in ["", ".//sub/../", "{outer}/workspace/"] {
                paths.push(format!("{start}{link}{end}"));
            }
        }
    }
    for up in UPS {
        for depth in [1, 2, 4, 9] {
            for end in ["canary.txt", "outside/canary.txt", "new-canary.txt"] {
                paths.push(format!("{}{end}", up.repeat(depth)));
            }
        }
        paths.push(format!("{{outer}}/workspace/{up}canary.txt"));
    }
    for path in ["{outer}/canary.txt", "{outer}/outside/new-canary.txt", "../canary.txt", "absolute-file", "inside.txt"]
    {
        for start in
            ["file://", "//", "///.", "\\\\?\\", "C:", "C:\\", "~/", "~root/", "$PWD/", " ", "\n", "-", "\u{feff}"]
        {
            paths.push(format!("{start}{path}"));
        }
        for end in
            ["\0", "\0.txt", "/\0", "\n", " ", ".", "/..", "/../..", "/../../canary.txt", ":stream", "?", "#", "*"]
        {
            paths.push(format!("{path}{end}"));
        }
    }
    for part in ["../", "./", "a/", "sub/../", "up/", "loop/", "\u{1f512}/", "relative-folder/../"] {
        for count in [60, 64, 65, 500, 5_000, 50_000] {
            paths.push(format!("{}canary.txt", part.repeat(count)));
        }
    }
    for length in [254, 255, 256, 4_096, 100_000] {
        paths.push("n".repeat(length));
        paths.push(format!("../{}", "n".repeat(length)));
    }
    let odd = [
        "..",
        "/",
        "//",
        "~",
        "\0",
        "pipe",
        "pipe/x",
        "/dev/new-canary.txt",
        "/proc/self/environ",
        "sub/../..",
        "up/../..",
    ];
    paths.extend(odd.map(str::to_owned));
    paths.into_iter().map(|path| path.replace("{outer}", outer)).collect()
}

#[tokio::test]
async fn a_thousand_hostile_paths_and_links_through_each_tool_reach_nothing_outside() {
    let place = place();
    let outer = place.outer.path();
    let before = contents(outer, &place.path(""));
    let paths = hostile_paths(outer.to_str().unwrap());
    assert!(paths.len() >= 1_000, "{}", paths.len());

    for (number, path) in paths.iter().enumerate() {
        check(&place, "read_file", json!({ "path": path })).await;
        check(&place, "list_files", json!({ "path": path })).await;
        check(&place, "search_files", json!({ "path": path, "query": QUERY })).await;
        check(&place, "write_file", json!({ "path": path, "content": "written by a tool" })).await;
        // As a pattern it is held against the whole workspace, which takes longer.
        if number % 20 == 0 {
            check(&place, "list_files", json!({ "glob": path })).await;
            check(&place, "search_files", json!({ "glob": path, "query": QUERY })).await;
        }
    }
    check(&place, "list_files", json!({ "glob": "**" })).await;
    check(&place, "search_files", json!({ "query": QUERY })).await;

    assert_eq!(contents(outer, &place.path("")), before);
    for (name, target) in LINKS {
        let target = target.replace("{outer}", outer.to_str().unwrap());
        assert_eq!(fs::read_link(place.path(name)).unwrap().to_str(), Some(target.as_str()), "{name}");
    }
    for path in ["/canary.txt", "/new-canary.txt", "/etc/canary.txt", "/etc/new-canary.txt", "/etc/made", "/made"] {
        assert!(!fs::exists(path).unwrap(), "{path}");
    }
    assert_eq!((place.read("inside.txt").as_str(), place.read("sub/inside.txt").as_str()), ("in here", "in here too"));
}

async fn check(place: &Place, tool: &str, arguments: Value) {
    let (said, _) = place.call(tool, arguments.clone()).await;
    for secret in [SECRET, SECRET_NAME, "passwd", "resolv.conf"] {
        assert!(!said.contains(secret), "{tool} {arguments}: {said}");
    }
}

/// So that the test above does not hold because nothing works.
#[tokio::test]
async fn beside_hostile_links_ordinary_paths_are_read_and_written() {
    let place = place();
    assert_eq!(place.ok("read_file", json!({ "path": "sub/inside.txt" })).await, "in here too");
    assert_eq!(
        place.ok("search_files", json!({ "query": "in here", "path": "sub" })).await,
        "sub/inside.txt:1: in here too"
    );
    place.ok("write_file", json!({ "path": "sub/../inside.txt", "content": "changed" })).await;
    assert_eq!(place.read("inside.txt"), "changed");
    let refusal = place.refusal("read_file", json!({ "path": "relative-file" })).await;
    assert_eq!(refusal, "`relative-file` is a link that leads out of the workspace: use files inside of it");
}
