//! Maintenance of the file: backup, restore, hold, check.

mod backup;
mod check;
mod empty_file;
mod full_disk;
mod hold;
mod replicas;
mod restore;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::json;

use crate::cli::administration::ok;
use crate::support::client::Client;
use crate::support::server::{Server, until};

pub const BEGIN: &str = "2026-01-01T10:30:00Z";

/// A worker cue that runs every hour.
pub fn work(user: &Client) -> String {
    id(&user.create(&json!({"name": "work", "transport": "worker",
                            "schedule": {"type": "recurring", "cron": "0 * * * *"}})))
}

/// A cue that calls `url` every hour, with a single attempt.
pub fn hook(user: &Client, url: &str) -> String {
    id(&user.create(&json!({"name": "hook", "callback": {"url": url}, "retry": {"max_attempts": 1},
                            "schedule": {"type": "recurring", "cron": "0 * * * *"}})))
}

fn id(cue: &serde_json::Value) -> String {
    cue["id"].as_str().unwrap().to_owned()
}

/// Fires a cue; returns the id of the execution.
pub fn fire(user: &Client, cue: &str) -> String {
    let run = user.post(&format!("/v1/cues/{cue}/fire"), &json!({})).expect(200);
    run["execution_id"].as_str().unwrap().to_owned()
}

/// Reports a success of a worker execution.
pub fn report(user: &Client, execution: &str) {
    let outcome = json!({"success": true, "result": "done"});
    user.post(&format!("/v1/executions/{execution}/outcome"), &outcome).expect(200);
}

/// A backup of the file of a server, next to it.
pub fn backup(server: &Server, name: &str) -> PathBuf {
    let out = server.db().with_file_name(name);
    let text = ok(&server.db(), &["backup", out.to_str().unwrap()]);
    assert!(text.contains(name) && text.contains("B)"), "{text}");
    out
}

/// Writes many executions of a cue, all created at `at`: finished with an outcome each, or pending for a worker.
pub fn insert_history(file: &mut Connection, cue: &str, count: u32, is_over: bool, at: &str) {
    let at = at.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let (status, queue) = if is_over { ("success", None) } else { ("pending", Some("claim")) };
    let all = file.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let first: i64 =
        all.query_row("SELECT coalesce(max(key), 0) + 1 FROM executions", [], |row| row.get(0)).unwrap();
    all.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
         INSERT INTO executions (id, cue_key, user_key, transport, status, queue_name, scheduled_for, triggered_by,
                                 attempts, response_body, created_at, updated_at)
         SELECT randomblob(16), key, user_key, transport, ?3, ?4, ?5, 'schedule', 0, hex(zeroblob(500)), ?5, ?5
           FROM n, cues WHERE id = ?1",
        (cue, count, status, queue, at),
    )
    .unwrap();
    if is_over {
        all.execute(
            "INSERT INTO outcomes (execution_key, success, result, recorded_at)
             SELECT key, 1, 'done', ?2 FROM executions WHERE key >= ?1",
            (first, at),
        )
        .unwrap();
    } else {
        all.execute("UPDATE backlog SET count = count + ?1 WHERE name = 'claim'", [count]).unwrap();
    }
    all.commit().unwrap();
}

#[track_caller]
pub fn rows(file: &Connection, table: &str) -> i64 {
    file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// Waits until a table has this number of rows.
#[track_caller]
pub fn until_rows(file: &Connection, table: &str, count: i64) {
    until(&format!("{table} has {count} rows"), || (rows(file, table) == count).then_some(()));
}

/// Every row of every table, except the mark of a held copy.
pub fn contents(path: &Path) -> BTreeMap<String, Vec<Vec<Value>>> {
    let file = Connection::open(path).unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut tables = file.prepare(tables).unwrap();
    let tables: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let read = |table: &str| {
        let mut all = file.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let width = all.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..width).map(|column| row.get(column)).collect();
        let rows: Vec<Vec<Value>> = all.query_map([], row).unwrap().map(Result::unwrap).collect();
        let of_a_copy = ["held_since", "instance"].map(|name| Value::from(name.to_owned()));
        rows.into_iter().filter(|row| !of_a_copy.contains(&row[0])).collect()
    };
    tables.iter().map(|table| (table.clone(), read(table))).collect()
}
