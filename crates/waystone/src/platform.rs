//! What the process keeps to itself, as far as the operating system lets it.

/// From here on files are this user's alone whatever the surroundings say, and a crash leaves no image of the memory.
#[cfg(unix)]
pub(crate) fn keep_to_ourselves() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    // A process that may not do so is no worse than before.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // The limit does not hold where a crash is handed to a program.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

#[cfg(not(unix))]
pub(crate) fn keep_to_ourselves() {}
