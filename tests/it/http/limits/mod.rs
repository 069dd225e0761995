//! Limits of plans: requests a minute, executions a month, active cues; and operator commands.

mod accounts;
mod proxies;
mod quota;
mod rate;
mod storage;
mod unconfirmed;
mod usage;

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::{Client, Response};
use crate::support::server::{Server, run};

const START: &str = "2026-01-29T00:30:00Z";

/// A server with a clock at [`START`] and with plan limits.
fn limited() -> Server {
    Server::start(&["--dev", "--test-clock", START])
}

/// A file with a plan table whose limits are small enough to reach.
struct Plans(TempDir);

impl Plans {
    fn new(table: &Value) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("plans.json"), table.to_string()).unwrap();
        Self(folder)
    }

    /// Five executions and three cues on `free`, more of both on `pro`, fewer on `tiny`, with any number of requests.
    /// `plus` and `daily` have more executions than `free`.
    fn small() -> Self {
        Self::new(&json!({
            "free": {"cues": 3, "executions": 5, "requests_per_minute": null},
            "tiny": {"cues": 1, "executions": 2, "requests_per_minute": null},
            "plus": {"cues": 3, "executions": 6, "requests_per_minute": null},
            "daily": {"cues": 3, "executions": 30, "requests_per_minute": null},
            "pro": {"cues": 5, "executions": 1_000, "requests_per_minute": null},
        }))
    }

    fn path(&self) -> String {
        self.0.path().join("plans.json").to_str().unwrap().to_owned()
    }

    fn server(&self) -> Server {
        Server::start(&["--dev", "--test-clock", START, "--plans", &self.path()])
    }
}

/// `cued user …` on the file of the server.
fn administer(server: &Server, arguments: &[&str]) {
    let db = server.db();
    let done = run(&[&["user", "--db", db.to_str().unwrap()], arguments].concat());
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn email(user: &Client) -> String {
    user.get("/v1/auth/me").expect(200)["email"].as_str().unwrap().to_owned()
}

fn number(response: &Response, header: &str) -> i64 {
    response.header(header).unwrap_or_else(|| panic!("{header} in {:?}", response.headers)).parse().unwrap()
}

fn id(object: &Value) -> &str {
    object["id"].as_str().unwrap()
}

fn worker(cron: &str) -> Value {
    json!({"name": "work", "transport": "worker", "schedule": {"type": "recurring", "cron": cron}})
}
