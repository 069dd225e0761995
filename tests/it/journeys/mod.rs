//! The steps and observations of a user, from the first key to the last delivery, on a test clock.

mod crash;
mod deliveries;
mod evidence;
mod examples;
pub mod monitoring;
mod paging;
mod readme;
mod schedules;
mod simulated_year;
mod slow_host;
mod stops;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::receiver::{Delivery, Receiver};

fn webhook(receiver: &Receiver, schedule: Value) -> Value {
    json!({"name": "hook", "schedule": schedule, "callback": {"url": receiver.url()}, "payload": {"task": "greet"}})
}

fn worker(schedule: Value) -> Value {
    json!({"name": "work", "transport": "worker", "schedule": schedule, "payload": {"task": "greet"}})
}

fn cron(line: &str) -> Value {
    json!({"type": "recurring", "cron": line})
}

fn at(instant: &str) -> Value {
    json!({"type": "once", "at": instant})
}

fn id(cue: &Value) -> &str {
    cue["id"].as_str().unwrap()
}

fn read_cue(client: &Client, cue: &Value) -> Value {
    client.get(&format!("/v1/cues/{}", id(cue))).expect(200)
}

/// The due instants of the deliveries, in the order of arrival.
fn due_instants(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|it| it.header("x-cueapi-scheduled-for").unwrap().to_owned()).collect()
}

fn instants_of(executions: &[Value]) -> Vec<&str> {
    executions.iter().map(|it| it["scheduled_for"].as_str().unwrap()).collect()
}
