//! A listening server: accepts connections up to a limit, and drains them when it stops.

mod connection;
mod connection_state;
mod idleness;
mod monitored_stream;
mod open_streams;
mod response_body;
mod stream_executor;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::app::App;
use crate::domain::account::client_ip::customer_network;
use crate::http::limits::buffer_budget::{BufferBudget, BufferOwner, Scarcity};
use crate::http::middleware::browser_guard::BrowserGuard;
use crate::http::middleware::rate_limiter::RateLimiter;
use crate::http::middleware::state::ServerState;
use crate::http::router::Route;
use crate::http::server::connection_state::ConnectionState;
use crate::http::server::idleness::Idleness;
use crate::http::timeout::within;

/// A full server closes one in 16 of its connections at a time, so that one sort by idleness makes room for many new
/// connections. A smaller number would close more keep-alive connections than necessary. Chosen without a measurement.
const EVICTION_FRACTION: usize = 16;

/// Once more than half of the connections are open, a client has at most a quarter of the limit: three further clients
/// then still find room. With fewer open, one client may have more, as a proxy or a test has.
const CROWDED_FRACTION: usize = 2;
const NETWORK_FRACTION: usize = 4;

/// Time to wait before the next connection is accepted after a failure. The usual failure is a lack of file
/// descriptors, which lasts until another connection ends; without a wait the loop would keep a core busy.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Time until a full server searches again for idle connections. A new connection waits up to this long; a shorter
/// interval would sort the connections more often while all of them are busy.
const EVICTION_RETRY: Duration = Duration::from_millis(50);

/// A connection that is idle for less time is not closed for the memory of requests: its next one may be on its way.
const RELIEF_IDLE_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct ListenerConfig {
    pub listener: TcpListener,
    /// The routes that are served.
    pub table: &'static [Route],
    /// Maximum number of open connections.
    pub connections: usize,
    /// The hosts that a request may name beside those of this machine; `None` permits all.
    pub allowed_hosts: Option<Vec<String>>,
}

/// Serves until `stop` completes, then waits for the running requests.
///
/// Stopping closes idle connections at once, notifies long polls (`Request::stopping`), and aborts requests that still
/// run after `config.drain_time`.
pub async fn serve(config: ListenerConfig, app: Arc<App>, stop: impl Future<Output = ()> + Send) {
    let ListenerConfig { listener, table, connections, allowed_hosts } = config;
    let (stopping, stopped) = watch::channel(false);
    let drain_time = app.config.http.drain_time;
    let server = Arc::new(ServerState {
        table,
        rate_limiter: RateLimiter::default(),
        browser_guard: BrowserGuard::new(allowed_hosts, app.config.public_url.clone()),
        buffers: BufferBudget::new(app.config.http.max_buffered),
        long_polls: Arc::default(),
        turns: Arc::default(),
        poll_bodies: Arc::default(),
        stopping: stopped,
        app,
    });
    let mut open = ConnectionSet {
        tasks: JoinSet::new(),
        open: HashMap::new(),
        by_network: HashMap::new(),
        next_relief: Instant::now(),
    };
    tokio::select! {
        never = accept_all(&listener, &server, connections, &mut open) => match never {},
        () = stop => {}
    }
    drop(listener);
    stopping.send_replace(true);
    drain(open.tasks, drain_time).await;
}

struct ConnectionSet {
    tasks: JoinSet<()>,
    open: HashMap<Id, OpenConnection>,
    /// Connections by network, without those of trusted proxies.
    by_network: HashMap<IpAddr, usize>,
    /// The earliest time to close connections for their memory again: those closed last have returned theirs by then.
    next_relief: Instant,
}

struct OpenConnection {
    state: ConnectionState,
    /// `None` for a trusted proxy, whose connections belong to many clients.
    network: Option<IpAddr>,
}

impl ConnectionSet {
    fn spawn(&mut self, server: &Arc<ServerState>, stream: TcpStream, peer: SocketAddr) {
        let network = network_of(server, peer);
        let memory = network.map(|network| server.buffers.open(BufferOwner::Network(network)));
        let state = ConnectionState::new(memory);
        let is_admitted = state.admit()
            || network.is_some_and(|network| {
                self.relieve(Scarcity::Network(network), Duration::ZERO);
                state.admit()
            });
        // A network that has used up its own share takes nothing from the others.
        if !is_admitted && server.buffers.is_used_up() {
            self.relieve(Scarcity::Everybody, Duration::ZERO);
            // Without room it waits.
            state.admit();
        }
        let task = self.tasks.spawn(connection::run(Arc::clone(server), stream, peer, state.clone()));
        self.open.insert(task.id(), OpenConnection { state, network });
        if let Some(network) = network {
            *self.by_network.entry(network).or_default() += 1;
        }
    }

    /// Waits until a connection ends; forever if none is open.
    async fn wait_for_end(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else { return std::future::pending().await };
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        self.forget(id);
        log_panic(ended.map(|_| ()));
    }

    fn forget(&mut self, id: Id) {
        let Some(network) = self.open.remove(&id).and_then(|connection| connection.network) else { return };
        if let Some(count) = self.by_network.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.by_network.remove(&network);
            }
        }
    }

    /// Makes room within the part of the connections that one network may hold. Returns `false` if all connections of
    /// the network are busy: it gets no further one.
    fn make_room_for(&self, network: Option<IpAddr>, limit: usize) -> bool {
        let Some(network) = network else { return true };
        let is_crowded = self.tasks.len() * CROWDED_FRACTION > limit;
        if !is_crowded || self.count_of(Some(network)) < (limit / NETWORK_FRACTION).max(1) {
            return true;
        }
        let own = self.open.values().filter(|connection| connection.network == Some(network));
        let idle = own.filter_map(|connection| Some((connection.state.idleness()?, connection)));
        let least_used = idle.min_by_key(|(idleness, _)| *idleness);
        least_used.is_some_and(|(_, connection)| {
            connection.state.evict();
            true
        })
    }

    /// Asks idle connections to close, first those of the networks that hold the most, in the order of `rank`.
    fn evict_idle<R: Ord>(&self, may_close: impl Fn(&OpenConnection) -> bool, rank: impl Fn(Idleness) -> R) {
        let idle = self.open.values().filter(|connection| may_close(connection)).filter_map(|connection| {
            Some((Reverse(self.count_of(connection.network)), rank(connection.state.idleness()?), connection))
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by(|(count, rank, _), (other_count, other_rank, _)| {
            (count, rank).cmp(&(other_count, other_rank))
        });
        for (_, _, connection) in idle.iter().take(self.tasks.len().div_ceil(EVICTION_FRACTION)) {
            connection.state.evict();
        }
    }

    /// Closes connections that are idle at least for `idle_time`, because they hold memory that others need.
    fn relieve(&mut self, scarcity: Scarcity, idle_time: Duration) {
        self.next_relief = Instant::now() + EVICTION_RETRY;
        let may_close = |connection: &OpenConnection| {
            let is_short = match scarcity {
                Scarcity::Everybody => true,
                Scarcity::Network(network) => connection.network == Some(network),
            };
            let is_idle =
                || connection.state.idleness().is_some_and(|idle| idle.since().elapsed() >= idle_time);
            is_short && connection.state.holds_memory() && is_idle()
        };
        // By age alone: the newest one, which has sent nothing yet, may be that of a client who waits for memory.
        self.evict_idle(may_close, Idleness::since);
    }

    /// Connections of a network; of trusted proxies one, so that no client is disconnected for the others.
    fn count_of(&self, network: Option<IpAddr>) -> usize {
        network.map_or(1, |network| self.by_network.get(&network).copied().unwrap_or(0))
    }
}

fn network_of(server: &ServerState, peer: SocketAddr) -> Option<IpAddr> {
    let address = peer.ip().to_canonical();
    let is_trusted = server.app.config.http.trusted_proxies.iter().any(|proxy| proxy.contains(address));
    (!is_trusted).then(|| customer_network(address))
}

/// Accepts connections up to `limit`. At the limit, idle connections are closed for new ones, so that a client with
/// many connections locks nobody out. If all are busy, new ones wait here and in the kernel's queue. A client that has
/// its part of the connections, all busy, is not served before one of its own ends.
async fn accept_all(
    listener: &TcpListener,
    server: &Arc<ServerState>,
    limit: usize,
    open: &mut ConnectionSet,
) -> Infallible {
    loop {
        let (stream, peer) = accept(listener, server, open).await;
        if !open.make_room_for(network_of(server, peer), limit) {
            tracing::debug!(client_ip = %peer.ip(), limit, "connection refused: the client has too many");
            continue;
        }
        while open.tasks.len() >= limit {
            open.evict_idle(|_| true, |idleness| idleness);
            // Connections that are busy now may be idle at the next attempt.
            within(EVICTION_RETRY, open.wait_for_end()).await;
        }
        open.spawn(server, stream, peer);
    }
}

async fn accept(
    listener: &TcpListener,
    server: &ServerState,
    open: &mut ConnectionSet,
) -> (TcpStream, SocketAddr) {
    loop {
        let next_relief = open.next_relief;
        let scarcity = async {
            if next_relief > Instant::now() {
                sleep_until(next_relief).await;
            }
            server.buffers.scarcity().await
        };
        tokio::select! {
            biased;
            () = open.wait_for_end() => {}
            scarcity = scarcity => open.relieve(scarcity, RELIEF_IDLE_TIME),
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
