//! `--user` and `--project` of `install`. The latter is also the name of a setting, with a value, that all commands take; here it
//! stands for itself. The two are told apart by their type, which is why clap's derive cannot read them.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::client::Scope;

const PROJECT: &str = "project";
const USER: &str = "user";

/// The scope that was asked for.
#[derive(Debug)]
pub(crate) struct Asked(pub(super) Scope);

impl Args for Asked {
    fn augment_args(command: Command) -> Command {
        let flag = |name: &'static str, other: &'static str| {
            let flag = Arg::new(name).long(name).action(ArgAction::Set).num_args(0).default_missing_value("true");
            flag.value_parser(clap::value_parser!(bool)).overrides_with(name).conflicts_with(other)
        };
        let user = "Into your own files, for all projects; so it is when neither is given";
        let project = "Into files of the project in the working directory, for it alone; they are often shared, and name this program by its path";
        command.arg(flag(USER, PROJECT).help(user)).arg(flag(PROJECT, USER).help(project))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Asked {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_project = matches!(matches.try_get_one::<bool>(PROJECT), Ok(Some(true)));
        Ok(Self(if is_project { Scope::Project } else { Scope::User }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
