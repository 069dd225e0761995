//! Baselines, the same work without cued: SQLite alone, an HTTP server with one store call per request, and the webhook
//! client alone.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::bench::{BenchError, Result};
use crate::clock::Clock;
use crate::domain::cue::Cue;
use crate::domain::cue::payload::Payload;
use crate::domain::ids::CueId;
use crate::domain::webhook::address_policy::{AddressPolicy, AllowRule};
use crate::engine::webhook_client::{ClientOptions, HttpWebhookClient, WebhookClient, WebhookRequest};
use crate::error::Error;
use crate::random;
use crate::store::cues::cue_list;
use crate::store::cues::cue_list::CueList;
use crate::store::maintenance::bench;
use crate::store::{Store, cues};

/// The usual page size of file systems.
const PAGE: [u8; 4_096] = [0; 4_096];
/// Size of the file in pages, 4 MiB in total, so that the writes do not all go to one block of the disk.
const PAGES: u32 = 1_024;

/// Measures how many times per second a page can be overwritten and synced. The file does not grow: changing its length
/// would cost a second disk write each time.
pub fn fsyncs(clock: &Clock, path: &Path, duration: Duration) -> Result<f64> {
    let mut file = File::create_new(path)?;
    for _ in 0..PAGES {
        file.write_all(&PAGE)?;
    }
    file.sync_all()?;
    let began = clock.monotonic();
    let mut done = 0_u32;
    while clock.monotonic() - began < duration {
        file.write_all_at(&PAGE, u64::from(done % PAGES) * PAGE.len() as u64)?;
        file.sync_data()?;
        done += 1;
    }
    Ok(f64::from(done) / (clock.monotonic() - began).as_secs_f64())
}

/// Number of cues per list, the default `limit` of `GET /v1/cues`.
pub const LIST_LIMIT: u32 = 20;

/// Measures how many times per second SQLite alone commits a row like `cue`, one row per transaction.
pub fn single_commits(
    clock: &Clock,
    path: &Path,
    duration: Duration,
    cue: &Cue,
    payload: &Payload,
) -> Result<f64> {
    let began = clock.monotonic();
    let mut next =
        || if clock.monotonic() - began < duration { with_new_id(cue).map(Some) } else { Ok(None) };
    let done = bench::single_commits(path, payload, &mut next)?;
    Ok(f64::from(done) / (clock.monotonic() - began).as_secs_f64())
}

/// Returns the same cue with a new id.
pub fn with_new_id(cue: &Cue) -> crate::error::Result<Cue> {
    Ok(Cue { id: CueId::generate(random::fill)?.to_string(), ..cue.clone() })
}

/// Measures how many rows like `cue` per second the store inserts from `threads` threads with its group commit.
pub fn group_commits(
    clock: &Clock,
    store: &Store,
    threads: usize,
    duration: Duration,
    cue: &Cue,
    payload: &Payload,
) -> Result<f64> {
    let began = clock.monotonic();
    let done = thread::scope(|scope| {
        let insert = || {
            let mut done = 0_u32;
            while clock.monotonic() - began < duration {
                let (cue, payload) = (with_new_id(cue)?, payload.clone());
                store.write(move |tx| cues::insert(tx, cue, Some(&payload))).wait()?;
                done += 1;
            }
            std::result::Result::<u32, Error>::Ok(done)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(insert)).collect();
        let panicked = || Error::fault("a benchmark thread panicked");
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .sum::<std::result::Result<u32, Error>>()
    })?;
    Ok(f64::from(done) / (clock.monotonic() - began).as_secs_f64())
}

/// An HTTP server without middleware: `/` does nothing, `/insert` inserts a cue, `/read` reads one, and `/list/USER` lists
/// the newest cues of the user with this row id.
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
}

impl BaselineServer {
    /// Starts the server with as many HTTP threads as cued uses.
    pub fn start(baseline: Baseline) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
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
    let path = request.uri().path();
    let body = match (path, path.strip_prefix("/list/")) {
        ("/insert", _) => insert(&baseline).await,
        ("/read", _) => read(&baseline).await,
        (_, Some(user_key)) => list(&baseline, user_key).await,
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

/// Measures how many POST requests per second the webhook client alone sends from `threads` threads.
pub fn posts(clock: &Arc<Clock>, threads: usize, count: usize, request: &WebhookRequest) -> Result<f64> {
    let monotonic = Arc::clone(clock);
    let policy = AddressPolicy::new(&[AllowRule::Loopback]);
    let options = ClientOptions { policy, ..ClientOptions::default() };
    let webhook_client = HttpWebhookClient::new(&options, Arc::new(move || monotonic.monotonic()))?;
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let began = clock.monotonic();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    if webhook_client.send(request).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        #[allow(clippy::cast_precision_loss)]
        0 => Ok(count as f64 / (clock.monotonic() - began).as_secs_f64()),
        failed => {
            Err(BenchError::Failed(format!("{failed} of {count} POST requests of the baseline failed")))
        }
    }
}
