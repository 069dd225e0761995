//! The shares that one caller may take of what all callers share: memory for bodies and replies, open long polls, turns
//! for large work.

pub(in crate::http) mod body_wait;
pub(in crate::http) mod buffer_budget;
pub(in crate::http) mod fair_semaphore;
pub(in crate::http) mod long_polls;
pub(in crate::http) mod request_share;
