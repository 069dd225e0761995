//! The handle by which other threads end a command, or notice that it has ended.

use std::io::{self, PipeReader, PipeWriter, Write as _};

use crate::locks::Mutex;
use crate::worker::process::life::Cause;

/// A run, for the threads beside its own.
#[derive(Debug)]
pub struct Handle {
    state: Mutex<HandleState>,
    /// The thread of the run waits for bytes of this pipe.
    waker: PipeWriter,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct HandleState {
    pub requested: Option<Cause>,
    pub is_urgent: bool,
    pub has_exited: bool,
}

impl Handle {
    /// # Errors
    /// If the system has no pipe left.
    pub fn new() -> io::Result<(Self, PipeReader)> {
        let (reader, waker) = io::pipe()?;
        Ok((Self { state: Mutex::default(), waker }, reader))
    }

    #[must_use]
    pub fn state(&self) -> HandleState {
        *self.state.lock()
    }

    /// Asks for the end. The first cause counts.
    pub fn end(&self, cause: Cause) {
        self.change(|state| {
            let is_new = state.requested.is_none();
            state.requested.get_or_insert(cause);
            is_new
        });
    }

    /// Asks for the end without a pause.
    pub fn kill(&self) {
        self.change(|state| {
            state.requested.get_or_insert(Cause::Stopped);
            !std::mem::replace(&mut state.is_urgent, true)
        });
    }

    pub(in crate::worker::process) fn exited(&self) {
        self.change(|state| !std::mem::replace(&mut state.has_exited, true));
    }

    /// Wakes the thread of the run if `change` returns that there is something new, so that the pipe never fills.
    fn change(&self, change: impl FnOnce(&mut HandleState) -> bool) {
        if change(&mut self.state.lock()) {
            // Without a reader the run is over.
            drop((&self.waker).write_all(&[1]));
        }
    }
}
