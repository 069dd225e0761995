//! What the measures work with: the program, the receiver, the bare counterparts, and cues as people make them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::actions::accounts;
use crate::bench::baseline::{Baseline, BaselineServer, another};
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
use crate::domain::cue::{Cue, NewCue, OnFailure, Transport};
use crate::domain::execution::RetryPolicy;
use crate::domain::execution::verification::VerificationMode;
use crate::domain::schedule::{CatchUp, Schedule};
use crate::domain::webhook::callback::{Callback, Method};
use crate::store::accounts::users as store_accounts;
use crate::store::{Store, WriteTx, cues};

/// The longest that is waited for deliveries.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The program, its counterparts and what the measures have made so far.
pub struct Harness {
    pub clock: Arc<Clock>,
    pub options: BenchOptions,
    pub program: ServerProcess,
    /// Bytes of memory right after the start.
    pub at_start: Option<f64>,
    pub key: String,
    pub receiver: Receiver,
    pub bare: BaselineServer,
    pub store: Arc<Store>,
    pub sample: (Cue, Value),
    // Last, so that it is removed when nobody writes into it any more.
    pub folder: Folder,
}

impl Harness {
    /// Starts the program and its counterparts.
    pub fn start(options: BenchOptions, clock: &Arc<Clock>, folder: Folder) -> Result<Self> {
        let receiver = Receiver::start()?;
        let program = ServerProcess::start(&folder.file("cued.db"), folder.traces())?;
        let at_start = program.resident();
        let key = register(&program)?;
        let store = Arc::new(open_store(&folder, "bare.db")?);
        let (mut cue, payload) = sample(clock, &receiver.url())?;
        cue.user_key = user(&store, clock, "bench@example.com")?;
        let (row, body) = (cue.clone(), payload.clone());
        let known = store.write(move |tx| cues::insert(tx, row, Some(&body))).wait()?;
        // Other rows need another id.
        cue.id = "cue_bench".to_owned();
        let bare = Baseline { store: Arc::clone(&store), cue: cue.clone(), payload: payload.clone(), known };
        let bare = BaselineServer::start(bare)?;
        let clock = Arc::clone(clock);
        Ok(Self {
            clock,
            options,
            program,
            at_start,
            key,
            receiver,
            bare,
            store,
            sample: (cue, payload),
            folder,
        })
    }

    /// The key of a new user of the bare store, with so many cues.
    pub fn another_user_with(&self, count: usize) -> Result<i64> {
        let (mut cue, payload) = self.sample.clone();
        cue.user_key = user(&self.store, &self.clock, "lists@example.com")?;
        let mut left = count;
        while left > 0 {
            let batch = left.min(1_000);
            left -= batch;
            let (cue, payload) = (cue.clone(), payload.clone());
            let insert = move |tx: &WriteTx<'_>| {
                (0..batch).try_for_each(|_| cues::insert(tx, another(&cue)?, Some(&payload)).map(drop))
            };
            self.store.write(insert).wait()?;
        }
        Ok(cue.user_key)
    }

    /// A rate of requests to the program: how often a second each of `clients` makes `request`.
    pub fn rate(&self, clients: usize, request: &[u8]) -> Result<f64> {
        let work = |_, client: &mut Client| client.call(request).map(|_| true);
        client::rate(&self.clock, self.program.address(), clients, self.options.each, work)
    }

    pub fn bare_rate(&self, clients: usize, path: &str) -> Result<f64> {
        let request = request("GET", path, None, "");
        let work = |_, client: &mut Client| client.call(&request).map(|_| true);
        client::rate(&self.clock, self.bare.address, clients, self.options.each, work)
    }

    pub fn get(&self, path: &str) -> Vec<u8> {
        request("GET", path, Some(&self.key), "")
    }

    pub fn post(&self, path: &str, body: &Value) -> Vec<u8> {
        request("POST", path, Some(&self.key), &body.to_string())
    }

    /// Makes cues for these instants, with 16 clients; the answers are what `made` is given.
    pub fn create(&self, cue: impl Fn(Timestamp) -> Value + Sync, due: &[Timestamp]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = |_, client: &mut Client| {
            let Some(due) = due.get(next.fetch_add(1, Ordering::Relaxed)) else { return Ok(false) };
            let body = cue(*due).to_string();
            client.call(&request("POST", "/v1/cues", Some(&self.key), &body)).map(|_| true)
        };
        client::rate(&self.clock, self.program.address(), 16, PATIENCE, work)?;
        if due.iter().min().is_some_and(|first| self.clock.now() >= *first) {
            return Err(BenchError("the cues came due while they were made: give fewer".to_owned()));
        }
        Ok(())
    }

    pub fn wait_until(&self, at: Timestamp) {
        while let Ok(left) = Duration::try_from(at.duration_since(self.clock.now_precise()))
            && !left.is_zero()
        {
            self.clock.sleep(left);
        }
    }

    /// Waits until the program has stored what it does, and answers the bytes that it has written so far.
    pub fn written_at_rest(&self) -> Option<f64> {
        let mut written = self.program.written()?;
        loop {
            self.clock.sleep(Duration::from_millis(300));
            let now = self.program.written()?;
            if (now - written).abs() < 1.0 {
                return Some(now);
            }
            written = now;
        }
    }

    /// Waits for so many deliveries; milliseconds by which each was late.
    pub fn lateness(&self, count: usize) -> Result<Vec<f64>> {
        let lateness = self.receiver.take(count, PATIENCE);
        if lateness.len() < count {
            return Err(BenchError(format!("only {} of {count} deliveries came", lateness.len())));
        }
        Ok(lateness)
    }

    /// The instant in so many seconds, on a whole second.
    pub fn in_seconds(&self, seconds: f64) -> Timestamp {
        #[allow(clippy::cast_possible_truncation)]
        let whole = seconds.ceil() as i64;
        let from = self.clock.now().as_second();
        Timestamp::from_second(from + whole).unwrap_or(Timestamp::MAX)
    }

    /// An instant by which so many cues can have been made.
    pub fn after_making(&self, count: usize, report: &BenchReport) -> Timestamp {
        #[allow(clippy::cast_precision_loss)]
        let seconds = 1.5 * count as f64 / report.figure("creates_16").unwrap_or(1_000.0).max(1.0);
        self.in_seconds(seconds + 2.0)
    }
}

fn register(program: &ServerProcess) -> Result<String> {
    let body = json!({"email": "bench@example.com"}).to_string();
    let mut client = Client::connect(program.address())?;
    let answer = client.call(&request("POST", "/v1/auth/register", None, &body))?;
    text_of(answer, "api_key").ok_or_else(|| BenchError("the program answered without a key".to_owned()))
}

pub fn open_store(folder: &Folder, name: &str) -> Result<Store> {
    Store::open(&folder.file(name), Arc::new(|_| ())).map_err(|error| BenchError(error.to_string()))
}

pub fn user(store: &Store, clock: &Clock, email: &str) -> Result<i64> {
    let email = Email::parse(email).map_err(|error| BenchError(error.to_string()))?;
    let made = accounts::register(store, email, "free", RegistrationPolicy::Open, clock.now())?.wait()?;
    let found = store.read(move |read| store_accounts::find_by_email(read, &made.email)).wait()?;
    found.map(|user| user.key).ok_or_else(|| BenchError("the bare store lost its user".to_owned()))
}

/// The row of such a cue, and its payload; its user and its own id are not known yet.
fn sample(clock: &Clock, url: &str) -> Result<(Cue, Value)> {
    let text = cue(url, &Value::Null);
    let invalid = |error: &dyn std::fmt::Display| BenchError(error.to_string());
    let new = NewCue {
        name: text["name"].as_str().unwrap_or_default().to_owned(),
        description: None,
        schedule: Schedule::recurring("0 3 1 1 *", "UTC", CatchUp::default())
            .map_err(|error| invalid(&error))?,
        transport: Transport::Webhook,
        callback: Some(Callback { url: url.to_owned(), method: Method::Post, headers: Vec::new() }),
        payload: Some(text["payload"].clone()),
        retry: RetryPolicy::default(),
        on_failure: OnFailure::default(),
        verification: VerificationMode::default(),
        warning: None,
    };
    let made = new.into_cue("cue_sample".to_owned(), 0, clock.now());
    let (cue, payload) = made.map_err(|refusal| invalid(&refusal.message))?;
    Ok((cue, payload.unwrap_or_default()))
}

/// A cue as people make them.
pub fn cue(url: &str, schedule: &Value) -> Value {
    json!({
        "name": "Nightly report", "schedule": schedule, "callback": {"url": url},
        "payload": {"task": "report", "customer": 4_711, "format": "pdf", "copies": ["archive", "mail"]},
    })
}

pub fn once(at: Timestamp) -> Value {
    json!({"type": "once", "at": at.to_string()})
}

/// The text in the first field of this name: enough for ids and keys, in which nothing is escaped.
pub fn text_of(answer: &[u8], field: &str) -> Option<String> {
    let text = std::str::from_utf8(answer).ok()?;
    let (_, rest) = text.split_once(&format!("\"{field}\":\""))?;
    rest.split_once('"').map(|(value, _)| value.to_owned())
}

/// The number in the first field of this name.
pub fn number_of(answer: &[u8], field: &str) -> Option<usize> {
    let text = std::str::from_utf8(answer).ok()?;
    let (_, rest) = text.split_once(&format!("\"{field}\":"))?;
    let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_field_is_found_by_name() {
        assert_eq!(text_of(br#"{"id":"a","api_key":"cue_sk_1"}"#, "api_key").as_deref(), Some("cue_sk_1"));
        assert_eq!(text_of(b"{}", "api_key"), None);
        assert_eq!(number_of(br#"{"total":17,"limit":20}"#, "total"), Some(17));
        assert_eq!([number_of(b"{}", "total"), number_of(br#"{"total":null}"#, "total")], [None, None]);
    }
}
