//! Parsing of requests: bodies, queries, and the objects of an action on many. JSON fields are read by `api::fields`.

pub(in crate::http) mod body;
pub mod query;
