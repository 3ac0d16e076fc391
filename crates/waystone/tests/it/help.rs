//! What the command line tells who does not know it yet.

use std::process::Output;

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
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["port"], serde_json::json!({ "value": 7, "origin": "--port" }), "{arguments:?}");
    }
}
