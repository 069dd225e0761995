//! The database file: opening and locking, transactions, the writer thread, stored counters.

mod checkpoints;
pub mod columns;
pub mod counters;
pub mod functions;
pub mod meta;
pub mod open;
pub(in crate::store) mod transactions;
pub(in crate::store) mod writer;
