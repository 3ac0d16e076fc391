//! A thread that does something in rounds until its handle is dropped.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Dropping it tells the thread to end and waits for that.
pub(crate) struct Background {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(name: &str, run: impl FnOnce(&Stop) + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&Stop(stopped)))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// By which the thread learns that it is to end.
pub(crate) struct Stop(Receiver<()>);

impl Stop {
    /// Waits for the next round. False when there is none.
    pub(crate) fn wait(&self, round: Duration) -> bool {
        matches!(self.0.recv_timeout(round), Err(RecvTimeoutError::Timeout))
    }

    pub(crate) fn is_told(&self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Disconnected))
    }
}
