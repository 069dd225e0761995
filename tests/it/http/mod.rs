//! The API and the pages over HTTP.

mod accounts;
mod bad_input;
mod billing;
mod claims;
pub mod device_login;
mod echo;
mod executions;
mod limits;
mod verification;
mod wire;
