//! HTTP: from the bytes of a connection to an action of the program, and back. No product rule lives here.
//!
//! Modules use each other in one direction only:
//!
//! - `server` (connections, shutdown) → `middleware` (the steps of every request) → `router` (matching, access rules).
//! - `routes` (the routing table) → `api` (one file per heading of the contract) and `assets` (the page for browsers, whose
//!   files are in `page`), `docs` (the documentation) → `pages` (plain HTML), `list` (queries and lists) → `message` (requests and responses) →
//!   `limits` (shares of a caller).
//!
//! `server` and `middleware` never import `routes`: the program passes the table to [`server::serve`].
//!
//! Add an endpoint: a row in `routes.rs`, a handler in `api/`.

pub mod api;
pub mod assets;
pub mod docs;
mod limits;
pub mod list;
pub mod message;
mod middleware;
pub mod pages;
pub mod router;
pub mod routes;
pub mod server;
