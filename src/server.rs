//! Assembly: opens the store, starts the engine, opens the port; the same list backwards to stop.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::app::{App, Config};
use crate::clock::Clock;
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback_url::CallbackTarget;
use crate::domain::webhook::echo;
use crate::engine::Engine;
use crate::engine::webhook_client::{ClientOptions, HttpWebhookClient};
use crate::http::routes::{METRICS, ROUTES};
use crate::http::server;
use crate::http::server::ListenerConfig;
use crate::metrics::process::descriptors;
use crate::random;
use crate::systemd::SystemdService;

/// Threads that serve HTTP: handlers only parse, render and await a lane of the store.
const HTTP_THREADS: usize = 2;

/// From the signal to the end of the last mail: the 30 s of contract §1, and a second of them for the file.
const STOP: Duration = Duration::from_secs(29);

/// For a collector that is being answered when all else has ended.
const LAST_SCRAPE: Duration = Duration::from_millis(500);

/// Connections that the system holds until they are accepted, where it lets us have as many. One above them is told
/// nothing and tries again a second later: with the usual 128, every burst of callers has some of those.
const BACKLOG: u32 = 4096;

/// Connections of the listener for metrics; what asks for them is one program or two.
const METRICS_CONNECTIONS: usize = 16;

/// Where a server listens, and until when.
#[derive(Debug, Clone, Copy)]
pub struct ListenConfig {
    /// For callers of the API.
    pub api: SocketAddr,
    /// Whether the public URL is the address that is listened on for the API.
    pub own_url: bool,
    /// For whoever collects metrics.
    pub metrics: Option<SocketAddr>,
    /// Whether it stops when standard input ends, too: with the process that started it, however that ends.
    pub until_input_ends: bool,
}

/// What kept a server from starting, or ended it: a sentence that says what to do.
#[derive(Debug)]
pub struct ServeError(String);

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServeError {}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When the file, an address or a thread cannot be had; the file is then as it was.
pub fn run(clock: Clock, mut config: Config, listen: ListenConfig) -> Result<(), ServeError> {
    config.http.max_connections = connections_within(&config, descriptors());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(HTTP_THREADS)
        .enable_all()
        .build()
        .map_err(|error| ServeError(format!("the HTTP threads cannot start: {error}")))?;
    // A socket is registered with the runtime that it is made in.
    let (listener, metrics) = {
        let _within = runtime.enter();
        (
            bind(listen.api, "--listen")?,
            listen.metrics.map(|address| bind(address, "--metrics-listen")).transpose()?,
        )
    };
    if listen.own_url {
        config.public_url = format!("http://{}", address_of(&listener)?);
    }
    config.callbacks = with_own_echoes(config.callbacks, &config.public_url)?;
    let port = ListenerConfig { listener, table: ROUTES, connections: config.http.max_connections };
    let app = Arc::new(App::open(clock, config).map_err(|error| ServeError(error.to_string()))?);
    let engine = start_engine(&app)?;
    let halted = Arc::new(OnceLock::new());
    let halt = {
        let (halt, halted, app) = (engine.halt(), Arc::clone(&halted), Arc::clone(&app));
        move || {
            halted.get_or_init(|| app.clock.monotonic());
            halt();
        }
    };
    let metrics = {
        let _within = runtime.enter();
        metrics.map(|listener| MetricsServer::start(listener, &app)).transpose()?
    };
    let input = listen.until_input_ends.then(input_ends).transpose()?;
    let served = runtime.block_on(serve(port, metrics.as_ref().map(|it| it.address), &app, input, halt));
    let since = halted.get().map_or(Duration::ZERO, |halted| app.clock.monotonic().saturating_sub(*halted));
    // What is under way in the engine ends meanwhile.
    app.post.stop(STOP.saturating_sub(since));
    engine.stop();
    // The last figures are those of the deliveries that ended last.
    if let Some(metrics) = metrics {
        runtime.block_on(metrics.stop());
    }
    let served = served.map(SystemdService::end);
    // Every task is gone with the runtime, so that the last owner of the store is here and closes it.
    drop(runtime);
    drop(app);
    served
}

/// The policy that lets callbacks also reach the echo path of this server itself, whatever its address (contract §8).
fn with_own_echoes(policy: AddressPolicy, public_url: &str) -> Result<AddressPolicy, ServeError> {
    let own = CallbackTarget::parse(public_url)
        .map_err(|_| ServeError(format!("{public_url} is no address that callers can use")))?;
    let folder = format!("{}{}", own.path.trim_end_matches('/'), echo::FOLDER);
    Ok(policy.with_exemption(&own.host, own.port, &folder))
}

fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, ServeError> {
    let bound = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    bound().map_err(|error| ServeError(format!("cannot listen on {address}: {error}; give another {flag}")))
}

fn address_of(listener: &TcpListener) -> Result<SocketAddr, ServeError> {
    listener.local_addr().map_err(|error| ServeError(error.to_string()))
}

/// As many connections as are asked for and leave deliveries their descriptors: else callers who open connections
/// and say nothing would make webhooks fail.
fn connections_within(config: &Config, descriptors: Option<usize>) -> usize {
    let asked = config.http.max_connections;
    let Some(descriptors) = descriptors else { return asked };
    // A socket and a look-up for each thread, the connections that are kept, the files.
    let others = 2 * config.delivery_threads + ClientOptions::default().max_idle + 64;
    let bound = descriptors.saturating_sub(others).max(descriptors / 4).max(1);
    if bound < asked {
        tracing::debug!(
            "at most {bound} connections at a time: the system allows this process {descriptors} open files"
        );
    }
    asked.min(bound)
}

fn start_engine(app: &Arc<App>) -> Result<Engine, ServeError> {
    let monotonic = {
        let app = Arc::downgrade(app);
        // Nobody looks a name up once the program is gone.
        Arc::new(move || app.upgrade().map_or(Duration::ZERO, |app| app.clock.monotonic()))
    };
    let options = ClientOptions {
        policy: app.config.callbacks.clone(),
        ca_pem: app.config.callback_ca.clone(),
        ..ClientOptions::default()
    };
    let webhook_client =
        HttpWebhookClient::new(&options, monotonic).map_err(|error| ServeError(error.to_string()))?;
    Engine::start(app, Arc::new(webhook_client)).map_err(|error| ServeError(error.to_string()))
}

async fn serve(
    port: ListenerConfig,
    metrics: Option<SocketAddr>,
    app: &Arc<App>,
    input: Option<oneshot::Receiver<()>>,
    halt: impl FnOnce() + Send + 'static,
) -> Result<SystemdService, ServeError> {
    let failed = |error: std::io::Error| ServeError(format!("signals cannot be received: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let address = address_of(&port.listener)?;
    announce(address, metrics)?;
    let service = SystemdService::ready(app, &format!("Serving on http://{address}"))
        .map_err(|error| ServeError(format!("the watchdog cannot start: {error}")))?;
    server::serve(port, Arc::clone(app), async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = end_of(input) => {}
        }
        tracing::info!("stopping: what is under way ends first");
        service.stopping("Stopping: what is under way ends first");
        halt();
    })
    .await;
    Ok(service)
}

/// Tells when standard input ends.
fn input_ends() -> Result<oneshot::Receiver<()>, ServeError> {
    let (tell, ended) = oneshot::channel();
    let read = move || {
        // An input that cannot be read has ended too.
        drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
        drop(tell);
    };
    let thread = std::thread::Builder::new().name("input".to_owned()).spawn(read);
    thread.map_err(|error| ServeError(format!("standard input cannot be watched: {error}")))?;
    Ok(ended)
}

async fn end_of(input: Option<oneshot::Receiver<()>>) {
    match input {
        Some(input) => drop(input.await),
        None => std::future::pending().await,
    }
}

/// The listener for metrics; it goes on until what is under way has ended.
struct MetricsServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl MetricsServer {
    fn start(listener: TcpListener, app: &Arc<App>) -> Result<Self, ServeError> {
        let address = address_of(&listener)?;
        let port = ListenerConfig { listener, table: METRICS, connections: METRICS_CONNECTIONS };
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server::serve(port, Arc::clone(app), async {
            // A sender that is gone says the same.
            drop(stopped.await);
        }));
        Ok(Self { address, stop, served })
    }

    async fn stop(self) {
        drop(self.stop);
        // A collector that does not take its answer must not hold up the end.
        if let Ok(Err(error)) = tokio::time::timeout(LAST_SCRAPE, self.served).await {
            tracing::error!(%error, "the listener for metrics ended by a panic");
        }
    }
}

/// The first line on standard output: tests and scripts wait for it (contract §1). A second one is for metrics.
fn announce(address: SocketAddr, metrics: Option<SocketAddr>) -> Result<(), ServeError> {
    let metrics = metrics.map(|address| format!("cued metrics on http://{address}/metrics\n"));
    let mut out = std::io::stdout().lock();
    write!(out, "cued listening on http://{address}\n{}", metrics.unwrap_or_default())
        .and_then(|()| out.flush())
        .map_err(|error| ServeError(format!("standard output cannot be written: {error}")))
}

/// A folder that is removed with all that is in it when it is dropped.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Makes one that only its owner may look into.
    ///
    /// # Errors
    /// When the system's folder for temporary files cannot be written.
    pub fn make() -> Result<Self, ServeError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let random: [u8; 8] = random::bytes().map_err(|error| ServeError(error.to_string()))?;
        let path = std::env::temp_dir().join(format!("cued-{:016x}", u64::from_be_bytes(random)));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| ServeError(format!("{} cannot be made: {error}", path.display())))?;
        Ok(Self(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!("{} could not be removed: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_file_descriptors_for_deliveries() {
        let mut config = Config::new(PathBuf::from("cued.db"));
        for (asked, descriptors, bound) in [
            (4_096, None, 4_096),
            (4_096, Some(1_048_576), 4_096),
            (4_096, Some(1_024), 704),
            (100, Some(1_024), 100),
            (4_096, Some(256), 64),
            (4_096, Some(0), 1),
        ] {
            config.http.max_connections = asked;
            assert_eq!(connections_within(&config, descriptors), bound, "{asked} {descriptors:?}");
        }
    }
}
