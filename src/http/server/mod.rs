//! Bytes ↔ actions; no rule of the product lives here. This file accepts connections and drains them.
//!
//! One connection is `connections`, one request is `gate`, the list of doors is `routes`.

pub(in crate::http) mod body;
pub(in crate::http) mod connection;
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
use crate::http::middleware::rate_limiter::RateLimiter;
use crate::http::routes::Route;
use crate::http::server::monitored_stream::ConnectionState;

/// How many of a full server's connections are asked to give their place at a time: one in so many.
const EVICTION_FRACTION: usize = 16;

/// After a failed accept (no file descriptor left, as a rule) the next one is tried this much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How soon a full server looks again for connections that have become idle.
const EVICTION_PAUSE: Duration = Duration::from_millis(50);

/// Where a server listens, and what for.
#[derive(Debug)]
pub struct ListenerConfig {
    /// The socket.
    pub listener: TcpListener,
    /// What is served there.
    pub table: &'static [Route],
    /// Connections at a time.
    pub connections: usize,
}

/// What every connection of one server shares.
pub(in crate::http) struct ServerState {
    pub(in crate::http) app: Arc<App>,
    pub(in crate::http) table: &'static [Route],
    pub(in crate::http) windows: RateLimiter,
    /// Bytes of request bodies that may be in memory at once.
    pub(in crate::http) bodies: Arc<Semaphore>,
    pub(in crate::http) stopping: watch::Receiver<bool>,
}

/// Serves on `port` until `stop` ends, then lets the requests under way end.
///
/// Stopping closes idle connections at once, tells long polls to end (`Request::stopping`) and cuts what is
/// left after `config.drain_time`.
pub async fn serve(port: ListenerConfig, app: Arc<App>, stop: impl Future<Output = ()> + Send) {
    let ListenerConfig { listener, table, connections } = port;
    let (stopping, stopped) = watch::channel(false);
    let drain_time = app.config.http.drain_time;
    let bodies = Arc::new(Semaphore::new(body::BUDGET));
    let windows = RateLimiter::default();
    let server = Arc::new(ServerState { app, table, windows, bodies, stopping: stopped });
    let mut open = ConnectionSet::default();
    tokio::select! {
        never = accept(&listener, &server, connections, &mut open) => match never {},
        () = stop => {}
    }
    drop(listener);
    stopping.send_replace(true);
    drain(open.tasks, drain_time).await;
}

/// The connections that are open.
#[derive(Default)]
struct ConnectionSet {
    tasks: JoinSet<()>,
    activities: HashMap<Id, ConnectionState>,
}

impl ConnectionSet {
    fn serve(&mut self, server: &Arc<ServerState>, stream: TcpStream, peer: SocketAddr) {
        let activity = ConnectionState::begin();
        let task = self.tasks.spawn(connection::run(Arc::clone(server), stream, peer, activity.clone()));
        self.activities.insert(task.id(), activity);
    }

    /// Waits until one has ended; for good when there is none.
    async fn ended(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        self.activities.remove(&id);
        note_end(ended.map(|_| ()));
    }

    /// Asks those that are used least to end.
    fn make_room(&self) {
        let idle = self.activities.values().filter_map(|activity| Some((activity.idleness()?, activity)));
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|(idleness, _)| *idleness);
        for (_, activity) in idle.iter().take(self.tasks.len().div_ceil(EVICTION_FRACTION)) {
            activity.give_place();
        }
    }
}

/// Takes connections up to the bound. For one above it those make room that have nothing to say, so that whoever
/// opens many shuts nobody out; while all are at work it waits, and the rest in the kernel's queue.
async fn accept(
    listener: &TcpListener,
    server: &Arc<ServerState>,
    bound: usize,
    open: &mut ConnectionSet,
) -> Infallible {
    loop {
        let (stream, peer) = next(listener, open).await;
        while open.tasks.len() >= bound {
            open.make_room();
            // Those that were at work a moment ago may be idle by then.
            connection::within(EVICTION_PAUSE, open.ended()).await;
        }
        open.serve(server, stream, peer);
    }
}

async fn next(listener: &TcpListener, open: &mut ConnectionSet) -> (TcpStream, SocketAddr) {
    loop {
        tokio::select! {
            biased;
            () = open.ended() => {}
            accepted = listener.accept() => match accepted {
                Ok(accepted) => return accepted,
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// The peer went away between the kernel's accept and ours.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::ConnectionAborted | K::ConnectionReset | K::ConnectionRefused | K::Interrupted)
}

async fn drain(mut open: JoinSet<()>, limit: Duration) {
    let all_ended = async {
        while let Some(ended) = open.join_next().await {
            note_end(ended);
        }
    };
    if connection::within(limit, all_ended).await.is_none() {
        tracing::warn!(connections = open.len(), "stopped before every request had ended");
    }
}

fn note_end(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}
