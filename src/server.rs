//! Assembly: opens the store, starts the engine, opens the port; stops them in the reverse order.

use std::io::{self, StdoutLock, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tempfile::TempDir;
use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::app::App;
use crate::clock::Clock;
use crate::config::Config;
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{CallbackTarget, UrlError};
use crate::domain::webhook::echo;
use crate::engine::Engine;
use crate::engine::webhook_client::{CertificateError, ClientOptions, HttpWebhookClient, MAX_IDLE};
use crate::error::Error;
use crate::http::routes::{METRICS, ROUTES};
use crate::http::server::{self, ListenerConfig};
use crate::metrics::process::max_open_files;
use crate::store::OpenError;
use crate::system::cores;
use crate::system::systemd::{Liveness, SystemdService};

/// Time from the stop signal until the last login mail: the 30 s of contract §1.3, less 1 s to close the database.
const STOP_TIME: Duration = Duration::from_secs(29);

/// Time for a collector to receive the last metrics when everything else has ended. A collector that hangs delays the
/// exit by this much. A response on a local network takes a few milliseconds; 500 ms is half of the second that
/// [`STOP_TIME`] leaves.
const LAST_SCRAPE: Duration = Duration::from_millis(500);

/// Length of the accept queue, where the kernel permits it. When the queue is full, the kernel drops the connection
/// attempt, and the client repeats it a second later: with the usual 128, every burst of clients contains some of
/// those.
const BACKLOG: u32 = 4096;

/// Bytes of the kernel's buffer for unread responses of a connection. The kernel reports room when a third of it is
/// free: with a larger buffer, a client that reads slowly would seem to read nothing for seconds, and be cut off.
const SEND_BUFFER: u32 = 128 << 10;

/// Maximum number of connections of the metrics listener, which serves one or two collectors.
const METRICS_CONNECTIONS: usize = 16;

#[derive(Debug, Clone, Copy)]
pub struct ListenConfig {
    pub api: SocketAddr,
    /// Derive the public URL from `api`.
    pub own_url: bool,
    pub metrics: Option<SocketAddr>,
}

/// A server could not start or ended with an error. The text says what to do.
#[derive(Debug, Error)]
pub enum ServeError {
    #[error("cannot listen on {address}: {source}; {}", remedy(source, flag))]
    Bind { address: SocketAddr, flag: &'static str, source: io::Error },
    #[error("the public URL {url} is not usable: {source}")]
    PublicUrl { url: String, source: UrlError },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("--callback-ca: {0}")]
    Certificate(#[from] CertificateError),
    #[error(transparent)]
    Engine(Error),
    #[error("{action} failed: {source}")]
    System { action: &'static str, source: io::Error },
}

fn remedy(source: &io::Error, flag: &str) -> String {
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "another program, perhaps another cued, has this port: stop it, or give another {flag}"
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            format!(
                "this machine has no such address: give {flag} one that it has, or 0.0.0.0 for all of them"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "ports below 1024 are reserved: give {flag} a higher one, or run cued with CAP_NET_BIND_SERVICE"
            )
        }
        _ => format!("give another {flag}"),
    }
}

impl ServeError {
    fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}

/// Errors: the database, an address or a thread is not available; the file is then unchanged.
pub fn run(clock: Clock, mut config: Config, listen: ListenConfig) -> Result<(), ServeError> {
    config.http.max_connections = max_connections(&config, max_open_files());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores::http_threads())
        .enable_all()
        .build()
        .map_err(ServeError::system("starting the HTTP threads"))?;
    let (listener, metrics) = {
        // A socket is registered with the runtime that creates it.
        let _runtime = runtime.enter();
        let metrics = |address| bind(address, "--metrics-listen");
        (bind(listen.api, "--listen")?, listen.metrics.map(metrics).transpose()?)
    };
    if listen.own_url {
        config.public_url = format!("http://{}", address_of(&listener)?);
    }
    config.callbacks = with_echo_path(config.callbacks, &config.public_url)?;
    let (connections, allowed_hosts) =
        (config.http.max_connections, config.http.allowed_hosts.clone());
    let port = ListenerConfig { listener, table: ROUTES, connections, allowed_hosts };
    let app = Arc::new(App::open(clock, config)?);
    // Held until the first line is printed: the engine prints the mails that wait.
    let stdout = io::stdout().lock();
    let engine = start_engine(&app)?;
    let stopped_at = Arc::new(OnceLock::new());
    let halt = {
        let (halt, stopped_at, app) = (engine.halt(), Arc::clone(&stopped_at), Arc::clone(&app));
        move || {
            stopped_at.get_or_init(|| app.clock.monotonic());
            halt();
        }
    };
    let metrics = {
        let _runtime = runtime.enter();
        metrics.map(|listener| MetricsServer::start(listener, &app)).transpose()?
    };
    let metrics_address = metrics.as_ref().map(|it| it.address);
    let served = runtime.block_on(serve(port, metrics_address, &app, stdout, halt));
    let elapsed =
        stopped_at.get().map_or(Duration::ZERO, |at| app.clock.monotonic().saturating_sub(*at));
    // Running deliveries end in the meantime.
    app.login_mailer.stop(STOP_TIME.saturating_sub(elapsed));
    engine.stop();
    // Last, so that the final scrape includes the last deliveries.
    if let Some(metrics) = metrics {
        runtime.block_on(metrics.stop());
    }
    let served = served.map(SystemdService::end);
    // Ends every task, so that this function holds the last reference to the store and closes it.
    drop(runtime);
    drop(app);
    served
}

/// Extends the policy so that callbacks reach the echo path of this server, whatever its address (contract §8.10).
fn with_echo_path(policy: AddressPolicy, public_url: &str) -> Result<AddressPolicy, ServeError> {
    let target = CallbackTarget::parse(public_url)
        .map_err(|source| ServeError::PublicUrl { url: public_url.to_owned(), source })?;
    let folder = format!("{}{}", target.path.trim_end_matches('/'), echo::FOLDER);
    Ok(policy.with_exemption(&target.host, target.port, &folder))
}

fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, ServeError> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bound().map_err(|source| ServeError::Bind { address, flag, source })
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, ServeError> {
    listener.local_addr().map_err(ServeError::system("reading the address of a listener"))
}

/// Reduces the configured limit so that deliveries keep enough file descriptors. Without this, clients that open idle
/// connections would make webhooks fail.
fn max_connections(config: &Config, max_open_files: Option<usize>) -> usize {
    let configured = config.http.max_connections;
    let Some(max_open_files) = max_open_files else { return configured };
    // One socket and one DNS lookup per delivery thread, idle connections to receivers, and the database files.
    let reserved = 2 * config.delivery_threads + MAX_IDLE + 64;
    let available = max_open_files.saturating_sub(reserved).max(max_open_files / 4).max(1);
    if available < configured {
        tracing::debug!(
            limit = available,
            max_open_files,
            "connection limit lowered to fit the open file limit of the process"
        );
    }
    configured.min(available)
}

fn start_engine(app: &Arc<App>) -> Result<Engine, ServeError> {
    let monotonic = {
        let app = Arc::downgrade(app);
        // A DNS lookup may outlive the program's state.
        Arc::new(move || app.upgrade().map_or(Duration::ZERO, |app| app.clock.monotonic()))
    };
    let options = ClientOptions {
        policy: app.config.callbacks.clone(),
        ca_pem: app.config.callback_ca.clone(),
        ..ClientOptions::default()
    };
    let webhook_client = HttpWebhookClient::new(&options, monotonic)?;
    Engine::start(app, Arc::new(webhook_client)).map_err(ServeError::Engine)
}

async fn serve(
    port: ListenerConfig,
    metrics: Option<SocketAddr>,
    app: &Arc<App>,
    stdout: StdoutLock<'_>,
    halt: impl FnOnce() + Send + 'static,
) -> Result<SystemdService, ServeError> {
    let handle = |kind| signal(kind).map_err(ServeError::system("installing the signal handlers"));
    let mut terminate = handle(SignalKind::terminate())?;
    let mut interrupt = handle(SignalKind::interrupt())?;
    let address = address_of(&port.listener)?;
    announce(stdout, address, metrics)?;
    let service = SystemdService::ready(&format!("Serving on http://{address}"), liveness(app))
        .map_err(ServeError::system("starting the watchdog thread"))?;
    server::serve(port, Arc::clone(app), async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: waiting for running requests and deliveries");
        service.stopping("Stopping: waiting for running requests and deliveries");
        halt();
    })
    .await;
    Ok(service)
}

/// A server works while its scheduler and the store's writer thread respond. A full disk does not count: after a
/// restart it would still be full.
pub fn liveness(app: &Arc<App>) -> Liveness {
    let app = Arc::clone(app);
    let is_alive =
        move || app.store.writer_responds() && app.engine_stats.is_alive(app.clock.monotonic());
    Liveness { what: "Scheduler or writer thread", is_alive: Box::new(is_alive) }
}

/// The metrics listener. It serves until the last delivery has ended.
struct MetricsServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl MetricsServer {
    fn start(listener: TcpListener, app: &Arc<App>) -> Result<Self, ServeError> {
        let address = address_of(&listener)?;
        // A collector may use any name for an address outside loopback.
        let allowed_hosts =
            app.config.http.allowed_hosts.clone().filter(|_| address.ip().is_loopback());
        let port = ListenerConfig {
            listener,
            table: METRICS,
            connections: METRICS_CONNECTIONS,
            allowed_hosts,
        };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server::serve(port, Arc::clone(app), async {
            // A dropped sender means stop as well.
            drop(stopped.await);
        }));
        Ok(Self { address, stop, task })
    }

    async fn stop(self) {
        drop(self.stop);
        if let Ok(Err(error)) = tokio::time::timeout(LAST_SCRAPE, self.task).await {
            tracing::error!(%error, "metrics listener panicked");
        }
    }
}

/// Prints the first line on standard output, for which tests and scripts wait (contract §1.3), and a second one with
/// the address of the metrics.
fn announce(
    mut out: StdoutLock<'_>,
    address: SocketAddr,
    metrics: Option<SocketAddr>,
) -> Result<(), ServeError> {
    let metrics = metrics.map(|address| format!("cued metrics on http://{address}/metrics\n"));
    write!(out, "cued listening on http://{address}\n{}", metrics.unwrap_or_default())
        .and_then(|()| out.flush())
        .map_err(ServeError::system("writing to standard output"))
}

/// Creates the folder of an ephemeral database, accessible to its owner only and removed when it is dropped.
/// Errors: the system's folder for temporary files is not writable.
pub fn temporary_folder() -> Result<TempDir, ServeError> {
    use std::os::unix::fs::PermissionsExt as _;
    tempfile::Builder::new()
        .prefix("cued-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir()
        .map_err(ServeError::system("creating a temporary folder"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_connection_limit_leaves_descriptors_for_deliveries() {
        let mut config = Config::new(PathBuf::from("cued.db"));
        for (configured, max_open_files, expected) in [
            (4_096, None, 4_096),
            (4_096, Some(1_048_576), 4_096),
            (4_096, Some(1_024), 704),
            (100, Some(1_024), 100),
            (4_096, Some(256), 64),
            (4_096, Some(0), 1),
        ] {
            config.http.max_connections = configured;
            assert_eq!(
                max_connections(&config, max_open_files),
                expected,
                "{configured} {max_open_files:?}"
            );
        }
    }
}
