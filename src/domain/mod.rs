//! The rules of the product: pure functions and types, without clock, SQL, HTTP or any other I/O.

pub mod account;
pub mod api_error;
pub mod apply;
pub mod billing;
pub mod certificate;
pub mod channel;
pub mod cue;
pub mod cue_fields;
pub mod execution;
pub mod ids;
pub mod json;
pub mod mails;
pub mod notification;
pub mod row_keys;
pub mod schedule;
pub mod secret;
pub mod test_call;
pub mod text;
pub mod time;
pub mod webhook;
