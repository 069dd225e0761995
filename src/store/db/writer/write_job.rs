//! A queued write and its result.

use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::panics;
use crate::store::db::writer::WriteTx;

pub(in crate::store::db) trait WriteJob: Send {
    /// Runs the closure and returns whether it succeeded. If not, its changes are rolled back.
    fn run(&mut self, tx: &WriteTx<'_>) -> bool;
    /// The error that the closure returned.
    fn error(&self) -> Option<&Error>;
    /// Sends the result, or an error if the commit failed with `fault`.
    fn finish(self: Box<Self>, fault: Option<&Error>);
}

pub(in crate::store::db) struct TypedJob<T, F> {
    job: Option<F>,
    result: Option<Result<T>>,
    sender: oneshot::Sender<Result<T>>,
}

impl<T, F> TypedJob<T, F> {
    pub fn new(job: F, sender: oneshot::Sender<Result<T>>) -> Self {
        Self { job: Some(job), result: None, sender }
    }
}

impl<T: Send, F: FnOnce(&WriteTx<'_>) -> Result<T> + Send> WriteJob for TypedJob<T, F> {
    fn run(&mut self, tx: &WriteTx<'_>) -> bool {
        let Some(job) = self.job.take() else { return false };
        let result = panics::catch("a write", || job(tx));
        let has_succeeded = result.is_ok();
        self.result = Some(result);
        has_succeeded
    }

    fn error(&self) -> Option<&Error> {
        self.result.as_ref()?.as_ref().err()
    }

    fn finish(self: Box<Self>, fault: Option<&Error>) {
        let result = match (self.result, fault) {
            // A job that failed returns its own error: it had no changes to commit.
            (Some(Err(error @ (Error::Fault(_) | Error::Corrupt(_) | Error::Storage(_)))), _) => Err(error),
            // A refusal too: the row that it was based on (a claim, a report) may be part of the failed commit.
            (_, Some(fault)) => Err(failed_commit(fault)),
            (Some(result), None) => result,
            (None, None) => Err(Error::fault("a write was not run")),
        };
        // Sending fails if the caller no longer waits. The write is committed all the same.
        drop(self.sender.send(result));
    }
}

/// The error of each write of a batch whose commit failed with `fault`.
#[cold]
fn failed_commit(fault: &Error) -> Error {
    match fault {
        Error::Storage(fault) | Error::Fault(fault) | Error::Corrupt(fault) => Error::Storage(fault.clone()),
        Error::Refused(refusal) => Error::storage(refusal.to_string()),
    }
}
