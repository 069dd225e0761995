//! What the machine does of the same work without the service: SQLite alone, a bare HTTP server on the same store, the
//! bare pool of deliveries.

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
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::bench::{BenchError, Result};
use crate::clock::Clock;
use crate::domain::cue::Cue;
use crate::domain::ids::CueId;
use crate::domain::webhook::address_policy::{AddressPolicy, AllowRule};
use crate::engine::webhook_client::{ClientOptions, HttpWebhookClient, WebhookClient, WebhookRequest};
use crate::error::Error;
use crate::random;
use crate::store::maintenance::bench;
use crate::store::{Store, cues};

/// A page, as disks have them.
const PAGE: [u8; 4_096] = [0; 4_096];
/// Pages that are overwritten in turn.
const PAGES: u32 = 1_024;

/// How often a second a page can be overwritten and brought to the disk. The file does not grow meanwhile: its new
/// length would be a second write for each.
pub fn fsyncs(clock: &Clock, path: &Path, each: Duration) -> Result<f64> {
    let mut file = File::create_new(path)?;
    for _ in 0..PAGES {
        file.write_all(&PAGE)?;
    }
    file.sync_all()?;
    let began = clock.monotonic();
    let mut done = 0_u32;
    while clock.monotonic() - began < each {
        file.write_all_at(&PAGE, u64::from(done % PAGES) * PAGE.len() as u64)?;
        file.sync_data()?;
        done += 1;
    }
    Ok(f64::from(done) / (clock.monotonic() - began).as_secs_f64())
}

/// Cues of a list.
pub const PAGE_OF_CUES: u32 = 20;

/// How often a second SQLite by itself commits a row like `cue`, one at a time.
pub fn single_commits(clock: &Clock, path: &Path, each: Duration, cue: &Cue, payload: &Value) -> Result<f64> {
    let began = clock.monotonic();
    let mut next = || if clock.monotonic() - began < each { another(cue).map(Some) } else { Ok(None) };
    let done = bench::single_commits(path, payload, &mut next)?;
    Ok(f64::from(done) / (clock.monotonic() - began).as_secs_f64())
}

/// The same cue under another id.
pub fn another(cue: &Cue) -> crate::error::Result<Cue> {
    Ok(Cue { id: CueId::generate(random::fill)?.to_string(), ..cue.clone() })
}

/// How many rows like `cue` a second the store's group commit takes from so many threads.
pub fn group_commits(
    clock: &Clock,
    store: &Store,
    threads: usize,
    each: Duration,
    cue: &Cue,
    payload: &Value,
) -> Result<f64> {
    let began = clock.monotonic();
    let done = thread::scope(|scope| {
        let insert = || {
            let mut done = 0_u32;
            while clock.monotonic() - began < each {
                let (cue, payload) = (another(cue)?, payload.clone());
                store.write(move |tx| cues::insert(tx, cue, Some(&payload))).wait()?;
                done += 1;
            }
            std::result::Result::<u32, Error>::Ok(done)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(insert)).collect();
        let panicked = || Error::fault("a thread panicked");
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(panicked())))
            .sum::<std::result::Result<u32, Error>>()
    })?;
    Ok(f64::from(done) / (clock.monotonic() - began).as_secs_f64())
}

/// An HTTP server that answers `/` at once, stores a row for `/insert`, reads one for `/read`, and for `/list/USER` the
/// newest cues of the user with this key.
pub struct BaselineServer {
    /// Where it listens.
    pub address: SocketAddr,
    // It runs as long as this does.
    _runtime: Runtime,
}

/// What a bare server works with.
pub struct Baseline {
    /// The store, with the same lanes as the program's.
    pub store: Arc<Store>,
    /// What is inserted.
    pub cue: Cue,
    /// Its payload.
    pub payload: Value,
    /// The cue that is read.
    pub known: Cue,
}

impl BaselineServer {
    /// Starts it, with as many threads as the program has for HTTP.
    pub fn start(bare: Baseline) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let bare = Arc::new(bare);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, Arc::clone(&bare)));
            }
        });
        Ok(Self { address, _runtime: runtime })
    }
}

async fn connection(stream: TcpStream, bare: Arc<Baseline>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("a connection is slow: {error}");
    }
    let service = service_fn(move |request| answer(Arc::clone(&bare), request));
    // The client ends its connection when the time is up: no fault.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}

async fn answer(
    bare: Arc<Baseline>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path();
    let done = match (path, path.strip_prefix("/list/")) {
        ("/insert", _) => insert(&bare).await,
        ("/read", _) => read(&bare).await,
        (_, Some(user_key)) => list(&bare, user_key).await,
        _ => Ok(r#"{"hello":"world"}"#.to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::new()));
    match done {
        Ok(body) => *response.body_mut() = Full::new(body.into()),
        Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    Ok(response)
}

async fn insert(bare: &Baseline) -> crate::error::Result<String> {
    let (cue, payload) = (another(&bare.cue)?, bare.payload.clone());
    let cue = bare.store.write(move |tx| cues::insert(tx, cue, Some(&payload))).await?;
    Ok(format!(r#"{{"id":"{}"}}"#, cue.id))
}

async fn read(bare: &Baseline) -> crate::error::Result<String> {
    let (user_key, id) = (bare.known.user_key, bare.known.id.clone());
    let found = bare.store.read(move |read| cues::find(read, user_key, &id)).await?;
    Ok(format!(r#"{{"name":"{}"}}"#, found.map(|cue| cue.name).unwrap_or_default()))
}

async fn list(bare: &Baseline, user_key: &str) -> crate::error::Result<String> {
    let user_key = user_key.parse().map_err(|_| Error::fault("a list of whose cues?"))?;
    let (cues, total) =
        bare.store.read(move |read| cues::list(read, user_key, None, PAGE_OF_CUES, 0)).await?;
    let names: Vec<_> = cues.into_iter().map(|cue| cue.name).collect();
    Ok(format!(r#"{{"names":{names:?},"total":{total}}}"#))
}

/// How many POSTs a second so many threads make with nothing but the courier.
pub fn posts(clock: &Arc<Clock>, threads: usize, count: usize, parcel: &WebhookRequest) -> Result<f64> {
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
                    if webhook_client.send(parcel).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        #[allow(clippy::cast_precision_loss)]
        0 => Ok(count as f64 / (clock.monotonic() - began).as_secs_f64()),
        failed => Err(BenchError::Failed(format!("{failed} of {count} bare POSTs failed"))),
    }
}
