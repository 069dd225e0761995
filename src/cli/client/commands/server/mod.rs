//! Commands about the server itself, which need no key.

pub mod health;
pub mod info;
