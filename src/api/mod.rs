//! The words and types of the API, stated once for the server, the client, the command line and the worker.
//!
//! - `apply`: many cues and channels in one request.
//! - `cue`, `cue_view`, `cue_names`: the fields of a cue in requests, in responses, and their names. CONTRIBUTING says how
//!   one is added.
//! - `fields`: reads the fields of a JSON object and collects all errors, with their sentences.
//! - `preview`: the schedule of a preview, in the fields of a cue or in words.
//! - `refusal`: the body of an error.
//! - `channel`, `test_call`: the fields of a channel, and of a test call of a callback.
//! - `view`: the macro that declares the object of a response.
//! - `work`: what workers send and receive: claims, heartbeats, reports of outcomes.

pub mod apply;
pub mod channel;
pub mod cue;
pub mod cue_names;
pub mod cue_view;
pub mod fields;
pub mod preview;
pub mod refusal;
pub mod test_call;
pub mod view;
pub mod work;
