//! Test bed of the scenarios: the server, the receiver, the baseline server and typical cues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::actions::accounts;
use crate::bench::baseline::{Baseline, BaselineServer, with_new_id};
use crate::bench::cleanup::Folder;
use crate::bench::client;
use crate::bench::client::{Client, request};
use crate::bench::receiver::Receiver;
use crate::bench::report::BenchReport;
use crate::bench::server_process::ServerProcess;
use crate::bench::{BenchError, BenchOptions, Result};
use crate::clock::Clock;
use crate::domain::account::credentials::Email;
use crate::domain::account::user::RegistrationPolicy;
use crate::domain::cue::payload::Payload;
use crate::domain::cue::{Cue, NewCue, OnFailure, Transport};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::verification::VerificationMode;
use crate::domain::schedule::{CatchUp, Schedule};
use crate::domain::webhook::callback::{Callback, Method};
use crate::store::accounts::users as store_accounts;
use crate::store::{Store, WriteTx, cues};

/// Maximum wait for deliveries: a slow machine must be able to finish, and a stuck run must end.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The running server, its counterparts and the options.
pub struct Harness {
    pub clock: Arc<Clock>,
    pub options: BenchOptions,
    pub server: ServerProcess,
    /// Resident memory right after the start, in bytes.
    pub memory_at_start: Option<f64>,
    pub api_key: String,
    pub receiver: Receiver,
    pub baseline: BaselineServer,
    /// The store of the baseline server.
    pub store: Arc<Store>,
    /// A cue and its payload, to insert without the server.
    pub sample: (Cue, Payload),
    // The last field, so that it is dropped after everything that writes into it.
    pub folder: Folder,
}

impl Harness {
    /// Starts the server and its counterparts.
    pub fn start(options: BenchOptions, clock: &Arc<Clock>, folder: Folder) -> Result<Self> {
        let receiver = Receiver::start()?;
        let server = ServerProcess::start(&folder.file("cued.db"), folder.cleanup())?;
        let memory_at_start = server.resident_bytes();
        let api_key = register(&server, "bench@example.com")?;
        let store = Arc::new(open_store(&folder, "baseline.db")?);
        let (mut cue, payload) = sample(clock, &receiver.url())?;
        cue.user_key = create_user(&store, clock, "bench@example.com")?;
        let (row, body) = (cue.clone(), payload.clone());
        let stored = store.write(move |tx| cues::insert(tx, row, Some(&body))).wait()?;
        // Later inserts use new ids.
        cue.id = "cue_bench".to_owned();
        let baseline =
            Baseline { store: Arc::clone(&store), cue: cue.clone(), payload: payload.clone(), stored };
        let baseline = BaselineServer::start(baseline)?;
        let clock = Arc::clone(clock);
        Ok(Self {
            clock,
            options,
            server,
            memory_at_start,
            api_key,
            receiver,
            baseline,
            store,
            sample: (cue, payload),
            folder,
        })
    }

    /// Creates a user with `count` cues in the baseline store and returns its row id.
    pub fn create_baseline_user(&self, count: usize) -> Result<i64> {
        let (mut cue, payload) = self.sample.clone();
        cue.user_key = create_user(&self.store, &self.clock, "lists@example.com")?;
        let mut remaining = count;
        while remaining > 0 {
            // Batches keep the transactions, and with them the write-ahead log, small.
            let batch = remaining.min(1_000);
            remaining -= batch;
            let (cue, payload) = (cue.clone(), payload.clone());
            let insert = move |tx: &WriteTx<'_>| {
                (0..batch).try_for_each(|_| cues::insert(tx, with_new_id(&cue)?, Some(&payload)).map(drop))
            };
            self.store.write(insert).wait()?;
        }
        Ok(cue.user_key)
    }

    /// Measures how many times per second `clients` clients together send `request` to the server.
    pub fn request_rate(&self, clients: usize, request: &[u8]) -> Result<f64> {
        let work = |_, client: &mut Client| client.call(request).map(|_| true);
        client::measure_rate(&self.clock, self.server.address(), clients, self.options.duration, work)
    }

    /// The same for GET requests to the baseline server.
    pub fn baseline_rate(&self, clients: usize, path: &str) -> Result<f64> {
        let request = request("GET", path, None, "");
        let work = |_, client: &mut Client| client.call(&request).map(|_| true);
        client::measure_rate(&self.clock, self.baseline.address, clients, self.options.duration, work)
    }

    pub fn get(&self, path: &str) -> Vec<u8> {
        request("GET", path, Some(&self.api_key), "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Vec<u8> {
        request("POST", path, Some(&self.api_key), &body.to_string())
    }

    /// Creates one cue for each instant in `due`, with 16 clients.
    pub fn create_cues(&self, cue: impl Fn(Timestamp) -> Value + Sync, due: &[Timestamp]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = |_, client: &mut Client| {
            let Some(due) = due.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(false) };
            let body = cue(*due).to_string();
            client.call(&request("POST", "/v1/cues", Some(&self.api_key), &body)).map(|_| true)
        };
        client::measure_rate(&self.clock, self.server.address(), 16, TIMEOUT, work)?;
        if due.iter().min().is_some_and(|first| self.clock.now() >= *first) {
            return Err(BenchError::Failed(
                "the cues were due before all of them were created: use a smaller --herd or --trickle"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    pub fn wait_until(&self, at: Timestamp) {
        while let Ok(remaining) = Duration::try_from(at.duration_since(self.clock.now_precise()))
            && !remaining.is_zero()
        {
            self.clock.sleep(remaining);
        }
    }

    /// Waits until the server stops writing to disk and returns the bytes it has written so far.
    pub fn written_bytes_when_idle(&self) -> Option<f64> {
        let mut written = self.server.written_bytes()?;
        loop {
            // Shorter could mistake a pause between two commits for the end; longer adds up over nine calls.
            self.clock.sleep(Duration::from_millis(300));
            let now = self.server.written_bytes()?;
            if (now - written).abs() < 1.0 {
                return Some(now);
            }
            written = now;
        }
    }

    /// Waits for `count` deliveries and returns the lateness of each in milliseconds.
    pub fn lateness(&self, count: usize) -> Result<Vec<f64>> {
        let lateness = self.receiver.take(count, TIMEOUT);
        if lateness.len() < count {
            return Err(BenchError::Failed(format!("only {} of {count} deliveries arrived", lateness.len())));
        }
        Ok(lateness)
    }

    /// Returns the instant in `seconds` seconds, rounded up to a whole second.
    pub fn in_seconds(&self, seconds: f64) -> Timestamp {
        #[allow(clippy::cast_possible_truncation)]
        let whole = seconds.ceil() as i64;
        let from = self.clock.now().as_second();
        Timestamp::from_second(from + whole).unwrap_or(Timestamp::MAX)
    }

    /// Returns an instant by which `count` cues can be created: 1.5 times the expected duration and 2 s.
    pub fn due_after_creating(&self, count: usize, report: &BenchReport) -> Timestamp {
        #[allow(clippy::cast_precision_loss)]
        let seconds = 1.5 * count as f64 / report.value("creates_16").unwrap_or(1_000.0).max(1.0);
        self.in_seconds(seconds + 2.0)
    }
}

/// Registers a user and returns its API key.
pub fn register(server: &ServerProcess, email: &str) -> Result<String> {
    let body = json!({"email": email}).to_string();
    let mut client = Client::connect(server.address())?;
    let response = client.call(&request("POST", "/v1/auth/register", None, &body))?;
    string_field(response, "api_key")
        .ok_or_else(|| BenchError::Failed("the server registered a user without an API key".to_owned()))
}

pub fn open_store(folder: &Folder, name: &str) -> Result<Store> {
    Ok(Store::open(&folder.file(name), Arc::new(|_| ()))?)
}

pub fn create_user(store: &Store, clock: &Clock, email: &str) -> Result<i64> {
    let email = Email::parse(email).map_err(|error| BenchError::Failed(error.to_string()))?;
    let new = accounts::register(store, email, "free", RegistrationPolicy::Open, clock.now())?.wait()?;
    let found = store.read(move |read| store_accounts::find_by_email(read, &new.email)).wait()?;
    found.map(|user| user.key).ok_or_else(|| BenchError::Failed("the baseline store has no user".to_owned()))
}

/// Builds the row of a typical cue and its payload; its user and its id are set later.
fn sample(clock: &Clock, url: &str) -> Result<(Cue, Payload)> {
    let json = cue(url, &Value::Null);
    let invalid = |error: &dyn std::fmt::Display| BenchError::Failed(error.to_string());
    let new = NewCue {
        claim_within_minutes: None,
        name: json["name"].as_str().unwrap_or_default().to_owned(),
        description: None,
        schedule: Schedule::recurring("0 3 1 1 *", "UTC", CatchUp::default())
            .map_err(|error| invalid(&error))?,
        transport: Transport::Webhook,
        callback: Some(Callback {
            url: url.to_owned(),
            method: Method::Post,
            headers: Vec::new(),
            outcome_from_response: false,
        }),
        payload: Some(json["payload"].clone().into()),
        retry: RetryPolicy::default(),
        on_failure: OnFailure::default(),
        verification: VerificationMode::default(),
        warning: None,
    };
    let cue = new.into_cue("cue_sample".to_owned(), 0, clock.now());
    let (cue, payload) = cue.map_err(|refusal| invalid(&refusal.message))?;
    Ok((cue, payload.ok_or_else(|| invalid(&"the sample has no payload"))?))
}

/// A typical cue, as JSON for the API.
pub fn cue(url: &str, schedule: &Value) -> Value {
    json!({
        "name": "Nightly report", "schedule": schedule, "callback": {"url": url},
        "payload": {"task": "report", "customer": 4_711, "format": "pdf", "copies": ["archive", "mail"]},
    })
}

pub fn once(at: Timestamp) -> Value {
    json!({"type": "once", "at": at.to_string()})
}

/// Returns the value of the first string field of this name. Sufficient for ids and keys, which contain no escapes.
pub fn string_field(response: &[u8], field: &str) -> Option<String> {
    let text = std::str::from_utf8(response).ok()?;
    let (_, rest) = text.split_once(&format!("\"{field}\":\""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}

/// Returns the value of the first integer field of this name.
pub fn integer_field(response: &[u8], field: &str) -> Option<usize> {
    let text = std::str::from_utf8(response).ok()?;
    let (_, rest) = text.split_once(&format!("\"{field}\":"))?;
    let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_an_answer_is_found_by_its_name() {
        assert_eq!(
            string_field(br#"{"id":"a","api_key":"cue_sk_1"}"#, "api_key").as_deref(),
            Some("cue_sk_1")
        );
        assert_eq!(string_field(b"{}", "api_key"), None);
        assert_eq!(integer_field(br#"{"total":17,"limit":20}"#, "total"), Some(17));
        assert_eq!(
            [integer_field(b"{}", "total"), integer_field(br#"{"total":null}"#, "total")],
            [None, None]
        );
    }
}
