//! Random bytes from the operating system, through ring: the only source of randomness in the program.
//!
//! The functions return a fault when the operating system returns no random bytes.

use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};

use crate::domain::ids::{ExecutionId, ExecutionIdGenerator};
use crate::error::{Error, Result};
use crate::system::locks::Mutex;

pub fn fill(bytes: &mut [u8]) -> Result<()> {
    // ring gives no cause: `Unspecified` has no content.
    SystemRandom::new().fill(bytes).map_err(|ring::error::Unspecified| {
        Error::fault("the operating system returned no random bytes")
    })
}

pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

pub fn uuid() -> Result<String> {
    Ok(uuid::Builder::from_random_bytes(bytes()?).into_uuid().to_string())
}

/// Generates the execution ids of a running program; ids of one millisecond must come from one generator to sort.
#[derive(Debug, Default)]
pub struct ExecutionIdSource(Mutex<ExecutionIdGenerator>);

impl ExecutionIdSource {
    pub fn next(&self, now: Timestamp) -> Result<ExecutionId> {
        let random = bytes()?;
        Ok(self.0.lock().generate(now, random))
    }
}
