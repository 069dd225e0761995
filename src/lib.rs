//! `cued`, the cue daemon: a scheduled-callback service on one SQLite file.
//!
//! The map. Each room has one subject; a file in it answers one question.
//!
//! - `main.rs` parses, runs, sets the exit code; `cli` has a file per command, and `serve`'s flags are the
//!   configuration; `logging` is what is written to standard error.
//! - `server` is the assembly: it opens the store, starts the engine, opens the port, and the same backwards to stop.
//! - `app` is what the rooms share: store, `clock`, bells; `config` the settings.
//! - `domain` holds the rules: pure, no I/O, no clock, no SQL; `now` arrives as an argument.
//! - `billing` takes the money: one interface, the operator or a payment provider behind it.
//! - `metrics` is what is counted, by the engine too, and how it is written for Prometheus; `systemd` is what the service manager is told.
//! - `store` holds all SQL; one writer thread with group commit, two readers, one for long lists; short looks are
//!   done where they are asked for.
//! - `actions` is what people and workers make happen: read the clock, open one write, let the domain decide.
//! - `engine` is what the machine does by itself: fire, deliver, retry, take back what was lost, tell of failures.
//! - `bench` measures what the machine carries: the program as a process, beside the same work without it.
//! - `mail` is what the program writes to people: SMTP off the request path, or the log.
//! - `http` turns bytes into actions and back; the table of doors is `http/routes.rs`.
//! - `error` is the one error type, `random` the one source of randomness.
//!
//! Who may use whom, held by a test (`tests/it/architecture.rs`): `http` → `actions`, `store` (reads), `domain`;
//! `actions` → `store`, `domain`, `billing`, `mail`; `engine` → `store`, `domain`, `mail`; `billing` → `store`, `domain`;
//! `store` → `domain`; `domain` → nothing of ours.
//! `http` and `engine` never meet: they share the `app`. Only `clock` reads the time. `metrics` counts for all of them.
#![forbid(unsafe_code)]

pub mod actions;
pub mod app;
pub mod bench;
pub mod billing;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod engine;
pub mod error;
pub mod http;
pub mod logging;
pub mod mail;
pub mod metrics;
pub mod random;
pub mod server;
pub mod store;
pub mod systemd;
