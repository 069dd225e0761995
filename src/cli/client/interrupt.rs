//! SIGINT and SIGTERM during a command of several steps: it ends between two of them and says how far it came.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::signal::unix::{SignalKind, signal};

use crate::cli::error::CliError;

/// The exit code by which shells report a signal is this and its number.
const SIGNALLED: i32 = 128;

/// Whether the user wants the command to end.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches the signals from now on. A second one ends the process at once.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub fn listen() -> Result<Self, CliError> {
        let requested = Arc::new(AtomicBool::new(false));
        watch(Arc::clone(&requested))
            .map_err(|error| CliError::Failed(format!("cannot listen for signals: {error}")))?;
        Ok(Self(requested))
    }

    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn watch(requested: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut signals = {
        let _within = runtime.enter();
        let caught = [SignalKind::interrupt(), SignalKind::terminate()].into_iter();
        caught.map(|kind| Ok((signal(kind)?, kind.as_raw_value()))).collect::<io::Result<Vec<_>>>()?
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut next = || {
            runtime.block_on(poll_fn(|context| {
                let mut received = signals.iter_mut();
                let received =
                    received.find_map(|(it, number)| it.poll_recv(context).is_ready().then_some(*number));
                received.map_or(Poll::Pending, Poll::Ready)
            }))
        };
        next();
        requested.store(true, Ordering::Relaxed);
        std::process::exit(SIGNALLED + next());
    })?;
    Ok(())
}
