//! One test binary for all tests from outside the crate, with a folder per subject.
// A failing test panics; clippy's own exemption does not cover helpers of a `#[test]`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod architecture;
mod cli;
mod contract;
mod engine;
mod faults;
mod fuzz;
pub mod http;
mod journeys;
mod openapi;
mod packaging;
mod rules;
mod simulation;
mod store;
mod support;
