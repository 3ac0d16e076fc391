//! A limit on how long a child process may take. A read from it ends when it is killed, so no read needs a limit of its own.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Kills a process that still runs after some time. Dropping it lets the process live.
pub struct Watchdog {
    has_bitten: Arc<AtomicBool>,
    _leash: Sender<()>,
}

impl Watchdog {
    pub fn over(pid: u32, limit: Duration) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let (leash, slack) = channel();
        let has_bitten = Arc::new(AtomicBool::new(false));
        let bites = Arc::clone(&has_bitten);
        std::thread::spawn(move || {
            if slack.recv_timeout(limit) == Err(RecvTimeoutError::Timeout)
                && pidfd_send_signal(&process, Signal::KILL).is_ok()
            {
                bites.store(true, Ordering::SeqCst);
            }
        });
        Ok(Self { has_bitten, _leash: leash })
    }

    pub fn has_bitten(&self) -> bool {
        self.has_bitten.load(Ordering::SeqCst)
    }
}
