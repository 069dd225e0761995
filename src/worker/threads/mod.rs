//! The threads of a worker.

pub mod heartbeats;
pub mod poller;
pub mod reports;
pub mod slot;
