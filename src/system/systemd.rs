//! Readiness, watchdog and stop notifications for systemd (the `sd_notify` protocol). Without `NOTIFY_SOCKET` nothing
//! is sent. The sd-notify crate (0.5) cannot reach an abstract socket (`@name`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{env, io};

#[derive(Debug)]
pub struct SystemdService {
    socket: Option<Arc<NotifySocket>>,
    watchdog: Option<Watchdog>,
}

impl SystemdService {
    /// Notifies systemd that the program is ready, and starts the watchdog thread if the unit has a watchdog.
    /// `liveness` reports whether the program works.
    pub fn ready(status: &str, liveness: Liveness) -> io::Result<Self> {
        let Some(socket) = NotifySocket::from_environment().map(Arc::new) else {
            return Ok(Self { socket: None, watchdog: None });
        };
        socket.send(&format!("READY=1\nSTATUS={status}"));
        let number = |name| env::var(name).ok()?.parse::<u64>().ok();
        let is_own =
            number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
        let timeout =
            number("WATCHDOG_USEC").filter(|time| is_own && *time > 0).map(Duration::from_micros);
        let watchdog =
            timeout.map(|timeout| Watchdog::start(liveness, Arc::clone(&socket), timeout));
        Ok(Self { socket: Some(socket), watchdog: watchdog.transpose()? })
    }

    /// Notifies systemd that the program stops. From then on only `TimeoutStopSec=` limits the duration.
    pub fn stopping(&self, status: &str) {
        if let Some(socket) = &self.socket {
            socket.send(&format!("STOPPING=1\nSTATUS={status}"));
        }
        if let Some(Watchdog { stopping, .. }) = &self.watchdog
            && stopping.send(()).is_err()
        {
            tracing::error!("watchdog thread has ended");
        }
    }

    pub fn end(self) {
        if let Some(watchdog) = self.watchdog {
            watchdog.stop();
        }
    }
}

#[derive(Debug)]
pub struct NotifySocket {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl NotifySocket {
    /// The socket that `NOTIFY_SOCKET` names. An unusable value is logged, and the program runs without systemd.
    fn from_environment() -> Option<Self> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
        let socket = Self::at(&name);
        socket
            .inspect_err(
                |error| tracing::warn!(%error, "NOTIFY_SOCKET is not usable, systemd is not notified"),
            )
            .ok()
    }

    /// The socket at `name`: an absolute path, or `@` and the name of an abstract socket.
    pub fn at(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            #[cfg(target_os = "linux")]
            [b'@', name @ ..] => {
                <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)?
            }
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "it must begin with / or @",
                ));
            }
        };
        Ok(Self { socket: UnixDatagram::unbound()?, address })
    }

    /// Sends `state`, such as `READY=1`. A failure is logged only, because the program can run without systemd.
    fn send(&self, state: &str) {
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address) {
            tracing::warn!(%error, state, "systemd cannot be notified");
        }
    }
}

pub struct Liveness {
    /// The name of the part that hangs when it does not, in the log.
    pub what: &'static str,
    pub is_alive: Box<dyn Fn() -> bool + Send>,
}

/// The thread that sends `WATCHDOG=1` while the program responds, so that systemd restarts one that hangs.
#[derive(Debug)]
pub struct Watchdog {
    stopping: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    /// Starts the thread. It notifies systemd twice per `timeout`, as systemd recommends.
    pub fn start(
        liveness: Liveness,
        socket: Arc<NotifySocket>,
        timeout: Duration,
    ) -> io::Result<Self> {
        let (stopping, stop) = channel();
        let thread = std::thread::Builder::new().name("watchdog".to_owned());
        let thread = thread.spawn(move || watch(&liveness, &socket, timeout / 2, &stop))?;
        Ok(Self { stopping, thread })
    }

    pub fn stop(self) {
        drop(self.stopping);
        if self.thread.join().is_err() {
            tracing::error!("watchdog thread panicked");
        }
    }
}

/// Once the program is stopping, the thread notifies systemd unconditionally.
fn watch(liveness: &Liveness, socket: &NotifySocket, interval: Duration, stop: &Receiver<()>) {
    let (mut was_alive, mut is_stopping) = (true, false);
    loop {
        let is_alive = is_stopping || (liveness.is_alive)();
        match (was_alive, is_alive) {
            (true, true) => socket.send("WATCHDOG=1"),
            (false, true) => socket.send("WATCHDOG=1\nSTATUS=Running again"),
            (true, false) => {
                tracing::error!(
                    part = liveness.what,
                    "unresponsive; systemd watchdog no longer notified"
                );
                socket.send(&format!("STATUS={} is unresponsive", liveness.what));
            }
            (false, false) => {}
        }
        was_alive = is_alive;
        match stop.recv_timeout(interval) {
            Ok(()) => is_stopping = true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
