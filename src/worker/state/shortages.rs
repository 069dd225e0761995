//! A shortage of the machine: file descriptors, processes, memory or disk space. It is no fault of a command, so the slot
//! waits and tries again, and keeps its claim and the lease. Meanwhile no slot claims more.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::worker::backoff::Backoff;
use crate::worker::run::Run;
use crate::worker::state::Shared;

/// The shortest pause. A run that ends frees resources, so that a longer pause ends with it.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// Returns whether the same system call may succeed later.
#[must_use]
pub fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

/// A shortage that a slot has met. It ends with this value.
pub struct Shortage<'a> {
    worker: &'a Shared,
    backoff: Backoff,
}

impl Shared {
    /// Begins a shortage.
    pub fn shortage(&self) -> Shortage<'_> {
        self.change(|state| state.shortages += 1);
        Shortage { worker: self, backoff: Backoff::default() }
    }
}

impl Shortage<'_> {
    /// Waits before the next try. Returns `false` if there is to be none: the worker claims no more or, with a claimed
    /// `run`, that run is to end.
    pub fn wait(&mut self, error: &io::Error, run: Option<&Run>) -> bool {
        let pause = self.backoff.fail(None);
        let (execution_id, seconds) = (run.map(|run| run.claim.execution_id.as_str()), pause.as_secs());
        tracing::warn!(execution_id, %error, seconds, "cannot start a command; trying again");
        let begin = self.worker.now();
        let mut state = self.worker.state.lock();
        let ended_runs = state.ended_runs;
        loop {
            let is_over = match run {
                Some(run) => run.handle.state().requested.is_some(),
                None => self.worker.claims_no_more(&state),
            };
            if is_over {
                return false;
            }
            let waited = self.worker.now() - begin;
            if waited >= pause || (waited >= MIN_PAUSE && state.ended_runs != ended_runs) {
                return true;
            }
            // The request for the end of a run does not wake this thread.
            state = self.worker.changed.wait_timeout(state, (pause - waited).min(MIN_PAUSE)).0;
        }
    }
}

impl Drop for Shortage<'_> {
    fn drop(&mut self) {
        self.worker.change(|state| state.shortages -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_resources_is_a_shortage_and_a_missing_program_is_none() {
        let error = io::Error::from_raw_os_error;
        for number in [libc::EMFILE, libc::ENFILE, libc::EAGAIN, libc::ENOMEM, libc::ENOSPC, libc::EDQUOT] {
            assert!(is_shortage(&error(number)), "{number}");
        }
        for number in [libc::ENOENT, libc::EACCES, libc::ENOEXEC, libc::E2BIG, libc::ENOTDIR] {
            assert!(!is_shortage(&error(number)), "{number}");
        }
    }
}
