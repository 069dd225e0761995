//! An HTTP server without middleware, in two forms. `/insert`, `/read` and `/list/USER` make one call of the store, so
//! that cued beside it shows what cued adds to its own store. `/bare/…` is the strongest server that we can write: one
//! row with two indexes in a file of its own, its own group commit, and reads on the thread of the connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::bench::Result;
use crate::bench::baseline::{LIST_LIMIT, with_new_id};
use crate::clock::Clock;
use crate::cores;
use crate::domain::cue::Cue;
use crate::domain::cue::payload::Payload;
use crate::domain::ids::CueId;
use crate::error::Error;
use crate::random;
use crate::store::cues::cue_list;
use crate::store::cues::cue_list::CueList;
use crate::store::maintenance::bench::bare::BareFile;
use crate::store::{Store, cues};

/// Runs until it is dropped.
pub struct BaselineServer {
    pub address: SocketAddr,
    // Held because dropping the runtime stops the server.
    _runtime: Runtime,
}

/// The data of a baseline server.
pub struct Baseline {
    /// A store with the same threads as that of the server under test.
    pub store: Arc<Store>,
    pub cue: Cue,
    pub payload: Payload,
    pub stored: Cue,
    pub bare: BareFile,
}

impl BaselineServer {
    /// Starts the server.
    pub fn start(baseline: Baseline) -> Result<Self> {
        let threads = cores::http_threads();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let baseline = Arc::new(baseline);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, Arc::clone(&baseline)));
            }
        });
        Ok(Self { address, _runtime: runtime })
    }
}

async fn connection(stream: TcpStream, baseline: Arc<Baseline>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(error = %error, "cannot set TCP_NODELAY");
    }
    let service = service_fn(move |request| respond(Arc::clone(&baseline), request));
    // Clients close their connections at the end of a measurement, which is not an error.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

async fn respond(
    baseline: Arc<Baseline>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let (place, argument) = path.rsplit_once('/').unwrap_or_default();
    let body = match (place, argument) {
        ("", "insert") => insert(&baseline).await,
        ("", "read") => read(&baseline).await,
        ("/list", user_key) => list(&baseline, user_key).await,
        ("/bare", "insert") => bare_insert(&baseline.bare, request).await,
        ("/bare", "list") => baseline.bare.list(LIST_LIMIT).map(|rows| format!("[{}]", rows.join(","))),
        ("/bare/get", key) => bare_get(&baseline.bare, key),
        _ => Ok(r#"{"hello":"world"}"#.to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::new()));
    match body {
        Ok(body) => *response.body_mut() = Full::new(body.into()),
        Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    Ok(response)
}

async fn insert(baseline: &Baseline) -> crate::error::Result<String> {
    let (cue, payload) = (with_new_id(&baseline.cue)?, baseline.payload.clone());
    let cue = baseline.store.write(move |tx| cues::insert(tx, cue, Some(&payload))).await?;
    Ok(format!(r#"{{"id":"{}"}}"#, cue.id))
}

async fn read(baseline: &Baseline) -> crate::error::Result<String> {
    let (user_key, id) = (baseline.stored.user_key, baseline.stored.id.clone());
    let found = baseline.store.read(move |read| cues::find(read, user_key, &id)).await?;
    Ok(format!(r#"{{"name":"{}"}}"#, found.map(|cue| cue.name).unwrap_or_default()))
}

async fn list(baseline: &Baseline, user_key: &str) -> crate::error::Result<String> {
    let user_key = user_key.parse().map_err(|_| Error::fault("the path has no user: use /list/USER"))?;
    let list = CueList::newest(LIST_LIMIT);
    let page = baseline.store.read(move |read| cue_list::read(read, user_key, &list)).await?;
    let names: Vec<_> = page.cues.into_iter().map(|(cue, _)| cue.name).collect();
    Ok(format!(r#"{{"names":{names:?},"total":{}}}"#, page.total))
}

async fn bare_insert(file: &BareFile, request: Request<Incoming>) -> crate::error::Result<String> {
    let body = request.into_body().collect().await;
    let body = body.map_err(|_| Error::fault("the connection ended within a request"))?.to_bytes();
    let body = String::from_utf8(body.into()).map_err(|_| Error::fault("the body is no text"))?;
    let id = CueId::generate(Clock::system().now(), random::fill)?.to_string();
    let answer = file.insert(id.clone(), body).await;
    answer.map_err(|_| Error::fault("the writer of the baseline has ended"))??;
    Ok(format!(r#"{{"id":"{id}"}}"#))
}

fn bare_get(file: &BareFile, key: &str) -> crate::error::Result<String> {
    file.get(key.parse().map_err(|_| Error::fault("the path has no row: use /bare/get/KEY"))?)
}
