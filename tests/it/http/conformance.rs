//! The promises of the API (`src/cli/client/commands/conformance/scenarios`) against the server on a test clock.

use std::path::PathBuf;
use std::time::Duration;

use cued::cli::client::commands::conformance::receiver::Listener;
use cued::cli::client::commands::conformance::scenarios::{Runner, Server as Checked};
use cued::cli::client::commands::conformance::step::Miss;
use cued::cli::error::CliError;
use cued::client::request::{ApiRequest, ApiResponse};
use jiff::Timestamp;

use crate::support::*;

/// The client of the tests, which compares each response with the description of the API.
struct Account(Client, Client);

impl Checked for Account {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn call(&self, request: &ApiRequest) -> Result<ApiResponse, CliError> {
        let Self(user, anyone) = self;
        let client = if request.is_anonymous { anyone } else { user };
        let headers: Vec<(&str, &str)> =
            request.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let body = request.body.as_deref().unwrap_or_default();
        let response = client.call(request.method, &request.target(), &headers, body.as_bytes()).unwrap();
        let Response { status, headers, body } = response;
        Ok(ApiResponse { status, reason: "", headers, body })
    }

    fn pause(&self, duration: Duration, _: bool) -> Result<(), CliError> {
        self.0.advance(&format!("PT{}S", duration.as_secs_f64()));
        Ok(())
    }
}

/// Runs the promises on a server with a test clock, and checks that nothing is left behind. Returns the seconds that the
/// rate limit has cost.
fn run(flags: &[&str], all: bool, unseen: &[&str]) -> u64 {
    let server = Server::start(&[flags, &["--test-clock"]].concat());
    let account = Account(server.user(), server.client());
    let program = PathBuf::from(env!("CARGO_BIN_EXE_cued"));
    let listener = Listener { program, listen: "127.0.0.1:0".parse().unwrap(), url: None };
    let mut runner = Runner::new(&account, listener, "conformance", account.0.key());
    runner.run(None, all).unwrap();
    let is_kept = |miss: &Option<Miss>| match miss {
        None => true,
        Some(Miss::NotChecked(reason)) => unseen.contains(&reason.as_str()),
        Some(Miss::NoRoom(_) | Miss::Differs(_)) => false,
    };
    let broken: Vec<_> = runner.promises.iter().filter(|it| !is_kept(&it.miss)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(runner.promises.len() > 80, "{}", runner.promises.len());
    account.0.advance("PT1M");
    for (path, field) in [("/v1/cues", "cues"), ("/v1/workers", "workers"), ("/v1/alerts", "alerts")] {
        assert_eq!(account.0.get(path).expect(200)[field], json!([]), "nothing is left");
    }
    assert_eq!(account.0.get("/v1/auth/keys").expect(200)["keys"].as_array().unwrap().len(), 1);
    runner.waited.as_secs()
}

#[test]
fn the_server_keeps_every_promise() {
    run(DEV_UNLIMITED, true, &["no response with 429 came"]);
}

#[test]
fn a_free_plan_is_enough_for_the_promises_and_costs_a_minute() {
    let waited = run(&["--dev"], false, &[]);
    assert!((30..=60).contains(&waited), "{waited} s");
}
