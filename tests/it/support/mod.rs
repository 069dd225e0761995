//! Support for all tests: servers, clients, receivers, fixtures.

pub mod api;
pub mod client;
pub mod client_command;
pub mod delivery_fixture;
pub mod event_stream;
pub mod fixture;
pub mod http_server;
pub mod json_documents;
pub mod live_command;
pub mod mailbox;
pub mod random;
pub mod receiver;
pub mod server;
pub mod sink;
pub mod stripe_double;
