//! Readiness, watchdog and stop notifications for systemd (the `sd_notify` protocol). Without `NOTIFY_SOCKET` nothing is
//! sent.
//!
//! The sd-notify crate (0.5) does not fit: it connects to `NOTIFY_SOCKET` as a path, so an abstract socket (`@name`, which the
//! protocol permits) is looked up as a file and fails, and it opens a new socket for every message.

pub mod watchdog;

use std::ffi::OsStr;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use crate::systemd::watchdog::{Liveness, Watchdog};

/// The connection to systemd for the lifetime of a program.
#[derive(Debug)]
pub struct SystemdService {
    socket: Option<Arc<NotifySocket>>,
    watchdog: Option<Watchdog>,
}

impl SystemdService {
    /// Notifies systemd that the program is ready, and starts the watchdog thread if the unit has a watchdog. `liveness`
    /// reports whether the program works.
    pub fn ready(status: &str, liveness: Liveness) -> io::Result<Self> {
        let socket = NotifySocket::from_environment().map(Arc::new);
        let Some(socket) = socket else { return Ok(Self { socket, watchdog: None }) };
        socket.send(&format!("READY=1\nSTATUS={status}"));
        let watchdog = watchdog_timeout()
            .map(|timeout| Watchdog::start(liveness, Arc::clone(&socket), timeout))
            .transpose()?;
        Ok(Self { socket: Some(socket), watchdog })
    }

    /// Notifies systemd that the program stops. From then on only `TimeoutStopSec=` limits the duration.
    pub fn stopping(&self, status: &str) {
        if let Some(socket) = &self.socket {
            socket.send(&format!("STOPPING=1\nSTATUS={status}"));
        }
        if let Some(watchdog) = &self.watchdog {
            watchdog.begin_stop();
        }
    }

    pub fn end(self) {
        if let Some(watchdog) = self.watchdog {
            watchdog.stop();
        }
    }
}

/// The datagram socket on which systemd receives notifications.
#[derive(Debug)]
pub struct NotifySocket {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl NotifySocket {
    /// The socket that `NOTIFY_SOCKET` names. An unusable value is logged, and the program runs without systemd.
    pub fn from_environment() -> Option<Self> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
        Self::at(&name)
            .inspect_err(
                |error| tracing::warn!(%error, "NOTIFY_SOCKET is not usable, systemd is not notified"),
            )
            .ok()
    }

    /// The socket at `name`: an absolute path, or `@` and the name of an abstract socket.
    pub fn at(name: &OsStr) -> io::Result<Self> {
        Ok(Self { socket: UnixDatagram::unbound()?, address: address(name)? })
    }

    /// Sends `state`, such as `READY=1`. A failure is logged only, because the program can run without systemd.
    pub fn send(&self, state: &str) {
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address) {
            tracing::warn!(%error, state, "systemd cannot be notified");
        }
    }
}

/// The watchdog timeout of the unit, if it applies to this process.
fn watchdog_timeout() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    timeout_from(number("WATCHDOG_USEC"), number("WATCHDOG_PID"))
}

fn timeout_from(microseconds: Option<u64>, process: Option<u64>) -> Option<Duration> {
    let is_own = process.is_none_or(|process| process == u64::from(std::process::id()));
    microseconds.filter(|time| is_own && *time > 0).map(Duration::from_micros)
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    use std::os::unix::ffi::OsStrExt as _;
    match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name),
        [b'@', abstract_name @ ..] => abstract_address(abstract_name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it must begin with / or @")),
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no abstract sockets"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_or_an_abstract_name() {
        let path = address(OsStr::new("/run/notify")).unwrap();
        assert_eq!(path.as_pathname(), Some(std::path::Path::new("/run/notify")));
        assert!(!cfg!(target_os = "linux") || address(OsStr::new("@name")).unwrap().as_pathname().is_none());
        for invalid in ["", "run/notify", "vsock:2:1234"] {
            assert!(address(OsStr::new(invalid)).is_err(), "{invalid}");
        }
    }

    #[test]
    fn the_watchdog_applies_only_to_the_process_it_names() {
        let own = u64::from(std::process::id());
        for (microseconds, process, seconds) in [
            (Some(2_000_000), None, Some(2)),
            (Some(2_000_000), Some(own), Some(2)),
            (Some(2_000_000), Some(own + 1), None),
            (Some(0), None, None),
            (None, Some(own), None),
        ] {
            assert_eq!(timeout_from(microseconds, process), seconds.map(Duration::from_secs));
        }
    }
}
