//! The surroundings of a measured server: its process, clients with a connection each, and a receiver of webhooks that
//! records how late each one is.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cued::clock::Clock;
use cued::system::locks::{Condvar, Mutex};
use jiff::Timestamp;

/// The longest wait for one response: a slow disk must be able to finish, and a stuck run must end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A `cued serve` on a database of its own, killed when it is dropped.
pub struct ServerProcess {
    process: Child,
    pub address: SocketAddr,
}

impl ServerProcess {
    /// Starts `program serve --dev` with `flags`, by the command `wrap` if it has words, and waits until it listens.
    pub fn start(wrap: &[&str], program: &Path, db: &Path, flags: &[&str]) -> io::Result<Self> {
        let mut words = wrap.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--db"])
            .arg(db)
            .args(flags);
        // Settings for another server must not affect the measurement.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUED_"))
        {
            command.env_remove(name);
        }
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim().rsplit_once("http://").and_then(|(_, address)| address.parse().ok()) {
            Some(address) => Ok(Self { process, address }),
            None => Err(io::Error::other(
                "`cued serve` did not start: run it by itself to see the error",
            )),
        }
    }

    /// A figure of `/proc/PID/status` in bytes, such as `VmRSS:`; `None` without `/proc`.
    pub fn memory(&self, name: &str) -> Option<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.process.id())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok().map(|kib: f64| kib * 1_024.0)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Its database is temporary: a clean stop is not needed.
        drop(self.process.kill().and_then(|()| self.process.wait()));
    }
}

/// A connection that sends its next request after the response to the last one.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn connect(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self(BufReader::with_capacity(16_384, stream)))
    }

    /// Sends a request and returns the body of the response.
    pub fn call(&mut self, request: &[u8]) -> io::Result<String> {
        self.0.get_mut().write_all(request)?;
        let response = Message::read(&mut self.0)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        match response.first_line.split(' ').nth(1) {
            Some(code) if code.starts_with('2') => Ok(response.body),
            _ => {
                Err(io::Error::other(format!("{}: {}", response.first_line.trim(), response.body)))
            }
        }
    }
}

/// A request of HTTP/1.1.
pub fn request(method: &str, path: &str, key: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n");
    format!("{head}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Returns the value of the first string field of this name. Sufficient for ids and keys, which contain no escapes.
pub fn string_field(json: &str, field: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{field}\":\""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}

/// A request or a response with a length, and the one header that matters here.
struct Message {
    first_line: String,
    scheduled_for: Option<Timestamp>,
    body: String,
}

impl Message {
    /// Returns `None` at the end of the connection.
    fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let (mut first_line, mut line) = (String::new(), String::new());
        let (mut length, mut scheduled_for) = (0, None);
        if from.read_line(&mut first_line)? == 0 {
            return Ok(None);
        }
        while from.read_line(&mut line)? > "\r\n".len() {
            let (name, value) = line.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().map_err(io::Error::other)?;
            } else if name.eq_ignore_ascii_case("x-cueapi-scheduled-for") {
                scheduled_for = Some(value.trim().parse().map_err(io::Error::other)?);
            }
            line.clear();
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        Ok(Some(Self {
            first_line,
            scheduled_for,
            body: String::from_utf8_lossy(&body).into_owned(),
        }))
    }
}

/// The calls of a measurement.
pub struct Calls {
    /// Calls per second, of all clients together.
    pub rate: f64,
    /// The duration of each call in milliseconds.
    pub latencies: Vec<f64>,
}

/// Measures how often per second `clients` clients together complete `work`, over `duration`, and how long each call
/// takes. `work` gets the number of the client. Ends early when it returns `false`: nothing is left to do.
pub fn measure(
    clock: &Clock,
    to: SocketAddr,
    clients: usize,
    duration: Duration,
    work: impl Fn(usize, &mut Client) -> io::Result<bool> + Sync,
) -> io::Result<Calls> {
    let connected = (0..clients).map(|_| Client::connect(to)).collect::<io::Result<Vec<_>>>()?;
    let (finished, work) = (AtomicBool::new(false), &work);
    let began = clock.monotonic();
    let repeat = |number: usize, mut client: Client| {
        let (mut latencies, mut sent) = (Vec::new(), clock.monotonic());
        while !finished.load(Ordering::Relaxed) {
            if sent - began >= duration || !work(number, &mut client)? {
                finished.store(true, Ordering::Relaxed);
                break;
            }
            let received = clock.monotonic();
            latencies.push((received - sent).as_secs_f64() * 1_000.0);
            sent = received;
        }
        io::Result::Ok(latencies)
    };
    let latencies = thread::scope(|scope| {
        let clients = connected.into_iter().enumerate();
        let threads: Vec<_> =
            clients.map(|(number, client)| scope.spawn(move || repeat(number, client))).collect();
        let panicked = |_| Err(io::Error::other("a client thread panicked"));
        let results = threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
        results.collect::<io::Result<Vec<_>>>()
    })?;
    let (elapsed, latencies) = ((clock.monotonic() - began).as_secs_f64(), latencies.concat());
    if latencies.is_empty() {
        return Err(io::Error::other(
            "no request completed in the measured time: use a larger --seconds",
        ));
    }
    Ok(Calls { rate: count(latencies.len()) / elapsed, latencies })
}

/// A receiver of webhooks on free loopback ports. It responds with 200 at once, and runs until the process ends.
pub struct Receiver {
    addresses: Vec<SocketAddr>,
    arrivals: Arc<Arrivals>,
}

#[derive(Default)]
struct Arrivals {
    /// The lateness of each request in milliseconds.
    lateness: Mutex<Vec<f64>>,
    changed: Condvar,
}

impl Receiver {
    /// Listens on `ports` ports, each another destination.
    pub fn start(ports: usize) -> io::Result<Self> {
        let arrivals = Arc::<Arrivals>::default();
        let mut addresses = Vec::new();
        for _ in 0..ports {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            addresses.push(listener.local_addr()?);
            let arrivals = Arc::clone(&arrivals);
            thread::Builder::new().name("receiver".to_owned()).spawn(move || {
                for stream in listener.incoming().flatten() {
                    let arrivals = Arc::clone(&arrivals);
                    // Without a thread the connection closes, and the sender tries again.
                    drop(
                        thread::Builder::new()
                            .stack_size(128 << 10)
                            .spawn(move || serve(stream, &arrivals)),
                    );
                }
            })?;
        }
        Ok(Self { addresses, arrivals })
    }

    /// The callback URL of the port with this number, in turns.
    pub fn url(&self, number: usize) -> String {
        format!("http://{}/hook", self.addresses[number % self.addresses.len()])
    }

    /// Waits for `wanted` requests and returns the lateness of each in milliseconds.
    pub fn take(&self, wanted: usize, timeout: Duration) -> io::Result<Vec<f64>> {
        let is_short = |lateness: &mut Vec<f64>| lateness.len() < wanted;
        let lateness = self.arrivals.lateness.lock();
        let lateness = std::mem::take(
            &mut *self.arrivals.changed.wait_timeout_while(lateness, timeout, is_short),
        );
        if lateness.len() < wanted {
            return Err(io::Error::other(format!(
                "only {} of {wanted} deliveries arrived",
                lateness.len()
            )));
        }
        Ok(lateness)
    }
}

fn serve(stream: TcpStream, arrivals: &Arrivals) {
    let clock = Clock::system();
    let mut stream = BufReader::with_capacity(4_096, stream);
    if stream.get_ref().set_nodelay(true).is_err() {
        return;
    }
    while let Ok(Some(request)) = Message::read(&mut stream) {
        let scheduled = request.scheduled_for.unwrap_or(Timestamp::MAX);
        let late = clock.now_precise().duration_since(scheduled).as_secs_f64() * 1_000.0;
        arrivals.lateness.lock().push(late);
        arrivals.changed.notify_all();
        if stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

/// Returns a quantile of the values, such as 0.99 for the 99th percentile; 0 if there are none.
pub fn quantile(values: &mut [f64], quantile: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let index = (quantile * count(values.len().saturating_sub(1))).round() as usize;
    values.get(index).copied().unwrap_or_default()
}

/// A number of calls or cues, for a rate.
#[allow(clippy::cast_precision_loss)]
pub fn count(number: usize) -> f64 {
    number as f64
}
