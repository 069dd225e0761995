//! The record of corruption found at run time. A start checks only a small file completely; in a larger one corruption
//! shows when the affected page is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Set once any read or write has found the file corrupt; shared by all threads of the store. It is never cleared,
/// since only the next start checks the file again.
#[derive(Debug, Clone, Default)]
pub struct CorruptionFlag(Arc<AtomicBool>);

impl CorruptionFlag {
    /// Records the error of `result`, if it has one, and returns `result`.
    pub fn observe<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.record(error);
        }
        result
    }

    /// Sets the flag if `error` reports corruption.
    pub fn record(&self, error: &Error) {
        if matches!(error, Error::Corrupt(_)) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
