//! Fires due cues, releases expired claims, reports unclaimed executions, removes old history.

pub mod cleanup;
pub mod pass;
pub mod reaper;
pub mod retention_sweeper;
pub mod scheduler_thread;
mod server_watch;
