//! A listening server: accepts connections up to a limit, and drains them when it stops.

mod connection;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::timeout;

use crate::app::App;
use crate::domain::account::rate_limit::rate_limit_address;
use crate::http::limits::Owner;
use crate::http::limits::activity::Activity;
use crate::http::middleware::ServerState;
use crate::http::router::Route;

/// A client has at most 1/32 of the connections, but always a few.
const CLIENT_FRACTION: usize = 32;
const MIN_OF_CLIENT: usize = 16;

/// Time to wait before the next connection is accepted after a failure. The usual failure is a lack of file
/// descriptors, which lasts until another connection ends; without a wait the loop would keep a core busy.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A full server closes one in 16 of its connections at a time, so that one search makes room for many new connections.
/// A smaller number would close more keep-alive connections than necessary. Chosen without a measurement.
const EVICTION_FRACTION: usize = 16;

/// Time until a full server searches again for idle connections. A new connection waits up to this long; a shorter
/// interval would search more often while all of them are busy. A connection that is idle for less is left alone: a
/// request that has arrived, but is not read yet, would be lost with it.
const EVICTION_RETRY: Duration = Duration::from_millis(50);

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
    let server = Arc::new(ServerState::new(app, table, allowed_hosts, stopped));
    let mut connections = Connections {
        limit: connections,
        of_client: (connections / CLIENT_FRACTION).max(MIN_OF_CLIENT),
        tasks: JoinSet::new(),
        open: HashMap::new(),
        clients: HashMap::new(),
    };
    tokio::select! {
        never = accept_all(&listener, &server, &mut connections) => match never {},
        () = stop => {}
    }
    drop(listener);
    stopping.send_replace(true);
    drain(connections.tasks, drain_time).await;
}

struct Connections {
    limit: usize,
    /// The most of one client.
    of_client: usize,
    tasks: JoinSet<()>,
    open: HashMap<Id, OpenConnection>,
    /// The connections of each client that has any.
    clients: HashMap<IpAddr, Vec<(Id, Activity)>>,
}

struct OpenConnection {
    activity: Activity,
    /// `None` for a trusted proxy, whose connections belong to many clients.
    client: Option<IpAddr>,
    task: AbortHandle,
}

impl Connections {
    /// Serves a new connection. If its client has too many, one of them that is idle gives way; if all are busy, the
    /// new one is closed. If the server has too many, idle ones of the clients that have the most give way; if all are
    /// busy, the new one waits.
    async fn add(&mut self, server: &Arc<ServerState>, stream: TcpStream, peer: SocketAddr) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.forget(ended);
        }
        let client = client_of(server, peer);
        if let Some(client) = client
            && let Err(reason) = self.make_room_for(server, client)
        {
            tracing::debug!(client_ip = %peer.ip(), reason, "connection refused");
            return;
        }
        while self.tasks.len() >= self.limit {
            self.evict_idle();
            // Connections that are busy now may be idle at the next attempt.
            drop(timeout(EVICTION_RETRY, self.wait_for_end()).await);
        }
        let activity = Activity::new();
        let task =
            self.tasks.spawn(connection::run(Arc::clone(server), stream, peer, activity.clone()));
        if let Some(client) = client {
            self.clients.entry(client).or_default().push((task.id(), activity.clone()));
        }
        self.open.insert(task.id(), OpenConnection { activity, client, task });
    }

    /// Makes room for a further connection of `client`, if it has too many.
    /// Errors: the reason to refuse it.
    fn make_room_for(&mut self, server: &ServerState, client: IpAddr) -> Result<(), &'static str> {
        if server.shares.budget.is_used_up_by(Owner::from_client(client)) {
            return Err("the client holds its share of memory");
        }
        let Some(own) = self.clients.get(&client).filter(|own| own.len() >= self.of_client) else {
            return Ok(());
        };
        let idle = own.iter().filter_map(|(id, activity)| Some((activity.idle_since()?, *id)));
        let (_, oldest) = idle.min_by_key(|(since, _)| *since).ok_or("the client has too many")?;
        // Without a wait: a client at its limit delays no other one.
        self.remove(oldest).into_iter().for_each(|given_up| given_up.task.abort());
        Ok(())
    }

    /// Asks some idle connections to end: first those of the client that has the most, then those idle longest.
    fn evict_idle(&self) {
        let rank = |connection: &OpenConnection| {
            // A trusted proxy counts as one client network, so that no client is disconnected for the others.
            let own = connection.client.and_then(|client| self.clients.get(&client));
            let count = own.map_or(1, Vec::len);
            let idle_since = connection.activity.idle_since()?;
            (idle_since.elapsed() >= EVICTION_RETRY).then_some((Reverse(count), idle_since))
        };
        let ranked =
            self.open.values().filter_map(|connection| Some((rank(connection)?, connection)));
        let mut idle: Vec<_> = ranked.collect();
        idle.sort_unstable_by_key(|(rank, _)| *rank);
        for (_, connection) in idle.iter().take(self.limit.div_ceil(EVICTION_FRACTION)) {
            connection.activity.evict();
        }
    }

    /// Waits until a connection ends; forever if none is open.
    async fn wait_for_end(&mut self) {
        let Some(ended) = self.tasks.join_next_with_id().await else {
            return std::future::pending().await;
        };
        self.forget(ended);
    }

    fn forget(&mut self, ended: Result<(Id, ()), JoinError>) {
        self.remove(ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id));
        log_panic(ended.map(|_| ()));
    }

    fn remove(&mut self, id: Id) -> Option<OpenConnection> {
        let removed = self.open.remove(&id)?;
        if let Some(client) = removed.client
            && let Some(own) = self.clients.get_mut(&client)
        {
            own.retain(|(it, _)| *it != id);
            if own.is_empty() {
                self.clients.remove(&client);
            }
        }
        Some(removed)
    }
}

/// The address (IPv6: the /64) that counts for the connections of `peer`; `None` for a trusted proxy.
fn client_of(server: &ServerState, peer: SocketAddr) -> Option<IpAddr> {
    let address = peer.ip().to_canonical();
    let is_trusted =
        server.app.config.http.trusted_proxies.iter().any(|proxy| proxy.contains(address));
    (!is_trusted).then(|| rate_limit_address(address))
}

async fn accept_all(
    listener: &TcpListener,
    server: &Arc<ServerState>,
    connections: &mut Connections,
) -> Infallible {
    loop {
        tokio::select! {
            biased;
            () = connections.wait_for_end() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => connections.add(server, stream, peer).await,
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
    matches!(
        error.kind(),
        K::ConnectionAborted | K::ConnectionReset | K::ConnectionRefused | K::Interrupted
    )
}

async fn drain(mut open: JoinSet<()>, limit: Duration) {
    let all_ended = async {
        while let Some(ended) = open.join_next().await {
            log_panic(ended);
        }
    };
    if timeout(limit, all_ended).await.is_err() {
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
