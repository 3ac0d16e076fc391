//! A terminal of 80 columns, and what a person sees on it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::person::Person;

/// What stands before what is said.
pub(crate) const PROMPT: &str = "\n> ";

pub(crate) struct Terminal {
    pub(crate) child: Child,
    keys: File,
    shown: Vec<u8>,
    /// How much of what is shown was waited for.
    seen: usize,
}

/// The two sides of a new terminal.
pub(crate) fn open() -> (File, File) {
    // Who is on the other side must not have this side too: then it would never be over.
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let other = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let other = File::options().read(true).write(true).open(other).unwrap();
    tcsetwinsize(&other, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (ours.into(), other)
}

impl Terminal {
    pub(crate) fn begin(person: &Person, arguments: &[&str]) -> Self {
        let (keys, screen) = open();
        let mut command = person.command(arguments);
        command.env("TERM", "xterm").env("NO_COLOR", "1");
        command.stdin(screen.try_clone().unwrap()).stdout(screen.try_clone().unwrap()).stderr(screen);
        let child = command.spawn().unwrap();
        Self { child, keys, shown: Vec::new(), seen: 0 }
    }

    /// A conversation in which one can speak.
    pub(crate) fn chat(person: &Person, arguments: &[&str]) -> Self {
        let mut terminal = Self::begin(person, &[&["chat"], arguments].concat());
        terminal.wait_for(PROMPT);
        terminal
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// All that was shown so far, without what moves the cursor.
    fn text(&self) -> String {
        anstream::adapter::strip_str(&String::from_utf8_lossy(&self.shown)).to_string().replace('\r', "")
    }

    /// Waits until this is shown. Returns what is shown before it.
    pub(crate) fn wait_for(&mut self, wanted: &str) -> String {
        loop {
            let text = self.text();
            if let Some(at) = text[self.seen..].find(wanted) {
                let before = text[self.seen..self.seen + at].to_owned();
                self.seen += at + wanted.len();
                return before;
            }
            assert!(self.read(), "{wanted:?} is not in {:?}", &text[self.seen..]);
        }
    }

    /// Whether there is more to come.
    fn read(&mut self) -> bool {
        let mut part = [0; 4096];
        // Where nobody writes any more there is an error, not an end.
        let count = self.keys.read(&mut part).unwrap_or_default();
        self.shown.extend(&part[..count]);
        count > 0
    }

    /// Types a line. Returns what is shown between it and `end`.
    pub(crate) fn enter(&mut self, line: &str, end: &str) -> String {
        self.press(&format!("{line}\r"));
        let shown = self.wait_for(end);
        shown.split_once('\n').map(|(_, after)| after.to_owned()).unwrap_or_default()
    }

    pub(crate) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the command has ended, and whether well. Returns what else is shown.
    pub(crate) fn ended(mut self, is_well: bool) -> String {
        while self.read() {}
        assert_eq!(self.child.wait().unwrap().success(), is_well, "{}", self.text());
        self.text()[self.seen..].to_owned()
    }
}
