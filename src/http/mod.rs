//! HTTP: from the bytes of a connection to an action of the program, and back. No product rule lives here.
//!
//! Modules use each other in one direction only:
//!
//! - `server` (connections, shutdown) → `middleware` (the steps of every request) → `router` (matching, access rules)
//!   and `pages` (HTML).
//! - `routes` (the routing table) → `api` (one file per heading of the contract) and `pages` → `request`, `response`,
//!   `list`.
//! - `list` → `response`; `request`, `response` → `input` (body, query; JSON fields are in `api::fields`) → `limits`
//!   (shares of a caller).
//! - `limits` and `timeout` use no other module of `http`.
//!
//! `page` has the page for browsers, which `pages/assets.rs` serves; it is no module.
//!
//! `server` and `middleware` never import `routes`: the program passes the table to [`server::serve`].
//!
//! Add an endpoint: a row in `routes.rs`, a handler in `api/`.

pub mod api;
pub mod input;
mod limits;
mod list;
mod middleware;
pub mod pages;
pub mod request;
pub mod response;
pub mod router;
pub mod routes;
pub mod server;
mod timeout;
