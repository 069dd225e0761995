//! The database: writes and reads, counters, retention.

mod accounts;
mod attempts;
mod checkpoints;
mod counters;
mod cue_deletion;
mod execution_list;
mod figures;
mod migration;
mod retention;
mod retention_dates;
mod worker_claims;
mod write_order;
mod writer_and_readers;
