//! A server with test routes only; none belongs to the product.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;

use cued::app::App;
use cued::clock::Clock;
use cued::config::{Config, HttpLimits};
use cued::error::Result;
use cued::http::message::{Request, Response};
use cued::http::router::{BODY_LIMIT, Route};
use cued::routes;
use tokio::sync::Barrier;

use crate::support::*;

static TABLE: &[Route] = routes! {
    POST   "/echo"        Public    echo; BODY_LIMIT,
    POST   "/form"        Page      page,
    POST   "/key"         ApiKey    echo,
    POST   "/keyless"     Public    echo,
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
    GET    "/hold"        Public    hold,
    GET    "/large"       Public    large,
    POST   "/large"       Public    large,
    GET    "/crowd"       Public    crowd,
};

async fn echo(request: Request) -> Result<Response> {
    Ok(Response::ok(&json!({"length": request.body().len(), "id": request.id})))
}

async fn item(request: Request) -> Result<Response> {
    let query = request.query();
    let limit = query.integer("limit", 1..=100).unwrap_or(20);
    query.finish()?;
    Ok(Response::ok(&json!({"id": request.param("id"), "limit": limit})))
}

async fn named(request: Request) -> Result<Response> {
    let mut fields = request.fields()?;
    let name = fields.required().string("name", 1..=255);
    fields.forbid_unknown();
    fields.finish()?;
    Ok(Response::created(&json!({"name": name})))
}

async fn nothing(_: Request) -> Result<Response> {
    Ok(Response::no_content())
}

async fn page(_: Request) -> Result<Response> {
    Ok(Response::html(hyper::StatusCode::OK, "<!doctype html>".to_owned()))
}

async fn panics(_: Request) -> Result<Response> {
    panic!("a handler's bug");
}

/// Waits until the server stops.
async fn poll(mut request: Request) -> Result<Response> {
    request.stopping.wait_for(|stopping| *stopping).await.unwrap();
    Ok(Response::ok(&json!({"ended": "by the stop"})))
}

/// Running handlers of `/forever`.
pub static FOREVER: AtomicUsize = AtomicUsize::new(0);

async fn forever(_: Request) -> Result<Response> {
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

/// Handlers of `/hold` that have begun; they wait until the server stops.
pub static HELD: AtomicUsize = AtomicUsize::new(0);

async fn hold(request: Request) -> Result<Response> {
    HELD.fetch_add(1, Ordering::SeqCst);
    poll(request).await
}

/// Bytes of a response that no buffer of the kernel holds whole.
pub const LARGE: usize = 15 << 20;

async fn large(request: Request) -> Result<Response> {
    request.reserve_response(LARGE)?;
    Ok(Response::text(hyper::StatusCode::OK, "text/plain", "x".repeat(LARGE)))
}

/// Handlers of `/crowd` wait until this many run.
pub const CROWD: usize = 3;
static CROWD_COMPLETE: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(CROWD));
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The highest number of concurrent handlers of `/crowd`.
pub static CROWD_PEAK: AtomicUsize = AtomicUsize::new(0);

async fn crowd(_: Request) -> Result<Response> {
    CROWD_PEAK.fetch_max(RUNNING.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    CROWD_COMPLETE.wait().await;
    // Leaves time for a connection beyond the limit to be served.
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    RUNNING.fetch_sub(1, Ordering::SeqCst);
    Ok(Response::no_content())
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

pub fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A server of the test routes, with a database of its own.
pub struct TestServer {
    server: HttpServer,
    _folder: TempDir,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(|_| ())
    }

    /// With some other limits than by default.
    pub fn with(change: impl FnOnce(&mut HttpLimits)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::new(folder.path().join("cued.db"));
        change(&mut config.http);
        let app = Arc::new(App::open(Clock::system(), config).unwrap());
        Self { server: HttpServer::start(app, TABLE), _folder: folder }
    }
}

impl Deref for TestServer {
    type Target = HttpServer;

    fn deref(&self) -> &HttpServer {
        &self.server
    }
}

impl DerefMut for TestServer {
    fn deref_mut(&mut self) -> &mut HttpServer {
        &mut self.server
    }
}
