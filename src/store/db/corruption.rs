//! Whether damage was met in the file: in a large one it shows only where it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// What all lanes know of it. It does not pass: only a start looks at the file anew.
#[derive(Debug, Clone, Default)]
pub struct CorruptionFlag(Arc<AtomicBool>);

impl CorruptionFlag {
    /// Notes what an answer tells of the file, and hands it on.
    pub fn noted<T>(&self, answer: Result<T>) -> Result<T> {
        if let Err(error) = &answer {
            self.note(error);
        }
        answer
    }

    /// Notes what an error tells of the file.
    pub fn note(&self, error: &Error) {
        if matches!(error, Error::Damaged(_)) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether any was met since the start.
    pub fn was_met(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
