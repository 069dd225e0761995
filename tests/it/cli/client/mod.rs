//! Commands that are a client of a server, as processes against a server.

mod account;
mod alert;
mod api;
mod cue;
mod cue_changes;
mod cue_edit;
mod failures;
mod health;
mod hostile;
mod output;
mod preview;
mod replay;
mod run;
mod secrecy;
mod sign_in;
mod sink;
mod tail;
mod wait;
mod work;
mod worker;
mod yaml;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::client_command::ClientHome;
use crate::support::server::Server;

const START: &str = "2030-01-01T00:00:00Z";

/// A server with a test clock, an account, and its home.
struct Desk {
    server: Server,
    user: Client,
    home: ClientHome,
}

impl Desk {
    fn new() -> Self {
        Self::at(Server::with_test_clock(START))
    }

    /// A server that deletes no runs.
    fn without_retention() -> Self {
        Self::at(Server::start(&["--dev", "--limits", "off", "--test-clock", START, "--retain", "off"]))
    }

    fn at(server: Server) -> Self {
        let user = server.user();
        let home = ClientHome::signed_in(&server, &user);
        Self { server, user, home }
    }

    /// A worker cue that runs by request.
    fn worker_cue(&self, name: &str) -> String {
        let cue = json!({"name": name, "transport": "worker", "schedule": {"type": "recurring", "cron": "0 0 1 7 *"}});
        id(&self.user.create(&cue))
    }

    /// A cue that is sent to `url` by request, with attempts an hour apart.
    fn webhook_cue(&self, name: &str, url: &str) -> String {
        let cue = json!({"name": name, "callback": {"url": url}, "schedule": {"type": "recurring", "cron": "0 0 1 7 *"},
                         "payload": {"volume": 1}, "retry": {"max_attempts": 3, "backoff_minutes": [60]}});
        id(&self.user.create(&cue))
    }

    /// The id of a new run.
    fn fire(&self, cue: &str) -> String {
        id(&self.user.post(&format!("/v1/cues/{cue}/fire"), &json!({})).expect(200))
    }

    /// A run of a worker cue that has failed.
    fn failed_run(&self, cue: &str) -> String {
        let run = self.fire(cue);
        let report = json!({"success": false, "error": "exit code 3"});
        self.user.post(&format!("/v1/executions/{run}/outcome"), &report).expect(200);
        run
    }

    fn run_status(&self, run: &str) -> Value {
        self.user.get(&format!("/v1/executions/{run}")).expect(200)["status"].clone()
    }
}

/// A server with a test clock, a user of it, and a home that is signed in.
fn start() -> (Server, Client, ClientHome) {
    let Desk { server, user, home } = Desk::new();
    (server, user, home)
}

/// Adds a worker cue by the command; returns its id.
fn add(home: &ClientHome, name: &str) -> String {
    let id = home.ok(&["cue", "add", "--name", name, "--cron", "0 9 * * *", "--worker", "-q"]);
    id.trim().to_owned()
}

/// A cue as the server has it.
fn stored(user: &Client, id: &str) -> Value {
    user.get(&format!("/v1/cues/{id}")).expect(200)
}

fn id(object: &Value) -> String {
    object["id"].as_str().unwrap().to_owned()
}
