//! `cued sink`: receives deliveries, verifies and prints them, and answers by a script.

mod listener;

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use hyper::body::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::sync::mpsc::Sender;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::{Context, environment};
use crate::cli::error::{CliError, cannot, usage};
use crate::cli::input;
use crate::cli::output::table::{Style, text_of};
use crate::cli::output::{Format, print_line, print_part};
use crate::cli::printable::{printable, printable_lines};
use crate::cli::server::flag_values::socket_address;
use crate::client::request::{ApiRequest, ClientError};
use crate::domain::text::one_line;
use crate::domain::time::rfc3339;
use crate::domain::webhook::signature::{Verification, verify};
use crate::locks::Mutex;

const SECRET_VARIABLE: &str = "CUED_WEBHOOK_SECRET";

/// Timeout of a request for the secrets, because a delivery waits for it; and the pause between two of them, so that unsigned
/// deliveries do not become requests to the server.
const SECRET_TIMEOUT: Duration = Duration::from_secs(3);
const SECRET_PAUSE: Duration = Duration::from_secs(5);

pub const HELP: &str = "Receive deliveries for trying things, and print them

Prints each delivery, verifies its signatures with the secret of your account (or CUED_WEBHOOK_SECRET), and answers by a \
script. Of 500,timeout,429:5,200 the first attempt fails, the second times out, the third is asked to wait for five seconds, \
and all others succeed:

cued sink --script 500,timeout,429:5,200

With --json each delivery is one line of JSON. Ctrl-C ends it.";

#[derive(Debug, Args)]
pub struct Sink {
    /// Address and port to listen on; with port 0 a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9000", value_parser = socket_address)]
    listen: SocketAddr,

    /// Answers, one for each delivery; the last one repeats. A step is a status, a status with the seconds of Retry-After
    /// (429:5), or timeout: no answer until the sender gives up
    #[arg(long, value_name = "STEP,…", default_value = "200", value_parser = clap::value_parser!(Script))]
    script: Script,

    /// Body of the answers of success, such as '{"success": true}'
    #[arg(long, value_name = "TEXT")]
    reply: Option<String>,

    /// End after so many deliveries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    exit_after: Option<u64>,

    /// Webhook secret: @FILE, or - for standard input; other text is the secret itself, which the list of processes shows.
    /// Prefer CUED_WEBHOOK_SECRET in the environment [default: that of your account]
    #[arg(long, value_name = "@FILE|-|TEXT")]
    secret: Option<String>,

    /// Print the line of each delivery only
    #[arg(long)]
    no_body: bool,
}

impl ClientAction for Sink {
    fn run(self, context: &Context) -> Result<(), CliError> {
        if context.is_curl() {
            context.send(&ApiRequest::get("/v1/auth/webhook-secret"))?;
        }
        let mut secrets = Secrets::choose(self.secret.as_deref())?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| cannot("start the receiver", error))?;
        let (listener, address) = runtime.block_on(listener::bind(self.listen))?;
        let line = format!("listening on http://{address}");
        if context.output.format.is_for_programs() { context.output.note(&line) } else { print_line(&line) }?;
        if !address.ip().is_loopback() {
            context.output.note("whoever reaches this address can post to it, not only cued")?;
        }
        secrets.announce(context)?;
        let (end, ends) = mpsc::channel(1);
        let receiver = Arc::new(Receiver {
            context: context.reload()?,
            secrets: Mutex::new(secrets),
            script: self.script,
            reply: self.reply,
            exit_after: self.exit_after,
            has_body: !self.no_body,
            received: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            end,
        });
        let result = runtime.block_on(listener::serve(listener, Arc::clone(&receiver), ends));
        // A thread may wait for a reader of standard output that has stopped reading.
        runtime.shutdown_background();
        result?;
        context.output.note(&receiver.summary())
    }
}

/// The treatment of one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A status, and the seconds of a `Retry-After`.
    Answer { status: u16, retry_after: Option<u32> },
    /// No answer, until the sender gives up.
    Timeout,
}

/// The answers: one step per delivery; the last one repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script(Vec<Step>);

impl Script {
    /// The step of a delivery, counted from 0.
    pub fn step(&self, index: u64) -> Step {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        // A script has at least one step.
        self.0.get(index).or(self.0.last()).copied().unwrap_or(Step::Timeout)
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = |word: &str| {
            step(word.trim()).ok_or_else(|| {
                format!(
                    "{word:?} is no step; a step is a status from 200 to 599, a status with the seconds of \
                     Retry-After such as 429:5, or timeout, and a script is steps such as 500,timeout,429:5,200"
                )
            })
        };
        text.split(',').map(read).collect::<Result<_, _>>().map(Self)
    }
}

fn step(word: &str) -> Option<Step> {
    if word == "timeout" {
        return Some(Step::Timeout);
    }
    let (status, seconds) = word.split_once(':').map_or((word, None), |(status, it)| (status, Some(it)));
    // A number may begin with a plus sign.
    let status = status.parse().ok().filter(|status| (200..=599).contains(status) && !word.contains('+'))?;
    Some(Step::Answer { status, retry_after: seconds.map(str::parse).transpose().ok()? })
}

/// The secrets of a sink: one that was given, or those of the account that is signed in.
pub struct Secrets {
    known: Vec<String>,
    /// The flag or the variable that gave the secret; `None` of those of the account.
    given_by: Option<&'static str>,
    /// The time of the last request for them.
    asked_at: Option<Duration>,
}

impl Secrets {
    /// The secret of `--secret`, else of the environment, else those of the account.
    fn choose(flag: Option<&str>) -> Result<Self, CliError> {
        let variable = environment(SECRET_VARIABLE);
        let given_by = if flag.is_some() { "--secret" } else { SECRET_VARIABLE };
        let Some(text) = flag.or(variable.as_deref()) else {
            return Ok(Self { known: Vec::new(), given_by: None, asked_at: None });
        };
        let secret = input::text(given_by, text)?.trim().to_owned();
        if secret.is_empty() {
            return Err(usage("the secret is empty; `cued account secret` shows yours"));
        }
        Ok(Self { known: vec![secret], given_by: Some(given_by), asked_at: None })
    }

    /// Shows the origin of the secrets. Those of the account may not be there yet.
    fn announce(&mut self, context: &Context) -> Result<(), CliError> {
        if let Some(name) = self.given_by {
            return context.output.note(&format!("signatures are checked with the secret of {name}"));
        }
        let why = match self.ask(context) {
            Ok(()) => return Ok(()),
            Err(CliError::Client(ClientError::NotSignedIn)) => "nobody is signed in".to_owned(),
            Err(other) => other.to_string(),
        };
        let way = "`cued login` or CUED_WEBHOOK_SECRET gives the secret";
        context.output.note(&format!("signatures are not checked yet: {why}; {way}"))
    }

    /// Verifies by `check`. The secrets of the account are read again if that may help: after a sign-in, or after
    /// the secret was replaced.
    pub fn verify(&mut self, context: &Context, check: impl Fn(&[String]) -> Verification) -> Verification {
        let first = check(&self.known);
        let may_help = matches!(first, Verification::NoSecret | Verification::WrongSignature(_));
        let now = context.client.clock().monotonic();
        let is_early = self.asked_at.is_some_and(|asked_at| now < asked_at + SECRET_PAUSE);
        // The reason for the lack of secrets was printed at the start.
        if self.given_by.is_some() || !may_help || is_early || self.ask(context).is_err() {
            return first;
        }
        check(&self.known)
    }

    /// Reads the secrets of the account, by the credentials of this moment.
    fn ask(&mut self, context: &Context) -> Result<(), CliError> {
        let now = context.client.clock().monotonic();
        let context = context.reload()?;
        if context.target.key.is_none() {
            return Err(ClientError::NotSignedIn.into());
        }
        self.asked_at = Some(now);
        let mut secrets = Vec::new();
        for (path, field) in [
            ("/v1/auth/webhook-secret", "webhook_secret"),
            ("/v1/auth/alert-webhook-secret", "alert_webhook_secret"),
        ] {
            let answer = context.client.send_once(&ApiRequest::get(path).timeout(SECRET_TIMEOUT))?;
            secrets.push(text_of(&answer.value()?, field));
        }
        secrets.retain(|secret| !secret.is_empty());
        if secrets != self.known {
            self.known = secrets;
            let origin = format!("the secrets of your account at {}", context.target.url);
            context.output.note(&format!("signatures are checked with {origin}"))?;
        }
        Ok(())
    }
}

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
        let end = match print_part(&self.text(delivery, verification, step)) {
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

    /// The text to print, with the end of its line; empty if the form has nothing of this delivery.
    fn text(&self, delivery: &Delivery, verification: Verification, step: Step) -> String {
        match self.context.output.format {
            Format::Json | Format::Jsonl => format!("{}\n", self.json(delivery, verification, step)),
            // JSON is YAML.
            Format::Yaml => format!("---\n{}\n", self.json(delivery, verification, step)),
            Format::Id => {
                delivery.header("x-cueapi-execution-id").map(|id| line(id) + "\n").unwrap_or_default()
            }
            Format::Table | Format::Wide => self.lines(delivery, verification, step),
        }
    }

    fn lines(&self, delivery: &Delivery, verification: Verification, step: Step) -> String {
        let Delivery { received_at, method, target, headers, body } = delivery;
        let (output, styles) = (&self.context.output, &self.context.output.styles);
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
        if self.has_body {
            let shown = body.get(..MAX_SHOWN).unwrap_or(body);
            for line in printable_lines(&String::from_utf8_lossy(shown)) {
                text += &format!("  {line}\n");
            }
            if shown.len() < body.len() {
                text += &format!("  … {} bytes more\n", body.len() - shown.len());
            }
        }
        text
    }

    /// One object, as programs read it.
    fn json(&self, delivery: &Delivery, verification: Verification, step: Step) -> Value {
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
        if self.has_body {
            let text = || json!(String::from_utf8_lossy(&delivery.body));
            object["body"] = serde_json::from_slice(&delivery.body).unwrap_or_else(|_| text());
        }
        object
    }

    /// The deliveries so far, as a sentence.
    pub fn summary(&self) -> String {
        let (received, verified) = (self.received.load(Relaxed), self.verified.load(Relaxed));
        let noun = if received == 1 { "delivery" } else { "deliveries" };
        format!("{received} {noun}, {verified} verified")
    }
}

/// A text from outside as a part of a line.
fn line(text: &str) -> String {
    printable(&one_line(text, MAX_LINE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_repeats_and_a_text_that_is_no_script_is_refused_with_an_example() {
        let script: Script = "500, timeout,429:5,200".parse().unwrap();
        let answer = |status, retry_after| Step::Answer { status, retry_after };
        let steps = [0, 1, 2, 3, 4, u64::MAX].map(|index| script.step(index));
        let end = answer(200, None);
        assert_eq!(steps, [answer(500, None), Step::Timeout, answer(429, Some(5)), end, end, end]);
        for bad in
            ["", "200,", "OK", "20", "199", "600", "+200", "200:", "200:x", "timeout:5", "429:99999999999"]
        {
            let error = bad.parse::<Script>().unwrap_err();
            assert!(error.contains("500,timeout,429:5,200"), "{bad}: {error}");
        }
    }
}
