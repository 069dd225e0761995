//! `cued health` and `cued info`: the state of the server, its version and its public settings. They need no key.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::cli::client::command::{Call, ClientAction};
use crate::cli::client::context::{ClientArgs, Context, SERVER_URL, environment, target};
use crate::cli::client::forms::{Form, Lines, details};
use crate::cli::error::{CliError, Result, failed};
use crate::cli::output::print_line;
use crate::cli::output::table::{Cell, span, status, text_of};
use crate::cli::progress::size;
use crate::cli::server::flag_values::socket_address;
use crate::client::credentials::Target;
use crate::client::request::{ApiRequest, ClientError};

const HEALTH: Lines = &[
    ("server", Form::Shown(url)),
    ("version", Form::Text("version")),
    ("status", Form::Status("status")),
    ("database", Form::Status("services.database")),
    ("cache", Form::Cell(|_, health| unless_ok(health, "services.cache"))),
    ("scheduler", Form::Cell(|_, health| unless_ok(health, "services.poller"))),
    ("behind until", Form::Time("clock_behind_until")),
    ("held since", Form::Time("held_since")),
    ("up for", Form::Of(|health| seconds(&health["uptime_seconds"]))),
    ("workers", Form::Text("workers.active_count")),
    ("to deliver", Form::Text("queue.pending_outbox")),
    ("to retry", Form::Text("queue.pending_retries")),
    ("to claim", Form::Of(unclaimed)),
    ("stuck", Form::Text("queue.stale_executions")),
    ("lateness", Form::Template("{lateness.p50_ms:took} (median), {lateness.p99_ms:took} (99 %)")),
    ("file", Form::Of(|health| file(&health["database"]))),
    ("free disk", Form::Bytes("database.free_disk_bytes")),
];

const INFO: Lines = &[
    ("server", Form::Shown(url)),
    ("version", Form::Text("version")),
    ("registration", Form::Words("registration")),
    ("mail", Form::Words("mail")),
    ("billing", Form::Text("billing")),
    ("limits", Form::Of(|info| either(&info["limits"], "those of the plans", "off"))),
    ("callbacks", Form::List("callbacks")),
    ("test clock", Form::Of(|info| either(&info["test_clock"], "yes", "no"))),
];

/// For a whole local check: shorter than the usual limit of health checks, so that its sentence is recorded.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(4);

/// The port of `cued serve` without `--listen`.
const DEFAULT_PORT: u16 = 8000;

/// Show the state of the server; exits with 1 if it is not healthy
///
/// In a container without a shell and curl, `cued health --local` is the health check: it prints `healthy`, or one
/// sentence that says what is wrong.
#[derive(Debug, Args)]
pub struct Health {
    /// Check the server of this machine, for the health check of a container: one line of output, one attempt, exit
    /// code 0 or 1. Reads no credentials file
    #[arg(long, conflicts_with_all = [SERVER_URL, "profile", "curl"])]
    local: bool,

    /// The address and port that the server was given [default: CUED_LISTEN, or 127.0.0.1:8000]
    #[arg(long, value_name = "ADDR:PORT", requires = "local", value_parser = socket_address)]
    listen: Option<SocketAddr>,
}

impl ClientAction for Health {
    fn target(&self, args: &ClientArgs) -> Result<Target> {
        if !self.local {
            return target(args);
        }
        let url = local_url(self.listen_address()?)?;
        Ok(Target { url, ca: environment("CUED_CA").map(Into::into), ..Target::default() })
    }

    fn run(self, context: &Context) -> Result {
        let request = ApiRequest::get("/health").anonymous();
        let answer = if self.local {
            context.client.send_once(&request.timeout(LOCAL_TIMEOUT)).map_err(local_error)?
        } else {
            context.send(&request)?
        };
        let health = answer.value()?;
        let is_healthy = health["status"] == "healthy";
        if !self.local || context.output.format.is_for_programs() {
            context.output.object(&answer, "status", |health| details(HEALTH, context, health))?;
        } else if is_healthy {
            print_line("healthy")?;
        }
        if is_healthy {
            return Ok(());
        }
        Err(failed(format!("the server is not healthy: {}", causes(&health).join("; "))))
    }
}

impl Health {
    /// The address of the server, found as the server finds it.
    fn listen_address(&self) -> Result<SocketAddr> {
        match (self.listen, environment("CUED_LISTEN")) {
            (Some(address), _) => Ok(address),
            // No wrong usage of this command: a health check has the exit codes 0 and 1 only.
            (None, Some(text)) => socket_address(&text)
                .map_err(|error| failed(format!("CUED_LISTEN: {text:?}: {error}"))),
            (None, None) => Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT))),
        }
    }
}

/// The URL at which this machine reaches a server that listens on `address`.
fn local_url(address: SocketAddr) -> Result<String> {
    if address.port() == 0 {
        let reason = "port 0 names no server: use --listen with the address of the line `cued listening on …`";
        return Err(failed(reason));
    }
    // A socket of [::] accepts IPv4 as well, and a container without IPv6 has no [::1].
    let ip = if address.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address.ip() };
    Ok(format!("http://{}", SocketAddr::new(ip, address.port())))
}

/// A failure whose remedy names the flags of `--local`. A refusal has the exit code of any failure: who runs health
/// checks knows no other.
fn local_error(error: ClientError) -> CliError {
    match error {
        ClientError::Unreachable { url, .. } | ClientError::NotCued { url, .. } => failed(format!(
            "no server answers at {url}: is `cued serve` running, and is this its address? (--listen or CUED_LISTEN)"
        )),
        other => failed(other.to_string()),
    }
}

/// The reasons for which a server is not healthy, each with its remedy.
fn causes(health: &Value) -> Vec<String> {
    let of = |name: &str| match (name, text_of(health, name).as_str()) {
        (_, "ok" | "") => String::new(),
        (_, "damaged" | "clock_ahead" | "clock_behind") => text_of(health, "reason"),
        (_, "not writable") => {
            "the database cannot be written: its disk is full or failing".to_owned()
        }
        (_, "held") => "held: a restored copy fires no cue until you run `cued promote`".to_owned(),
        ("services.database", "down") => {
            "the database cannot be read: see the log of the server".to_owned()
        }
        (_, "down") => {
            "the scheduler has made no pass for 30 s: see the log of the server".to_owned()
        }
        ("services.database", other) => format!("the database is {other:?}"),
        (_, other) => format!("the scheduler is {other:?}"),
    };
    let causes = ["services.database", "services.poller"].map(of);
    let causes: Vec<String> = causes.into_iter().filter(|cause| !cause.is_empty()).collect();
    if causes.is_empty() { vec![text_of(health, "status")] } else { causes }
}

fn url(context: &Context, _: &Value) -> String {
    context.target.url.clone()
}

fn unless_ok(health: &Value, field: &str) -> Cell {
    match text_of(health, field) {
        word if word == "ok" => Cell::default(),
        word => status(&word),
    }
}

fn unclaimed(health: &Value) -> String {
    let count = text_of(health, "queue.pending_worker_claims");
    match seconds(&health["queue"]["oldest_pending_claim_seconds"]) {
        oldest if oldest.is_empty() || count == "0" => count,
        oldest => format!("{count}, the first for {oldest}"),
    }
}

fn seconds(value: &Value) -> String {
    value.as_i64().map(|seconds| span(seconds.saturating_mul(1_000))).unwrap_or_default()
}

/// With the write-ahead log, as on the page.
fn file(database: &Value) -> String {
    let log = database["wal_bytes"].as_u64().unwrap_or(0);
    database["bytes"].as_u64().map(|bytes| size(bytes.saturating_add(log))).unwrap_or_default()
}

fn either(value: &Value, yes: &str, no: &str) -> String {
    if value == true { yes } else { no }.to_owned()
}

pub fn info(call: &Call<'_>) -> Result {
    let context = call.context;
    let answer = context.send(&ApiRequest::get("/v1/info").anonymous())?;
    context.output.object(&answer, "version", |info| details(INFO, context, info))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_state_that_is_not_healthy_has_a_sentence() {
        for (database, poller, sentence) in [
            ("ok", "held", "held: a restored copy fires no cue until you run `cued promote`"),
            ("ok", "down", "the scheduler has made no pass for 30 s: see the log of the server"),
            ("ok", "clock_behind", "stop cued"),
            ("damaged", "ok", "stop cued"),
            (
                "not writable",
                "held",
                "the database cannot be written: its disk is full or failing; held: ",
            ),
            ("down", "ok", "the database cannot be read"),
            ("ok", "ok", "degraded"),
            ("locked", "ok", "the database is \"locked\""),
        ] {
            let services = json!({"database": database, "poller": poller});
            let health = json!({"status": "degraded", "reason": "stop cued", "services": services});
            let causes = causes(&health).join("; ");
            assert!(causes.starts_with(sentence), "{database}, {poller}: {causes}");
        }
    }
}
