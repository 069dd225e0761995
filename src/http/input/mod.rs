//! Reading what callers send: JSON fields, queries, and every problem found in them.

pub mod json_fields;
pub mod query;
pub(in crate::http) mod validation_errors;
