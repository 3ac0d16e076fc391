//! Settings as flags: what clap is told of the table, and what it reads for it.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};

use super::layer::parse;
use super::{DATA_DIR, Kind, SETTINGS, Setting};

/// What settings stand under in help.
pub(crate) const HEADING: &str = "Settings";

/// The setting that is a filter where lists are of all projects.
const PROJECT: &str = "project";

/// Settings that are about some commands, and in their help.
const OF_COMMANDS: [(&str, &[&str]); 12] = [
    ("serve", &["host", "port", "allowedOrigins", "allowOtherUsers"]),
    ("mcp", &["tools"]),
    ("chat", &["model", "toolPolicy", "allowedTools"]),
    ("segment", &["project"]),
    ("task", &["project"]),
    ("undo", &["project"]),
    ("search", &["project"]),
    ("resume", &["project"]),
    ("session list", &["project"]),
    ("checkpoint list", &["project"]),
    ("checkpoint save", &["project"]),
    ("context list", &["project"]),
];

/// Commands that look at all projects unless one is named where they are typed.
const OF_ALL_PROJECTS: [&str; 4] = ["session list", "checkpoint list", "context list", "search"];

/// Where all of them are.
const ELSEWHERE: &str = "All settings are flags here too, such as --data-dir: see `waystone --help`.";

/// What was given as flags.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(pub(super) Map<String, Value>);

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().fold(command, |command, setting| {
            let help = format!("{}{} [env: {}]", setting.about, shown_default(setting), setting.variable);
            let mut arg = Arg::new(setting.key)
                .long(setting.flag())
                .value_name(placeholder(setting.kind))
                .global(true)
                .help_heading(HEADING)
                .hide_short_help(setting.key != DATA_DIR)
                .help(help.clone())
                // Man pages show only this of what short help hides.
                .long_help(help)
                .action(ArgAction::Set);
            if let Kind::OneOf(choices) = setting.kind {
                arg = arg.value_parser(PossibleValuesParser::new(choices));
            }
            if let Kind::Switch = setting.kind {
                arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
            }
            match setting.key {
                DATA_DIR => arg = arg.alias("storage-path"),
                // What lists had before they all took the setting.
                PROJECT => arg = arg.alias("in"),
                _ => {}
            }
            command.arg(arg)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Map::new();
        for setting in &SETTINGS {
            // A command may have a flag of its own with the name of a setting, which then is not a text.
            if let Ok(Some(text)) = matches.try_get_one::<String>(setting.key) {
                let value = parse(setting, text).map_err(|error| {
                    clap::Error::raw(
                        clap::error::ErrorKind::ValueValidation,
                        format!("--{}: {error}\n", setting.flag()),
                    )
                })?;
                flags.insert(setting.key.to_owned(), value);
            }
        }
        Ok(Self(flags))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The program with settings in its own help, and in that of a command only those that are about it. They are flags of all commands.
pub(crate) fn hide_in_commands(program: Command) -> Command {
    let settings: Vec<Arg> =
        program.get_arguments().filter(|arg| arg.get_help_heading() == Some(HEADING)).cloned().collect();
    program.mut_subcommands(|command| {
        let path = command.get_name().to_owned();
        hide(command, &settings, &path)
    })
}

fn hide(command: Command, settings: &[Arg], path: &str) -> Command {
    let is_about = |name: &str| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    let shown: Vec<&str> =
        OF_COMMANDS.iter().filter(|(name, _)| is_about(name)).flat_map(|(_, keys)| *keys).copied().collect();
    let is_own = |setting: &&Arg| command.get_arguments().any(|arg| arg.get_id() == setting.get_id());
    // What a command has itself is not passed on to it.
    let passed = settings.iter().filter(|setting| !is_own(setting)).map(|setting| {
        let is_hidden = !shown.contains(&setting.get_id().as_str());
        let passed = setting.clone().hide(is_hidden).hide_short_help(false).long_help(None);
        match setting.get_id() == PROJECT && OF_ALL_PROJECTS.contains(&path) {
            true => passed.help("Only what is in this project [default: all projects]"),
            false => passed,
        }
    });
    let passed: Vec<Arg> = passed.collect();
    let said = command.get_after_help().map(|said| format!("{said}\n\n")).unwrap_or_default();
    command.args(passed).after_help(said + ELSEWHERE).mut_subcommands(|command| {
        let path = format!("{path} {}", command.get_name());
        hide(command, settings, &path)
    })
}

fn placeholder(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "TEXT",
        Kind::Number(..) => "N",
        Kind::Origins | Kind::Names => "A,B",
        Kind::OneOf(_) => "CHOICE",
        Kind::Loopback => "ADDRESS",
        Kind::Rules | Kind::Servers | Kind::Models | Kind::ModelLimits => "JSON",
        Kind::Switch => "BOOL",
    }
}

fn shown_default(setting: &Setting) -> String {
    match (setting.default)() {
        Value::String(text) => format!(" [default: {text}]"),
        Value::Number(number) => format!(" [default: {number}]"),
        _ => String::new(),
    }
}
