//! `cued work`: the built program against a server, with commands of the shell.

mod commands;
mod faults;
mod leases;
mod outcomes;
mod shortages;
mod stops;
mod taking;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::client_command::{ClientHome, ClientRun};
use crate::support::server::{Process, Server, signal, until};

/// A server on a test clock, an account, and a folder for the files of commands.
pub struct Workshop {
    pub server: Server,
    pub user: Client,
    pub home: ClientHome,
    folder: TempDir,
}

impl Workshop {
    pub fn new() -> Self {
        let server = Server::with_test_clock("2030-01-01T00:00:00Z");
        let user = server.user();
        let home = ClientHome::signed_in(&server, &user);
        Self { server, user, home, folder: TempDir::new().unwrap() }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A worker cue for this task; the payload may have more.
    pub fn cue(&self, task: &str, payload: &Value) -> String {
        let mut payload = payload.clone();
        payload["task"] = json!(task);
        let cue = json!({
            "name": format!("cue of {task}"), "transport": "worker", "payload": payload,
            "schedule": {"type": "recurring", "cron": "0 0 1 1 *"},
        });
        self.user.create(&cue)["id"].as_str().unwrap().to_owned()
    }

    /// Runs a cue: the id of the execution.
    pub fn fire(&self, cue: &str) -> String {
        let fired = self.user.post(&format!("/v1/cues/{cue}/fire"), &json!({})).expect(200);
        fired["execution_id"].as_str().unwrap().to_owned()
    }

    /// An execution for workers.
    pub fn execution(&self, task: &str) -> String {
        self.fire(&self.cue(task, &json!({})))
    }

    pub fn look(&self, execution: &str) -> Value {
        self.user.get(&format!("/v1/executions/{execution}")).expect(200)
    }

    /// The execution, once it has been reported on.
    #[track_caller]
    pub fn reported(&self, execution: &str) -> Value {
        until("the execution is reported on", || {
            Some(self.look(execution)).filter(|seen| seen["outcome"]["success"].is_boolean())
        })
    }

    /// Runs one execution of a new task with a script, and returns its execution.
    #[track_caller]
    pub fn run_script(&self, script: &str) -> Value {
        let execution = self.execution("t");
        self.home.run(&["work", "--task", "t", "--once", "--", "sh", "-c", script]);
        self.reported(&execution)
    }

    /// Starts a worker; its log is in a file.
    pub fn start(&self, name: &str, arguments: &[&str], script: &str) -> Background {
        self.start_in(&self.home, name, arguments, script)
    }

    pub fn start_in(&self, home: &ClientHome, name: &str, arguments: &[&str], script: &str) -> Background {
        let log = self.path(&format!("{name}.log"));
        let own = ["work", "--beat-millis", "50", "--id", name];
        let mut command = home.command(&[&own, arguments, &["--", "sh", "-c", script]].concat());
        command.stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        Background { process: Process(command.spawn().unwrap()), log }
    }
}

/// A worker that runs.
pub struct Background {
    process: Process,
    log: PathBuf,
}

impl Background {
    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    #[track_caller]
    pub fn says(&self, text: &str) {
        until(text, || self.log().contains(text).then_some(()));
    }

    pub fn signal(&self, name: &str) {
        signal(name, self.pid());
    }

    /// Waits for the end; the exit code.
    #[track_caller]
    pub fn ended(&mut self) -> i32 {
        until("the worker ends", || self.process.0.try_wait().unwrap()).code().unwrap_or(-1)
    }

    #[track_caller]
    pub fn stop(&mut self) -> i32 {
        self.signal("-TERM");
        self.ended()
    }

    pub fn kill9(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }
}

/// The objects of a text with one JSON document a line.
pub fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[track_caller]
pub fn exits(run: &ClientRun, code: i32) {
    assert_eq!(run.code, code, "{}\n{}", run.stdout, run.stderr);
}
