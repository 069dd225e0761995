//! The product's own routes over a socket, in this process: users with keys on a [`Fixture`], whose clock stands still.

use std::ops::Deref;
use std::thread::JoinHandle;

use cued::app::App;
use cued::domain::account::credentials::ApiKey;
use cued::domain::row_keys::UserKey;
use cued::http::router::Route;
use cued::http::routes::ROUTES;
use cued::http::server::{self, ListenerConfig};
use cued::system::random;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::support::*;

/// A fixture and the server of its API.
pub struct Api {
    pub fixture: Fixture,
    server: HttpServer,
}

/// A user with a client of its own.
pub struct User {
    /// The key of its row.
    pub key: UserKey,
    client: Client,
}

/// A request without a response so far.
pub struct PendingResponse(JoinHandle<Response>);

impl Api {
    pub fn start() -> Self {
        Self::from_fixture(Fixture::new())
    }

    /// A server whose configuration is changed.
    pub fn configured(change: impl FnOnce(&mut cued::config::Config)) -> Self {
        let clock = cued::clock::Clock::test(Some(BEGIN.parse().unwrap()));
        Self::from_fixture(Fixture::with_config(clock, change))
    }

    pub fn from_fixture(fixture: Fixture) -> Self {
        let server = HttpServer::start(Arc::clone(&fixture.app), ROUTES);
        Self { fixture, server }
    }

    /// A new server and a user with this name.
    pub fn with_user(name: &'static str) -> (Self, User) {
        let api = Self::start();
        let user = api.user(name);
        (api, user)
    }

    pub fn user(&self, name: &'static str) -> User {
        let api_key = ApiKey::from_random(random::bytes().unwrap());
        let (key, hash) = (self.fixture.user(name), api_key.hash());
        let insert = "INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at) VALUES (?1, ?2, ?1, ?1, ?3, 0)";
        self.fixture.write(move |tx| tx.execute(insert, (name, key, hash)).unwrap());
        User { key, client: Client::new(self.server.addr).with_key(api_key.expose()) }
    }

    /// The same user at this server, after a restart.
    pub fn reconnect(&self, user: &User) -> User {
        User { key: user.key, client: user.at(self.server.addr) }
    }

    /// Starts a long poll. The server has read it when this returns: it follows a request that has its response.
    pub fn poll(&self, user: &User, path: &str) -> PendingResponse {
        let request = |path: &str| {
            format!(
                "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
                user.key()
            )
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

pub struct HttpServer {
    pub addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: tokio::task::JoinHandle<()>,
    runtime: Runtime,
}

impl HttpServer {
    pub fn start(app: Arc<App>, table: &'static [Route]) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (connections, allowed_hosts) =
            (app.config.http.max_connections, app.config.http.allowed_hosts.clone());
        let until = async {
            if stopped.await.is_err() {
                // The test has dropped the server without a stop.
                std::future::pending().await
            }
        };
        let served = runtime.spawn(server::serve(
            ListenerConfig { listener, table, connections, allowed_hosts },
            app,
            until,
        ));
        Self { addr, stop: Some(stop), served, runtime }
    }

    pub fn connect(&self) -> Connection {
        Connection::open(self.addr).unwrap()
    }

    /// A connection from another address of this machine, which counts as another client.
    pub fn connect_from(&self, source: &str) -> Connection {
        let connect = async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
            socket.connect(self.addr).await.unwrap().into_std().unwrap()
        };
        Connection::from_stream(self.runtime.block_on(connect)).unwrap()
    }

    /// One request on a connection of its own.
    pub fn request(&self, request: &str) -> Response {
        let mut connection = self.connect();
        connection.send(request);
        connection.response()
    }

    /// Runs a client that needs a runtime.
    pub fn block_on<F: Future>(&self, client: F) -> F::Output {
        let bounded = async { tokio::time::timeout(HANG_TIMEOUT, client).await };
        self.runtime.block_on(bounded).expect("the client hangs")
    }

    /// Starts a graceful stop.
    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits for the end of a stop.
    pub fn wait_until_stopped(&mut self) {
        let served = async { tokio::time::timeout(HANG_TIMEOUT, &mut self.served).await };
        self.runtime.block_on(served).expect("the server hangs").unwrap();
    }
}
