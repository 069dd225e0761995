//! Attempts as the list of attempts shows them (contract §5.8).

use crate::domain::text::word_enum::word_enum;

/// Counted attempts whose result is kept per execution: the largest number of attempts that a cue allows. An execution
/// may have more while requests cannot be read from the database; then the oldest give way.
pub const MAX_KEPT: u32 = 10;

/// Maximum bytes of a response body that are shown (contract §5.1). A stored body that is longer was cut.
pub const MAX_SHOWN_BODY: usize = 2000;

/// The part of a stored response body that is shown: only whole characters.
pub fn shown_body(stored: &str) -> &str {
    let end = (0..=MAX_SHOWN_BODY.min(stored.len())).rev().find(|end| stored.is_char_boundary(*end));
    &stored[..end.unwrap_or(0)]
}

word_enum! {
    /// The end of an attempt.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AttemptEnd {
        /// Delivered, or reported as a success.
        Success = "success",
        /// Failed, and another one was planned.
        Retrying = "retrying",
        /// Failed, and no other one followed.
        Failed = "failed",
        /// The program ended during the attempt. It did not count and was repeated under the same number.
        Cut = "cut",
        /// The lease of the worker's claim expired.
        ClaimLost = "claim_lost",
    }
}
