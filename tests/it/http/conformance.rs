//! The promises of the API (`src/cli/client/commands/conformance/scenarios`) against the server on a test clock.

use std::cell::Cell;
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
struct Account {
    user: Client,
    anyone: Client,
    /// Before the first request with this text others use up the rate.
    hurry_before: Cell<Option<&'static str>>,
}

impl Account {
    fn of(server: &Server) -> Self {
        Self { user: server.user(), anyone: server.client(), hurry_before: Cell::default() }
    }
}

impl Checked for Account {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn call(&self, request: &ApiRequest) -> Result<ApiResponse, CliError> {
        let client = if request.is_anonymous { &self.anyone } else { &self.user };
        let headers: Vec<(&str, &str)> =
            request.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        let body = request.body.as_deref().unwrap_or_default();
        if self.hurry_before.get().is_some_and(|text| body.contains(text)) {
            self.hurry_before.set(None);
            while self.user.get("/v1/cues").status != 429 {}
        }
        let response =
            client.call(request.method, &request.target(), &headers, body.as_bytes()).unwrap();
        let Response { status, headers, body } = response;
        Ok(ApiResponse { status, reason: "", headers, body })
    }

    fn pause(&self, duration: Duration, _: bool) -> Result<(), CliError> {
        self.user.advance(&format!("PT{}S", duration.as_secs_f64()));
        Ok(())
    }
}

fn runner(account: &Account) -> Runner<'_> {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_cued"));
    let listener = Listener { program, listen: "127.0.0.1:0".parse().unwrap(), url: None };
    Runner::new(account, listener, "conformance", account.user.key())
}

/// Runs the promises on a server with a test clock, and checks that nothing is left behind. Returns the seconds that the
/// rate limit has cost.
fn run(flags: &[&str], all: bool, unseen: &[&str]) -> u64 {
    let server = Server::start(&[flags, &["--test-clock"]].concat());
    let account = Account::of(&server);
    let mut runner = runner(&account);
    runner.run(None, all).unwrap();
    let is_kept = |miss: &Option<Miss>| match miss {
        None => true,
        Some(Miss::NotChecked(reason)) => unseen.contains(&reason.as_str()),
        Some(Miss::NoRoom(_) | Miss::Differs(_)) => false,
    };
    let broken: Vec<_> = runner.promises.iter().filter(|it| !is_kept(&it.miss)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(runner.promises.len() > 80, "{}", runner.promises.len());
    account.user.advance("PT1M");
    for (path, field) in
        [("/v1/cues", "cues"), ("/v1/workers", "workers"), ("/v1/alerts", "alerts")]
    {
        assert_eq!(account.user.get(path).expect(200)[field], json!([]), "nothing is left");
    }
    assert_eq!(account.user.get("/v1/auth/keys").expect(200)["keys"].as_array().unwrap().len(), 1);
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

#[test]
fn an_instant_is_a_later_one_after_a_pause_for_the_rate() {
    let server = Server::start(&["--dev", "--test-clock"]);
    let account = Account::of(&server);
    account.hurry_before.set(Some("\"once\""));
    let mut runner = runner(&account);
    runner.run(Some("instant runs at it"), false).unwrap();
    assert_eq!(account.hurry_before.get(), None);
    assert!(runner.waited > Duration::from_secs(6), "{:?}", runner.waited);
    let missed: Vec<_> = runner.promises.iter().filter(|it| it.miss.is_some()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
