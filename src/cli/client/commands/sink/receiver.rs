//! Verifies, counts and prints deliveries, and decides their answers.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use hyper::body::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::Sender;

use crate::cli::client::commands::sink::{Script, Secrets, Step};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::table::Style;
use crate::cli::output::{Format, Output, print_part};
use crate::cli::printable::printable;
use crate::domain::text::one_line;
use crate::domain::time::rfc3339;
use crate::domain::webhook::verification::{Verification, verify};
use crate::locks::Mutex;

/// Bytes of a body that people are shown. A payload has up to 1 MiB.
const MAX_SHOWN: usize = 4 << 10;

/// Characters of a path, or of a header, on their line.
const MAX_LINE: usize = 500;

/// A request that a sink has received.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub received_at: Timestamp,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case. Bytes that are no UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Delivery {
    /// The first header of this name.
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// The end of a sink.
pub type End = Result<(), CliError>;

pub struct Receiver {
    pub context: Context,
    pub secrets: Mutex<Secrets>,
    pub script: Script,
    /// The body of answers of success.
    pub reply: Option<String>,
    pub exit_after: Option<u64>,
    pub has_body: bool,
    pub received: AtomicU64,
    pub verified: AtomicU64,
    /// Deliveries with an answer, or whose sender has given up.
    pub finished: AtomicU64,
    /// Ends the sink.
    pub end: Sender<End>,
}

impl Receiver {
    /// Takes a delivery; `None` if the sink is at its end.
    pub fn receive(&self, delivery: &Delivery) -> Option<Step> {
        // Locked until the line is printed: the lines are in the order of the script.
        let mut secrets = self.secrets.lock();
        let verification = secrets.verify(&self.context, |secrets| {
            verify(secrets, &|name: &str| delivery.header(name), &delivery.body, delivery.received_at)
        });
        let index = self.received.load(Relaxed);
        if self.exit_after.is_some_and(|limit| index >= limit) {
            return None;
        }
        let step = self.script.step(index);
        let end = match print_part(&text(delivery, verification, step, self.has_body, &self.context.output)) {
            Ok(true) => {
                self.received.fetch_add(1, Relaxed);
                self.verified.fetch_add(u64::from(verification.is_verified()), Relaxed);
                return Some(step);
            }
            // The reader has closed the pipe.
            Ok(false) => Ok(()),
            Err(error) => Err(error),
        };
        // One end is enough; a second finds the place taken.
        drop(self.end.try_send(end));
        None
    }

    /// Counts a delivery as finished.
    pub fn finish(&self) {
        let finished = self.finished.fetch_add(1, Relaxed) + 1;
        if self.exit_after == Some(finished) {
            drop(self.end.try_send(Ok(())));
        }
    }

    /// The deliveries so far, as a sentence.
    pub fn summary(&self) -> String {
        let (received, verified) = (self.received.load(Relaxed), self.verified.load(Relaxed));
        let noun = if received == 1 { "delivery" } else { "deliveries" };
        format!("{received} {noun}, {verified} verified")
    }
}

/// The text to print, with the end of its line; empty if the form has nothing of this delivery.
fn text(
    delivery: &Delivery,
    verification: Verification,
    step: Step,
    has_body: bool,
    output: &Output,
) -> String {
    let json = || json(delivery, verification, step, has_body);
    match output.format {
        Format::Json | Format::Jsonl => format!("{}\n", json()),
        // JSON is YAML.
        Format::Yaml => format!("---\n{}\n", json()),
        Format::Id => delivery.header("x-cueapi-execution-id").map(|id| line(id) + "\n").unwrap_or_default(),
        Format::Table | Format::Wide => lines(delivery, verification, step, has_body, output),
    }
}

fn lines(
    delivery: &Delivery,
    verification: Verification,
    step: Step,
    has_body: bool,
    output: &Output,
) -> String {
    let Delivery { received_at, method, target, headers, body } = delivery;
    let styles = &output.styles;
    let style = match verification {
        Verification::Verified => Style::Good,
        Verification::NoSecret => Style::Warning,
        _ => Style::Bad,
    };
    let mut parts = vec![
        styles.paint(&output.times.time_of_day(*received_at), Style::Faint),
        format!("{} {}", line(method), line(target)),
    ];
    parts.extend(delivery.header("x-cueapi-execution-id").map(line));
    parts.extend(delivery.header("x-cueapi-attempt").map(|attempt| format!("attempt {}", line(attempt))));
    parts.push(format!("{} B", body.len()));
    parts.push(styles.paint(&verification.to_string(), style));
    parts.push(match step {
        Step::Answer { status, retry_after: None } => format!("→ {status}"),
        Step::Answer { status, retry_after: Some(seconds) } => {
            format!("→ {status}, Retry-After {seconds} s")
        }
        Step::Timeout => "→ no answer".to_owned(),
    });
    let mut text = parts.join("  ") + "\n";
    for (name, value) in headers.iter().filter(|_| output.is_wide()) {
        text += &styles.paint(&format!("  {}: {}", line(name), line(value)), Style::Faint);
        text += "\n";
    }
    if has_body {
        let shown = body.get(..MAX_SHOWN).unwrap_or(body);
        for line in String::from_utf8_lossy(shown).lines() {
            text += &format!("  {}\n", printable(&line.replace('\t', "    ")));
        }
        if shown.len() < body.len() {
            text += &format!("  … {} bytes more\n", body.len() - shown.len());
        }
    }
    text
}

/// One object, as programs read it.
fn json(delivery: &Delivery, verification: Verification, step: Step, has_body: bool) -> Value {
    let (status, retry_after) = match step {
        Step::Answer { status, retry_after } => (Some(status), retry_after),
        Step::Timeout => (None, None),
    };
    let mut headers = Map::new();
    for (name, value) in &delivery.headers {
        match headers.get_mut(name) {
            Some(Value::String(values)) => values.push_str(&format!(", {value}")),
            _ => drop(headers.insert(name.clone(), json!(value))),
        }
    }
    let mut object = json!({
        "received_at": rfc3339(delivery.received_at),
        "method": delivery.method,
        "path": delivery.target,
        "execution_id": delivery.header("x-cueapi-execution-id"),
        "cue_id": delivery.header("x-cueapi-cue-id"),
        "attempt": delivery.header("x-cueapi-attempt").and_then(|attempt| attempt.parse::<u32>().ok()),
        "headers": headers,
        "size": delivery.body.len(),
        "verified": verification.is_verified(),
        "reason": verification.code(),
        "answer": {"status": status, "retry_after": retry_after},
    });
    if has_body {
        let text = || json!(String::from_utf8_lossy(&delivery.body));
        object["body"] = serde_json::from_slice(&delivery.body).unwrap_or_else(|_| text());
    }
    object
}

/// A text from outside as a part of a line.
fn line(text: &str) -> String {
    printable(&one_line(text, MAX_LINE))
}
