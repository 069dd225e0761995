//! `cued serve`: its flags are the whole configuration, each with an environment variable.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use tempfile::TempDir;
use tracing::Level;

use crate::cli::stripe::StripeFlags;
use crate::cli::{CliError, OnOff, plans_from, read};
use crate::clock::Clock;
use crate::config::{Config, HttpLimits};
use crate::domain::account::plan::Plans;
use crate::domain::account::user::RegistrationPolicy;
use crate::domain::cue::retention::Retention;
use crate::domain::webhook::address_policy::{AddressPolicy, AllowRule, Cidr};
use crate::domain::webhook::callback_url::CallbackTarget;
use crate::logging::LogFormat;
use crate::mail::{MailTransport, Smtp};
use crate::server;
use crate::server::ListenConfig;

/// Flags of `cued serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The database file; made if it does not exist [default: cued.db]
    #[arg(long, env = "CUED_DB", value_name = "FILE")]
    db: Option<PathBuf>,

    /// Address and port to listen on; port 0 takes a free one [default: 127.0.0.1:8000]
    #[arg(long, env = "CUED_LISTEN", value_name = "ADDR:PORT", value_parser = socket_address)]
    listen: Option<SocketAddr>,

    /// The address by which callers reach this server, such as https://cue.example.com
    #[arg(long, env = "CUED_PUBLIC_URL", value_name = "URL", value_parser = web_address)]
    public_url: Option<String>,

    /// For development: open registration, callbacks to public, private and loopback addresses, both unless given
    /// otherwise; listens on loopback only
    #[arg(long, env = "CUED_DEV", value_parser = BoolishValueParser::new())]
    dev: bool,

    /// A temporary database, removed at the end; implies --dev and, unless --listen is given, a free port
    #[arg(long, env = "CUED_EPHEMERAL", value_parser = BoolishValueParser::new())]
    ephemeral: bool,

    /// Time stands still at INSTANT (default: now) and moves only by POST /v1/test/clock
    #[arg(long, env = "CUED_TEST_CLOCK", value_name = "INSTANT", num_args = 0..=1, default_missing_value = "now")]
    test_clock: Option<String>,

    /// Who may register over HTTP [default: first-user]
    #[arg(long, env = "CUED_REGISTRATION", value_name = "WHO")]
    registration: Option<RegistrationArg>,

    /// Addresses that callbacks may reach: public, private, loopback or a CIDR; repeat or separate by commas
    /// [default: public]
    #[arg(long, env = "CUED_ALLOW_CALLBACKS_TO", value_name = "WHERE", value_delimiter = ',')]
    allow_callbacks_to: Vec<AllowRule>,

    /// A JSON file with the plans, in place of free, pro and scale
    #[arg(long, env = "CUED_PLANS", value_name = "FILE")]
    plans: Option<PathBuf>,

    /// The plan of a new user
    #[arg(long, env = "CUED_DEFAULT_PLAN", value_name = "NAME", default_value = "free")]
    default_plan: String,

    /// Whether the plans' limits are in force; off suits a person who runs it alone
    #[arg(long, env = "CUED_LIMITS", value_name = "ON|OFF", default_value = "on")]
    limits: OnOff,

    /// How much history is kept: how long after an execution was over, and how many executions of a cue, whichever
    /// keeps less; one of the two alone, such as 30d, 12h or 500; or off
    #[arg(long, env = "CUED_RETAIN", value_name = "AGE,NUMBER", default_value = "90d,1000")]
    retain: Retention,

    /// The most deliveries at a time
    #[arg(long, env = "CUED_DELIVERY_THREADS", value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=1024))]
    delivery_threads: u16,

    /// A PEM file of certificate authorities that callbacks may have, beside the public ones
    #[arg(long, env = "CUED_CALLBACK_CA", value_name = "FILE")]
    callback_ca: Option<PathBuf>,

    /// A reverse proxy's address or network: the caller's address is then taken from its X-Forwarded-For; repeat or
    /// separate by commas
    #[arg(long, env = "CUED_TRUST_PROXY", value_name = "CIDR", value_delimiter = ',', value_parser = network)]
    trust_proxy: Vec<Cidr>,

    /// The server for mail, smtp[s]://USER:PASSWORD@HOST:PORT with both percent-encoded; without one the links of
    /// logins go to the log
    #[arg(long, env = "CUED_SMTP_URL", value_name = "URL", hide_env_values = true, requires = "mail_from")]
    smtp_url: Option<String>,

    /// The sender of mails, such as "cued <cued@example.com>"
    #[arg(long, env = "CUED_MAIL_FROM", value_name = "ADDRESS")]
    mail_from: Option<String>,

    /// How much is logged
    #[arg(long, env = "CUED_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    log_level: LogLevelArg,

    /// How it is logged
    #[arg(long, env = "CUED_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormatArg,

    /// Address and port of a listener of its own that serves /metrics for Prometheus; needs no key, so let only the
    /// collector reach it [default: none]
    #[arg(long, env = "CUED_METRICS_LISTEN", value_name = "ADDR:PORT", value_parser = socket_address)]
    metrics_listen: Option<SocketAddr>,

    /// The most connections at a time; for one more, one that asks for nothing is closed
    #[arg(long, env = "CUED_MAX_CONNECTIONS", value_name = "N", default_value = "4096", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: u32,

    /// Stop when standard input ends: for a program that starts a server and must not leave it behind
    #[arg(long, hide = true)]
    until_input_ends: bool,

    #[command(flatten)]
    stripe: StripeFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RegistrationArg {
    /// Anyone, until one user exists
    FirstUser,
    /// Anyone
    Open,
    /// Nobody: use `cued user add`
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormatArg {
    /// Lines for people
    Text,
    /// Lines that are JSON objects
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogLevelArg {
    /// Only what is broken
    Error,
    /// And what may be
    Warn,
    /// And news
    Info,
    /// And what became of each request, delivery and mail
    Debug,
    /// Everything there is
    Trace,
}

impl Serve {
    /// Serves until a signal asks to stop.
    ///
    /// # Errors
    /// Says what stands in the way of a start, or what ended the server.
    pub fn run(self) -> Result<(), CliError> {
        let dev = self.dev || self.ephemeral;
        let listen = self.listen_on();
        if self.ephemeral
            && let Some(db) = &self.db
        {
            return Err(CliError::Usage(format!(
                "--ephemeral makes a database of its own and leaves {} alone: leave out one of --ephemeral and --db (or CUED_DB)",
                db.display()
            )));
        }
        if dev {
            for (flag, port, address) in
                [("--listen", 8000, Some(listen)), ("--metrics-listen", 9464, self.metrics_listen)]
            {
                stays_on_loopback(flag, port, address)?;
            }
        }
        let clock = self.clock()?;
        if clock.is_test() && !listen.ip().is_loopback() {
            tracing::warn!(
                "whoever reaches {listen} can move the test clock: POST /v1/test/clock needs no key"
            );
        }
        let temporary = self.ephemeral.then(server::temporary_folder).transpose()?;
        let db = match &temporary {
            Some(folder) => folder.path().join("cued.db"),
            None => self.db.clone().unwrap_or_else(|| PathBuf::from("cued.db")),
        };
        let config = self.config(db, dev)?;
        let own_url = self.public_url.is_none();
        let until_input_ends = self.until_input_ends;
        let listen = ListenConfig { api: listen, own_url, metrics: self.metrics_listen, until_input_ends };
        let served = server::run(clock, config, listen).map_err(CliError::from);
        if let Some(Err(error)) = temporary.map(TempDir::close) {
            tracing::warn!(%error, "the temporary folder cannot be removed");
        }
        served
    }

    /// How much is logged, and how.
    #[must_use]
    pub fn log(&self) -> (Level, LogFormat) {
        let format = match self.log_format {
            LogFormatArg::Text => LogFormat::Text,
            LogFormatArg::Json => LogFormat::Json,
        };
        let level = match self.log_level {
            LogLevelArg::Error => Level::ERROR,
            LogLevelArg::Warn => Level::WARN,
            LogLevelArg::Info => Level::INFO,
            LogLevelArg::Debug => Level::DEBUG,
            LogLevelArg::Trace => Level::TRACE,
        };
        (level, format)
    }

    fn listen_on(&self) -> SocketAddr {
        let port = if self.ephemeral { 0 } else { 8000 };
        self.listen.unwrap_or_else(|| SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port))
    }

    fn clock(&self) -> Result<Clock, CliError> {
        match self.test_clock.as_deref() {
            None => Ok(Clock::system()),
            Some("now") => Ok(Clock::test(None)),
            Some(text) => match text.parse::<Timestamp>() {
                Ok(instant) => Ok(Clock::test(Some(instant))),
                Err(_) => Err(CliError::Usage(format!(
                    "--test-clock {text:?} is no instant: write it as 2030-01-31T09:00:00Z"
                ))),
            },
        }
    }

    fn config(&self, db: PathBuf, dev: bool) -> Result<Config, CliError> {
        let allowed = match self.allow_callbacks_to.as_slice() {
            [] if dev => AddressPolicy::new(&[AllowRule::Public, AllowRule::Private, AllowRule::Loopback]),
            given => AddressPolicy::new(given),
        };
        let registration = match self.registration {
            None if dev => RegistrationPolicy::Open,
            None | Some(RegistrationArg::FirstUser) => RegistrationPolicy::FirstUser,
            Some(RegistrationArg::Open) => RegistrationPolicy::Open,
            Some(RegistrationArg::Closed) => RegistrationPolicy::Closed,
        };
        Ok(Config {
            public_url: self.public_url.as_deref().unwrap_or_default().trim_end_matches('/').to_owned(),
            registration,
            callbacks: allowed,
            plans: self.plans()?,
            retention: self.retain,
            stripe: self.stripe.config()?,
            delivery_threads: usize::from(self.delivery_threads),
            callback_ca: self.callback_ca.as_deref().map(read).transpose()?,
            mail: self.mail(dev)?,
            http: HttpLimits {
                max_connections: usize::try_from(self.max_connections).unwrap_or(usize::MAX),
                trusted_proxies: self.trust_proxy.clone(),
                ..HttpLimits::default()
            },
            ..Config::new(db)
        })
    }

    fn mail(&self, dev: bool) -> Result<MailTransport, CliError> {
        match (self.smtp_url.as_deref(), self.mail_from.as_deref()) {
            (Some(url), Some(from)) => Ok(MailTransport::Smtp(Box::new(
                Smtp::new(url, from).map_err(|error| CliError::Usage(error.to_string()))?,
            ))),
            _ => Ok(MailTransport::Log { stdout: dev }),
        }
    }

    fn plans(&self) -> Result<Plans, CliError> {
        let plans = plans_from(self.plans.as_deref())?
            .with_default(&self.default_plan)
            .map_err(|error| CliError::Usage(format!("--default-plan: {error}")))?;
        Ok(plans.limited(self.limits == OnOff::On))
    }
}

/// What `--dev` asks of every listener.
fn stays_on_loopback(flag: &str, port: u16, address: Option<SocketAddr>) -> Result<(), CliError> {
    match address {
        Some(address) if !address.ip().is_loopback() => Err(CliError::Usage(format!(
            "--dev listens on loopback only: give {flag} 127.0.0.1:{port} in place of {address}, or leave --dev out"
        ))),
        _ => Ok(()),
    }
}

fn network(text: &str) -> Result<Cidr, String> {
    text.parse().map_err(|_| "give an address or a network, such as 127.0.0.1 or 10.0.0.0/8".to_owned())
}

/// Reads `--listen`. `localhost` is what people write for 127.0.0.1; other names are not looked up.
fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    numeric.as_deref().unwrap_or(text).parse().map_err(|_| {
        "write an address and a port, such as 127.0.0.1:8000, 0.0.0.0:8000 (all addresses) or [::1]:8000"
            .to_owned()
    })
}

/// Reads `--public-url`: what links to this server begin with, and where callbacks reach its echo path.
fn web_address(text: &str) -> Result<String, String> {
    let is_plain = !text.contains(['?', '#']) && CallbackTarget::parse(text).is_ok();
    let wrong = || "write it as https://cue.example.com, with a path if there is one".to_owned();
    is_plain.then(|| text.to_owned()).ok_or_else(wrong)
}
