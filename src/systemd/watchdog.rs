//! The thread that sends `WATCHDOG=1` while the program responds, so that systemd restarts one that hangs.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::systemd::NotifySocket;

/// Reports to the thread whether the program works.
pub struct Liveness {
    /// The name of the part that hangs when it does not, in the log.
    pub what: &'static str,
    pub is_alive: Box<dyn Fn() -> bool + Send>,
}

#[derive(Debug)]
pub struct Watchdog {
    stopping: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    /// Starts the thread. It notifies systemd twice per `timeout`, as systemd recommends.
    pub fn start(liveness: Liveness, socket: Arc<NotifySocket>, timeout: Duration) -> io::Result<Self> {
        let (stopping, stop) = channel();
        let thread = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || run(&liveness, &socket, timeout / 2, &stop))?;
        Ok(Self { stopping, thread })
    }

    /// From now on the thread notifies systemd unconditionally, because the program is stopping.
    pub fn begin_stop(&self) {
        if self.stopping.send(()).is_err() {
            tracing::error!("watchdog thread has ended");
        }
    }

    pub fn stop(self) {
        drop(self.stopping);
        if self.thread.join().is_err() {
            tracing::error!("watchdog thread panicked");
        }
    }
}

fn run(liveness: &Liveness, socket: &NotifySocket, interval: Duration, stop: &Receiver<()>) {
    let (mut was_alive, mut is_stopping) = (true, false);
    loop {
        let is_alive = is_stopping || (liveness.is_alive)();
        match (was_alive, is_alive) {
            (true, true) => socket.send("WATCHDOG=1"),
            (false, true) => socket.send("WATCHDOG=1\nSTATUS=Running again"),
            (true, false) => {
                tracing::error!(part = liveness.what, "unresponsive; systemd watchdog no longer notified");
                socket.send(&format!("STATUS={} is unresponsive", liveness.what));
            }
            (false, false) => {}
        }
        was_alive = is_alive;
        match stop.recv_timeout(interval) {
            Ok(()) => is_stopping = true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
