//! The number of requests of one account that wait for work: long polls (contract §11.2).

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::api_error::{ErrorCode, Refusal};
use crate::locks::Mutex;

/// Long polls that an account may have open. Each holds a connection, and every execution that becomes
/// claimable makes each of them read the database. A fleet of workers shares this number; with `--limits off` it does
/// not apply.
pub const MAX_LONG_POLLS: u32 = 20;

/// Seconds for `Retry-After`: a client that is refused needs no more than this to poll without waiting.
const RETRY_AFTER: u32 = 5;

/// Counts the open long polls of each account.
#[derive(Debug, Default)]
pub struct LongPolls {
    // Accounts without a long poll have no entry.
    open: Mutex<HashMap<i64, u32>>,
}

/// The place of one long poll. Dropping it makes room for another.
#[derive(Debug)]
pub struct LongPollPermit {
    polls: Arc<LongPolls>,
    user_key: i64,
}

impl LongPolls {
    /// Takes a place for a long poll of the user.
    /// Errors: 429 if the user has [`MAX_LONG_POLLS`] open.
    pub fn admit(self: &Arc<Self>, user_key: i64) -> Result<LongPollPermit, Refusal> {
        let mut open = self.open.lock();
        let count = open.entry(user_key).or_default();
        if *count >= MAX_LONG_POLLS {
            let message = format!(
                "The account has {MAX_LONG_POLLS} long polls open, the most at a time; end one of them, or poll without `wait`"
            );
            let refusal = Refusal::new(ErrorCode::RateLimitExceeded, message);
            return Err(Refusal { retry_after: Some(RETRY_AFTER), ..refusal });
        }
        *count += 1;
        Ok(LongPollPermit { polls: Arc::clone(self), user_key })
    }
}

impl Drop for LongPollPermit {
    fn drop(&mut self) {
        let mut open = self.polls.open.lock();
        if let Some(count) = open.get_mut(&self.user_key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user_key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_a_limited_number_of_long_polls() {
        let polls = Arc::new(LongPolls::default());
        let mut open: Vec<_> = (0..MAX_LONG_POLLS).map(|_| polls.admit(1).unwrap()).collect();
        let refusal = polls.admit(1).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after), (ErrorCode::RateLimitExceeded, Some(RETRY_AFTER)));
        assert!(polls.admit(2).is_ok(), "another account has its own number");
        open.pop();
        assert!(polls.admit(1).is_ok());
        open.clear();
        assert!(polls.open.lock().is_empty());
    }
}
