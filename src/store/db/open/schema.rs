//! The schema of a new file, and its version.

/// The statements that create every table, index and trigger.
pub(in crate::store) const SCHEMA: &str = include_str!("../../../../schema.sql");

/// The schema version that this program writes, stored as `PRAGMA user_version`.
pub const SCHEMA_VERSION: i64 = 1;
