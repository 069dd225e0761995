//! First and last pages of the execution list, with a history of a million.

use std::time::Instant;

use rusqlite::Connection;
use serde_json::json;

use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server};
use crate::{median, milliseconds, row};

const EXECUTIONS: i64 = 1_000_000;
const PAGE: i64 = 50;
const ROUNDS: usize = 5;

pub fn history() {
    let mut server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let cue = user.create(&json!({
        "name": "hook", "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
        "callback": {"url": "http://127.0.0.1:9/"}, "payload": {"task": "report"},
    }));
    assert_eq!(server.stop(), Some(0));
    insert_executions(&server.sqlite());
    server.restart();
    let user = user.at(server.addr());
    let of_cue = |offset: i64| {
        format!("/v1/cues/{}?execution_limit={PAGE}&execution_offset={offset}", cue["id"].as_str().unwrap())
    };
    let list = |filter: &str, offset: i64| format!("/v1/executions?limit={PAGE}&offset={offset}{filter}");
    let last = EXECUTIONS - PAGE;
    pages(&user, "all", &list("", 0), &list("", last / 2), &list("", last));
    let failed = EXECUTIONS / 1_000 - PAGE;
    let filter = "&status=failed";
    pages(
        &user,
        "one status in a thousand",
        &list(filter, 0),
        &list(filter, failed / 2),
        &list(filter, failed),
    );
    pages(&user, "of one cue", &of_cue(0), &of_cue(last / 2), &of_cue(last));
}

fn pages(user: &Client, what: &str, first: &str, middle: &str, last: &str) {
    let took = |path: &str| {
        let times: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let began = Instant::now();
                user.get(path).expect(200);
                began.elapsed()
            })
            .collect();
        median(&times)
    };
    let (first, middle, last) = (took(first), took(middle), took(last));
    let figures = [first, middle, last].map(milliseconds).join(" / ");
    row(&format!("history of a million, {what}: first / middle / last page"), figures);
    row("history: last page to first", format!("{:.1}", last.as_secs_f64() / first.as_secs_f64()));
}

/// Finished deliveries as the engine stores them.
fn insert_executions(file: &Connection) {
    file.execute_batch(&format!(
        "BEGIN;
         WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {EXECUTIONS})
         INSERT INTO executions (id, cue_key, user_key, transport, status, destination_hash, scheduled_for,
                                 triggered_by, payload_key, attempts, started_at, last_attempt_at, delivered_at,
                                 http_status, response_body, created_at, updated_at)
         SELECT unhex(printf('%012x7000b000%012x', n, n)), 1, 1, 'webhook', iif(n % 1000 = 0, 'failed', 'success'), 1,
                n, 'schedule', 1, 1, n, n, n, 200, 'ok', n, n FROM numbers;
         COMMIT; PRAGMA wal_checkpoint(TRUNCATE)"
    ))
    .unwrap();
}
