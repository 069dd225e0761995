//! The secrets by which a sink verifies: one that was given, or those of the account that is signed in.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use crate::cli::client::context::Context;
use crate::cli::client::context::environment;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::error::ClientError;
use crate::client::request::ApiRequest;
use crate::domain::webhook::verification::Verification;

const VARIABLE: &str = "CUED_WEBHOOK_SECRET";

/// More bytes than a secret has.
const MAX_SECRET: u64 = 4 << 10;

/// Of a request for the secrets: a delivery waits for it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Between two such requests: deliveries that nobody signed must not become requests to the server.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Secrets {
    known: Vec<String>,
    /// The flag or the variable that gave the secret; `None` of those of the account.
    given_by: Option<&'static str>,
    /// The time of the last request for them.
    asked_at: Option<Duration>,
}

impl Secrets {
    /// The secret of `--secret`, else of the environment, else those of the account.
    pub fn choose(flag: Option<&str>) -> Result<Self, CliError> {
        let (known, given_by) = match (flag, environment(VARIABLE)) {
            (Some(text), _) => (vec![given(text)?], Some("--secret")),
            (None, Some(text)) => (vec![given(&text)?], Some(VARIABLE)),
            (None, None) => (Vec::new(), None),
        };
        Ok(Self { known, given_by, asked_at: None })
    }

    /// Shows the origin of the secrets. Those of the account may not be there yet.
    pub fn announce(&mut self, context: &Context) -> Result<(), CliError> {
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
        let is_early = self.asked_at.is_some_and(|asked_at| now < asked_at + PAUSE);
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
            let answer = context.client.send_once(&ApiRequest::get(path).timeout(TIMEOUT))?;
            secrets.push(text_of(&answer.value()?, field));
        }
        secrets.retain(|secret| !secret.is_empty());
        if secrets != self.known {
            self.known = secrets;
            let url = &context.target.url;
            context
                .output
                .note(&format!("signatures are checked with the secrets of your account at {url}"))?;
        }
        Ok(())
    }
}

/// Reads a secret: `@FILE`, `-` for standard input, or the secret itself.
fn given(text: &str) -> Result<String, CliError> {
    let (input, from): (io::Result<Box<dyn Read>>, _) = match text.strip_prefix('@') {
        Some(path) => (File::open(path).map(|file| Box::new(file) as _), format!("the file {path}")),
        None if text == "-" => (Ok(Box::new(io::stdin())), "standard input".to_owned()),
        None => (Ok(Box::new(text.as_bytes())), "--secret".to_owned()),
    };
    let mut secret = String::new();
    let read = input.and_then(|input| input.take(MAX_SECRET).read_to_string(&mut secret));
    read.map_err(|error| CliError::Usage(format!("cannot read the secret from {from}: {error}")))?;
    let secret = secret.trim();
    if secret.is_empty() {
        return Err(CliError::Usage("the secret is empty; `cued account secret` shows yours".to_owned()));
    }
    Ok(secret.to_owned())
}
