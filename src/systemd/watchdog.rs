//! The signs of life that systemd waits for: sent while the scheduler goes about its work and the writer answers, so
//! that a program which hangs is started again. A disk that is full is no reason: another start would find it full too.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::app::App;
use crate::systemd::NotifySocket;

/// The thread that sends them.
#[derive(Debug)]
pub struct Watchdog {
    tell: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    /// Starts the thread: a sign of life in every half of `patience`.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn start(app: &Arc<App>, manager: Arc<NotifySocket>, patience: Duration) -> io::Result<Self> {
        let (tell, told) = channel();
        let app = Arc::clone(app);
        let thread = std::thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || run(&app, &manager, patience / 2, &told))?;
        Ok(Self { tell, thread })
    }

    /// From now on a sign of life comes whatever the engine does: it is stopping.
    pub fn relax(&self) {
        if self.tell.send(()).is_err() {
            tracing::error!("there is no watchdog any more");
        }
    }

    /// Ends the thread.
    pub fn stop(self) {
        drop(self.tell);
        if self.thread.join().is_err() {
            tracing::error!("the watchdog's thread ended by a panic");
        }
    }
}

fn run(app: &App, manager: &NotifySocket, pause: Duration, told: &Receiver<()>) {
    let (mut was_alive, mut is_stopping) = (true, false);
    loop {
        let is_alive =
            is_stopping || (app.store.writer_responds() && app.engine_stats.is_alive(app.clock.monotonic()));
        match (was_alive, is_alive) {
            (true, true) => manager.tell("WATCHDOG=1"),
            (false, true) => manager.tell("WATCHDOG=1\nSTATUS=Turning again"),
            (true, false) => {
                tracing::error!("the scheduler or the writer has ended or hangs: no more signs of life");
                manager.tell("STATUS=The scheduler or the writer has ended or hangs");
            }
            (false, false) => {}
        }
        was_alive = is_alive;
        match told.recv_timeout(pause) {
            Ok(()) => is_stopping = true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
