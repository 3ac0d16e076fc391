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
