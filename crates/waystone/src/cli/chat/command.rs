//! What a line means that someone types in a conversation.

use waystone_core::id::BranchName;

/// What there is besides talking.
pub(super) const HELP: &str = "\
/branch NAME   begin a branch here, and go on there
/switch NAME   go on with another branch
/branches      list branches
/undo          take the last exchange back: go on before it, on a new branch
/edit TEXT     say your last message anew, in other words, on a new branch
/retry         ask again when there is no answer
/tools         list the tools that the model can call
/window        show what fills the model's window, and what is not in it
/model NAME    let another model answer from now on
/help          show this
/quit          end, as Ctrl-D does

A line that ends with \\ goes on in the next one. One that begins with a space is
said as it is. Ctrl-C ends an answer; what was written of it is kept. At the
prompt it drops the line, and twice in a row it ends the talk.
";

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Say(String),
    Branch(BranchName),
    Switch(BranchName),
    Branches,
    Undo,
    Edit(String),
    Retry,
    Tools,
    Window,
    Model(String),
    Help,
    Quit,
}

/// What someone wants who typed this; nothing if it is blank. An error says why it cannot be known.
pub(super) fn parse(typed: &str) -> Result<Option<Command>, String> {
    if typed.trim().is_empty() {
        return Ok(None);
    }
    if !typed.starts_with('/') {
        return Ok(Some(Command::Say(typed.trim_end().to_owned())));
    }
    let (name, rest) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let rest = rest.trim();
    let given = |what: &str| match rest.is_empty() {
        true => Err(format!("{name} needs {what}")),
        false => Ok(rest.to_owned()),
    };
    let branch = || given("the name of a branch")?.parse::<BranchName>();
    let command = match name {
        "/branch" => Command::Branch(branch()?),
        "/switch" => Command::Switch(branch()?),
        "/edit" => Command::Edit(given("what to say instead")?),
        "/model" => Command::Model(given("the name of a model")?),
        "/branches" => Command::Branches,
        "/undo" => Command::Undo,
        "/retry" => Command::Retry,
        "/tools" => Command::Tools,
        "/window" => Command::Window,
        "/help" => Command::Help,
        "/quit" | "/exit" => Command::Quit,
        _ => return Err(format!("there is no command {name}; /help shows those there are")),
    };
    let takes_more = matches!(command, Command::Branch(_) | Command::Switch(_) | Command::Edit(_) | Command::Model(_));
    match takes_more || rest.is_empty() {
        true => Ok(Some(command)),
        false => Err(format!("{name} takes nothing more; begin with a space to say it as it is")),
    }
}

/// Lines that are one: each but the last ends with a backslash.
#[derive(Debug, Default)]
pub(super) struct Lines(String);

impl Lines {
    /// Adds a line. Returns all that was typed when it does not go on.
    pub(super) fn add(&mut self, line: &str) -> Option<String> {
        match line.strip_suffix('\\') {
            Some(line) => {
                self.0 += line;
                self.0.push('\n');
                None
            }
            None => Some(std::mem::take(&mut self.0) + line),
        }
    }

    pub(super) fn is_begun(&self) -> bool {
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_fits_a_narrow_terminal() {
        assert!(HELP.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn a_line_is_said_unless_it_begins_with_a_slash() {
        let check = |typed: &str, wanted: Option<Command>| assert_eq!(parse(typed), Ok(wanted), "{typed:?}");
        let name = |name: &str| name.parse::<BranchName>().unwrap();
        check("", None);
        check("  \t ", None);
        check("hello \n", Some(Command::Say("hello".to_owned())));
        check(" /etc/hosts", Some(Command::Say(" /etc/hosts".to_owned())));
        check("/branch b1", Some(Command::Branch(name("b1"))));
        check("/switch  main ", Some(Command::Switch(name("main"))));
        check("/branches", Some(Command::Branches));
        check("/undo ", Some(Command::Undo));
        check("/edit say\nthis", Some(Command::Edit("say\nthis".to_owned())));
        check("/retry", Some(Command::Retry));
        check("/tools", Some(Command::Tools));
        check("/window", Some(Command::Window));
        check("/model gpt 4", Some(Command::Model("gpt 4".to_owned())));
        check("/help", Some(Command::Help));
        check("/quit", Some(Command::Quit));
        check("/exit", Some(Command::Quit));
    }

    #[test]
    fn what_is_wrong_with_a_command_is_said() {
        let check = |typed: &str, why: &str| assert!(parse(typed).unwrap_err().contains(why), "{:?}", parse(typed));
        check("/branch", "needs the name of a branch");
        check("/branch a/b", "may contain only");
        check("/edit  ", "needs what to say instead");
        check("/undo 2", "takes nothing more");
        check("/etc/hosts", "there is no command /etc/hosts; /help");
        check("/", "there is no command /");
        check("/Branch x", "there is no command /Branch");
    }

    #[test]
    fn a_line_that_ends_with_a_backslash_goes_on() {
        let mut lines = Lines::default();
        assert_eq!(lines.add("one"), Some("one".to_owned()));
        assert_eq!((lines.add("one \\"), lines.is_begun()), (None, true));
        assert_eq!(lines.add("\\"), None);
        assert_eq!(lines.add("two"), Some("one \n\ntwo".to_owned()));
        assert!(!lines.is_begun());
    }
}
