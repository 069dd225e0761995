//! `cued bench`: what this machine carries, in less than a minute. It measures a server process on a temporary file,
//! and beside it commits of SQLite alone. The benchmarks of the project itself are in `benches/`.

pub mod load;

use std::error::Error;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::bench::load::{
    Calls, Client, Receiver, ServerProcess, count, measure, quantile, request, string_field,
};
use crate::clock::Clock;
use crate::locks::Mutex;
use crate::signals::EndSignals;
use crate::store::maintenance::check::single_commits;

/// Clients where many call at the same time.
const CLIENTS: usize = 16;

/// Cues that are due one after the other, ten per second.
const LONE_CUES: usize = 30;

const TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub struct BenchOptions {
    /// Folder on the disk to measure. The files go into a new folder in it.
    pub folder: PathBuf,
    pub duration: Duration,
    pub herd: usize,
}

type StepResult<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    PerSecond,
    Milliseconds,
    Bytes,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Stable name for programs, such as `creates_16`.
    pub name: String,
    pub description: String,
    pub value: f64,
    pub unit: Unit,
}

type Step = fn(&mut Bench) -> StepResult;

const STEPS: [(&str, Step); 5] = [
    ("SQLite alone", Bench::sqlite),
    ("creates", Bench::creates),
    ("reads", Bench::reads),
    ("herd of deliveries", Bench::herd),
    ("lone deliveries", Bench::lone_deliveries),
];

/// Runs all steps. `progress` gets the name of the next one, the number done and the number of all.
/// Errors: a step fails. The files are removed in any case, also on SIGINT, SIGTERM and SIGHUP.
pub fn run(
    options: &BenchOptions,
    progress: &mut dyn FnMut(&str, usize, usize),
) -> Result<Vec<Figure>, String> {
    let folder = &options.folder.display();
    let failed = |step| {
        move |source: Box<dyn Error + Send + Sync>| {
            format!(
                "{step}: {source} (in {folder}; if its disk is full or failing, choose another with --dir)"
            )
        }
    };
    let mut bench = Bench::start(options).map_err(failed("start"))?;
    let measured = STEPS.iter().enumerate().try_for_each(|(done, (step, measure))| {
        progress(step, done, STEPS.len());
        measure(&mut bench).map_err(failed(step))
    });
    bench.leftovers.lock().remove();
    measured.map(|()| bench.figures)
}

#[derive(Default)]
struct Leftovers {
    server: Option<ServerProcess>,
    folder: Option<TempDir>,
}

impl Leftovers {
    /// Ends the server first: it would create files in a folder that is being removed.
    fn remove(&mut self) {
        drop(self.server.take());
        let Some(folder) = self.folder.take() else { return };
        // A step in progress may create a file in the folder at the same time, which makes the removal fail.
        let removed = (0..10).any(|_| fs::remove_dir_all(folder.path()).is_ok());
        if !removed && folder.path().exists() {
            tracing::warn!(path = %folder.path().display(), "cannot remove the temporary folder");
        }
    }
}

fn remove_on_signal(leftovers: Arc<Mutex<Leftovers>>) -> io::Result<()> {
    let mut signals = EndSignals::catch_with_hangup()?;
    let end = move || {
        let code = signals.wait();
        // Locked until the process ends: no server starts from here on.
        let mut leftovers = leftovers.lock();
        leftovers.remove();
        std::process::exit(code);
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(end).map(drop)
}

struct Bench {
    clock: Clock,
    options: BenchOptions,
    folder: PathBuf,
    leftovers: Arc<Mutex<Leftovers>>,
    client: Client,
    address: std::net::SocketAddr,
    key: String,
    receiver: Receiver,
    figures: Vec<Figure>,
}

impl Bench {
    fn start(options: &BenchOptions) -> StepResult<Self> {
        let leftovers = Arc::<Mutex<Leftovers>>::default();
        remove_on_signal(Arc::clone(&leftovers))?;
        let mut held = leftovers.lock();
        let folder = tempfile::Builder::new().prefix("cued-bench-").tempdir_in(&options.folder)?;
        let path = folder.path().to_owned();
        held.folder = Some(folder);
        let program = std::env::current_exe()?;
        let server =
            ServerProcess::start(&[], &program, &path.join("cued.db"), &["--limits", "off"])?;
        let (address, memory) = (server.address, server.memory("VmRSS:"));
        held.server = Some(server);
        drop(held);
        let mut client = Client::connect(address)?;
        let email = r#"{"email": "bench@example.com"}"#;
        let account = client.call(&request("POST", "/v1/auth/register", "", email))?;
        let mut bench = Self {
            clock: Clock::system(),
            options: options.clone(),
            folder: path,
            leftovers,
            client,
            address,
            key: string_field(&account, "api_key").unwrap_or_default(),
            receiver: Receiver::start(1)?,
            figures: Vec::new(),
        };
        bench.add(
            "memory_start",
            "memory after the start",
            memory.unwrap_or_default(),
            Unit::Bytes,
        );
        Ok(bench)
    }

    fn add(&mut self, name: &str, description: &str, value: f64, unit: Unit) {
        let (name, description) = (name.to_owned(), description.to_owned());
        self.figures.push(Figure { name, description, value, unit });
    }

    fn add_calls(&mut self, name: &str, description: &str, mut calls: Calls) {
        self.add(name, description, calls.rate, Unit::PerSecond);
        self.add_times(name, description, &mut calls.latencies);
    }

    fn add_times(&mut self, name: &str, description: &str, times: &mut [f64]) {
        for (suffix, word, share) in [("p50", "median", 0.5), ("p99", "99th percentile", 0.99)] {
            let (name, description) =
                (format!("{name}_{suffix}"), format!("{description}, {word}"));
            self.add(&name, &description, quantile(times, share), Unit::Milliseconds);
        }
    }

    fn sqlite(&mut self) -> StepResult {
        let times = single_commits(&self.folder.join("bare.db"), self.options.duration)?;
        let rate = count(times.len()) / self.options.duration.as_secs_f64();
        self.add_calls(
            "sqlite_commits",
            "SQLite alone: commits of a row",
            Calls { rate, latencies: times },
        );
        Ok(())
    }

    fn creates(&mut self) -> StepResult {
        let create = self.create_request(&json!({"type": "recurring", "cron": "0 3 1 1 *"}));
        for (clients, description) in
            [(1, "creates by 1 client"), (CLIENTS, "creates by 16 clients")]
        {
            let calls = self.repeat(clients, &create)?;
            self.add_calls(&format!("creates_{clients}"), description, calls);
        }
        Ok(())
    }

    fn reads(&mut self) -> StepResult {
        let list = request("GET", "/v1/cues", &self.key, "");
        let id = string_field(&self.client.call(&list)?, "id").unwrap_or_default();
        let get = request("GET", &format!("/v1/cues/{id}"), &self.key, "");
        for (name, description, request) in
            [("gets", "gets by 16 clients", get), ("lists", "lists of 20 by 16 clients", list)]
        {
            let calls = self.repeat(CLIENTS, &request)?;
            self.add_calls(name, description, calls);
        }
        Ok(())
    }

    fn herd(&mut self) -> StepResult {
        let herd = self.options.herd;
        let creates = self.figures.iter().find(|figure| figure.name == "creates_16");
        let rate = creates.map_or(1.0, |figure| figure.value).max(1.0);
        let due = self.in_seconds(2.0 + 1.5 * count(herd) / rate)?;
        self.create_due(&vec![due; herd])?;
        let mut late = self.receiver.take(herd, TIMEOUT)?;
        let rate = count(herd) / quantile(&mut late, 1.0) * 1_000.0;
        self.add("herd", &format!("deliveries of {herd} cues due at once"), rate, Unit::PerSecond);
        let peak = self.leftovers.lock().server.as_ref().and_then(|server| server.memory("VmHWM:"));
        self.add("memory_peak", "memory at the peak", peak.unwrap_or_default(), Unit::Bytes);
        Ok(())
    }

    fn lone_deliveries(&mut self) -> StepResult {
        let first = self.in_seconds(2.0)?;
        let step = SignedDuration::from_millis(100);
        let due = std::iter::successors(Some(first), |at| at.checked_add(step).ok());
        self.create_due(&due.take(LONE_CUES).collect::<Vec<_>>())?;
        let mut late = self.receiver.take(LONE_CUES, TIMEOUT)?;
        self.add_times("lateness", "lateness of a lone delivery", &mut late);
        Ok(())
    }

    fn create_request(&self, schedule: &Value) -> Vec<u8> {
        let cue = json!({
            "name": "Nightly report", "schedule": schedule, "callback": {"url": self.receiver.url(0)},
            "payload": {"task": "report", "customer": 4_711, "format": "pdf", "copies": ["archive", "mail"]},
        });
        request("POST", "/v1/cues", &self.key, &cue.to_string())
    }

    fn repeat(&self, clients: usize, request: &[u8]) -> io::Result<Calls> {
        let work = |_, client: &mut Client| client.call(request).map(|_| true);
        measure(&self.clock, self.address, clients, self.options.duration, work)
    }

    fn create_due(&self, due: &[Timestamp]) -> io::Result<()> {
        let next = AtomicUsize::new(0);
        let work = |_, client: &mut Client| {
            let Some(at) = due.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(false) };
            client
                .call(&self.create_request(&json!({"type": "once", "at": at.to_string()})))
                .map(|_| true)
        };
        measure(&self.clock, self.address, CLIENTS, TIMEOUT, work).map(drop)
    }

    fn in_seconds(&self, seconds: f64) -> StepResult<Timestamp> {
        let at = self.clock.now().checked_add(Duration::try_from_secs_f64(seconds.ceil())?)?;
        Ok(Timestamp::from_second(at.as_second())?)
    }
}
