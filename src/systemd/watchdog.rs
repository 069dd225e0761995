//! The thread that sends `WATCHDOG=1` while the scheduler and the store's writer thread respond, so that systemd
//! restarts a server that hangs. A full disk does not count: after a restart it would still be full.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::app::App;
use crate::systemd::NotifySocket;

#[derive(Debug)]
pub struct Watchdog {
    stopping: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    /// Starts the thread. It notifies systemd twice per `timeout`, as systemd recommends.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub fn start(app: &Arc<App>, socket: Arc<NotifySocket>, timeout: Duration) -> io::Result<Self> {
        let (stopping, stop) = channel();
        let app = Arc::clone(app);
        let thread = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || run(&app, &socket, timeout / 2, &stop))?;
        Ok(Self { stopping, thread })
    }

    /// From now on the thread notifies systemd unconditionally, because the engine is stopping.
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

fn run(app: &App, socket: &NotifySocket, interval: Duration, stop: &Receiver<()>) {
    let (mut was_alive, mut is_stopping) = (true, false);
    loop {
        let is_alive =
            is_stopping || (app.store.writer_responds() && app.engine_stats.is_alive(app.clock.monotonic()));
        match (was_alive, is_alive) {
            (true, true) => socket.send("WATCHDOG=1"),
            (false, true) => socket.send("WATCHDOG=1\nSTATUS=Running again"),
            (true, false) => {
                tracing::error!(
                    "scheduler or writer thread is unresponsive; systemd watchdog no longer notified"
                );
                socket.send("STATUS=Scheduler or writer thread is unresponsive");
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
