//! What only the operating system can do: what the process keeps to itself, how wide a terminal is, and what was typed on it and is not
//! wanted.

/// From here on files are this user's alone whatever the surroundings say, and a crash leaves no image of the memory. What the
/// surroundings say of new files is for those that are the user's own and not ours.
#[cfg(unix)]
pub(crate) fn keep_to_ourselves() -> Option<u32> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let umask = rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    // A process that may not do so is no worse than before.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // The limit does not hold where a crash is handed to a program.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    Some(umask.as_raw_mode())
}

#[cfg(not(unix))]
pub(crate) fn keep_to_ourselves() -> Option<u32> {
    None
}

/// How wide the terminal is on which this is shown, if it is one.
#[cfg(unix)]
pub(crate) fn terminal_columns(shown: impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(shown).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(not(unix))]
pub(crate) fn terminal_columns<T>(_: T) -> Option<usize> {
    None
}

/// Throws away what was typed on the terminal of standard input and nobody has read. Elsewhere nothing is lost.
#[cfg(unix)]
pub(crate) fn forget_typed() {
    use rustix::termios::{QueueSelector, tcflush};
    // What is no terminal refuses.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
}

#[cfg(not(unix))]
pub(crate) fn forget_typed() {}
