//! Bytes ↔ actions; no rule of the product lives here.
//!
//! One connection is `server`, every request passes `middleware`, the table of routes is `routes`.

pub mod api;
pub mod input;
mod middleware;
pub mod pages;
pub mod request;
pub mod response;
pub mod routes;
pub mod server;
