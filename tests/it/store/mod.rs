//! The database: writes and reads, counters, retention.

mod counters;
mod migration;
mod retention;
mod worker_claims;
mod writer_and_readers;
