//! Support for all tests: servers, clients, receivers, fixtures.

mod api;
mod client;
mod client_command;
pub mod delivery_fixture;
mod event_stream;
mod fixture;
mod mailbox;
mod plans;
mod random;
mod receiver;
mod server;
pub mod stripe_double;
mod values;

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::net::{SocketAddr, TcpListener, TcpStream};
pub use std::path::{Path, PathBuf};
pub use std::process::{Command, Stdio};
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Arc, Mutex};
pub use std::time::{Duration, Instant};
pub use std::{fs, thread};

pub use jiff::{SignedDuration, Timestamp};
pub use serde_json::{Value, json};
pub use tempfile::TempDir;

pub use crate::support::api::*;
pub use crate::support::client::*;
pub use crate::support::client_command::*;
pub use crate::support::delivery_fixture::{DeliveryFixture, RecordingClient};
pub use crate::support::event_stream::*;
pub use crate::support::fixture::*;
pub use crate::support::mailbox::*;
pub use crate::support::plans::*;
pub use crate::support::random::*;
pub use crate::support::receiver::*;
pub use crate::support::server::*;
pub use crate::support::values::*;
