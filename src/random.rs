//! The one source of random bytes: the operating system's, through ring. What is made of them is in `domain`.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

use crate::domain::ids::{ExecutionId, ExecutionIdGenerator};
use crate::error::{Error, Result};

/// Fills a buffer with bytes fit for keys and secrets.
///
/// # Errors
/// A fault when the system has none to give.
pub fn fill(bytes: &mut [u8]) -> Result<()> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|ring::error::Unspecified| Error::Fault("the system gives no random bytes".to_owned()))
}

/// An array of such bytes.
///
/// # Errors
/// Those of [`fill`].
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// The one maker of execution ids of a running program.
#[derive(Debug, Default)]
pub struct ExecutionIdSource(Mutex<ExecutionIdGenerator>);

impl ExecutionIdSource {
    /// The next id, for an execution made at `now`.
    ///
    /// # Errors
    /// Those of [`fill`].
    pub fn next(&self, now: Timestamp) -> Result<ExecutionId> {
        let random = bytes()?;
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).generate(now, random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::CueId;

    #[test]
    fn random_bytes_differ_between_calls() {
        let (first, second) = (bytes::<32>().unwrap(), bytes::<32>().unwrap());
        assert_ne!(first, [0; 32]);
        assert_ne!(first, second);
    }

    #[test]
    fn fill_is_a_source_for_ids() {
        assert_ne!(CueId::generate(fill).unwrap(), CueId::generate(fill).unwrap());
    }
}
