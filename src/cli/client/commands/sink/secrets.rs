//! The secrets by which a sink verifies: one that was given, or those of the account that is signed in.

use std::fs;
use std::io::{self, Read as _};
use std::time::Duration;

use crate::cli::client::commands::sink::delivery::Delivery;
use crate::cli::client::context::Context;
use crate::cli::client::environment::environment;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::error::ClientError;
use crate::client::request::ApiRequest;
use crate::domain::webhook::verification::{Verification, verify};
use crate::locks::Mutex;

const VARIABLE: &str = "CUED_WEBHOOK_SECRET";

/// More bytes than a secret has.
const MAX_SECRET: u64 = 4 << 10;

/// Of a request for the secrets: a delivery waits for it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Between two such requests: deliveries that nobody signed must not become requests to the server.
const PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Secrets {
    origin: Origin,
    found: Mutex<Found>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// The flag or the variable of this name.
    Given(&'static str),
    Account,
}

#[derive(Debug, Default)]
struct Found {
    secrets: Vec<String>,
    /// The time of the last request for them.
    asked: Option<Duration>,
}

impl Secrets {
    /// The secret of `--secret`, else of the environment, else those of the account.
    ///
    /// # Errors
    /// If the given secret cannot be read or is empty.
    pub fn choose(flag: Option<&str>) -> Result<Self, CliError> {
        let (secrets, origin) = match (flag, environment(VARIABLE)) {
            (Some(text), _) => (vec![given(text)?], Origin::Given("--secret")),
            (None, Some(text)) => (vec![given(&text)?], Origin::Given(VARIABLE)),
            (None, None) => (Vec::new(), Origin::Account),
        };
        Ok(Self { origin, found: Mutex::new(Found { secrets, asked: None }) })
    }

    /// Tells where the secrets are from. Those of the account may not be there yet.
    ///
    /// # Errors
    /// If standard error cannot be written.
    pub fn announce(&self, context: &Context) -> Result<(), CliError> {
        if let Origin::Given(name) = self.origin {
            return context.output.note(&format!("signatures are checked with the secret of {name}"));
        }
        let Err(error) = self.found.lock().ask(context) else { return Ok(()) };
        let why = match error {
            CliError::Client(ClientError::NotSignedIn) => "nobody is signed in".to_owned(),
            other => other.to_string(),
        };
        let way = "`cued login` or CUED_WEBHOOK_SECRET gives the secret";
        context.output.note(&format!("signatures are not checked yet: {why}; {way}"))
    }

    /// Verifies a delivery. The secrets of the account are read again if that may help: somebody has signed in meanwhile,
    /// or has replaced the secret.
    pub fn verify(&self, context: &Context, delivery: &Delivery) -> Verification {
        let check = |secrets: &[String]| {
            let header = |name: &str| delivery.header(name);
            verify(secrets, &header, &delivery.body, delivery.received_at)
        };
        let mut found = self.found.lock();
        let first = check(&found.secrets);
        let may_help = matches!(first, Verification::NoSecret | Verification::WrongSignature(_));
        let now = context.client.clock().monotonic();
        let is_early = found.asked.is_some_and(|asked| now < asked + PAUSE);
        // The reason for the lack of secrets was printed at the start.
        if self.origin != Origin::Account || !may_help || is_early || found.ask(context).is_err() {
            return first;
        }
        check(&found.secrets)
    }
}

impl Found {
    /// Reads the secrets of the account, by the credentials of this moment.
    fn ask(&mut self, context: &Context) -> Result<(), CliError> {
        let now = context.client.clock().monotonic();
        let context = context.anew()?;
        if context.target.key.is_none() {
            return Err(ClientError::NotSignedIn.into());
        }
        self.asked = Some(now);
        let mut secrets = Vec::new();
        for (path, field) in [
            ("/v1/auth/webhook-secret", "webhook_secret"),
            ("/v1/auth/alert-webhook-secret", "alert_webhook_secret"),
        ] {
            let answer = context.client.send_once(&ApiRequest::get(path).timeout(TIMEOUT))?;
            secrets.push(text_of(&answer.value()?, field));
        }
        secrets.retain(|secret| !secret.is_empty());
        if secrets != self.secrets {
            self.secrets = secrets;
            let url = &context.target.url;
            context
                .output
                .note(&format!("signatures are checked with the secrets of your account at {url}"))?;
        }
        Ok(())
    }
}

/// The request for the secret, to be shown.
#[must_use]
pub fn request() -> ApiRequest {
    ApiRequest::get("/v1/auth/webhook-secret")
}

/// Reads a secret: `@FILE`, `-` for standard input, or the secret itself.
fn given(text: &str) -> Result<String, CliError> {
    let read = |input: &mut dyn io::Read, from: &str| -> Result<String, CliError> {
        let mut secret = String::new();
        let result = input.take(MAX_SECRET).read_to_string(&mut secret);
        result.map_err(|error| CliError::Usage(format!("cannot read the secret from {from}: {error}")))?;
        Ok(secret)
    };
    let secret = match text.strip_prefix('@') {
        Some(path) => {
            let file = fs::File::open(path);
            let mut file = file.map_err(|error| {
                CliError::Usage(format!("cannot read the secret from the file {path}: {error}"))
            })?;
            read(&mut file, &format!("the file {path}"))?
        }
        None if text == "-" => read(&mut io::stdin().lock(), "standard input")?,
        None => text.to_owned(),
    };
    let secret = secret.trim();
    if secret.is_empty() {
        return Err(CliError::Usage("the secret is empty; `cued account secret` shows yours".to_owned()));
    }
    Ok(secret.to_owned())
}
