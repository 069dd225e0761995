//! Signing in and out, here and in a browser, and who is signed in.

mod browser;
mod device_flow;
mod key_input;
mod link;
pub mod login;
pub mod logout;
mod new_key;
pub mod open;
mod own_key;
mod terminal;
pub mod whoami;
