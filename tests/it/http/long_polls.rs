//! Long polls of `GET /v1/executions/claimable`: revoked keys, disabled accounts, their number.

use std::time::Duration;

use serde_json::json;

use crate::support::api::{Api, PendingResponse, User};
use crate::support::fixture::Fixture;
use crate::support::server::until;

const POLL: &str = "/v1/executions/claimable?wait=30";

/// Starts a long poll of a new user. Its key has been checked when this returns: the request has counted.
fn admitted_poll(api: &Api, user: &User) -> PendingResponse {
    let poll = api.poll(user, POLL);
    // The poll, and the request that precedes it.
    let mut requests = 2;
    until("the poll is admitted", || {
        requests += 1;
        let usage = user.get("/v1/usage").expect(200);
        (usage["rate_limit"]["current_usage"] == requests).then_some(())
    });
    poll
}

#[test]
fn a_revoked_key_gets_no_work_from_its_open_long_poll() {
    let api = Api::start();
    let ada = api.user("ada");
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    let poll = admitted_poll(&api, &ada);
    let user = ada.key;
    api.fixture.write(move |tx| tx.execute("DELETE FROM api_keys WHERE user_key = ?1", [user]).unwrap());
    api.fixture.run(&cue, json!({}));
    poll.wait().expect_error(401, "invalid_api_key");
}

#[test]
fn a_long_poll_ends_soon_after_its_account_is_disabled() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let (poll, begun) = (admitted_poll(&api, &ada), api.fixture.app.clock.monotonic());
    let user = ada.key;
    api.fixture
        .write(move |tx| tx.execute("UPDATE users SET disabled_at = 0 WHERE key = ?1", [user]).unwrap());
    // Work of others does not put off the check.
    let cue = api.fixture.worker_cue(eve.key, |_| ());
    while !poll.has_come() {
        api.fixture.run(&cue, json!({}));
        std::thread::park_timeout(Duration::from_millis(500));
    }
    poll.wait().expect_error(401, "invalid_api_key");
    let waited = api.fixture.app.clock.monotonic() - begun;
    assert!(waited < Duration::from_secs(25), "{waited:?}: ended by the check, not by the end of its wait");
}

#[test]
fn an_account_has_at_most_twenty_long_polls() {
    let mut api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let polls: Vec<_> = (0..20).map(|_| api.poll(&ada, POLL)).collect();
    let refused = ada.get(POLL);
    refused.expect_error(429, "rate_limit_exceeded");
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert!(refused.text().contains("20 long polls"), "{}", refused.text());
    ada.get("/v1/executions/claimable").expect(200);
    let other = api.poll(&eve, POLL);
    // A poll that ends makes room.
    let cue = api.fixture.worker_cue(ada.key, |_| ());
    api.fixture.run(&cue, json!({}));
    for poll in polls {
        poll.wait().expect(200);
    }
    ada.get(POLL).expect(200);
    api.stop();
    other.wait().expect(200);
}

#[test]
fn without_limits_the_number_of_long_polls_is_free() {
    let unlimited = Fixture::with_config(cued::clock::Clock::test(None), |config| {
        config.plans = config.plans.clone().limited(false);
    });
    let mut api = Api::from_fixture(unlimited);
    let ada = api.user("ada");
    let polls: Vec<_> = (0..25).map(|_| api.poll(&ada, POLL)).collect();
    api.stop();
    for poll in polls {
        poll.wait().expect(200);
    }
}
