//! The words and types of the API, stated once for the server, the client, the command line and the worker.
//!
//! - `cue`: the fields of a cue in requests and responses. An optional field is added there, in `domain::cue` (`Cue`,
//!   `NewCue`, `CuePatch`), in `store::cues` and the schema, in `http/openapi.json` and in `docs/reference.md`.
//! - `fields`: reads the fields of a JSON object and collects all errors, with their sentences.
//! - `work`: what workers send and receive: claims, heartbeats, reports of outcomes.

pub mod channel;
pub mod cue;
pub mod fields;
pub mod work;
