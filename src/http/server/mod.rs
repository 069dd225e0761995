//! A listening server: accepts connections up to a limit, and drains them when it stops.

mod connection;
mod monitored_stream;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{Id, JoinError, JoinSet};

use crate::app::App;
use crate::http::input::body;
use crate::http::middleware::rate_limiter::RateLimiter;
use crate::http::middleware::state::ServerState;
use crate::http::router::Route;
use crate::http::server::monitored_stream::ConnectionState;
use crate::http::timeout::within;

/// A full server closes one in 16 of its connections at a time, so that one sort by idleness makes room for many new
/// connections. A smaller number would close more keep-alive connections than necessary. Chosen without a measurement.
const EVICTION_FRACTION: usize = 16;

/// Time to wait before the next connection is accepted after a failure. The usual failure is a lack of file
/// descriptors, which lasts until another connection ends; without a wait the loop would keep a core busy.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Time until a full server searches again for idle connections. A new connection waits up to this long; a shorter
/// interval would sort the connections more often while all of them are busy.
const EVICTION_RETRY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct ListenerConfig {
    pub listener: TcpListener,
    /// The routes that are served.
    pub table: &'static [Route],
    /// Maximum number of open connections.
    pub connections: usize,
}

/// Serves until `stop` completes, then waits for the running requests.
///
/// Stopping closes idle connections at once, notifies long polls (`Request::stopping`), and aborts requests that still
/// run after `config.drain_time`.
pub async fn serve(config: ListenerConfig, app: Arc<App>, stop: impl Future<Output = ()> + Send) {
    let ListenerConfig { listener, table, connections } = config;
    let (stopping, stopped) = watch::channel(false);
    let drain_time = app.config.http.drain_time;
    let body_budget = Arc::new(Semaphore::new(body::BUDGET));
    let rate_limiter = RateLimiter::default();
    let server = Arc::new(ServerState { app, table, rate_limiter, body_budget, stopping: stopped });
    let mut open = ConnectionSet::default();
    tokio::select! {
        never = accept_all(&listener, &server, connections, &mut open) => match never {},
        () = stop => {}
    }
    drop(listener);
    stopping.send_replace(true);
    drain(open.tasks, drain_time).await;
}

#[derive(Default)]
struct ConnectionSet {
    tasks: JoinSet<()>,
    states: HashMap<Id, ConnectionState>,
}

impl ConnectionSet {
    fn spawn(&mut self, server: &Arc<ServerState>, stream: TcpStream, peer: SocketAddr) {
        let state = ConnectionState::new();
        let task = self.tasks.spawn(connection::run(Arc::clone(server), stream, peer, state.clone()));
        self.states.insert(task.id(), state);
    }

    /// Waits until a connection ends; forever if none is open.
    async fn wait_for_end(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        self.states.remove(&id);
        log_panic(ended.map(|_| ()));
    }

    /// Asks the connections that are used least to close.
    fn evict_idle(&self) {
        let idle = self.states.values().filter_map(|state| Some((state.idleness()?, state)));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|(idleness, _)| *idleness);
        for (_, state) in idle.iter().take(self.tasks.len().div_ceil(EVICTION_FRACTION)) {
            state.evict();
        }
    }
}

/// Accepts connections up to `limit`. At the limit, idle connections are closed for new ones, so that a client with
/// many connections locks nobody out. If all are busy, new ones wait here and in the kernel's queue.
async fn accept_all(
    listener: &TcpListener,
    server: &Arc<ServerState>,
    limit: usize,
    open: &mut ConnectionSet,
) -> Infallible {
    loop {
        let (stream, peer) = accept(listener, open).await;
        while open.tasks.len() >= limit {
            open.evict_idle();
            // Connections that are busy now may be idle at the next attempt.
            within(EVICTION_RETRY, open.wait_for_end()).await;
        }
        open.spawn(server, stream, peer);
    }
}

async fn accept(listener: &TcpListener, open: &mut ConnectionSet) -> (TcpStream, SocketAddr) {
    loop {
        tokio::select! {
            biased;
            () = open.wait_for_end() => {}
            accepted = listener.accept() => match accepted {
                Ok(accepted) => return accepted,
                Err(error) if is_peer_error(&error) => {}
                Err(error) => {
                    tracing::warn!(error = %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

/// The peer disconnected before the connection was accepted.
fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::ConnectionAborted | K::ConnectionReset | K::ConnectionRefused | K::Interrupted)
}

async fn drain(mut open: JoinSet<()>, limit: Duration) {
    let all_ended = async {
        while let Some(ended) = open.join_next().await {
            log_panic(ended);
        }
    };
    if within(limit, all_ended).await.is_none() {
        tracing::warn!(count = open.len(), "stopped with connections still open");
    }
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(error = %error, "connection task panicked");
    }
}
