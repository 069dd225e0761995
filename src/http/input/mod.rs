//! Parsing of requests: bodies, JSON fields, queries, the objects of an action on many, and the
//! validation errors found in them.

pub(in crate::http) mod body;
pub mod json_fields;
pub mod query;
pub(in crate::http) mod targets;
pub(in crate::http) mod validation_errors;
