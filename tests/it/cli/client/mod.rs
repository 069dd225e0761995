//! Commands that are a client of a server, as processes against a server.

mod account;
mod health;
mod secrecy;
mod sign_in;
