//! SIGINT and SIGTERM during a command of several steps: it ends between two of them and says how far it came.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cli::error::CliError;
use crate::signals::EndSignals;

/// The wish of the user that the command ends.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches the signals from now on. A second one ends the process at once.
    /// Errors: if the system refuses the handlers.
    pub fn listen() -> Result<Self, CliError> {
        let requested = Arc::new(AtomicBool::new(false));
        watch(Arc::clone(&requested))
            .map_err(|error| CliError::Failed(format!("cannot listen for signals: {error}")))?;
        Ok(Self(requested))
    }

    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn watch(requested: Arc<AtomicBool>) -> io::Result<()> {
    let mut signals = EndSignals::catch()?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        signals.wait();
        requested.store(true, Ordering::Relaxed);
        std::process::exit(signals.wait());
    })?;
    Ok(())
}
