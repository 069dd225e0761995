//! Signing in and out, and who is signed in.

pub mod whoami;
