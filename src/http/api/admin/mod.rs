//! `/v1/admin`: what an operator manages (contract §13). For everybody else these routes do not exist.

pub mod backups;
pub mod server;
pub mod users;

use crate::error::{Error, Result};

/// Runs a job that waits for the disk on a thread that may block.
async fn run_blocking<T: Send + 'static>(
    job: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(job).await;
    done.map_err(|error| Error::fault_from("a job of an operator failed", error))?
}
