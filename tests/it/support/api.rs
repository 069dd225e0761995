//! The product's own routes over a socket, in this process: users with keys on a [`Fixture`], whose clock stands still.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use cued::domain::account::credentials::ApiKey;
use cued::http::routes::ROUTES;
use cued::random;

use crate::support::client::{Client, Response};
use crate::support::fixture::Fixture;
use crate::support::http_server::HttpServer;

/// A fixture and the server of its API.
pub struct Api {
    pub fixture: Fixture,
    server: HttpServer,
}

/// A user with a client of its own.
pub struct User {
    /// The key of its row.
    pub key: i64,
    client: Client,
}

/// A request without a response so far.
pub struct PendingResponse(JoinHandle<Response>);

impl Api {
    pub fn start() -> Self {
        Self::from_fixture(Fixture::new())
    }

    pub fn from_fixture(fixture: Fixture) -> Self {
        let server = HttpServer::start(Arc::clone(&fixture.app), ROUTES);
        Self { fixture, server }
    }

    pub fn user(&self, name: &'static str) -> User {
        let api_key = ApiKey::from_random(random::bytes().unwrap());
        let (key, hash) = (self.fixture.user(name), api_key.hash());
        let insert = "INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at) VALUES (?1, ?2, ?1, ?1, ?3, 0)";
        self.fixture.write(move |tx| tx.execute(insert, (name, key, hash)).unwrap());
        User { key, client: Client::new(self.server.addr).with_key(api_key.reveal()) }
    }

    /// The same user at this server, after a restart.
    pub fn reconnect(&self, user: &User) -> User {
        User { key: user.key, client: user.at(self.server.addr) }
    }

    /// Starts a long poll. The server has read it when this returns: it follows a request that has its response.
    pub fn poll(&self, user: &User, path: &str) -> PendingResponse {
        let request = |path: &str| {
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", user.key())
        };
        let mut connection = self.server.connect();
        connection.send(&[request("/v1/workers"), request(path)].concat());
        assert_eq!(connection.response().status, 200);
        PendingResponse(thread::spawn(move || connection.response()))
    }

    /// Starts a graceful stop.
    pub fn stop(&mut self) {
        self.server.stop();
    }

    /// Waits for the end of a stop.
    pub fn wait_until_stopped(&mut self) {
        self.server.wait_until_stopped();
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.addr
    }

    /// Runs a client that needs a runtime.
    pub fn block_on<F: Future>(&self, client: F) -> F::Output {
        self.server.block_on(client)
    }
}

impl Deref for User {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl PendingResponse {
    pub fn wait(self) -> Response {
        self.0.join().unwrap()
    }

    pub fn has_come(&self) -> bool {
        self.0.is_finished()
    }
}
