//! Settings as flags: what clap is told of the table, and what it reads for it.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};

use super::layer::parse;
use super::{DATA_DIR, Kind, SETTINGS, Setting};

/// What settings stand under in help.
pub(crate) const HEADING: &str = "Settings";

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
            if setting.key == DATA_DIR {
                arg = arg.alias("storage-path");
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
