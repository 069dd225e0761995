//! The product's own routes over a socket, for a caller with a key, on a world whose clock stands still.

use std::net::SocketAddr;

use cued::domain::account::credentials::ApiKey;
use cued::http::routes::ROUTES;
use cued::http::server;
use cued::http::server::ListenerConfig;
use cued::random;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::support::fixture::World;
use crate::support::wire::{Response, Wire};

/// A server and the world that it serves.
pub struct Api {
    pub world: World,
    runtime: Runtime,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
}

/// A user and the key that it calls with.
pub struct User {
    pub key: i64,
    api_key: String,
}

/// A request that has been sent and not been answered.
pub struct Asked(JoinHandle<Response>);

impl Api {
    pub fn start() -> Self {
        Self::of(World::new())
    }

    pub fn of(world: World) -> Self {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let app = std::sync::Arc::clone(&world.app);
        let port = ListenerConfig { listener, table: ROUTES, connections: app.config.http.max_connections };
        runtime.spawn(server::serve(port, app, async {
            if stopped.await.is_err() {
                // The test let go of the server without stopping it.
                std::future::pending().await
            }
        }));
        Self { world, runtime, address, stop: Some(stop) }
    }

    pub fn user(&self, name: &'static str) -> User {
        let api_key = ApiKey::from_random(random::bytes().unwrap());
        let (key, hash) = (self.world.user(name), api_key.hash());
        let insert = "INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at)
                      VALUES (?1, ?2, ?1, ?1, ?3, 0)";
        let stored = self.world.app.store.write(move |tx| {
            tx.execute(insert, (name, key, hash))?;
            Ok(())
        });
        stored.wait().unwrap();
        User { key, api_key: api_key.reveal().to_owned() }
    }

    pub fn get(&self, user: &User, path: &str) -> Response {
        self.send(user, "GET", path, "", "").answer(self)
    }

    pub fn delete(&self, user: &User, path: &str) -> Response {
        self.send(user, "DELETE", path, "", "").answer(self)
    }

    pub fn post(&self, user: &User, path: &str, body: &Value) -> Response {
        self.send(user, "POST", path, "", &body.to_string()).answer(self)
    }

    pub fn patch(&self, user: &User, path: &str, body: &Value) -> Response {
        self.send(user, "PATCH", path, "", &body.to_string()).answer(self)
    }

    /// Sends a request with further head lines (each with its `\r\n`) and does not wait for the answer.
    pub fn send(&self, user: &User, method: &str, path: &str, head: &str, body: &str) -> Asked {
        let request = user.request(method, path, head, body);
        let mut wire = self.connect();
        Asked(self.runtime.spawn(async move {
            wire.send(&request).await;
            wire.response().await
        }))
    }

    /// Sends a long poll that is surely under way when this returns: it stood behind a request that is answered.
    pub fn poll(&self, user: &User, path: &str) -> Asked {
        let requests =
            [user.request("GET", "/v1/workers", "", ""), user.request("GET", path, "", "")].concat();
        let mut wire = self.connect();
        self.runtime.block_on(async {
            wire.send(&requests).await;
            assert_eq!(wire.response().await.status, 200);
        });
        Asked(self.runtime.spawn(async move { wire.response().await }))
    }

    fn connect(&self) -> Wire {
        Wire(self.runtime.block_on(TcpStream::connect(self.address)).unwrap())
    }

    /// Tells the server to stop.
    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }
}

impl User {
    fn request(&self, method: &str, path: &str, head: &str, body: &str) -> String {
        let (key, length) = (&self.api_key, body.len());
        format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\
             Content-Length: {length}\r\n{head}\r\n{body}"
        )
    }
}

impl Asked {
    pub fn answer(self, api: &Api) -> Response {
        api.runtime.block_on(self.0).unwrap()
    }

    pub fn is_answered(&self) -> bool {
        self.0.is_finished()
    }
}
