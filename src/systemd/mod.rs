//! What the service manager is told (systemd's `sd_notify`): that the program is ready, alive, stopping. Where nobody
//! asked to be told, nobody is.

pub mod watchdog;

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use watchdog::Watchdog;

use crate::app::App;

/// This program as a service: what it has to tell, and to whom.
#[derive(Debug)]
pub struct SystemdService {
    manager: Option<Arc<NotifySocket>>,
    watchdog: Option<Watchdog>,
}

impl SystemdService {
    /// Tells the service manager of the environment, if there is one, that callers are served, and from now on that
    /// the program is alive, if it asked for that.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub fn ready(app: &Arc<App>, status: &str) -> io::Result<Self> {
        let manager = NotifySocket::of_environment().map(Arc::new);
        let Some(manager) = manager else { return Ok(Self { manager, watchdog: None }) };
        manager.tell(&format!("READY=1\nSTATUS={status}"));
        let watchdog =
            watchdog_time().map(|time| Watchdog::start(app, Arc::clone(&manager), time)).transpose()?;
        Ok(Self { manager: Some(manager), watchdog })
    }

    /// Tells that the program stops. It may take as long as it takes: that is watched by other times.
    pub fn stopping(&self, status: &str) {
        if let Some(manager) = &self.manager {
            manager.tell(&format!("STOPPING=1\nSTATUS={status}"));
        }
        if let Some(watchdog) = &self.watchdog {
            watchdog.relax();
        }
    }

    /// Tells nothing more.
    pub fn end(self) {
        if let Some(watchdog) = self.watchdog {
            watchdog.stop();
        }
    }
}

/// The service manager that started this program.
#[derive(Debug)]
pub struct NotifySocket {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl NotifySocket {
    /// The one that `NOTIFY_SOCKET` names.
    #[must_use]
    pub fn of_environment() -> Option<Self> {
        let name = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())?;
        Self::at(&name)
            .inspect_err(|error| {
                tracing::warn!("the service manager cannot be told anything: NOTIFY_SOCKET: {error}");
            })
            .ok()
    }

    /// The one that listens at `name`: a path, or `@` and a name that no file has.
    ///
    /// # Errors
    /// When it is neither, or the system gives no socket.
    pub fn at(name: &OsStr) -> io::Result<Self> {
        Ok(Self { socket: UnixDatagram::unbound()?, address: address(name)? })
    }

    /// Tells it what the lines of `news` say, such as `READY=1`. What cannot be told is logged: the program goes on.
    pub fn tell(&self, news: &str) {
        if let Err(error) = self.socket.send_to_addr(news.as_bytes(), &self.address) {
            tracing::warn!("the service manager could not be told {news:?}: {error}");
        }
    }
}

/// How long the service manager waits for a sign of life, if it waits for one of this process.
fn watchdog_time() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    patience(number("WATCHDOG_USEC"), number("WATCHDOG_PID"))
}

fn patience(microseconds: Option<u64>, process: Option<u64>) -> Option<Duration> {
    let is_ours = process.is_none_or(|process| process == u64::from(std::process::id()));
    microseconds.filter(|time| is_ours && *time > 0).map(Duration::from_micros)
}

fn address(name: &OsStr) -> io::Result<SocketAddr> {
    use std::os::unix::ffi::OsStrExt as _;
    match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name),
        [b'@', abstract_name @ ..] => abstract_address(abstract_name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no path and does not begin with @")),
    }
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no names that are no files"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_path_or_an_abstract_name() {
        let path = address(OsStr::new("/run/notify")).unwrap();
        assert_eq!(path.as_pathname(), Some(std::path::Path::new("/run/notify")));
        assert!(!cfg!(target_os = "linux") || address(OsStr::new("@name")).unwrap().as_pathname().is_none());
        for odd in ["", "run/notify", "vsock:2:1234"] {
            assert!(address(OsStr::new(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn only_the_named_process_notifies_the_watchdog() {
        let own = u64::from(std::process::id());
        for (microseconds, process, time) in [
            (Some(2_000_000), None, Some(2)),
            (Some(2_000_000), Some(own), Some(2)),
            (Some(2_000_000), Some(own + 1), None),
            (Some(0), None, None),
            (None, Some(own), None),
        ] {
            assert_eq!(patience(microseconds, process), time.map(Duration::from_secs));
        }
    }
}
