//! The words and types of the API, stated once for the server, the client, the command line and the worker.
//!
//! - `cue`: the fields of a cue in requests and responses. A field of a cue is added there.
//! - `fields`: reads the fields of a JSON object and collects all errors.
//! - `problems`: the list of those errors, and their sentences.
//! - `instants`: the formats of an instant.

pub mod cue;
pub mod fields;
pub mod instants;
pub mod problems;
