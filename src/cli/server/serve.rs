//! `cued serve`. Its flags are the entire configuration; each has an environment variable.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use clap::builder::{
    BoolishValueParser, PossibleValue, PossibleValuesParser, RangedI64ValueParser, TypedValueParser,
};
use jiff::Timestamp;
use tempfile::TempDir;
use tracing::Level;

use crate::billing::stripe::{API_BASE, StripeConfig, TIMEOUT};
use crate::cli::error::{CliError, Result, usage};
use crate::cli::server::flag_values::{
    OnOff, host_name, network, plans_from, read, socket_address, web_address,
};
use crate::clock::Clock;
use crate::config::{Config, HttpLimits};
use crate::domain::account::plan::Plans;
use crate::domain::account::user::RegistrationPolicy;
use crate::domain::billing::Prices;
use crate::domain::cue::retention::Retention;
use crate::domain::secret::Secret;
use crate::domain::webhook::address_policy::{AddressPolicy, AllowRule, Cidr};
use crate::domain::webhook::callback::CallbackTarget;
use crate::logging::LogFormat;
use crate::mail::{MailTransport, Smtp};
use crate::server::{self, ListenConfig};

/// Groups of flags in `cued serve --help`, in the order of the fields of [`Serve`].
const STORAGE: &str = "Storage";
const LISTENING: &str = "Listening";
const CALLBACKS: &str = "Callbacks";
const ACCOUNTS: &str = "Accounts and limits";
const MAIL: &str = "Mail";
const LOGGING: &str = "Logging";
const DEVELOPMENT: &str = "Development and testing";

/// The least value of `--max-buffered`: a quarter of it must hold the largest body (2 MiB) and list (contract §11.3).
const MIN_BUFFERED_MIB: i64 = 48;

// The doc comments are the help texts, in which links have no brackets.
#[allow(rustdoc::bare_urls)]
#[derive(Args)]
pub struct Serve {
    /// Database file, created if it does not exist [default: cued.db]
    #[arg(long, env = "CUED_DB", value_name = "FILE", help_heading = STORAGE)]
    db: Option<PathBuf>,

    /// History to keep: a maximum age of finished runs and a maximum number of runs per cue, whichever
    /// keeps less; either can be omitted (30d, 12h, 500), off keeps everything
    #[arg(long, env = "CUED_RETAIN", value_name = "AGE,COUNT", default_value = "90d,1000", help_heading = STORAGE)]
    retain: Retention,

    /// Start on hold, as after `cued restore`: nothing is fired, sent or claimed until `cued promote`. For a database
    /// that a replica tool restored; with this flag every start puts the database on hold
    #[arg(long, env = "CUED_HELD", value_parser = BoolishValueParser::new(), help_heading = STORAGE)]
    held: bool,

    /// Folder for the backups that an operator makes over HTTP; it must exist [default: none, they are off]
    #[arg(long, env = "CUED_BACKUP_DIR", value_name = "FOLDER", help_heading = STORAGE)]
    backup_dir: Option<PathBuf>,

    /// Address and port of the API; port 0 picks a free port [default: 127.0.0.1:8000]
    #[arg(long, env = "CUED_LISTEN", value_name = "ADDR:PORT", value_parser = socket_address, help_heading = LISTENING)]
    listen: Option<SocketAddr>,

    /// Base URL under which clients reach this server, such as https://cue.example.com; used in links and for the echo
    /// endpoint [default: http:// and the address of --listen]
    #[arg(long, env = "CUED_PUBLIC_URL", value_name = "URL", value_parser = web_address, help_heading = LISTENING)]
    public_url: Option<String>,

    /// Trust X-Forwarded-For from this reverse proxy for the client's address; repeat the flag or separate by commas
    #[arg(long, env = "CUED_TRUST_PROXY", value_name = "CIDR", value_delimiter = ',', value_parser = network, help_heading = LISTENING)]
    trust_proxy: Vec<Cidr>,

    /// Further host name to accept, needed with --dev, or on a loopback address without --public-url; repeat the flag or
    /// separate by commas
    #[arg(long, env = "CUED_ALLOW_HOST", value_name = "NAME", value_delimiter = ',', value_parser = host_name, help_heading = LISTENING)]
    allow_host: Vec<String>,

    /// Serve the page for browsers at / and its files at /ui; off serves the API only
    #[arg(long, env = "CUED_PAGE", value_name = "ON|OFF", default_value = "on", help_heading = LISTENING)]
    page: OnOff,

    /// Maximum open connections; beyond that, idle ones are closed first. One client address may open a 32nd of them, and
    /// 16 in any case
    #[arg(long, env = "CUED_MAX_CONNECTIONS", value_name = "COUNT", default_value = "4096", value_parser = number().range(1..=1_000_000), help_heading = LISTENING)]
    max_connections: usize,

    /// Memory in MiB for connections, request bodies and responses under way; one account or client address has at most
    /// a quarter
    #[arg(long, env = "CUED_MAX_BUFFERED", value_name = "MIB", default_value = "64", value_parser = number().range(MIN_BUFFERED_MIB..=65_536), help_heading = LISTENING)]
    max_buffered: usize,

    /// Maximum open event streams (GET /v1/events), at most five for a user; 0 turns them off
    #[arg(long, env = "CUED_MAX_STREAMS", value_name = "COUNT", default_value = "64", value_parser = number().range(0..=1024), help_heading = LISTENING)]
    max_streams: usize,

    /// Address and port of the Prometheus endpoint /metrics. It needs no API key, so expose it only to your collector
    /// [default: off]
    #[arg(long, env = "CUED_METRICS_LISTEN", value_name = "ADDR:PORT", value_parser = socket_address, help_heading = LISTENING)]
    metrics_listen: Option<SocketAddr>,

    /// Addresses that callbacks may reach: public, private, loopback or a CIDR block; repeat the flag or separate by
    /// commas [default: public]
    #[arg(long, env = "CUED_ALLOW_CALLBACKS_TO", value_name = "CLASS|CIDR", value_delimiter = ',', help_heading = CALLBACKS)]
    allow_callbacks_to: Vec<AllowRule>,

    /// PEM file with extra certificates to trust for callbacks: authorities, or servers' own that sign themselves
    #[arg(long, env = "CUED_CALLBACK_CA", value_name = "FILE", help_heading = CALLBACKS)]
    callback_ca: Option<PathBuf>,

    /// Maximum number of deliveries in progress, 1 to 1024
    #[arg(long, env = "CUED_DELIVERY_THREADS", value_name = "COUNT", default_value = "64", value_parser = number().range(1..=1024), help_heading = CALLBACKS)]
    delivery_threads: usize,

    /// Registration over HTTP; without this flag, an operator may change it [default: first-user]
    #[arg(long, env = "CUED_REGISTRATION", value_name = "POLICY", value_parser = registration(), help_heading = ACCOUNTS)]
    registration: Option<RegistrationPolicy>,

    /// JSON file with the plans and their limits (cues, executions, requests_per_minute, storage_mb); replaces free,
    /// pro and scale
    #[arg(long, env = "CUED_PLANS", value_name = "FILE", help_heading = ACCOUNTS)]
    plans: Option<PathBuf>,

    /// Plan of a new user
    #[arg(long, env = "CUED_DEFAULT_PLAN", value_name = "PLAN", default_value = "free", help_heading = ACCOUNTS)]
    default_plan: String,

    /// Enforce the limits of the plans, and those of accounts with unconfirmed addresses; off suits a server with a
    /// single user. Two bounds remain, on cues and storage
    #[arg(long, env = "CUED_LIMITS", value_name = "ON|OFF", default_value = "on", help_heading = ACCOUNTS)]
    limits: OnOff,

    /// Mail server: smtps://USER:PASSWORD@HOST:PORT (TLS) or smtp://... (STARTTLS); percent-encode user and password.
    /// smtp://HOST?tls=none needs no TLS, nor does a server on this machine. Without a mail server, sign-in links are
    /// written to the log
    #[arg(long, env = "CUED_SMTP_URL", value_name = "URL", hide_env_values = true, requires = "mail_from", help_heading = MAIL)]
    smtp_url: Option<Secret>,

    /// Sender of mails, such as "cued <cued@example.com>"
    #[arg(long, env = "CUED_MAIL_FROM", value_name = "ADDRESS", help_heading = MAIL)]
    mail_from: Option<String>,

    /// Maximum mails in any hour, all together; half of them are for logins. Beyond that, failure mails wait and logins
    /// are refused
    #[arg(long, env = "CUED_MAX_MAILS", value_name = "COUNT", default_value = "200", value_parser = number().range(2..=1_000_000), help_heading = MAIL)]
    max_mails: usize,

    /// Log level on standard error; each level includes those above it
    #[arg(long, env = "CUED_LOG_LEVEL", value_name = "LEVEL", default_value = "info", value_parser = log_level(), help_heading = LOGGING)]
    log_level: Level,

    /// Format of the log
    #[arg(long, env = "CUED_LOG_FORMAT", value_name = "FORMAT", default_value = "text", help_heading = LOGGING)]
    log_format: LogFormat,

    /// Development mode: open registration, callbacks to public, private and loopback addresses (both unless set by
    /// their own flags), and listening on loopback only
    #[arg(long, env = "CUED_DEV", value_parser = BoolishValueParser::new(), help_heading = DEVELOPMENT)]
    dev: bool,

    /// Use a temporary database and delete it on exit; implies --dev and, without --listen, a free port
    #[arg(long, env = "CUED_EPHEMERAL", value_parser = BoolishValueParser::new(), help_heading = DEVELOPMENT)]
    ephemeral: bool,

    /// Freeze time at TIMESTAMP, such as 2030-01-31T09:00:00Z (default: now); only POST /v1/test/clock advances it
    #[arg(long, env = "CUED_TEST_CLOCK", value_name = "TIMESTAMP", num_args = 0..=1, default_missing_value = "now", help_heading = DEVELOPMENT)]
    test_clock: Option<String>,

    #[command(flatten)]
    stripe: StripeFlags,
}

fn number() -> RangedI64ValueParser<usize> {
    RangedI64ValueParser::new()
}

fn registration() -> impl TypedValueParser<Value = RegistrationPolicy> {
    let policies = [
        PossibleValue::new("first-user").help("Anyone, until the first user exists"),
        PossibleValue::new("open").help("Anyone"),
        PossibleValue::new("closed").help("Nobody; add users with `cued user add`"),
    ];
    let parse = |word: String| RegistrationPolicy::parse(&word).ok_or("there is no such policy");
    PossibleValuesParser::new(policies).try_map(parse)
}

fn log_level() -> impl TypedValueParser<Value = Level> {
    let levels = [
        PossibleValue::new("error").help("Errors only"),
        PossibleValue::new("warn").help("Plus warnings"),
        PossibleValue::new("info").help("Plus notable events"),
        PossibleValue::new("debug").help("Plus every request, delivery and mail"),
        PossibleValue::new("trace").help("Everything"),
    ];
    PossibleValuesParser::new(levels).try_map(|level| level.parse::<Level>())
}

impl Serve {
    /// Runs the server until SIGTERM or SIGINT.
    pub fn run(self) -> Result {
        let dev = self.dev || self.ephemeral;
        let listen = self.listen_address();
        if self.ephemeral
            && let Some(db) = &self.db
        {
            return Err(usage(format!(
                "--ephemeral uses a temporary database and cannot be combined with --db {}: remove one of the two (or \
                 unset CUED_DB)",
                db.display()
            )));
        }
        if self.ephemeral && self.held {
            return Err(usage(
                "--ephemeral has a new database with nothing to hold: remove it or --held (CUED_HELD)",
            ));
        }
        if dev {
            // `--dev` opens registration and callbacks to everyone who reaches the server.
            for (flag, port, address) in
                [("--listen", 8000, Some(listen)), ("--metrics-listen", 9464, self.metrics_listen)]
            {
                if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
                    return Err(usage(format!(
                        "--dev listens on loopback only: use {flag} 127.0.0.1:{port} instead of {address}, or remove \
                         --dev"
                    )));
                }
            }
        }
        let clock = self.clock()?;
        if clock.is_test() && !listen.ip().is_loopback() {
            tracing::warn!(
                address = %listen,
                "the test clock is exposed: POST /v1/test/clock needs no API key, so anyone who reaches this address \
                 can advance it"
            );
        }
        // No reason to stop a scheduler: the disk may be mounted later.
        if let Some(folder) = self.backup_dir.as_ref().filter(|folder| !folder.is_dir()) {
            tracing::warn!(folder = %folder.display(), "--backup-dir is no folder: backups will fail until it exists");
        }
        let temporary = self.ephemeral.then(server::temporary_folder).transpose()?;
        let db = match &temporary {
            Some(folder) => folder.path().join("cued.db"),
            None => self.db.clone().unwrap_or_else(|| PathBuf::from("cued.db")),
        };
        let config = self.config(db, dev)?;
        let own_url = self.public_url.is_none();
        let listen = ListenConfig { api: listen, own_url, metrics: self.metrics_listen };
        let served = server::run(clock, config, listen).map_err(CliError::from);
        if let Some(Err(error)) = temporary.map(TempDir::close) {
            tracing::warn!(%error, "the temporary folder cannot be removed");
        }
        served
    }

    pub fn log_options(&self) -> (Level, LogFormat) {
        (self.log_level, self.log_format)
    }

    fn listen_address(&self) -> SocketAddr {
        let port = if self.ephemeral { 0 } else { 8000 };
        self.listen.unwrap_or_else(|| SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port))
    }

    fn clock(&self) -> Result<Clock> {
        match self.test_clock.as_deref() {
            None => Ok(Clock::system()),
            Some("now") => Ok(Clock::test(None)),
            Some(text) => match text.parse::<Timestamp>() {
                Ok(at) => Ok(Clock::test(Some(at))),
                Err(_) => Err(usage(format!(
                    "--test-clock {text:?} is not a timestamp: write it as 2030-01-31T09:00:00Z"
                ))),
            },
        }
    }

    fn config(&self, db: PathBuf, dev: bool) -> Result<Config> {
        let allowed = match self.allow_callbacks_to.as_slice() {
            [] if dev => {
                AddressPolicy::new(&[AllowRule::Public, AllowRule::Private, AllowRule::Loopback])
            }
            given => AddressPolicy::new(given),
        };
        Ok(Config {
            public_url: self
                .public_url
                .as_deref()
                .unwrap_or_default()
                .trim_end_matches('/')
                .to_owned(),
            held: self.held,
            has_public_url: self.public_url.is_some(),
            dev,
            registration: self.registration.or(dev.then_some(RegistrationPolicy::Open)),
            backup_dir: self.backup_dir.clone(),
            callbacks: allowed,
            plans: self.plans()?.trusting_unconfirmed(dev),
            retention: self.retain,
            stripe: self.stripe.config()?,
            delivery_threads: self.delivery_threads,
            callback_ca: self.callback_ca.as_deref().map(read).transpose()?,
            mail: self.mail(dev)?,
            max_mails: self.max_mails,
            http: HttpLimits {
                allowed_hosts: self.allowed_hosts(dev),
                max_buffered: self.max_buffered.saturating_mul(1 << 20),
                max_connections: self.max_connections,
                max_streams: self.max_streams,
                page: self.page == OnOff::On,
                trusted_proxies: self.trust_proxy.clone(),
                ..HttpLimits::default()
            },
            ..Config::new(db)
        })
    }

    /// On a developer's machine, web pages must not reach the server under a name of their own. A server with a public
    /// URL is behind a proxy or on a network, where any name may lead to it.
    fn allowed_hosts(&self, dev: bool) -> Option<Vec<String>> {
        let listen = self.listen_address().ip();
        let is_local = dev || (listen.is_loopback() && self.public_url.is_none());
        let public = self.public_url.as_deref().and_then(|url| CallbackTarget::parse(url).ok());
        let addresses = public.map(|target| target.host).into_iter().chain([listen.to_string()]);
        let bracketed =
            addresses.map(|host| if host.contains(':') { format!("[{host}]") } else { host });
        is_local.then(|| self.allow_host.iter().cloned().chain(bracketed).collect())
    }

    fn mail(&self, dev: bool) -> Result<MailTransport> {
        match (self.smtp_url.as_ref(), self.mail_from.as_deref()) {
            (Some(url), Some(from)) => Ok(MailTransport::Smtp(Box::new(
                Smtp::new(url.expose(), from).map_err(|error| usage(error.to_string()))?,
            ))),
            _ => Ok(MailTransport::Log { stdout: dev }),
        }
    }

    fn plans(&self) -> Result<Plans> {
        let plans = plans_from(self.plans.as_deref())?
            .with_default(&self.default_plan)
            .map_err(|error| usage(format!("--default-plan: {error}")))?;
        Ok(plans.limited(self.limits == OnOff::On))
    }
}

/// Stripe account. Without these flags, users request plans and the operator decides with `cued billing`.
#[derive(Args)]
#[command(
    next_help_heading = "Billing with Stripe (set all or none; without it see `cued billing`)"
)]
pub struct StripeFlags {
    /// Secret API key of the Stripe account; prefer the environment variable, which `ps` does not show
    #[arg(long, env = "CUED_STRIPE_SECRET_KEY", value_name = "KEY", hide_env_values = true)]
    stripe_secret_key: Option<String>,

    /// Signing secret of the webhook endpoint PUBLIC-URL/v1/billing/webhook
    #[arg(long, env = "CUED_STRIPE_WEBHOOK_SECRET", value_name = "SECRET", hide_env_values = true)]
    stripe_webhook_secret: Option<String>,

    /// Price id of plan pro, billed monthly
    #[arg(long, env = "CUED_STRIPE_PRICE_PRO_MONTHLY", value_name = "PRICE_ID")]
    stripe_price_pro_monthly: Option<String>,

    /// Price id of plan pro, billed annually
    #[arg(long, env = "CUED_STRIPE_PRICE_PRO_ANNUAL", value_name = "PRICE_ID")]
    stripe_price_pro_annual: Option<String>,

    /// Price id of plan scale, billed monthly
    #[arg(long, env = "CUED_STRIPE_PRICE_SCALE_MONTHLY", value_name = "PRICE_ID")]
    stripe_price_scale_monthly: Option<String>,

    /// Price id of plan scale, billed annually
    #[arg(long, env = "CUED_STRIPE_PRICE_SCALE_ANNUAL", value_name = "PRICE_ID")]
    stripe_price_scale_annual: Option<String>,

    /// Base URL of Stripe's API, to use a test double
    #[arg(long, env = "CUED_STRIPE_API_BASE", value_name = "URL", default_value = API_BASE)]
    stripe_api_base: String,
}

impl StripeFlags {
    /// Returns the configuration, or `None` if no flag is given.
    pub fn config(&self) -> Result<Option<StripeConfig>> {
        let flags = [
            ("--stripe-secret-key", &self.stripe_secret_key),
            ("--stripe-webhook-secret", &self.stripe_webhook_secret),
            ("--stripe-price-pro-monthly", &self.stripe_price_pro_monthly),
            ("--stripe-price-pro-annual", &self.stripe_price_pro_annual),
            ("--stripe-price-scale-monthly", &self.stripe_price_scale_monthly),
            ("--stripe-price-scale-annual", &self.stripe_price_scale_annual),
        ];
        // Some tools, such as Docker Compose, pass an unset variable as an empty one.
        let given =
            flags.map(|(_, value)| value.as_deref().map(str::trim).filter(|text| !text.is_empty()));
        let api_base = self.stripe_api_base.trim_end_matches('/');
        if given.iter().all(Option::is_none) && api_base == API_BASE {
            return Ok(None);
        }
        let [Some(secret_key), Some(webhook_secret), Some(pm), Some(pa), Some(sm), Some(sa)] =
            given
        else {
            let flags = flags.iter().zip(given).filter(|(_, given)| given.is_none());
            let missing: Vec<&str> = flags.map(|((name, _), _)| *name).collect();
            return Err(usage(format!(
                "the configuration of Stripe is incomplete: add {}, or remove all --stripe-* flags and CUED_STRIPE_* \
                 variables to use manual billing",
                missing.join(", ")
            )));
        };
        if !api_base.starts_with("https://") && !api_base.starts_with("http://") {
            return Err(usage(format!(
                "--stripe-api-base {api_base:?} is not an http or https URL"
            )));
        }
        let prices = Prices::new([pm, pa, sm, sa].map(str::to_owned)).ok_or_else(|| {
            usage("two --stripe-price-* flags have the same id: each plan and interval needs its own price")
        })?;
        Ok(Some(StripeConfig {
            secret_key: secret_key.to_owned().into(),
            webhook_secret: webhook_secret.to_owned().into(),
            prices,
            api_base: api_base.to_owned(),
            timeout: TIMEOUT,
        }))
    }
}
