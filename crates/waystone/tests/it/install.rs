//! `install` and its undo, as a process, in a home directory of its own.

mod files;
mod home;

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use waystone_testkit::process::{binary, command};

use files::files_for;
use home::{Home, Hooks, Servers, TARGETS, Table, expected, holds, own_path, split, strict};

#[test]
fn install_into_an_empty_home_is_undone_without_a_trace() {
    for (client, scope, files) in TARGETS {
        let home = Home::new();
        let before = home.all();
        let said = home.install(client, scope);
        for (path, kind) in files {
            assert!(said.contains(path), "{said}");
            assert_eq!(split(&home.read(path), *kind).0, expected(*kind, None), "{client} {scope} {path}");
        }
        let installed = home.all();
        assert!(home.install(client, scope).contains("already installed"));
        assert_eq!(home.all(), installed, "{client} {scope}: a second install changes nothing");
        home.undo(client, scope);
        assert_eq!(home.all(), before, "{client} {scope}");
        assert!(home.undo(client, scope).contains("not installed"));
        assert_eq!(home.all(), before, "{client} {scope}");
    }
}

#[test]
fn everything_else_in_a_file_stays_and_undo_gives_it_back_byte_for_byte() {
    for (client, scope, files) in TARGETS {
        for (path, kind) in files {
            for file in files_for(*kind, scope) {
                let home = Home::new();
                home.write(path, &file);
                let before = home.all();
                home.install(client, scope);
                let text = home.read(path);
                let (ours, rest) = split(&text, *kind);
                assert_eq!(ours, expected(*kind, None), "{file:?}: {text}");
                assert!(holds(&text, &file), "{file:?}: {text}");
                if *kind != Table {
                    let emptied = |value: Value| value.to_string().replace("[]", "").replace("{}", "");
                    let was = strict(&file).as_object().unwrap().iter().all(|(key, value)| {
                        emptied(rest[key].clone()).contains(emptied(value.clone()).trim_matches(['{', '}']))
                    });
                    assert!(was, "{file:?}: {text}");
                }
                let crlf = |text: &str| text.matches("\r\n").count() == text.matches('\n').count();
                assert!(!file.contains("\r\n") || crlf(&text), "{file:?}: {text:?}");
                assert_eq!(home.read(&format!("{path}.waystone-backup")), file);
                let installed = home.all();
                home.install(client, scope);
                assert_eq!(home.all(), installed, "a second install changes nothing: {file:?}");
                home.undo(client, scope);
                assert_eq!(home.all(), before, "{file:?}");
            }
        }
    }
}

#[test]
fn what_was_edited_after_install_is_still_there_after_undo() {
    for (client, scope, files) in TARGETS {
        for (path, kind) in files {
            for file in files_for(*kind, scope) {
                let home = Home::new();
                home.write(path, &file);
                home.install(client, scope);
                let note = if *kind == Table { "\n# edited" } else { "\n// edited" };
                home.write(path, &(home.read(path) + note));
                home.undo(client, scope);
                let text = home.read(path);
                assert!(text.ends_with(note) && !text.contains("waystone"), "{file:?}: {text}");
                let squeezed = |text: &str| text.split_whitespace().collect::<String>();
                assert!(holds(&squeezed(&text), &squeezed(&file)), "{file:?}: {text}");
                match kind {
                    Table => drop(text.parse::<toml_edit::DocumentMut>().unwrap()),
                    _ => assert_eq!(strict(&text), strict(&file), "{file:?}: {text}"),
                }
                assert_eq!(home.read(&format!("{path}.waystone-backup")), file, "the backup is kept");
            }
        }
    }
}

#[test]
fn what_a_client_wrote_anew_keeps_all_but_our_entry() {
    let home = Home::new();
    home.write(".claude.json", "{\"n\":1}");
    home.install("claude-code", "--user");
    let mut file = strict(&home.read(".claude.json"));
    file["startups"] = json!(7);
    home.write(".claude.json", &serde_json::to_string_pretty(&file).unwrap());
    home.undo("claude-code", "--user");
    assert_eq!(home.read(".claude.json"), "{\n  \"n\": 1,\n  \"startups\": 7\n}");
    home.install("codex", "--user");
    let trusted = "\n[hooks.state.\"a:stop:0:0\"]\ntrusted_hash = \"sha256:0\"\n";
    home.write(".codex/config.toml", &(home.read(".codex/config.toml") + trusted));
    home.undo("codex", "--user");
    assert_eq!(home.read(".codex/config.toml"), trusted);
}

#[test]
fn a_file_that_cannot_be_edited_is_refused_and_no_file_is_changed() {
    let check = |client: &str, path: &str, file: &[u8], says: &str| {
        let home = Home::new();
        home.write(path, "");
        fs::write(home.path(path), file).unwrap();
        let before = home.all();
        for undo in [&[][..], &["--undo"]] {
            let output = home.run(&[&[client, "--yes"], undo].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{client} {said}");
            assert!(said.contains(path) && said.contains(says), "{client} {says}: {said}");
            assert_eq!(home.all(), before, "{client} {says}");
        }
    };
    for (client, path, key) in
        [("cursor", ".cursor/mcp.json", "mcpServers"), ("vscode", ".config/Code/User/mcp.json", "servers")]
    {
        check(client, path, b"{", "not valid JSON");
        check(client, path, b"{ 'a': 1 }", "not valid JSON");
        check(client, path, b"{\"a\": 1 \"b\": 2}", "not valid JSON");
        check(client, path, b"[]", "not a JSON object");
        check(client, path, b"\xff", "not UTF-8");
        check(client, path, format!("{{\"{key}\": []}}").as_bytes(), "is not an object");
        check(client, path, format!("{{\"{key}\": null}}").as_bytes(), "is not an object");
        check(client, path, format!("{{\"{key}\": {{}}, \"{key}\": {{}}}}").as_bytes(), "twice");
    }
    check("codex", ".codex/config.toml", b"a = ", "not valid TOML");
    check("codex", ".codex/config.toml", b"mcp_servers = 1", "is not a table");
    check("codex", ".codex/config.toml", b"mcp_servers = {}", "between braces");
    check("claude-code", ".claude/settings.json", b"{\"hooks\": {\"Stop\": {}}}", "is not a list");
    check("claude-code", ".claude/settings.json", b"{\"hooks\": []}", "is not an object");
}

#[test]
fn an_entry_that_differs_is_replaced_and_undo_still_gives_the_first_file_back() {
    for (client, scope, files) in TARGETS {
        for (path, kind) in files {
            for file in files_for(*kind, scope) {
                let home = Home::new();
                home.write(path, &file);
                let before = home.all();
                home.install(client, scope);
                home.done(&[client, scope, "--yes", "--data-dir", "/other"]);
                let (ours, _) = split(&home.read(path), *kind);
                assert_eq!(ours, expected(*kind, Some("/other")), "{file:?}");
                assert_eq!(home.read(path).matches(&own_path()).count(), if *kind == Hooks { 3 } else { 1 });
                home.undo(client, scope);
                assert_eq!(home.all(), before, "{file:?}");
            }
        }
    }
}

#[test]
fn hooks_of_others_stay_also_where_ours_stands_between_them() {
    let home = Home::new();
    let ours = format!("{{ \"type\": \"command\", \"command\": \"{} hook stop\" }}", own_path());
    let other = |name: &str| format!("{{ \"type\": \"command\", \"command\": \"{name}\" }}");
    let file = |between: &str| {
        format!("{{ \"hooks\": {{ \"Stop\": [{{ \"hooks\": [{}, {between}{}] }}] }} }}", other("one"), other("two"))
    };
    home.write(".claude/settings.json", &file(&format!("{ours}, ")));
    home.install("claude-code", "--user");
    assert_eq!(home.read(".claude/settings.json").matches("hook stop").count(), 1, "ours is not added again");
    home.undo("claude-code", "--user");
    assert_eq!(home.read(".claude/settings.json"), file(""));
}

#[test]
fn nothing_is_written_before_it_was_confirmed() {
    let home = Home::new();
    home.write(".cursor/mcp.json", "{}\n");
    let before = home.all();
    let output = home.run(&["cursor"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no terminal to ask on") && said.contains("--yes"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("+  \"mcpServers\": {"), "the diff is shown before");
    assert_eq!(home.all(), before);
    let said = home.done(&["cursor", "--dry-run"]);
    assert!(said.contains("+    \"waystone\": {") && said.contains("Nothing was changed."), "{said}");
    assert_eq!(home.all(), before);
    let reply: Value = serde_json::from_str(&home.done(&["cursor", "--yes", "--json"])).unwrap();
    let path = home.path(".cursor/mcp.json");
    let backup = format!("{}.waystone-backup", path.display());
    assert_eq!(
        (&reply["client"], &reply["scope"], &reply["applied"]),
        (&json!("cursor"), &json!("user"), &json!(true))
    );
    let file = &reply["files"][0];
    assert_eq!((&file["path"], &file["action"], &file["backup"]), (&json!(path), &json!("changed"), &json!(backup)));
    let installed = home.all();
    assert_eq!(home.run(&["cursor", "--undo"]).status.code(), Some(2));
    home.done(&["cursor", "--undo", "--dry-run"]);
    assert_eq!(home.all(), installed);
}

#[test]
fn folders_and_a_data_directory_that_were_named_are_used() {
    let home = Home::new();
    let run = |client: &str, change: &dyn Fn(&mut Command)| {
        let mut command = home.command(&[client, "--yes"]);
        change(&mut command);
        assert!(command.output().unwrap().status.success());
    };
    run("codex", &|command| _ = command.env("CODEX_HOME", home.path("c")).env("WAYSTONE_DATA_DIR", "/d d"));
    let (server, _) = split(&home.read("c/config.toml"), Table);
    assert_eq!(server["env"], json!({ "WAYSTONE_DATA_DIR": "/d d" }));
    let stop = strict(&home.read("c/hooks.json"))["hooks"]["Stop"][0]["hooks"][0]["command"].clone();
    assert_eq!(stop, json!(format!("{} --data-dir \"/d d\" hook stop", own_path())));
    run("claude-code", &|command| _ = command.env("CLAUDE_CONFIG_DIR", home.path("k")));
    assert_eq!(split(&home.read("k/.claude.json"), Servers("mcpServers")).0, expected(Servers("mcpServers"), None));
    assert_eq!(split(&home.read("k/settings.json"), Hooks).0, expected(Hooks, None));
    run("cursor", &|command| _ = command.env("WAYSTONE_DATA_DIR", "relative"));
    let env = split(&home.read(".cursor/mcp.json"), Servers("mcpServers")).0["env"]["WAYSTONE_DATA_DIR"].clone();
    assert_eq!(env, json!(home.path("work/relative").canonicalize().unwrap_or(home.path("work/relative"))));
}

#[test]
fn project_as_a_setting_is_not_a_scope() {
    let home = Home::new();
    let mut command = command(&binary("waystone"), home.0.path());
    command.env("HOME", home.0.path()).current_dir(home.path("work"));
    let output = command.args(["--project", "p", "install", "cursor", "--yes"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(home.path(".cursor/mcp.json").exists() && !home.path("work/.cursor").exists());
    assert_eq!(home.run(&["cursor", "--project", "--user"]).status.code(), Some(2));
}

#[cfg(unix)]
#[test]
fn a_file_keeps_its_mode_and_stays_a_link() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    home.write("dotfiles/claude.json", "{}");
    fs::set_permissions(home.path("dotfiles/claude.json"), fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(home.path("dotfiles/claude.json"), home.path(".claude.json")).unwrap();
    let check =
        |path: &str| assert_eq!(fs::metadata(home.path(path)).unwrap().permissions().mode() & 0o777, 0o600, "{path}");
    home.install("claude-code", "--user");
    assert!(home.path(".claude.json").is_symlink() && home.read("dotfiles/claude.json").contains("waystone"));
    check("dotfiles/claude.json");
    check(".claude.json.waystone-backup");
    home.undo("claude-code", "--user");
    assert!(home.path(".claude.json").is_symlink());
    assert_eq!(home.read("dotfiles/claude.json"), "{}");
    check("dotfiles/claude.json");

    fs::remove_file(home.path("dotfiles/claude.json")).unwrap();
    let output = home.run(&["claude-code", "--yes"]);
    assert_eq!(output.status.code(), Some(2), "a link that leads nowhere is not replaced");
    assert!(home.path(".claude.json").is_symlink());
}

#[test]
fn an_entry_that_was_written_by_hand_comes_back() {
    let home = Home::new();
    let own =
        r#"{ "mcpServers": { "waystone": { "command": "/opt/waystone", "args": ["mcp"], "env": { "A": "b" } } } }"#;
    home.write("work/.mcp.json", own);
    let before = home.all();
    home.install("claude-code", "--project");
    assert!(!home.read("work/.mcp.json").contains("/opt/waystone"));
    home.undo("claude-code", "--project");
    assert_eq!(home.all(), before);
}

#[cfg(unix)]
#[test]
fn a_backup_is_not_written_through_a_link() {
    let home = Home::new();
    home.write("work/.mcp.json", "{}");
    home.write("precious", "mine");
    std::os::unix::fs::symlink(home.path("precious"), home.path("work/.mcp.json.waystone-backup")).unwrap();
    let done = home.run(&["install", "claude-code", "--project", "--yes"]);
    assert!(!done.status.success());
    assert_eq!((home.read("precious").as_str(), home.read("work/.mcp.json").as_str()), ("mine", "{}"));
}

#[test]
fn who_has_claude_desktop_is_shown_what_to_paste_and_where() {
    let home = Home::new();
    let before = home.all();
    let data = home.path("elsewhere");
    let shown = home.done(&["claude-desktop", "--data-dir", data.to_str().unwrap()]);
    let lines: Value = serde_json::from_str(&shown[shown.find('{').unwrap()..]).unwrap();
    let server = json!({ "command": own_path(), "args": ["mcp"], "env": { "WAYSTONE_DATA_DIR": data } });
    assert_eq!(lines, json!({ "mcpServers": { "waystone": server } }));
    assert!(shown.contains(".config/Claude/claude_desktop_config.json"), "{shown}");
    let told: Value = serde_json::from_str(&home.done(&["claude-desktop", "--json"])).unwrap();
    assert_eq!(told["content"]["mcpServers"]["waystone"], json!({ "command": own_path(), "args": ["mcp"] }));
    assert!(home.done(&["claude-desktop", "--undo"]).contains("Take `waystone` out"));
    assert_eq!(home.all(), before, "nothing is written");
}
