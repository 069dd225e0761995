//! Test bed of the scenarios: the server, the receiver, the baseline server and typical cues.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::actions::accounts;
use crate::bench::baseline::server::{Baseline, BaselineServer};
use crate::bench::baseline::with_new_id;
use crate::bench::cleanup::Folder;
use crate::bench::client;
use crate::bench::client::{Client, Measured, request};
use crate::bench::receiver::Receiver;
use crate::bench::report::BenchReport;
use crate::bench::server_process::{Limits, ServerProcess};
use crate::bench::written::WriteMeter;
use crate::bench::{BenchError, BenchOptions, Result};
use crate::clock::Clock;
use crate::cores;
use crate::domain::account::credentials::Email;
use crate::domain::account::user::RegistrationPolicy;
use crate::domain::cue::payload::Payload;
use crate::domain::cue::{Cue, NewCue, OnFailure, Transport};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::verification::VerificationMode;
use crate::domain::schedule::{CatchUp, Schedule};
use crate::domain::webhook::callback::{Callback, Method};
use crate::store::accounts::users as store_accounts;
use crate::store::maintenance::bench::bare::BareFile;
use crate::store::{Store, WriteTx, cues};

/// Maximum wait for deliveries: a slow machine must be able to finish, and a stuck run must end.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The cues of the user whose lists are read, and the rows of the bare server.
pub const LIST_CUES: u32 = 6_000;

const LIST_USER: &str = "lists@example.com";

/// Creates per second with 16 clients where they have not been measured: of a slow disk.
const CREATE_RATE: f64 = 1_000.0;

/// The running server, its counterparts and the options.
pub struct Harness {
    pub clock: Arc<Clock>,
    pub options: BenchOptions,
    pub server: ServerProcess,
    /// Resident memory right after the start, in bytes.
    pub memory_at_start: Option<f64>,
    /// The bytes that the server writes.
    pub written: WriteMeter,
    pub api_key: String,
    /// The key of the user whose lists are read.
    pub list_key: String,
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
        let db = folder.file("cued.db");
        let server = ServerProcess::start(&db, Limits::Off, folder.cleanup())?;
        let written = WriteMeter::start(&db)?;
        let memory_at_start = server.resident_bytes();
        let api_key = register(&server, "bench@example.com")?;
        let list_key = register(&server, LIST_USER)?;
        let store = Arc::new(open_store(&folder, "baseline.db")?);
        let (mut cue, payload) = sample(clock, &receiver.url())?;
        cue.user_key = create_user(&store, clock, "bench@example.com")?;
        let (row, body) = (cue.clone(), payload.clone());
        let stored = store.write(move |tx| cues::insert(tx, row, Some(&body))).wait()?;
        // Later inserts use new ids.
        cue.id = "cue_bench".to_owned();
        let bare = bare_file(&folder, &receiver.url())?;
        let baseline =
            Baseline { store: Arc::clone(&store), cue: cue.clone(), payload: payload.clone(), stored, bare };
        let baseline = BaselineServer::start(baseline)?;
        let clock = Arc::clone(clock);
        Ok(Self {
            clock,
            options,
            server,
            memory_at_start,
            written,
            api_key,
            list_key,
            receiver,
            baseline,
            store,
            sample: (cue, payload),
            folder,
        })
    }

    /// Gives [`LIST_USER`] its cues in `store`, unless it has them, and returns its row id.
    pub fn user_with_cues(&self, store: &Store) -> Result<i64> {
        let (mut cue, payload) = self.sample.clone();
        let user = store.read(|read| store_accounts::find_by_email(read, LIST_USER)).wait()?;
        cue.user_key = match &user {
            Some(user) => user.key,
            None => create_user(store, &self.clock, LIST_USER)?,
        };
        let mut remaining = if user.is_some_and(|user| user.cue_count > 0) { 0 } else { LIST_CUES };
        while remaining > 0 {
            // Batches keep the transactions, and with them the write-ahead log, small.
            let batch = remaining.min(1_000);
            remaining -= batch;
            let (cue, payload) = (cue.clone(), payload.clone());
            let insert = move |tx: &WriteTx<'_>| {
                (0..batch).try_for_each(|_| cues::insert(tx, with_new_id(&cue)?, Some(&payload)).map(drop))
            };
            store.write(insert).wait()?;
        }
        Ok(cue.user_key)
    }

    /// Measures `clients` clients that each send `request` to the server, again and again.
    pub fn measure(&self, clients: usize, request: &[u8]) -> Result<Measured> {
        let work = |_, client: &mut Client| client.call(request).map(|_| true);
        client::measure(&self.clock, self.server.address(), clients, self.options.duration, work)
    }

    /// The same for the baseline server.
    pub fn measure_baseline(&self, clients: usize, request: &[u8]) -> Result<Measured> {
        let work = |_, client: &mut Client| client.call(request).map(|_| true);
        client::measure(&self.clock, self.baseline.address, clients, self.options.duration, work)
    }

    pub fn get(&self, path: &str) -> Vec<u8> {
        request("GET", path, Some(&self.api_key), "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Vec<u8> {
        request("POST", path, Some(&self.api_key), &body.to_string())
    }

    /// Creates one cue for each instant in `due`, with 16 clients.
    pub fn create_cues(&self, cue: impl Fn(Timestamp) -> Value + Sync, due: &[Timestamp]) -> Result<()> {
        create_cues(&self.clock, self.server.address(), &self.api_key, cue, due)
    }

    pub fn wait_until(&self, at: Timestamp) {
        while let Ok(remaining) = Duration::try_from(at.duration_since(self.clock.now_precise()))
            && !remaining.is_zero()
        {
            self.clock.sleep(remaining);
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
        let seconds = 1.5 * count as f64 / report.value("creates_16").unwrap_or(CREATE_RATE).max(1.0);
        self.in_seconds(seconds + 2.0)
    }
}

/// Creates one cue for each instant in `due`, with 16 clients.
pub fn create_cues(
    clock: &Clock,
    server: SocketAddr,
    api_key: &str,
    cue: impl Fn(Timestamp) -> Value + Sync,
    due: &[Timestamp],
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let work = |_, client: &mut Client| {
        let Some(due) = due.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(false) };
        let body = cue(*due).to_string();
        client.call(&request("POST", "/v1/cues", Some(api_key), &body)).map(|_| true)
    };
    client::measure(clock, server, 16, TIMEOUT, work)?;
    if due.iter().min().is_some_and(|first| clock.now() >= *first) {
        return Err(BenchError::Failed(
            "the cues were due before all of them were created: use a smaller --herd or --trickle".to_owned(),
        ));
    }
    Ok(())
}

/// Registers a user and returns its API key.
pub fn register(server: &ServerProcess, email: &str) -> Result<String> {
    let body = json!({"email": email}).to_string();
    let mut client = Client::connect(server.address())?;
    let response = client.call(&request("POST", "/v1/auth/register", None, &body))?;
    string_field(response, "api_key")
        .ok_or_else(|| BenchError::Failed("the server registered a user without an API key".to_owned()))
}

/// A bare file with as many rows as the list that is read. Each row is a request to create a cue.
fn bare_file(folder: &Folder, url: &str) -> Result<BareFile> {
    let file = BareFile::create(&folder.file("bare.db"), cores::http_threads())?;
    let schedule = json!({"type": "recurring", "cron": "0 3 1 1 *"});
    let body = cue(url, &schedule).to_string();
    let answers: Vec<_> =
        (0..LIST_CUES).map(|number| file.insert(format!("row_{number}"), body.clone())).collect();
    for answer in answers {
        answer.blocking_recv().map_err(|_| BenchError::Failed("the bare writer has ended".to_owned()))??;
    }
    Ok(file)
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
pub fn sample(clock: &Clock, url: &str) -> Result<(Cue, Payload)> {
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
