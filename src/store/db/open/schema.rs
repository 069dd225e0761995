//! The schema of a new file, and its version.

/// The statements that create every table, index and trigger.
pub(in crate::store) const SCHEMA: &str = include_str!("../../../../schema.sql");

/// `PRAGMA user_version` of a file that this program writes.
pub const SCHEMA_VERSION: i64 = 2;
