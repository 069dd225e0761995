//! Panics turned into errors. A panic would otherwise end its thread, and with it everything that the thread does.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};

/// Runs `job` and returns its result, or [`Error::Fault`] if it panics; the error names `what` panicked and quotes the
/// panic's message.
///
/// Everything that `job` borrows must be usable after a panic: locks that recover from poisoning, transactions that
/// roll back when they are dropped.
pub fn catch<T>(what: &str, job: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| Err(fault(what, &*panic)))
}

/// Apart from `catch`: the program contains a copy of that for each kind of job.
#[cold]
fn fault(what: &str, panic: &(dyn Any + Send)) -> Error {
    let literal = panic.downcast_ref::<&str>().copied();
    let message = literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::fault(format!("{what} panicked: {}", message.unwrap_or("(no message)")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_fault_that_quotes_its_message() {
        let fault = |job: fn() -> Result<u8>| catch("the job", job).unwrap_err().to_string();
        assert!(fault(|| panic!("seven")).ends_with("the job panicked: seven"));
        assert!(fault(|| panic!("{}", 7)).ends_with("the job panicked: 7"));
        assert!(matches!(catch("the job", || Ok(1)), Ok(1)));
        assert!(fault(|| std::panic::panic_any(7)).ends_with("the job panicked: (no message)"));
    }
}
