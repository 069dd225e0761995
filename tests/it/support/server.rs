//! The built program as a process: started, called, killed and restarted.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Output};
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;

use cued::store::db::counters;
use rusqlite::Connection;
use tokio::net::TcpSocket;

use crate::support::*;

/// The longest wait for any condition. It only keeps a broken program from hanging the tests.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// Open registration, callbacks to this machine, no limits.
pub const DEV_UNLIMITED: &[&str] = &["--dev", "--limits", "off"];

/// An address of this machine with a free port.
const ANY_PORT: &str = "127.0.0.1:0";

/// A running `cued serve`, with a database in a temporary folder unless it was given one.
pub struct Server {
    child: Process,
    addr: SocketAddr,
    metrics: Option<SocketAddr>,
    /// Keeps the address of a server that has ended from the servers of other tests. Nothing listens on it.
    held: Option<TcpSocket>,
    flags: Vec<String>,
    zones: Option<PathBuf>,
    db: PathBuf,
    dir: TempDir,
}

impl Server {
    /// A server on the system clock with `flags` and a new database.
    pub fn start(flags: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        Self::start_in(dir.path().join("cued.db"), dir, flags)
    }

    /// As [`Server::start`], on the database file `db`, which the caller removes.
    pub fn start_on(db: &Path, flags: &[&str]) -> Self {
        Self::start_in(db.to_owned(), TempDir::new().unwrap(), flags)
    }

    /// As [`Server::with_test_clock`], on a system whose time zones are in `folder`.
    pub fn with_zones(folder: &Path, instant: &str) -> Self {
        let (dir, flags) =
            (TempDir::new().unwrap(), [DEV_UNLIMITED, &["--test-clock", instant]].concat());
        Self::start_with(dir.path().join("cued.db"), dir, &flags, Some(folder.to_owned()))
    }

    fn start_in(db: PathBuf, dir: TempDir, flags: &[&str]) -> Self {
        Self::start_with(db, dir, flags, None)
    }

    fn start_with(db: PathBuf, dir: TempDir, flags: &[&str], zones: Option<PathBuf>) -> Self {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (child, addr, metrics) = spawn(&db, dir.path(), &flags, zones.as_deref(), ANY_PORT);
        Self { child, addr, metrics, held: None, flags, zones, db, dir }
    }

    /// A server with [`DEV_UNLIMITED`] and a test clock at `instant`.
    pub fn with_test_clock(instant: &str) -> Self {
        Self::start(&[DEV_UNLIMITED, &["--test-clock", instant]].concat())
    }

    /// As [`Server::start`], and the client of a new account.
    pub fn with_user(flags: &[&str]) -> (Self, Client) {
        let server = Self::start(flags);
        let user = server.user();
        (server, user)
    }

    /// As [`Server::with_test_clock`], and the client of a new account.
    pub fn with_clock_and_user(instant: &str) -> (Self, Client) {
        let server = Self::with_test_clock(instant);
        let user = server.user();
        (server, user)
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of the metrics, if they are on.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// A client without a key.
    pub fn client(&self) -> Client {
        Client::new(self.addr)
    }

    /// The client of a new account.
    pub fn user(&self) -> Client {
        static USERS: AtomicU32 = AtomicU32::new(1);
        let number = USERS.fetch_add(1, Ordering::Relaxed);
        self.client().register(&format!("user{number}@example.com"))
    }

    pub fn db(&self) -> PathBuf {
        self.db.clone()
    }

    /// A connection to the file, next to that of the server.
    pub fn sqlite(&self) -> Connection {
        Connection::open(self.db()).unwrap()
    }

    /// The number that a query of the file returns.
    #[track_caller]
    pub fn count(&self, query: &str) -> i64 {
        self.sqlite().query_row(query, [], |row| row.get(0)).unwrap()
    }

    /// Changes the file.
    #[track_caller]
    pub fn sql(&self, statements: &str) {
        self.sqlite().execute_batch(statements).unwrap();
    }

    /// `cued user …` on the file.
    #[track_caller]
    pub fn administer(&self, arguments: &[&str]) {
        let done = cued(&["user", "--db"]).arg(&self.db).args(arguments).output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// The counters in the file are those of its rows.
    #[track_caller]
    pub fn assert_counters(&self) {
        assert_eq!(counters::discrepancies(&self.sqlite()).unwrap(), Vec::<String>::new());
    }

    /// The log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("cued.log")).unwrap_or_default()
    }

    /// Standard output after the lines with the addresses.
    pub fn stdout(&self) -> String {
        fs::read_to_string(self.dir.path().join("cued.out")).unwrap_or_default()
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
        self.held = hold(self.addr);
    }

    /// Sends SIGTERM; [`Server::wait_for_exit`] waits for the end.
    pub fn terminate(&self) {
        signal("-TERM", self.pid());
    }

    /// Waits for the end; returns the exit code.
    pub fn wait_for_exit(&mut self) -> Option<i32> {
        let what = format!("process {} ends", self.pid());
        let status = until(&what, || self.child.0.try_wait().unwrap());
        self.held = hold(self.addr);
        status.code()
    }

    /// Stops the server gracefully; returns the exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.terminate();
        self.wait_for_exit()
    }

    /// Starts the server again on the same file with the same flags, and on another port; returns its address.
    pub fn restart(&mut self) -> SocketAddr {
        self.restart_listening_on(ANY_PORT)
    }

    /// As [`Server::restart`], on the same port.
    pub fn restart_in_place(&mut self) -> SocketAddr {
        self.restart_listening_on(&self.addr.to_string())
    }

    fn restart_listening_on(&mut self, listen: &str) -> SocketAddr {
        let zones = self.zones.as_deref();
        (self.child, self.addr, self.metrics) =
            spawn(&self.db, self.dir.path(), &self.flags, zones, listen);
        self.addr
    }

    /// As [`Server::restart`], with the test clock at `instant`.
    pub fn restart_at(&mut self, instant: &str) -> SocketAddr {
        self.restart_with("--test-clock", instant)
    }

    /// As [`Server::restart`], with another value of a flag.
    pub fn restart_with(&mut self, flag: &str, value: &str) -> SocketAddr {
        let place =
            self.flags.iter().position(|given| given == flag).expect("a flag that was given");
        value.clone_into(&mut self.flags[place + 1]);
        self.restart()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "--- the end of the server's log\n{}",
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
        } else if let Ok(wrong) = counters::discrepancies(&self.sqlite()) {
            // The counters of the file are right after every test.
            assert_eq!(wrong, Vec::<String>::new());
        }
    }
}

/// A folder in memory, where a write does not wait for the disk, or on the disk if there is too little. A file in it
/// outlives the kill of a process as well.
pub fn folder_in_memory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(memory).map(|it| it.f_bavail.saturating_mul(it.f_frsize));
    let is_roomy = free.is_ok_and(|free| free >= 1 << 30);
    if is_roomy { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Binds the address, without a listener. A later server may listen on it.
fn hold(addr: SocketAddr) -> Option<TcpSocket> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.set_reuseaddr(true).ok()?;
    socket.bind(addr).ok()?;
    Some(socket)
}

/// A process that is killed on drop.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A command of the program, without the environment variables of the tests.
pub fn cued(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cued"));
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUED_"))
    {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

/// Runs a command that ends by itself.
pub fn run(arguments: &[&str]) -> Output {
    cued(arguments).output().unwrap()
}

pub fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").arg(name).arg(pid.to_string()).status().unwrap();
    assert!(status.success(), "kill {name} {pid}");
}

/// Resident memory of a process in MB.
pub fn resident_mb(pid: u32) -> u64 {
    memory_mb(pid, "VmRSS:")
}

/// The highest resident memory of a process so far, in MB.
pub fn peak_mb(pid: u32) -> u64 {
    memory_mb(pid, "VmHWM:")
}

/// The time for which the threads of a process ran, or waited for a processor.
pub fn busy_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread can have ended in the meantime.
    let times = threads
        .filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("schedstat")).ok());
    let nanos = |times: String| -> u64 {
        times.split(' ').take(2).map(|time| time.parse::<u64>().unwrap()).sum()
    };
    Duration::from_nanos(times.map(nanos).sum())
}

fn memory_mb(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() / 1024
}

/// As [`until`], for a condition without a value.
#[track_caller]
pub fn until_true(what: &str, mut condition: impl FnMut() -> bool) {
    until(what, || condition().then_some(()));
}

/// Polls a condition until it holds. The interval affects no result; it only spares the processor, and grows with the wait.
#[track_caller]
pub fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    until_within(what, HANG_TIMEOUT, condition)
}

/// As [`until`], for conditions that take their time by design.
#[track_caller]
pub fn until_within<T>(
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        let waited = begun.elapsed();
        assert!(waited < timeout, "not within {timeout:?}: {what}");
        thread::park_timeout(
            (waited / 20).clamp(Duration::from_millis(5), Duration::from_millis(100)),
        );
    }
}

/// Runs `job`, which must end by itself; fails if it hangs.
#[track_caller]
pub fn bounded<T: Send + 'static>(what: &str, job: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || drop(done.send(job())));
    result.recv_timeout(HANG_TIMEOUT).unwrap_or_else(|_| panic!("{what} hangs"))
}

/// Returns whether the long forms of the tests run (`TESTS_FULL=1`).
pub fn is_full_run() -> bool {
    std::env::var_os("TESTS_FULL").is_some_and(|value| value == "1")
}

/// Reports that a test is skipped.
///
/// # Panics
/// In a full run, where no test may be skipped.
#[track_caller]
pub fn skip(reason: &str) {
    assert!(!is_full_run(), "{reason}");
    let test = thread::current().name().unwrap_or_default().to_owned();
    // Not `eprintln!`, whose text the test harness shows for failed tests only.
    io::stderr().write_all(format!("skipped {test}: {reason}\n").as_bytes()).unwrap();
}

fn spawn(
    db: &Path,
    dir: &Path,
    flags: &[String],
    zones: Option<&Path>,
    listen: &str,
) -> (Process, SocketAddr, Option<SocketAddr>) {
    let log = OpenOptions::new().create(true).append(true).open(dir.join("cued.log")).unwrap();
    let child = cued(&["serve", "--listen", listen, "--db"])
        .arg(db)
        .args(flags)
        .envs(zones.map(|folder| ("TZDIR", folder)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut child = Process(child);
    let mut stdout = BufReader::new(child.0.stdout.take().unwrap());
    let Some(addr) = read_addr(&mut stdout) else {
        let log = std::io::read_to_string(File::open(dir.join("cued.log")).unwrap()).unwrap();
        panic!("the server did not start: {:?}\n{log}", child.0.wait());
    };
    let watched = flags.iter().any(|flag| flag == "--metrics-listen");
    let metrics = watched.then(|| {
        let line = line_of(&mut stdout).unwrap();
        let address =
            line.strip_prefix("cued metrics on http://").and_then(|it| it.strip_suffix("/metrics"));
        address.expect(&line).parse().unwrap()
    });
    // Reads standard output to its end, so that the server never blocks on it.
    let mut kept = OpenOptions::new().create(true).append(true).open(dir.join("cued.out")).unwrap();
    thread::spawn(move || drop(std::io::copy(&mut stdout, &mut kept)));
    (child, addr, metrics)
}

/// The address in the first line of output.
pub fn read_addr(stdout: &mut BufReader<ChildStdout>) -> Option<SocketAddr> {
    line_of(stdout)?.strip_prefix("cued listening on http://")?.parse().ok()
}

fn line_of(stdout: &mut BufReader<ChildStdout>) -> Option<String> {
    let mut line = String::new();
    stdout.read_line(&mut line).ok()?;
    Some(line.trim_end().to_owned())
}
