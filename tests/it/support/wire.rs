//! A server on port 0 with a table of test routes, and a client that sees every byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cued::app::App;
use cued::clock::Clock;
use cued::config::{Config, HttpLimits};
use cued::error::Result;
use cued::http::request::Request;
use cued::http::response;
use cued::http::router::Route;
use cued::http::server;
use cued::http::server::ListenerConfig;
use cued::routes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Test routes: none of them belongs to the product.
pub static TABLE: &[Route] = routes! {
    POST   "/echo"        Public    echo,
    GET    "/items/{id}"  Public    item,
    GET    "/free/{id}"   Unmetered item,
    DELETE "/items/{id}"  Public    nothing,
    POST   "/named"       Public    named,
    POST   "/small"       Public    echo; 10,
    GET    "/locked"      ApiKey    nothing,
    GET    "/page"        Page      page,
    GET    "/panic"       Public    panics,
    GET    "/poll"        Public    poll,
    GET    "/forever"     Public    forever,
    GET    "/large"       Public    large,
    GET    "/crowd"       Public    crowd,
};

async fn echo(request: Request) -> Result<response::Response> {
    Ok(response::Response::ok(&json!({"length": request.body().len(), "id": request.id})))
}

async fn item(request: Request) -> Result<response::Response> {
    let query = request.query();
    let limit = query.integer("limit", 1..=100, 20);
    query.finish()?;
    Ok(response::Response::ok(&json!({"id": request.param("id"), "limit": limit})))
}

async fn named(request: Request) -> Result<response::Response> {
    let mut fields = request.fields()?;
    let name = fields.required_string("name", 1..=255);
    fields.forbid_unknown();
    fields.finish()?;
    Ok(response::Response::created(&json!({"name": name})))
}

async fn nothing(_: Request) -> Result<response::Response> {
    Ok(response::Response::no_content())
}

async fn page(_: Request) -> Result<response::Response> {
    Ok(response::Response::html(hyper::StatusCode::OK, "<!doctype html>".to_owned()))
}

async fn panics(_: Request) -> Result<response::Response> {
    panic!("a handler's bug");
}

/// Waits until the server stops.
async fn poll(mut request: Request) -> Result<response::Response> {
    request.stopping.wait_for(|stopping| *stopping).await.unwrap();
    Ok(response::Response::ok(&json!({"ended": "by the stop"})))
}

/// Handlers of `/forever` that are running.
pub static FOREVER: AtomicUsize = AtomicUsize::new(0);

async fn forever(_: Request) -> Result<response::Response> {
    struct Running;
    impl Drop for Running {
        fn drop(&mut self) {
            FOREVER.fetch_sub(1, Ordering::SeqCst);
        }
    }
    FOREVER.fetch_add(1, Ordering::SeqCst);
    let _running = Running;
    std::future::pending().await
}

async fn large(_: Request) -> Result<response::Response> {
    Ok(response::Response::ok(&json!("x".repeat(16 << 20))))
}

static CROWD: AtomicUsize = AtomicUsize::new(0);
/// The most handlers of `/crowd` that ran at once.
pub static CROWD_PEAK: AtomicUsize = AtomicUsize::new(0);

async fn crowd(_: Request) -> Result<response::Response> {
    let there = CROWD.fetch_add(1, Ordering::SeqCst) + 1;
    CROWD_PEAK.fetch_max(there, Ordering::SeqCst);
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    CROWD.fetch_sub(1, Ordering::SeqCst);
    Ok(response::Response::no_content())
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

pub fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A running server.
pub struct World {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl World {
    pub async fn start() -> Self {
        Self::with(HttpLimits::default()).await
    }

    /// A server whose times are short enough to be waited for, all but the one that the test is about.
    pub async fn with(config: HttpLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let connections = config.max_connections;
        let config = Config { http: config, ..Config::new(folder.path().join("cued.db")) };
        let app = Arc::new(App::open(Clock::system(), config).unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async {
            if stopped.await.is_err() {
                // The test let go of the world but still talks to it.
                std::future::pending().await
            }
        };
        let served =
            tokio::spawn(server::serve(ListenerConfig { listener, table: TABLE, connections }, app, until));
        Self { address, stop: Some(stop), served, _folder: folder }
    }

    pub async fn connect(&self) -> Wire {
        Wire(TcpStream::connect(self.address).await.unwrap())
    }

    /// One request on a connection of its own.
    pub async fn ask(&self, request: &str) -> Response {
        let mut wire = self.connect().await;
        wire.send(request).await;
        wire.response().await
    }

    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until `serve` has returned.
    pub async fn ended(self) {
        soon(self.served).await.unwrap();
    }
}

/// The client's end of a connection.
pub struct Wire(pub TcpStream);

/// A response, header names in lower case.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Wire {
    pub async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    pub async fn response(&mut self) -> Response {
        self.response_to(true).await
    }

    /// The response to a `HEAD`: no body follows, whatever `Content-Length` says.
    pub async fn response_without_body(&mut self) -> Response {
        self.response_to(false).await
    }

    async fn response_to(&mut self, with_body: bool) -> Response {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(self.0.read_u8()).await.expect("a whole head"));
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let mut response = Response { status, headers, body: String::new() };
        if let Some(length) = response.header("content-length").filter(|_| with_body) {
            let mut body = vec![0; length.parse().unwrap()];
            soon(self.0.read_exact(&mut body)).await.unwrap();
            response.body = String::from_utf8(body).unwrap();
        }
        response
    }

    /// What still comes until the server closes.
    pub async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        soon(self.0.read_to_end(&mut rest)).await.unwrap();
        String::from_utf8(rest).unwrap()
    }
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The code of an error's body.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// What must happen shortly; the bound only keeps a broken server from hanging the tests.
pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it never happened")
}
