//! Signing in and out, and who is signed in.

mod browser;
mod device_flow;
mod key_input;
mod link;
pub mod login;
pub mod logout;
mod new_key;
mod own_key;
mod terminal;
pub mod whoami;
