//! Measures a build of `cued` from outside, by itself or beside another build: both in turns, so that a machine whose
//! speed drifts treats them alike.
//!
//! ```sh
//! cargo bench --bench service                                     # the release build of this tree
//! cargo bench --bench service -- --rounds 1 --dir /var/lib/cued  # what this machine carries, with that disk
//! cargo bench --bench service -- --against /tmp/cued-before      # beside another program
//! cargo bench --bench service -- --only herd --rounds 9
//! ```
//!
//! Each round starts a server on a new file for each row of [`FIGURES`]. Prints the medians of the rounds and their ratio.
//! A slow disk is made by the system's tracer: `--wrap "strace -f --seccomp-bpf -o /dev/null -e trace=fsync,fdatasync -e
//! inject=fsync,fdatasync:delay_exit=10000" --lead 30` lets each sync of the server take 10 ms longer.

mod load;

use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use cued::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::load::{
    Calls, Client, Receiver, ServerProcess, count, measure, quantile, request, string_field,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Parser)]
struct Options {
    /// Another program to compare with
    #[arg(long)]
    against: Option<PathBuf>,
    /// Rounds; their medians are printed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Duration of each measurement of a rate
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seconds for the creation of a herd, before it is due
    #[arg(long, default_value_t = 8.0)]
    lead: f64,
    /// Cues of a herd
    #[arg(long, default_value_t = 10_000)]
    herd: usize,
    /// Only the figures whose names begin with one of these
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Folder for the temporary files, on the disk to measure
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// A command that starts the server, such as a tracer
    #[arg(long)]
    wrap: Option<String>,
    // `cargo bench` passes it to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Rates and times in milliseconds, each with the end of its name.
type Values = Vec<(&'static str, f64)>;

/// What is measured with one server: the beginning of the names, and the values.
struct Figure(&'static str, fn(&Bed) -> Result<Values>);

const FIGURES: [Figure; 14] = [
    Figure("memory_start", |bed| Ok(vec![("_mib", bed.memory_mib("VmRSS:"))])),
    Figure("sqlite_commits", Bed::sqlite),
    Figure("creates_1", |bed| bed.creates(1)),
    Figure("creates_16", |bed| bed.creates(16)),
    Figure("creates_64", |bed| bed.creates(64)),
    Figure("gets_16", |bed| bed.reads("gets")),
    Figure("lists_16", |bed| bed.reads("lists")),
    Figure("claims_16", Bed::claims),
    Figure("herd_one_account", |bed| bed.herd(1, 1)),
    Figure("herd_50_accounts", |bed| bed.herd(50, 1)),
    Figure("herd_50_destinations", |bed| bed.herd(1, 50)),
    Figure("hang_none", |bed| bed.beside_hanging(0)),
    Figure("hang_10_of_50", |bed| bed.beside_hanging(10)),
    Figure("lone_lateness", Bed::lone_deliveries),
];

fn main() -> Result<()> {
    let options = Options::parse();
    let own = PathBuf::from(env!("CARGO_BIN_EXE_cued"));
    let programs: Vec<PathBuf> = std::iter::once(own).chain(options.against.clone()).collect();
    println!("{:<30} {:>12} {:>12} {:>8}", "median", "this", "other", "ratio");
    let is_wanted = |figure: &&Figure| {
        options.only.is_empty()
            || options.only.iter().any(|prefix| figure.0.starts_with(prefix.as_str()))
    };
    for Figure(name, measure) in FIGURES.iter().filter(is_wanted) {
        let mut rounds: Vec<Vec<Values>> = vec![Vec::new(); programs.len()];
        for _ in 0..options.rounds {
            for (program, rounds) in programs.iter().zip(&mut rounds) {
                rounds.push(measure(&Bed::start(program, &options)?)?);
            }
        }
        for (index, (end, _)) in rounds[0][0].iter().enumerate() {
            let median = |rounds: &Vec<Values>| {
                let mut values: Vec<f64> = rounds.iter().map(|values| values[index].1).collect();
                quantile(&mut values, 0.5)
            };
            let medians: Vec<f64> = rounds.iter().map(median).collect();
            print!("{:<30} {:>12.2}", format!("{name}{end}"), medians[0]);
            match medians.get(1) {
                Some(other) => println!(" {other:>12.2} {:>8.3}", medians[0] / other),
                None => println!(),
            }
        }
    }
    Ok(())
}

/// A server on a new file, and what calls it.
struct Bed {
    // Dropped before the folder of its file.
    server: ServerProcess,
    folder: tempfile::TempDir,
    clock: Clock,
    duration: Duration,
    /// Seconds until a herd is due.
    lead: f64,
    /// Cues of a herd.
    herd: usize,
}

impl Bed {
    fn start(program: &Path, options: &Options) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("cued-bench-").tempdir_in(&options.dir)?;
        let wrap: Vec<&str> =
            options.wrap.iter().flat_map(|wrap| wrap.split_whitespace()).collect();
        let flags = ["--limits", "off", "--plans"];
        let plans = folder.path().join("plans.json");
        std::fs::write(
            &plans,
            r#"{"free": {"cues": null, "executions": null, "requests_per_minute": null, "storage_mb": null}}"#,
        )?;
        let flags = [&flags[..], &[plans.to_str().unwrap_or_default()]].concat();
        let server = ServerProcess::start(&wrap, program, &folder.path().join("cued.db"), &flags)?;
        let duration = Duration::try_from_secs_f64(options.seconds)?;
        let (lead, herd) = (options.lead, options.herd);
        Ok(Self { server, folder, clock: Clock::system(), duration, lead, herd })
    }

    fn memory_mib(&self, name: &str) -> f64 {
        self.server.memory(name).unwrap_or_default() / 1_048_576.0
    }

    fn register(&self, number: usize) -> Result<String> {
        let body = json!({"email": format!("bench-{number}@example.com")}).to_string();
        let account = Client::connect(self.server.address)?.call(&request(
            "POST",
            "/v1/auth/register",
            "",
            &body,
        ))?;
        string_field(&account, "api_key").ok_or_else(|| "the registration has no key".into())
    }

    fn rate(
        &self,
        clients: usize,
        work: impl Fn(usize, &mut Client) -> io::Result<bool> + Sync,
    ) -> Result<Values> {
        let calls = measure(&self.clock, self.server.address, clients, self.duration, work)?;
        Ok(with_times(calls))
    }

    /// Commits of a row by SQLite alone, with the guarantees of the server's file.
    fn sqlite(&self) -> Result<Values> {
        let file = Connection::open(self.folder.path().join("bare.db"))?;
        file.pragma_update(None, "journal_mode", "WAL")?;
        file.execute_batch(
            "PRAGMA synchronous = FULL;
             CREATE TABLE rows (key INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, due INTEGER NOT NULL, body TEXT NOT NULL);
             CREATE INDEX rows_due ON rows (due);",
        )?;
        let mut insert =
            file.prepare("INSERT INTO rows (id, due, body) VALUES (randomblob(8), random(), ?1)")?;
        let (began, body, mut latencies) = (Instant::now(), "x".repeat(400), Vec::new());
        while began.elapsed() < self.duration {
            let commit = Instant::now();
            insert.execute([&body])?;
            latencies.push(commit.elapsed().as_secs_f64() * 1_000.0);
        }
        let rate = count(latencies.len()) / began.elapsed().as_secs_f64();
        Ok(with_times(Calls { rate, latencies }))
    }

    fn creates(&self, clients: usize) -> Result<Values> {
        let create = create(&self.register(0)?, &never(), "http://127.0.0.1:9/", "webhook");
        self.rate(clients, |_, client| client.call(&create).map(|_| true))
    }

    fn reads(&self, what: &str) -> Result<Values> {
        let key = self.register(0)?;
        let mut client = Client::connect(self.server.address)?;
        for _ in 0..1_000 {
            client.call(&create(&key, &never(), "http://127.0.0.1:9/", "webhook"))?;
        }
        let list = request("GET", "/v1/cues", &key, "");
        let id = string_field(&client.call(&list)?, "id").unwrap_or_default();
        let get = request("GET", &format!("/v1/cues/{id}"), &key, "");
        let read = if what == "gets" { get } else { list };
        self.rate(16, |_, client| client.call(&read).map(|_| true))
    }

    /// A claim and its outcome.
    fn claims(&self) -> Result<Values> {
        let key = self.register(0)?;
        let due = self.in_seconds(self.lead)?;
        self.create_due(due, |_| create(&key, &once(due), "", "worker"))?;
        self.clock
            .sleep(Duration::try_from(due.duration_since(self.clock.now())).unwrap_or_default());
        self.wait_for_claimable(due)?;
        let claim = request("POST", "/v1/executions/claim", &key, "{}");
        self.rate(16, |_, client| {
            let claimed = match client.call(&claim) {
                Ok(claimed) => claimed,
                // The measurement has used up all.
                Err(error) if error.to_string().contains("claim_failed") => return Ok(false),
                Err(error) => return Err(error),
            };
            let id = string_field(&claimed, "execution_id").unwrap_or_default();
            let outcome = request(
                "POST",
                &format!("/v1/executions/{id}/outcome"),
                &key,
                r#"{"success": true}"#,
            );
            client.call(&outcome).map(|_| true)
        })
    }

    /// Waits until a herd of worker cues has fired: claims wait while the scheduler fires.
    fn wait_for_claimable(&self, due: Timestamp) -> Result<()> {
        let mut client = Client::connect(self.server.address)?;
        let all = format!("\"pending_worker_claims\":{}", self.herd);
        while !client.call(&request("GET", "/health", "", ""))?.contains(&all) {
            if self.clock.now() > due + SignedDuration::from_secs(60) {
                return Err("the cues did not fire in time".into());
            }
            self.clock.sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Deliveries per second of cues of several accounts to several destinations, all due at once.
    fn herd(&self, accounts: usize, destinations: usize) -> Result<Values> {
        let receiver = Receiver::start(destinations)?;
        let due = self.create_herd(accounts, |number| receiver.url(number))?;
        let mut late = receiver.take(self.herd, TIMEOUT)?;
        debug_assert!(self.clock.now() >= due);
        let rate = count(self.herd) / quantile(&mut late, 1.0) * 1_000.0;
        Ok(vec![("", rate), ("_peak_mib", self.memory_mib("VmHWM:"))])
    }

    /// Time until all deliveries to the healthy ones of 50 destinations are done, with `hanging` of them hanging for 30
    /// s.
    fn beside_hanging(&self, hanging: usize) -> Result<Values> {
        let receiver = Receiver::start(50)?;
        let hosts = (0..hanging).map(|_| hanging_host()).collect::<io::Result<Vec<String>>>()?;
        let url = |number: usize| match hosts.get(number % 50) {
            Some(url) => url.clone(),
            None => receiver.url(number),
        };
        self.create_herd(1, url)?;
        let healthy = (0..self.herd).filter(|number| number % 50 >= hanging).count();
        let mut late = receiver.take(healthy, TIMEOUT)?;
        Ok(vec![("_ms", quantile(&mut late, 1.0))])
    }

    fn lone_deliveries(&self) -> Result<Values> {
        let (key, receiver) = (self.register(0)?, Receiver::start(1)?);
        let first = self.in_seconds(2.0)?;
        let step = |number: usize| {
            SignedDuration::from_millis(100) * i32::try_from(number).unwrap_or_default()
        };
        self.create_all(100, |number| {
            create(&key, &once(first + step(number)), &receiver.url(0), "webhook")
        })?;
        Ok(times(receiver.take(100, TIMEOUT)?))
    }

    fn create_herd(
        &self,
        accounts: usize,
        url: impl Fn(usize) -> String + Sync,
    ) -> Result<Timestamp> {
        let keys = (0..accounts).map(|number| self.register(number)).collect::<Result<Vec<_>>>()?;
        let due = self.in_seconds(self.lead)?;
        self.create_due(due, |number| {
            create(&keys[number / 50 % accounts], &once(due), &url(number), "webhook")
        })?;
        Ok(due)
    }

    /// Creates a herd of cues that are due at `due`. Errors: it takes until then.
    fn create_due(&self, due: Timestamp, request: impl Fn(usize) -> Vec<u8> + Sync) -> Result<()> {
        self.create_all(self.herd, request)?;
        if self.clock.now() >= due {
            return Err("the cues were not created in time: use a larger --lead".into());
        }
        Ok(())
    }

    fn create_all(&self, cues: usize, request: impl Fn(usize) -> Vec<u8> + Sync) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = |_, client: &mut Client| match next.fetch_add(1, Ordering::Relaxed) {
            number if number < cues => client.call(&request(number)).map(|_| true),
            _ => Ok(false),
        };
        measure(&self.clock, self.server.address, 16, TIMEOUT, work)?;
        Ok(())
    }

    fn in_seconds(&self, seconds: f64) -> Result<Timestamp> {
        Ok(self.clock.now().checked_add(Duration::try_from_secs_f64(seconds)?)?)
    }
}

fn with_times(calls: Calls) -> Values {
    [vec![("", calls.rate)], times(calls.latencies)].concat()
}

fn times(mut times: Vec<f64>) -> Values {
    vec![("_p50_ms", quantile(&mut times, 0.5)), ("_p99_ms", quantile(&mut times, 0.99))]
}

/// A host that accepts connections and never answers.
fn hanging_host() -> io::Result<String> {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
    let url = format!("http://{}/", listener.local_addr()?);
    thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    Ok(url)
}

fn never() -> Value {
    json!({"type": "recurring", "cron": "0 3 1 1 *"})
}

fn once(at: Timestamp) -> Value {
    json!({"type": "once", "at": at.to_string()})
}

fn create(key: &str, schedule: &Value, url: &str, transport: &str) -> Vec<u8> {
    let mut cue = json!({
        "name": "Nightly report", "schedule": schedule, "transport": transport,
        "payload": {"task": "report", "customer": 4_711, "format": "pdf", "copies": ["archive", "mail"]},
    });
    if transport == "webhook" {
        cue["callback"] = json!({"url": url});
    }
    request("POST", "/v1/cues", key, &cue.to_string())
}
