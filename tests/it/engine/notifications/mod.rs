//! Notifications of a failure: mails, signed POSTs, alerts, and their repetition after a crash.

mod alerts;
mod dispatcher;
mod mails;
mod outages;
mod test_alerts;
mod webhooks;

use cued::domain::webhook::signature::{SigningSecrets, signature_v1, standard_signature};
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::receiver::{Delivery, Reaction, Receiver};

const START: &str = "2026-01-05T00:00:00Z";

/// A receiver that responds with 500.
fn failing() -> Receiver {
    let receiver = Receiver::start();
    receiver.react(Reaction::Status(500));
    receiver
}

/// A cue for manual runs with a single attempt.
fn hook(receiver: &Receiver, on_failure: Value) -> Value {
    json!({
        "name": "nightly", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}, "retry": {"max_attempts": 1},
        "callback": {"url": receiver.url()}, "on_failure": on_failure,
    })
}

/// The same as a worker cue.
fn work(on_failure: Value) -> Value {
    json!({
        "name": "nightly", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}, "retry": {"max_attempts": 1},
        "transport": "worker", "on_failure": on_failure,
    })
}

/// Runs a cue now and waits for everything that follows; returns the id of the execution.
fn fire(user: &Client, cue: &Value) -> String {
    let fired = user.post(&format!("/v1/cues/{}/fire", cue["id"].as_str().unwrap()), &json!({})).expect(200);
    user.settle();
    fired["execution_id"].as_str().unwrap().to_owned()
}

/// Runs a worker cue and reports an outcome.
fn report(user: &Client, cue: &Value, outcome: &Value) -> String {
    let execution = fire(user, cue);
    user.post(&format!("/v1/executions/{execution}/outcome"), outcome).expect(200);
    user.settle();
    execution
}

fn secret(user: &Client, which: &str) -> String {
    let secret = user.get(&format!("/v1/auth/{which}-secret")).expect(200);
    secret[format!("{}_secret", which.replace('-', "_"))].as_str().unwrap().to_owned()
}

/// Checks both signatures of a POST, each made with the given secrets.
#[track_caller]
fn signed(sent: &Delivery, current: &str, previous: Option<&str>) {
    let header = |name: &str| sent.header(name).unwrap();
    let seconds = header("x-cueapi-timestamp").parse().unwrap();
    assert_eq!(header("x-cueapi-signature"), signature_v1(current, seconds, &sent.body));
    let standard =
        standard_signature(SigningSecrets { current, previous }, header("webhook-id"), seconds, &sent.body);
    assert_eq!(header("webhook-signature"), standard);
    assert_eq!(header("webhook-timestamp"), header("x-cueapi-timestamp"));
    assert_eq!((header("content-type"), sent.method.as_str()), ("application/json", "POST"));
    let canonical =
        cued::domain::webhook::canonical_json::canonical(cued::domain::json::read(&sent.body).unwrap().get());
    assert_eq!(
        String::from_utf8_lossy(&sent.body),
        canonical,
        "a receiver can sign the body it parsed and serialized again"
    );
}
