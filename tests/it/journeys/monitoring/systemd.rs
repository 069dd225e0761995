//! Messages to the service manager, on a socket of the test, and the unit in `examples/`.

use std::fs;
use std::io::BufReader;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use cued::server::liveness;
use cued::systemd::NotifySocket;
use cued::systemd::watchdog::Watchdog;
use tempfile::TempDir;

use crate::support::fixture::Fixture;
use crate::support::server::{HANG_TIMEOUT, Process, cued, read_addr, run, signal};

/// A double of systemd.
struct Boss {
    socket: UnixDatagram,
}

impl Boss {
    fn at(folder: &TempDir) -> (Self, String) {
        let path = folder.path().join("notify");
        (Self::with(UnixDatagram::bind(&path).unwrap()), path.to_str().unwrap().to_owned())
    }

    fn with(socket: UnixDatagram) -> Self {
        socket.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        Self { socket }
    }

    /// The next message.
    fn hears(&self) -> String {
        let mut bytes = [0; 512];
        let length = self.socket.recv(&mut bytes).expect("a message arrives");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// The next message that is not a watchdog notification.
    fn hears_beside_life(&self) -> String {
        std::iter::repeat_with(|| self.hears()).find(|news| news != "WATCHDOG=1").unwrap()
    }

    /// Returns whether no message arrives within this time.
    fn hears_nothing_for(&self, time: Duration) -> bool {
        self.socket.set_read_timeout(Some(time)).unwrap();
        let silent = self.socket.recv(&mut [0; 512]).is_err();
        self.socket.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        silent
    }
}

/// A server started as by systemd, and its address.
fn started(environment: &[(&str, &str)]) -> (Process, std::net::SocketAddr) {
    let mut command = cued(&["serve", "--ephemeral"]);
    command.env_remove("WATCHDOG_PID").envs(environment.iter().copied());
    let mut server = Process(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let addr = read_addr(&mut BufReader::new(server.0.stdout.take().unwrap())).unwrap();
    (server, addr)
}

#[test]
fn readiness_and_stopping_are_reported_with_the_state_of_the_socket() {
    let folder = TempDir::new().unwrap();
    let (manager, path) = Boss::at(&folder);
    let (mut server, addr) = started(&[("NOTIFY_SOCKET", &path)]);
    assert_eq!(manager.hears(), format!("READY=1\nSTATUS=Serving on http://{addr}"));
    TcpStream::connect(addr).unwrap();
    signal("-TERM", server.0.id());
    assert_eq!(manager.hears(), "STOPPING=1\nSTATUS=Stopping: waiting for running requests and deliveries");
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
    assert!(manager.hears_nothing_for(Duration::from_millis(1)), "no unrequested watchdog notification");
}

#[test]
fn an_abstract_notify_socket_gets_the_same_messages() {
    let name = format!("cued-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let manager = Boss::with(UnixDatagram::bind_addr(&address).unwrap());
    let (_server, addr) = started(&[("NOTIFY_SOCKET", &format!("@{name}"))]);
    assert_eq!(manager.hears(), format!("READY=1\nSTATUS=Serving on http://{addr}"));
}

#[test]
fn an_unreachable_notify_socket_does_not_stop_the_server() {
    let folder = TempDir::new().unwrap();
    let nobody = folder.path().join("nobody");
    for name in [nobody.to_str().unwrap(), "vsock:2:1234", ""] {
        let (mut server, addr) = started(&[("NOTIFY_SOCKET", name), ("WATCHDOG_USEC", "10000")]);
        TcpStream::connect(addr).unwrap();
        signal("-TERM", server.0.id());
        assert_eq!(server.0.wait().unwrap().code(), Some(0), "{name}");
    }
}

#[test]
fn the_watchdog_is_notified_while_running_and_while_stopping() {
    let folder = TempDir::new().unwrap();
    let (manager, path) = Boss::at(&folder);
    let (mut server, addr) = started(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "20000")]);
    assert_eq!(manager.hears(), format!("READY=1\nSTATUS=Serving on http://{addr}"));
    for _ in 0..3 {
        assert_eq!(manager.hears(), "WATCHDOG=1");
    }
    // A running request keeps the port open.
    let mut waiting = TcpStream::connect(addr).unwrap();
    let head = b"POST /v1/auth/register HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
    std::io::Write::write_all(&mut waiting, head).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| signal("-TERM", server.0.id()));
        assert!(manager.hears_beside_life().starts_with("STOPPING=1"));
    });
    for _ in 0..3 {
        assert_eq!(manager.hears(), "WATCHDOG=1");
    }
    drop(waiting);
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
}

#[test]
fn only_the_watched_process_notifies_the_watchdog() {
    let folder = TempDir::new().unwrap();
    let (manager, path) = Boss::at(&folder);
    let other = std::process::id().to_string();
    let (server, _) =
        started(&[("NOTIFY_SOCKET", &path), ("WATCHDOG_USEC", "20000"), ("WATCHDOG_PID", &other)]);
    assert!(manager.hears().starts_with("READY=1"));
    signal("-TERM", server.0.id());
    assert!(manager.hears().starts_with("STOPPING=1"));
}

/// A program without an engine: each call of `live` acts as its scheduler.
fn watched(fixture: &Fixture, manager: &str) -> Watchdog {
    fixture.app.engine_stats.heartbeat(fixture.app.clock.monotonic());
    let manager = Arc::new(NotifySocket::at(manager.as_ref()).unwrap());
    Watchdog::start(liveness(&fixture.app), manager, Duration::from_millis(20)).unwrap()
}

#[test]
fn a_hanging_writer_stops_the_watchdog_notifications() {
    let (folder, fixture) = (TempDir::new().unwrap(), Fixture::new());
    let (manager, path) = Boss::at(&folder);
    let watchdog = watched(&fixture, &path);
    assert_eq!(manager.hears(), "WATCHDOG=1");
    let (go_on, held) = channel::<()>();
    let (hangs, begun) = channel();
    let stuck = fixture.app.store.write(move |_| {
        hangs.send(()).unwrap();
        held.recv().unwrap();
        Ok(())
    });
    begun.recv().unwrap();
    // A message may have been in transit.
    while !manager.hears_nothing_for(Duration::from_millis(200)) {}
    go_on.send(()).unwrap();
    stuck.wait().unwrap();
    assert_eq!(manager.hears(), "WATCHDOG=1");
    watchdog.stop();
}

#[test]
fn a_failing_disk_does_not_stop_the_watchdog_notifications() {
    let (folder, fixture) = (TempDir::new().unwrap(), Fixture::new());
    let (manager, path) = Boss::at(&folder);
    // No commit gets past this lock.
    drop(fixture.app.store.write(|tx| Ok(tx.commit_hook(Some(|| true))?)).wait());
    let watchdog = watched(&fixture, &path);
    for _ in 0..3 {
        assert_eq!(manager.hears(), "WATCHDOG=1");
    }
    watchdog.stop();
}

#[test]
fn the_example_units_are_valid_for_systemd() {
    assert_valid_unit("cued.service", "serve", &["TimeoutStartSec=infinity", "StateDirectory=cued"]);
    let worker = ["KillMode=mixed", "RestartPreventExitStatus=2 4", "StateDirectory=cued-work"];
    assert_valid_unit("cued-work.service", "work", &worker);
}

fn assert_valid_unit(name: &str, subcommand: &str, own: &[&str]) {
    let unit = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)).unwrap();
    let common = ["Type=notify", "WatchdogSec=", "DynamicUser=yes", "ProtectSystem=strict"];
    for line in common.iter().chain(own) {
        assert!(unit.lines().any(|it| it.starts_with(line)), "{line}");
    }
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/cued ")).unwrap();
    assert_eq!(start.split(' ').next(), Some(subcommand));
    // The flags are valid: the help is not the cause of a failure.
    let flags = start.split(" -- ").next().unwrap();
    let with_help: Vec<&str> = flags.split(' ').chain(["--help"]).collect();
    assert_eq!(run(&with_help).status.code(), Some(0), "{with_help:?}");

    let folder = TempDir::new().unwrap();
    let copy = folder.path().join(name);
    fs::write(
        &copy,
        unit.replace("/usr/local/bin/cued", env!("CARGO_BIN_EXE_cued"))
            .replace("/usr/local/lib/cued/report.sh", "true"),
    )
    .unwrap();
    let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output() else {
        eprintln!("systemd-analyze is not here: the unit was not verified");
        return;
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !text.contains(name), "{text}");
}
