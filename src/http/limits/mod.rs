//! The shares that one caller may take of what all callers share: memory for bodies and replies, open long polls.

pub(in crate::http) mod buffer_budget;
pub(in crate::http) mod long_polls;
