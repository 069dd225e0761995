//! Commands of the client as processes: each [`ClientHome`] is a person with a home folder of its own.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::server::{Server, bounded, cued, skip};

/// A finished command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientRun {
    pub stdout: String,
    pub stderr: String,
    /// The exit code; -1 if a signal ended the command.
    pub code: i32,
}

/// A home folder and an environment. There is no terminal, and no browser.
pub struct ClientHome {
    folder: TempDir,
    env: Vec<(String, OsString)>,
}

impl ClientHome {
    /// A home without a credentials file, and an environment that names no server.
    pub fn new() -> Self {
        Self { folder: TempDir::new().unwrap(), env: Vec::new() }
    }

    /// A home whose environment names a server and the key of `user`.
    pub fn signed_in(server: &Server, user: &Client) -> Self {
        Self::new().env("CUED_URL", server.url()).env("CUED_API_KEY", user.key())
    }

    /// A home whose environment names an address where nothing listens, and a key.
    pub fn without_server() -> Self {
        Self::new().env("CUED_URL", "http://127.0.0.1:1").env("CUED_API_KEY", "cue_sk_none")
    }

    /// The same home with a variable of the environment.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.into()));
        self
    }

    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// The place of the credentials file.
    pub fn credentials(&self) -> PathBuf {
        self.folder.path().join(".config/cued/credentials.json")
    }

    /// The content of the credentials file; null if there is none.
    pub fn stored(&self) -> Value {
        let text = fs::read_to_string(self.credentials());
        text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
    }

    /// Writes the credentials file.
    pub fn store(&self, content: &Value) {
        fs::create_dir_all(self.credentials().parent().unwrap()).unwrap();
        fs::write(self.credentials(), content.to_string()).unwrap();
        fs::set_permissions(self.credentials(), Permissions::from_mode(0o600)).unwrap();
    }

    /// A command, for tests that start it in their own way. Times are in UTC.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = cued(arguments);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUEAPI_"))
        {
            command.env_remove(name);
        }
        for name in ["XDG_CONFIG_HOME", "NO_COLOR", "CLICOLOR_FORCE", "BROWSER", "DISPLAY", "WAYLAND_DISPLAY"]
        {
            command.env_remove(name);
        }
        command.env("HOME", self.folder.path()).env("TZ", "UTC").current_dir(self.folder.path());
        command.envs(self.env.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        command
    }

    /// A command at a terminal, which `script` of util-linux is; `None` where there is no such program.
    pub fn at_terminal(&self, arguments: &str) -> Option<Command> {
        if Command::new("script").arg("--version").output().is_err() {
            skip("there is no command `script`");
            return None;
        }
        let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_cued"));
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).current_dir(self.folder()).stdin(Stdio::null());
        for (name, value) in self.command(&[]).get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        Some(script)
    }

    /// A script of bash in the same environment.
    pub fn shell(&self, script: &str) -> Command {
        let command = self.command(&[]);
        let mut bash = Command::new("bash");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => bash.env(name, value),
                None => bash.env_remove(name),
            };
        }
        bash.args(["-euo", "pipefail", "-c", script]).current_dir(self.folder()).stdin(Stdio::null());
        bash
    }

    /// Runs a command with an empty standard input.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> ClientRun {
        self.run_with_stdin(arguments, "")
    }

    #[track_caller]
    pub fn run_with_stdin(&self, arguments: &[&str], stdin: &str) -> ClientRun {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (mut input, text) = (child.stdin.take().unwrap(), stdin.to_owned());
        // A command may end without having read it.
        thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let what = format!("cued {}", arguments.join(" "));
        let output = bounded(&what, move || child.wait_with_output().unwrap());
        ClientRun {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap_or(-1),
        }
    }

    /// Standard output of a command that must succeed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
        run.stdout
    }

    /// The JSON of a command with `--json` that must succeed.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error} in {text}"))
    }

    /// Standard error of a command that must exit with `code` and print no result.
    #[track_caller]
    pub fn fails(&self, arguments: &[&str], code: i32) -> String {
        let run = self.run(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{arguments:?}: {run:?}");
        run.stderr
    }

    /// The error, as JSON, of a command with `--json` that must exit with `code` and print no result.
    #[track_caller]
    pub fn json_error(&self, arguments: &[&str], code: i32) -> Value {
        let text = self.fails(&[arguments, &["--json"]].concat(), code);
        let error: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
        error["error"].clone()
    }
}
