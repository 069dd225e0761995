//! `cued sink`: receives deliveries, verifies and prints them, and answers by a script.

mod listener;
mod receiver;

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::sink::receiver::Receiver;
use crate::cli::client::context::{Context, environment};
use crate::cli::error::CliError;
use crate::cli::input::values;
use crate::cli::output::print_line;
use crate::cli::output::table::text_of;
use crate::cli::server::flag_values::socket_address;
use crate::client::request::{ApiRequest, ClientError};
use crate::domain::webhook::verification::Verification;
use crate::locks::Mutex;

const SECRET_VARIABLE: &str = "CUED_WEBHOOK_SECRET";

/// Of a request for the secrets, for which a delivery waits, and between two of them: deliveries that nobody signed must not
/// become requests to the server.
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
        let runtime =
            runtime.map_err(|error| CliError::Failed(format!("cannot start the receiver: {error}")))?;
        let (listener, address) = runtime.block_on(listener::bind(self.listen))?;
        let line = format!("listening on http://{address}");
        if context.output.format.is_for_programs() { context.output.note(&line) } else { print_line(&line) }?;
        if !address.ip().is_loopback() {
            context.output.note("whoever reaches this address can post to it, not only cued")?;
        }
        secrets.announce(context)?;
        let (end, ends) = mpsc::channel(1);
        let receiver = Arc::new(Receiver {
            context: context.anew()?,
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

/// The answers: one step per delivery, of which the last one repeats.
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
        let secret = values::text(given_by, text)?.trim().to_owned();
        if secret.is_empty() {
            return Err(CliError::Usage("the secret is empty; `cued account secret` shows yours".to_owned()));
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

    /// Verifies by `check`. The secrets of the account are read again if that may help: somebody has signed in since, or has
    /// replaced the secret.
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
        let context = context.anew()?;
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
