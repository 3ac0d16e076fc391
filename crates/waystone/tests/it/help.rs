//! What the command line tells who does not know it yet.

use std::process::Output;

use serde_json::Value;
use waystone_testkit::harness::private_dir;
use waystone_testkit::process::{binary, command};

fn waystone(arguments: &[&str]) -> Output {
    let directory = private_dir();
    command(&binary("waystone"), directory.path()).args(arguments).output().unwrap()
}

fn help(arguments: &[&str]) -> String {
    let output = waystone(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn without_arguments_it_says_what_to_do_first_on_half_a_screen() {
    let said = help(&[]);
    assert!(said.lines().count() <= 20 && said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let all = help(&["--help"]);
    for command in ["install", "serve", "chat", "status"] {
        assert!(said.contains(&format!("  waystone {command} ")), "{command}: {said}");
        assert!(all.contains(&format!("\n  {command} ")), "{command}: {all}");
    }
    assert!(said.contains("waystone --help"), "{said}");
}

/// Every command and every group of them, as it is typed.
fn all_commands(of: &[&str]) -> Vec<Vec<String>> {
    let said = help(&[of, &["--help"]].concat());
    let listed = said.split_once("\nCommands:\n").map_or("", |(_, after)| after.split("\n\n").next().unwrap());
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    let own = |name| [of, &[name]].concat().iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    names.flat_map(|name| [vec![own(name)], all_commands(&[of, &[name]].concat())].concat()).collect()
}

#[test]
fn help_of_a_command_has_its_own_options_and_says_where_settings_are() {
    let all = all_commands(&[]);
    assert!(all.len() > 70, "{}", all.len());
    for command in &all {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let said = help(&[&command[..], &["--help"]].concat());
        assert!(said.contains("see `waystone --help`") && !said.contains("--log-level"), "{command:?}: {said}");
        assert!(said.lines().count() < 70, "{command:?}: {said}");
    }
    assert!(help(&["--help"]).contains("--log-level"));
    assert!(help(&["serve", "--help"]).contains("--port"), "what is about a command is in its help");
}

#[test]
fn settings_are_flags_before_and_behind_every_command() {
    let directory = private_dir();
    for arguments in
        [["--port", "7", "config", "show"], ["config", "--port", "7", "show"], ["config", "show", "--port", "7"]]
    {
        let mut command = command(&binary("waystone"), directory.path());
        let shown = command.args(arguments).args(["--origin", "--json"]).output().unwrap();
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["port"], serde_json::json!({ "value": 7, "origin": "--port" }), "{arguments:?}");
    }
}

#[test]
fn hints_name_commands_and_what_they_are_about() {
    let directory = private_dir();
    let run = |arguments: &[&str]| command(&binary("waystone"), directory.path()).args(arguments).output().unwrap();
    let hint = |arguments: &[&str]| {
        let refused = run(arguments);
        assert!(!refused.status.success(), "{arguments:?}");
        let said = String::from_utf8(refused.stderr).unwrap();
        said.lines().find_map(|line| line.strip_prefix("hint: ")).unwrap_or(&said).to_owned()
    };
    let put: Value = serde_json::from_slice(&run(&["segment", "put", "a text", "--pinned", "--json"]).stdout).unwrap();
    let id = put["segment_ids"][0].as_str().unwrap();
    let pinned = format!("leave out {id}, or unpin it with `waystone segment unpin`");
    assert_eq!(hint(&["segment", "prune", id, "--action", "stash"]), pinned);
    let ids = "use ids that `waystone segment list` or `waystone search` prints";
    assert_eq!(hint(&["segment", "unpin", "none"]), ids);
    assert_eq!(hint(&["context", "show", "none"]), "look for its id in `waystone context list`");
    assert_eq!(hint(&["checkpoint", "show", "none"]), "look for its id with `waystone checkpoint list`");
    let stash = run(&["segment", "stash"]);
    let said = String::from_utf8(stash.stdout).unwrap();
    assert!(said.contains("pinned and stay") && !said.contains("context_"), "{said}");

    run(&["segment", "put", "a log", "--type", "log"]);
    let planned = String::from_utf8(run(&["segment", "gc", "--target", "1", "--action", "delete"]).stdout).unwrap();
    let line = planned.lines().find_map(|line| line.strip_suffix(" carries it out")).unwrap();
    let typed: Vec<&str> = line.split(' ').skip(1).collect();
    assert!(hint(&typed).contains("--yes"), "it asks before it deletes");
    assert!(run(&[&typed[..], &["--yes"]].concat()).status.success());
}

#[test]
fn a_key_that_is_there_is_not_overwritten_and_the_message_says_so() {
    let directory = private_dir();
    let (data, file) = (directory.path().join("data"), directory.path().join("key"));
    let generate = || {
        let mut command = command(&binary("waystone"), &data);
        command.args(["key", "generate", "--output"]).arg(&file).output().unwrap()
    };
    assert!(generate().status.success());
    let first = std::fs::read(&file).unwrap();
    let refused = generate();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("is there already and is not overwritten"), "{said}");
    assert!(said.contains("hint: name another file, or move that one away"), "{said}");
    assert_eq!((refused.status.code(), std::fs::read(&file).unwrap()), (Some(2), first));
}

#[test]
fn the_last_line_of_a_view_can_be_typed_as_it_stands() {
    let directory = private_dir();
    let file = directory.path().join("context.json");
    let text = "a line of it\n".repeat(200);
    let context = serde_json::json!({ "goal": "go", "build log": text, "trace log": text });
    std::fs::write(&file, context.to_string()).unwrap();
    let run = |arguments: &[&str]| {
        let output = command(&binary("waystone"), directory.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["checkpoint", "save", "s", file.to_str().unwrap()]);
    let view = run(&["checkpoint", "view", "--latest", "s", "--tokens", "60"]);
    let handle = view.split_once("the rest: waystone expand '").unwrap().1.split_once('\'').unwrap().0;
    assert!(handle.ends_with("#/build%20log") || handle.ends_with("#/trace%20log"), "{handle}");
    assert_eq!(run(&["expand", handle]).trim_end(), text.trim_end());
    assert!(view.contains("and so with #/"), "{view}");
}

#[test]
fn install_takes_project_as_a_plain_flag_and_says_where_it_writes() {
    let said = help(&["install", "--help"]);
    assert!(said.contains("      --project  Into files of the project in the working directory"), "{said}");
    assert!(!said.contains("--project <"), "{said}");
}
