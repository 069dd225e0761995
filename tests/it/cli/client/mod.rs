//! Commands that are a client of a server, as processes against a server.

mod sign_in;
