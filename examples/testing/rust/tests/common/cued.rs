//! Tests of what cued calls: a server whose clock moves when the test says so.
//!
//! Copy this file to `tests/common/cued.rs`, and begin a test with `mod common { pub mod cued; }`. It needs Rust 1.74
//! and `serde_json`. The server is the program that `CUED_BIN` names, or `cued` on the `PATH`.

#![allow(dead_code)]

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use serde_json::{json, Value};

const START: &str = "2030-01-01T00:00:00Z";
/// A shell that ends the server when its own input ends, so also when the process of the tests is killed.
const GUARD: &str = r#""$@" </dev/null & exec >&-; read -r _; kill $! 2>/dev/null; wait"#;
const SHOWN: usize = 20;

static SHARED: OnceLock<Result<Server, String>> = OnceLock::new();
/// Tests run side by side, and the shared server has one clock.
static TURN: Mutex<()> = Mutex::new(());
static ACCOUNTS: AtomicUsize = AtomicUsize::new(1);

thread_local! {
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that has failed is no reason for the others to fail.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An account, the API with its key, and the clock of the server. A request that the server refuses fails the
/// test; `call` returns the error.
pub struct Cued {
    server: ServerOfTest,
    account: Arc<Mutex<Account>>,
    _turn: Option<MutexGuard<'static, ()>>,
}

enum ServerOfTest {
    Shared(&'static Server),
    Own(Server),
}

#[derive(Clone, Default)]
struct Account {
    id: String,
    key: String,
    email: String,
    secret: String,
    alert_secret: String,
}

/// The server has refused a request.
#[derive(Debug)]
pub struct CuedError {
    pub request: String,
    pub status: u16,
    pub code: String,
    pub message: String,
}

impl fmt::Display for CuedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}: {}", self.request, self.status, self.code, self.message)
    }
}

impl Cued {
    /// An account of its own on the server that the tests of a file share. It ends with this value, and the next test
    /// that waits for the server begins.
    #[track_caller]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Cued {
        assert!(
            !HAS_TURN.get(),
            "a test has one Cued::new(); Cued::at(INSTANT) gives it more servers"
        );
        let turn = lock(&TURN);
        match SHARED.get_or_init(|| Server::start(START)) {
            Ok(server) => {
                HAS_TURN.set(true);
                Cued::on(ServerOfTest::Shared(server), Some(turn))
            }
            Err(reason) => panic!("{reason}"),
        }
    }

    /// An account on a server of its own, whose clock begins at an instant.
    #[track_caller]
    pub fn at(instant: &str) -> Cued {
        let server = Server::start(instant).unwrap_or_else(|reason| panic!("{reason}"));
        Cued::on(ServerOfTest::Own(server), None)
    }

    #[track_caller]
    fn on(server: ServerOfTest, turn: Option<MutexGuard<'static, ()>>) -> Cued {
        let cued = Cued { server, account: Arc::default(), _turn: turn };
        cued.sign_up();
        cued
    }

    #[track_caller]
    fn sign_up(&self) {
        let email = format!("test-{}@example.com", ACCOUNTS.fetch_add(1, Ordering::Relaxed));
        let server = self.server();
        let added =
            server.call("POST", "/v1/admin/users", &json!({"email": email}), &lock(&server.key));
        let added = added.unwrap_or_else(|error| panic!("{error}"));
        *lock(&self.account) = Account {
            id: string(&added["id"]),
            key: string(&added["api_key"]),
            email,
            ..Account::default()
        };
        let secret = string(&self.get("/v1/auth/webhook-secret")["webhook_secret"]);
        let alert_secret =
            string(&self.get("/v1/auth/alert-webhook-secret")["alert_webhook_secret"]);
        let mut account = lock(&self.account);
        (account.secret, account.alert_secret) = (secret, alert_secret);
    }

    fn server(&self) -> &Server {
        match &self.server {
            ServerOfTest::Shared(server) => server,
            ServerOfTest::Own(server) => server,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server().address)
    }

    pub fn key(&self) -> String {
        lock(&self.account).key.clone()
    }

    pub fn email(&self) -> String {
        lock(&self.account).email.clone()
    }

    pub fn secret(&self) -> String {
        lock(&self.account).secret.clone()
    }

    /// Sends a request. A body of null is none.
    pub fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, CuedError> {
        self.server().call(method, path, body, &self.key())
    }

    #[track_caller]
    fn must(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, path, body).unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        self.must("GET", path, &Value::Null)
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: Value) -> Value {
        self.must("POST", path, &body)
    }

    #[track_caller]
    pub fn patch(&self, path: &str, body: Value) -> Value {
        self.must("PATCH", path, &body)
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> Value {
        self.must("DELETE", path, &Value::Null)
    }

    /// Creates a cue; the fields are those of `POST /v1/cues`.
    #[track_caller]
    pub fn create(&self, fields: Value) -> Value {
        self.post("/v1/cues", fields)
    }

    /// Runs a cue now, by its name or id.
    #[track_caller]
    pub fn fire(&self, cue: &str) -> Value {
        self.post(&format!("/v1/cues/{}/fire", self.cue_id(cue)), json!({}))
    }

    /// The runs of a cue, or of all with `None`, oldest first, once the deliveries under way have ended.
    #[track_caller]
    pub fn runs<'a>(&self, cue: impl Into<Option<&'a str>>) -> Vec<Value> {
        self.advance("PT0S");
        let of = cue.into().map_or(String::new(), |cue| format!("&cue_id={}", self.cue_id(cue)));
        let mut runs = Vec::new();
        loop {
            let page = self.get(&format!("/v1/executions?limit=100&offset={}{of}", runs.len()));
            runs.extend(page["executions"].as_array().into_iter().flatten().cloned());
            if page["has_more"] == false {
                runs.reverse();
                return runs;
            }
        }
    }

    /// The instant of the server. It stands still until the clock is moved.
    #[track_caller]
    pub fn now(&self) -> String {
        string(&self.get("/v1/test/clock")["now"])
    }

    /// Moves the clock by an ISO 8601 duration, and returns once all that became due is done.
    #[track_caller]
    pub fn advance(&self, span: &str) -> Value {
        self.post("/v1/test/clock", json!({ "advance": span }))
    }

    /// Moves the clock to an instant.
    #[track_caller]
    pub fn advance_to(&self, instant: &str) -> Value {
        match self.call("POST", "/v1/test/clock", &json!({ "to": instant })) {
            Ok(moved) => moved,
            Err(error) if error.message.contains("forward") => {
                panic!(
                    "{error}; it is {}. Cued::at(INSTANT) gives the test a server of its own",
                    self.now()
                )
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Moves the clock to the next instant at which something is due: `next` in the result, null without one.
    #[track_caller]
    pub fn until_next(&self) -> Value {
        self.post("/v1/test/clock", json!({"until": "next"}))
    }

    /// Empties the server, for all, and gives this value a new account. The clock stays where it is.
    #[track_caller]
    pub fn reset(&self) {
        self.post("/v1/test/reset", Value::Null);
        self.server().register_operator().unwrap_or_else(|error| panic!("{error}"));
        self.sign_up();
    }

    /// Starts a receiver.
    pub fn receiver(&self) -> Receiver<'_> {
        Receiver::start(self)
    }

    #[track_caller]
    fn cue_id(&self, cue: &str) -> String {
        if cue.len() == 16 && cue.starts_with("cue_") {
            return cue.to_owned();
        }
        let part: String = cue.chars().take(100).collect();
        let found = self.get(&format!("/v1/cues?limit=100&q={}", percent_encoded(&part)));
        let known = found["cues"].as_array().into_iter().flatten();
        let ids: Vec<&Value> =
            known.filter(|known| known["name"] == cue).map(|known| &known["id"]).collect();
        match ids[..] {
            [id] => string(id),
            [] => panic!("the account has no cues with the name '{cue}'"),
            _ => panic!("the account has {} cues with the name '{cue}'", ids.len()),
        }
    }
}

impl Drop for Cued {
    fn drop(&mut self) {
        let ServerOfTest::Shared(server) = &self.server else { return };
        HAS_TURN.set(false);
        // What the account has left would be due in later tests.
        let path = format!("/v1/admin/users/{}", lock(&self.account).id);
        let disabled =
            server.call("PATCH", &path, &json!({"is_disabled": true}), &lock(&server.key));
        if let (Err(error), false) = (disabled, thread::panicking()) {
            panic!("{error}");
        }
    }
}

/// A process `cued serve` with an empty temporary database.
struct Server {
    process: Child,
    address: String,
    key: Mutex<String>,
}

impl Server {
    fn start(at: &str) -> Result<Server, String> {
        let program = binary()?;
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "sh"]).arg(&program).args([
            "serve",
            "--ephemeral",
            "--limits",
            "off",
        ]);
        command.args(["--listen", "127.0.0.1:0", "--test-clock", at]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for the tests.
        command.process_group(0);
        for (name, _) in
            env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUED_"))
        {
            // Settings of the developer's own server are not for this one.
            command.env_remove(name);
        }
        let mut process = command.spawn().map_err(|error| format!("sh: {error}"))?;
        let mut errors = process.stderr.take().expect("it is piped");
        let log = thread::spawn(move || {
            let mut log = String::new();
            errors.read_to_string(&mut log).map(|_| log)
        });
        // The first line is "cued listening on http://127.0.0.1:PORT".
        let mut line = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let mut server = Server { process, address: String::new(), key: Mutex::default() };
        let Some((_, address)) = line.trim().split_once("http://") else {
            drop(server);
            let log = log.join().expect("it does not panic").map_err(|error| error.to_string())?;
            return Err(format!("{} serve did not start: {}", program.display(), log.trim()));
        };
        server.address = address.to_owned();
        server.register_operator().map_err(|error| error.to_string())?;
        Ok(server)
    }

    fn register_operator(&self) -> Result<(), CuedError> {
        let body = json!({"email": "operator@example.com"});
        let operator = self.call("POST", "/v1/auth/register", &body, "")?;
        *lock(&self.key) = string(&operator["api_key"]);
        Ok(())
    }

    fn call(&self, method: &str, path: &str, body: &Value, key: &str) -> Result<Value, CuedError> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let authorization =
            if key.is_empty() { String::new() } else { format!("Authorization: Bearer {key}\r\n") };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{authorization}Content-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len(),
        );
        let request_line = format!("{method} {path}");
        let (status_line, _, text) = exchange(&self.address, &request)
            .unwrap_or_else(|error| panic!("{request_line}: the server does not answer: {error}"));
        let status: u16 =
            status_line.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let answer: Value = serde_json::from_slice(&text).unwrap_or_default();
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        let error = &answer["error"];
        Err(CuedError {
            request: request_line,
            status,
            code: string(&error["code"]),
            message: string(&error["message"]),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().expect("the shell ends");
    }
}

fn exchange(address: &str, request: &str) -> io::Result<Message> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_read_timeout(Some(Duration::from_secs(60)))?;
    connection.write_all(request.as_bytes())?;
    let response = read_message(&mut BufReader::new(connection))?;
    response.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn binary() -> Result<PathBuf, String> {
    let is_program = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if let Some(named) = env::var_os("CUED_BIN").map(PathBuf::from) {
        return if is_program(&named) {
            Ok(named)
        } else {
            Err(format!("CUED_BIN is {}, which is no program", named.display()))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join("cued"))
        .find(|path| is_program(path))
        .ok_or_else(|| {
            "there is no cued on the PATH: install it, or set CUED_BIN to its path".to_owned()
        })
}

/// What a receiver answers, after `delay`; with `hang_up` it closes the connection instead.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
    pub headers: Vec<(String, String)>,
    pub delay: Duration,
    pub hang_up: bool,
}

impl Answer {
    pub fn status(status: u16) -> Answer {
        Answer {
            status,
            body: String::new(),
            headers: Vec::new(),
            delay: Duration::ZERO,
            hang_up: false,
        }
    }

    pub fn hang_up() -> Answer {
        Answer { hang_up: true, ..Answer::status(0) }
    }

    pub fn delayed(delay: Duration) -> Answer {
        Answer { delay, ..Answer::status(200) }
    }
}

/// A request that a receiver has got.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The instant of the server, in seconds since 1970; `at()` writes it.
    pub timestamp: Option<u64>,
    pub method: String,
    pub path: String,
    /// By their names in lower case.
    pub headers: HashMap<String, String>,
    /// The payload.
    pub body: Value,
    pub cue_id: String,
    pub execution_id: String,
    pub attempt: u32,
    /// With a secret of the account. What is not gets a 401, and no expectation counts it.
    pub is_signed: bool,
    pub answer: Answer,
}

impl Delivery {
    pub fn at(&self) -> String {
        self.timestamp.map_or_else(|| "no time".to_owned(), instant)
    }

    fn describe(&self, names: &HashMap<String, String>) -> String {
        let mut line = format!("{} {} {}", self.at(), self.method, self.path);
        if let Some(name) = names.get(&self.execution_id) {
            line += &format!(" attempt {} of '{name}'", self.attempt);
        }
        if self.answer.hang_up {
            line += " → hung up";
        } else {
            line += &format!(" → {}", self.answer.status);
        }
        let unsigned = if self.is_signed { "" } else { ", not signed" };
        format!("{line}{unsigned} {}", self.body)
    }
}

/// Selects deliveries.
#[derive(Clone, Default)]
pub struct Match {
    cue: Option<String>,
    path: Option<String>,
    timeout: Option<Duration>,
}

impl Match {
    pub fn all() -> Match {
        Match::default()
    }

    /// By its name or id.
    pub fn cue(self, cue: &str) -> Match {
        Match { cue: Some(cue.to_owned()), ..self }
    }

    pub fn path(self, path: &str) -> Match {
        Match { path: Some(path.to_owned()), ..self }
    }

    /// How long `wait_for_delivery` waits, by default 5 seconds.
    pub fn timeout(self, timeout: Duration) -> Match {
        Match { timeout: Some(timeout), ..self }
    }
}

type Function = Box<dyn FnMut(&Delivery) -> Answer + Send>;

/// Stands for your application: an HTTP server that records deliveries. It answers 200 unless the test says
/// otherwise.
pub struct Receiver<'a> {
    pub url: String,
    cued: &'a Cued,
    inner: Arc<Inner>,
}

struct Inner {
    address: SocketAddr,
    account: Arc<Mutex<Account>>,
    deliveries: Mutex<Vec<Delivery>>,
    changed: Condvar,
    script: Mutex<VecDeque<Answer>>,
    otherwise: Mutex<Function>,
    is_closed: AtomicBool,
}

impl<'a> Receiver<'a> {
    fn start(cued: &'a Cued) -> Receiver<'a> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it listens");
        let inner = Arc::new(Inner {
            address,
            account: Arc::clone(&cued.account),
            deliveries: Mutex::default(),
            changed: Condvar::new(),
            script: Mutex::default(),
            otherwise: Mutex::new(Box::new(|_| Answer::status(200))),
            is_closed: AtomicBool::new(false),
        });
        let receiver =
            Receiver { url: format!("http://{address}"), cued, inner: Arc::clone(&inner) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if inner.is_closed.load(Ordering::SeqCst) {
                    break;
                }
                let inner = Arc::clone(&inner);
                // A connection that breaks is one that cued has closed.
                thread::spawn(move || inner.serve(stream).unwrap_or_default());
            }
        });
        receiver
    }

    /// Answers the next deliveries, in this order.
    pub fn answer(&self, script: impl IntoIterator<Item = Answer>) {
        lock(&self.inner.script).extend(script);
    }

    /// Answers all deliveries that no script is left for.
    pub fn always(&self, answer: impl FnMut(&Delivery) -> Answer + Send + 'static) {
        *lock(&self.inner.otherwise) = Box::new(answer);
    }

    /// All requests in their order, also those that are not signed.
    pub fn deliveries(&self) -> Vec<Delivery> {
        lock(&self.inner.deliveries).clone()
    }

    /// Waits until `count` signed deliveries that match have come, and returns the last.
    #[track_caller]
    pub fn wait_for_delivery(&self, count: usize, of: Match) -> Delivery {
        let cue_id = of.cue.as_deref().map(|cue| self.cued.cue_id(cue));
        let timeout = of.timeout.unwrap_or(Duration::from_secs(5));
        let deadline = Instant::now() + timeout;
        let mut deliveries = lock(&self.inner.deliveries);
        loop {
            let found = matching(&deliveries, cue_id.as_deref(), &of);
            if found.len() >= count {
                return found[count - 1].clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(deliveries);
                self.fail(count, found.len(), &of, &format!(" in {timeout:?}"));
            }
            let woken = self.inner.changed.wait_timeout(deliveries, left);
            deliveries = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Fails unless exactly so many that match have come, once those under way have ended; returns them.
    #[track_caller]
    pub fn expect_deliveries(&self, count: usize, of: Match) -> Vec<Delivery> {
        self.cued.advance("PT0S");
        let cue_id = of.cue.as_deref().map(|cue| self.cued.cue_id(cue));
        let found = matching(&self.deliveries(), cue_id.as_deref(), &of);
        if found.len() != count {
            self.fail(count, found.len(), &of, "");
        }
        found
    }

    #[track_caller]
    fn fail(&self, count: usize, found: usize, of: &Match, waited: &str) -> ! {
        let mut what =
            if count == 1 { "1 delivery".to_owned() } else { format!("{count} deliveries") };
        if let Some(cue) = &of.cue {
            what += &format!(" of cue '{cue}'");
        }
        if let Some(path) = &of.path {
            what += &format!(" at {path}");
        }
        let runs = self.cued.runs(None);
        let names = runs.iter().map(|run| (string(&run["id"]), string(&run["cue_name"]))).collect();
        let deliveries: Vec<String> =
            self.deliveries().iter().map(|delivery| delivery.describe(&names)).collect();
        let runs: Vec<String> =
            self.cued.runs(of.cue.as_deref()).iter().map(describe_run).collect();
        let mut text = format!("expected {what}, got {found}{waited}; it is {}\n", self.cued.now());
        text += &format!("deliveries:\n{}\nruns:\n{}", listed(&deliveries), listed(&runs));
        if runs.is_empty() {
            let cues = self.cued.get("/v1/cues?limit=100");
            let cues: Vec<String> =
                cues["cues"].as_array().into_iter().flatten().map(describe_cue).collect();
            text += &format!("\ncues:\n{}", listed(&cues));
        }
        panic!("{text}");
    }
}

impl Drop for Receiver<'_> {
    fn drop(&mut self) {
        self.inner.is_closed.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts; it is right if it has ended already.
        drop(TcpStream::connect(self.inner.address));
    }
}

fn matching(deliveries: &[Delivery], cue_id: Option<&str>, of: &Match) -> Vec<Delivery> {
    let is_match = |delivery: &&Delivery| {
        delivery.is_signed
            && cue_id.map_or(true, |id| id == delivery.cue_id)
            && of.path.as_ref().map_or(true, |path| *path == delivery.path)
    };
    deliveries.iter().filter(is_match).cloned().collect()
}

impl Inner {
    /// Answers the requests of a connection.
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut writer = stream;
        while let Some((line, headers, raw)) = read_message(&mut reader)? {
            let answer = self.receive(&line, headers, &raw);
            thread::sleep(answer.delay);
            if answer.hang_up {
                // A kept connection that closes without a byte was idle for too long: the server repeats the request
                // at once.
                writer.write_all(b"HTTP/1.1 ")?;
                break;
            }
            let Answer { status, body, headers, .. } = answer;
            let length = body.len();
            let headers: String =
                headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            writer.write_all(
                format!("HTTP/1.1 {status} \r\n{headers}Content-Length: {length}\r\n\r\n{body}")
                    .as_bytes(),
            )?;
        }
        Ok(())
    }

    fn receive(&self, line: &str, headers: HashMap<String, String>, raw: &[u8]) -> Answer {
        let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
        let mut words = line.split(' ').map(str::to_owned);
        let timestamp = header("x-cueapi-timestamp");
        let mut delivery = Delivery {
            timestamp: timestamp.parse().ok(),
            method: words.next().unwrap_or_default(),
            path: words.next().unwrap_or_default(),
            body: serde_json::from_slice(raw).unwrap_or_default(),
            cue_id: header("x-cueapi-cue-id"),
            execution_id: header("x-cueapi-execution-id"),
            attempt: header("x-cueapi-attempt").parse().unwrap_or(0),
            is_signed: self.is_signed(&timestamp, raw, &header("x-cueapi-signature")),
            answer: Answer::status(401),
            headers,
        };
        if delivery.is_signed {
            delivery.answer = self.answer_to(&delivery);
        }
        lock(&self.deliveries).push(delivery.clone());
        self.changed.notify_all();
        delivery.answer
    }

    fn answer_to(&self, delivery: &Delivery) -> Answer {
        let scripted = lock(&self.script).pop_front();
        scripted.unwrap_or_else(|| {
            let mut otherwise = lock(&self.otherwise);
            // An application that fails answers 500.
            catch_unwind(AssertUnwindSafe(|| otherwise(delivery)))
                .unwrap_or_else(|_| Answer::status(500))
        })
    }

    fn is_signed(&self, timestamp: &str, raw: &[u8], signature: &str) -> bool {
        let account = lock(&self.account).clone();
        let signed = [timestamp.as_bytes(), b".", raw].concat();
        [account.secret, account.alert_secret].iter().any(|secret| {
            let code: String = hmac_sha256(secret.as_bytes(), &signed)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            signature == format!("v1={code}")
        })
    }
}

type Message = (String, HashMap<String, String>, Vec<u8>);

/// The next request or response of a connection: its first line, headers and body.
fn read_message(reader: &mut impl BufRead) -> io::Result<Option<Message>> {
    let (mut first, mut headers) = (String::new(), HashMap::new());
    if reader.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((first, headers, body)))
}

fn listed(lines: &[String]) -> String {
    if lines.is_empty() {
        return "  none".to_owned();
    }
    let hidden = lines.len().saturating_sub(SHOWN);
    let more = (hidden > 0).then(|| format!("  and {hidden} before these"));
    let shown = lines[hidden..].iter().map(|line| format!("  {line}"));
    more.into_iter().chain(shown).collect::<Vec<_>>().join("\n")
}

fn describe_run(run: &Value) -> String {
    let text = |name: &str| string(&run[name]);
    let mut line = format!("{} '{}' {}", text("scheduled_for"), text("cue_name"), text("status"));
    line += &format!(", {} of {} attempts", run["attempts"], run["max_attempts"]);
    if !run["error_message"].is_null() {
        line += &format!(", {}", text("error_message"));
    }
    if !run["next_retry"].is_null() {
        line += &format!(", next attempt at {}", text("next_retry"));
    }
    line
}

fn describe_cue(cue: &Value) -> String {
    let next = cue["next_run"].as_str().unwrap_or("no time");
    format!("'{}' {}, next run at {next}", string(&cue["name"]), string(&cue["status"]))
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                (byte as char).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// Writes seconds since 1970 as an instant of RFC 3339.
fn instant(timestamp: u64) -> String {
    let (days, seconds) = (timestamp / 86_400, timestamp % 86_400);
    let is_leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&sha256(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = sha256(&[&block.map(|byte| byte ^ 0x36)[..], message].concat());
    sha256(&[&block.map(|byte| byte ^ 0x5c)[..], &inner].concat())
}

/// SHA-256 as FIPS 180-4 has it, for one whole message.
fn sha256(message: &[u8]) -> [u8; 32] {
    let primes = (2_u32..).filter(|n| (2..*n).all(|divisor| n % divisor != 0));
    let fraction = |root: f64| (root.fract() * 2_f64.powi(32)) as u32;
    let constants: Vec<u32> =
        primes.clone().take(64).map(|prime| fraction(f64::from(prime).cbrt())).collect();
    let mut state: Vec<u32> =
        primes.take(8).map(|prime| fraction(f64::from(prime).sqrt())).collect();
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    for block in padded.chunks(64) {
        let mut words: Vec<u32> = block
            .chunks(4)
            .map(|four| u32::from_be_bytes(four.try_into().expect("four bytes")))
            .collect();
        for i in 16..64 {
            let (a, b) = (words[i - 15], words[i - 2]);
            let (a, b) = (
                a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3),
                b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10),
            );
            words.push(words[i - 16].wrapping_add(a).wrapping_add(words[i - 7]).wrapping_add(b));
        }
        let mut s = state.clone();
        for (constant, word) in constants.iter().zip(words) {
            let choice = (s[4] & s[5]) ^ (!s[4] & s[6]);
            let majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
            let e = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
            let a = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
            let t = s[7]
                .wrapping_add(e)
                .wrapping_add(choice)
                .wrapping_add(*constant)
                .wrapping_add(word);
            s.rotate_right(1);
            s[4] = s[4].wrapping_add(t);
            s[0] = t.wrapping_add(a).wrapping_add(majority);
        }
        for (sum, word) in state.iter_mut().zip(s) {
            *sum = sum.wrapping_add(word);
        }
    }
    let bytes: Vec<u8> = state.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.try_into().expect("eight words")
}
