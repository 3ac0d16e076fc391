//! Writing files.

use std::fs;
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Waker};

use serde_json::json;
use waystone_connect::workspace::{self, Bounds};

use super::{Place, contents};

#[tokio::test]
async fn a_file_is_made_with_its_folders_and_then_replaced() {
    let place = Place::new();
    let path = "a/b/c.txt";
    let made = place.ok("write_file", json!({ "path": path, "content": "one" })).await;
    assert_eq!((made.as_str(), place.read(path).as_str()), ("made `a/b/c.txt`: 3 bytes", "one"));
    for _ in 0..2 {
        let replaced = place.ok("write_file", json!({ "path": path, "content": "\u{fc}\0" })).await;
        assert_eq!((replaced.as_str(), place.read(path).as_str()), ("replaced `a/b/c.txt`: 3 bytes", "\u{fc}\0"));
    }
    let emptied = place.ok("write_file", json!({ "path": path, "content": "" })).await;
    assert_eq!((emptied.as_str(), place.read(path).as_str()), ("replaced `a/b/c.txt`: 0 bytes", ""));
    assert_eq!(fs::read_dir(place.path("a/b")).unwrap().count(), 1, "nothing is left beside it");
}

#[tokio::test]
async fn what_can_be_no_file_is_refused() {
    let place = Place::with([("folder/", ""), ("file", "old")]);
    for (path, expected) in [
        ("", "`.` is a folder: add the name of the file"),
        (".", "`.` is a folder: add the name of the file"),
        ("new/", "`new` is a folder: add the name of the file"),
        ("folder", "`folder` is a folder: list_files shows what is in it"),
        ("file/x", "`file/x` is not a folder, or a part of it is none: list_files shows what there is"),
        ("../x", "`../x` is outside of the workspace: give a path that is relative to it"),
    ] {
        assert_eq!(place.refusal("write_file", json!({ "path": path, "content": "new" })).await, expected);
    }
    assert_eq!(place.read("file"), "old");
    assert!(!place.path("new").exists());
}

#[tokio::test]
async fn too_much_is_refused_and_as_much_as_may_be_is_not() {
    let place = Place::with([("file", "old")]);
    let most = "x".repeat(10 * 1024 * 1024);
    let refusal = place.refusal("write_file", json!({ "path": "file", "content": format!("{most}x") })).await;
    assert_eq!((refusal.as_str(), place.read("file").as_str()), ("`content` is longer than 10 MiB: write less", "old"));
    let said = place.ok("write_file", json!({ "path": "file", "content": most })).await;
    assert_eq!(said, "replaced `file`: 10485760 bytes");
}

#[tokio::test]
async fn gits_own_files_are_never_written() {
    let place = Place::with([(".git/config", "old"), ("sub/.git", "gitdir: elsewhere")]);
    let before = contents(place.outer.path(), &place.path("none"));
    for path in [
        ".git/config",
        ".git/hooks/pre-commit",
        ".git",
        ".GIT/config",
        "./.git/config",
        "sub/../.git/config",
        "sub/.git",
        ".git./config",
        ".git /config",
        ".git::$INDEX_ALLOCATION/config",
        "GIT~1/config",
    ] {
        let refusal = place.refusal("write_file", json!({ "path": path, "content": "new" })).await;
        assert_eq!(refusal, "git's own files are not written: ask the user to run git", "{path}");
    }
    assert_eq!(contents(place.outer.path(), &place.path("none")), before);
    place.ok("write_file", json!({ "path": ".gitignore", "content": "target" })).await;
    place.ok("write_file", json!({ "path": ".github/ci.yml", "content": "on: push" })).await;
}

#[cfg(unix)]
#[tokio::test]
async fn no_link_is_written_through_not_even_one_that_stays_inside() {
    use std::os::unix::fs::symlink;
    let place = Place::with([("folder/file", "old"), (".git/config", "old")]);
    symlink("folder", place.path("link")).unwrap();
    symlink("folder/file", place.path("file-link")).unwrap();
    symlink("not-there", place.path("dangling")).unwrap();
    symlink(".git", place.path("git-link")).unwrap();
    let before = contents(place.outer.path(), &place.path("none"));
    for (path, link) in [
        ("link/file", "link"),
        ("link/new/deep", "link"),
        ("file-link", "file-link"),
        ("dangling", "dangling"),
        ("dangling/x", "dangling"),
        ("git-link/config", "git-link"),
    ] {
        let refusal = place.refusal("write_file", json!({ "path": path, "content": "new" })).await;
        let expected =
            format!("`{path}` goes through a link, `{link}`: write where it leads to, if that is in the workspace");
        assert_eq!(refusal, expected);
    }
    assert_eq!(contents(place.outer.path(), &place.path("none")), before);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_keeps_its_mode_but_runs_as_nobody_else() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::with([("run.sh", "old")]);
    fs::set_permissions(place.path("run.sh"), PermissionsExt::from_mode(0o4750)).unwrap();
    place.ok("write_file", json!({ "path": "run.sh", "content": "new" })).await;
    assert_eq!(fs::metadata(place.path("run.sh")).unwrap().permissions().mode() & 0o7777, 0o750);
}

#[cfg(unix)]
#[tokio::test]
async fn what_is_made_has_the_mode_that_other_programs_would_give_it() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::with([("old.txt", "old")]);
    fs::set_permissions(place.path("old.txt"), PermissionsExt::from_mode(0o600)).unwrap();
    for (umask, file, folder) in [(0o022, 0o644, 0o755), (0o027, 0o640, 0o750), (0o077, 0o600, 0o700)] {
        let bounds = Bounds { umask: Some(umask), ..Bounds::default() };
        let path = format!("made-{umask:o}/new.txt");
        for path in [path.as_str(), "old.txt"] {
            let arguments = json!({ "path": path, "content": "new" });
            let (said, is_error) =
                super::call_within(&bounds, place.path("").to_str().unwrap(), "write_file", arguments).await;
            assert!(!is_error, "{said}");
        }
        let mode = |path: &str| fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&format!("made-{umask:o}"))), (file, folder));
        assert_eq!(mode("old.txt"), 0o600);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_has_another_name_outside_keeps_what_it_holds_there() {
    let place = Place::new();
    let outside = place.outer.path().join("outside.txt");
    fs::write(&outside, "old").unwrap();
    fs::hard_link(&outside, place.path("inside.txt")).unwrap();
    place.ok("write_file", json!({ "path": "inside.txt", "content": "new" })).await;
    assert_eq!((fs::read_to_string(outside).unwrap().as_str(), place.read("inside.txt").as_str()), ("old", "new"));
}

/// The one thread for such work is held until the call is dropped, so that it runs only then.
#[test]
fn a_call_that_is_dropped_writes_nothing() {
    let place = Place::with([("file", "old")]);
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (release, held) = mpsc::channel::<()>();
        let holding = tokio::task::spawn_blocking(move || held.recv().unwrap());
        {
            let arguments = json!({ "path": "file", "content": "new" });
            let folder = place.path("");
            let (bounds, arguments) = (Bounds::default(), arguments.as_object().unwrap());
            let mut call = pin!(workspace::call(&bounds, folder.to_str().unwrap(), "write_file", arguments));
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        release.send(()).unwrap();
        holding.await.unwrap();
        assert_eq!(place.ok("list_files", json!({})).await, "file (3 bytes)");
        assert_eq!(place.read("file"), "old");
    });
}
