//! One test binary for everything that is tested from outside the crate: a folder per subject.
// A test that cannot go on should panic; clippy's own exemption does not reach the functions around a `#[test]`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod architecture;
mod cli;
mod conformance;
mod engine;
mod faults;
pub mod http;
mod journeys;
mod rules;
mod store;
mod support;
