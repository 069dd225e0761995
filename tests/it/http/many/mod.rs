//! Actions on a waiting execution, and on many cues and executions at once.

mod bulk_bounds;
mod bulk_cues;
mod bulk_faults;
mod bulk_replays;
mod waiting;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::server::Server;

const START: &str = "2026-01-05T09:00:00Z";

fn id(object: &Value) -> &str {
    object["id"].as_str().unwrap()
}

/// A worker cue that runs at the beginning of a year.
fn worker_cue(name: &str) -> Value {
    json!({"name": name, "transport": "worker", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}})
}

/// A cue that is sent to `url` at the beginning of a year.
fn webhook_cue(url: &str) -> Value {
    json!({"name": "hook", "callback": {"url": url}, "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
           "retry": {"max_attempts": 3, "backoff_minutes": [60]}})
}

fn fire(user: &Client, cue: &Value) -> String {
    let fired = user.post(&format!("/v1/cues/{}/fire", id(cue)), &json!({})).expect(200);
    id(&fired).to_owned()
}

fn execution(user: &Client, id: &str) -> Value {
    user.get(&format!("/v1/executions/{id}")).expect(200)
}

fn status_of(user: &Client, cue: &Value) -> Value {
    user.get(&format!("/v1/cues/{}", id(cue))).expect(200)["status"].clone()
}

/// Worker executions that failed, oldest first.
fn failed_runs(user: &Client, cue: &Value, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| {
            let id = fire(user, cue);
            user.post(&format!("/v1/executions/{id}/outcome"), &json!({"success": false})).expect(200);
            id
        })
        .collect()
}

/// Adds copies of the first execution.
fn copy_failed(server: &Server, count: i64) {
    server
        .sqlite()
        .execute(
            "WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < ?1)
             INSERT INTO executions (id, cue_key, user_key, transport, status, scheduled_for, triggered_by, payload_key,
                                     attempts, created_at, updated_at)
             SELECT randomblob(16), cue_key, user_key, transport, status, scheduled_for, triggered_by, payload_key,
                    attempts, created_at, updated_at
               FROM number, (SELECT * FROM executions ORDER BY key LIMIT 1)",
            [count],
        )
        .unwrap();
}
