//! The program as a command of a user: one that ends, one that runs on, and `cued sink`.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStderr, ChildStdout};
use std::sync::mpsc::{Receiver, channel};

use crate::support::*;

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
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CUEAPI_"))
        {
            command.env_remove(name);
        }
        let others = "XDG_CONFIG_HOME NO_COLOR CLICOLOR_FORCE BROWSER DISPLAY WAYLAND_DISPLAY";
        for name in words(others) {
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
        let mut script = self.other("script");
        script.args(["-qefc", &line, "/dev/null"]);
        Some(script)
    }

    /// Another program in the environment of a command.
    pub fn other(&self, program: &str) -> Command {
        let mut other = Command::new(program);
        for (name, value) in self.command(&[]).get_envs() {
            match value {
                Some(value) => other.env(name, value),
                None => other.env_remove(name),
            };
        }
        other.current_dir(self.folder()).stdin(Stdio::null());
        other
    }

    /// A script of bash in the same environment.
    pub fn shell(&self, script: &str) -> Command {
        let mut bash = self.other("bash");
        bash.args(["-euo", "pipefail", "-c", script]);
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
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error} in {text}"))
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
        let error: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
        error["error"].clone()
    }
}

/// A running command. It is killed on drop.
pub struct LiveCommand {
    process: Process,
    lines: Receiver<String>,
    notes: Receiver<String>,
    /// The notes so far.
    pub stderr: String,
}

impl LiveCommand {
    /// Starts a command with `--verbose` in a locale with UTF-8.
    pub fn start(home: &ClientHome, arguments: &[&str]) -> Self {
        let mut command = home.command(arguments);
        for name in ["LC_ALL", "LC_CTYPE"] {
            command.env_remove(name);
        }
        command
            .arg("--verbose")
            .env("LANG", "C.UTF-8")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self::new(command.spawn().unwrap())
    }

    /// A command that was started with pipes.
    pub fn new(mut child: Child) -> Self {
        let lines = lines_of(child.stdout.take().unwrap());
        let notes = lines_of(child.stderr.take().unwrap());
        Self { process: Process(child), lines, notes, stderr: String::new() }
    }

    /// As [`LiveCommand::start`]; returns when the server has the stream of the command.
    pub fn following(home: &ClientHome, arguments: &[&str]) -> Self {
        let mut command = Self::start(home, arguments);
        command.wait_for_note("/v1/events");
        command
    }

    /// The next line of standard output.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let line = self.lines.recv_timeout(HANG_TIMEOUT);
        line.unwrap_or_else(|error| {
            self.stderr.extend(self.notes.try_iter());
            panic!("no further line: {error}; standard error: {}", self.stderr)
        })
    }

    #[track_caller]
    pub fn lines(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.line()).collect()
    }

    /// Waits for a line of standard error that contains `text`.
    #[track_caller]
    pub fn wait_for_note(&mut self, text: &str) {
        loop {
            let note = self.notes.recv_timeout(HANG_TIMEOUT);
            let note =
                note.unwrap_or_else(|error| panic!("no note {text:?}: {error}; {}", self.stderr));
            self.stderr.push_str(&note);
            self.stderr.push('\n');
            if note.contains(text) {
                return;
            }
        }
    }

    pub fn signal(&self, name: &str) {
        signal(name, self.process.0.id());
    }

    /// Waits for the end. Returns the exit code and the lines that were not read before.
    #[track_caller]
    pub fn end(&mut self) -> (Option<i32>, Vec<String>) {
        let status = until("the command ends", || self.process.0.try_wait().unwrap());
        self.stderr.extend(self.notes.iter().map(|note| note + "\n"));
        (status.code(), self.lines.iter().collect())
    }
}

/// A running command whose output goes to a file. It is killed on drop.
pub struct BackgroundCommand {
    pub process: Process,
    output: PathBuf,
}

impl BackgroundCommand {
    /// Standard error goes to the file, and standard output too if `has_stdout`.
    pub fn start(mut command: Command, output: PathBuf, has_stdout: bool) -> Self {
        let file = File::create(&output).unwrap();
        let stdout = has_stdout.then(|| file.try_clone().unwrap());
        command.stdout(stdout.map_or_else(Stdio::null, Stdio::from)).stderr(file);
        Self { process: Process(command.spawn().unwrap()), output }
    }

    pub fn output(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    /// Waits until the output has `text`.
    #[track_caller]
    pub fn until(&self, text: &str) {
        until_true(&format!("the command prints {text:?}"), || self.output().contains(text));
    }

    pub fn signal(&self, name: &str) {
        signal(name, self.process.0.id());
    }

    /// Waits for the end; returns the exit code.
    #[track_caller]
    pub fn code(&mut self) -> i32 {
        let status = until("the command ends", || self.process.0.try_wait().unwrap());
        status.code().unwrap_or(-1)
    }
}

/// The lines of an output. A line without its end is marked as such.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while output.read_line(&mut line).is_ok_and(|read| read > 0) {
            let whole = line.strip_suffix('\n').map(str::to_owned);
            if sender.send(whole.unwrap_or_else(|| format!("broken line: {line}"))).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

/// A running `cued sink`, and its output.
pub struct Sink {
    pub child: Process,
    pub addr: SocketAddr,
    pub stdout: BufReader<ChildStdout>,
    pub stderr: BufReader<ChildStderr>,
}

impl Sink {
    /// On a free port, which it prints on its first line.
    pub fn start(home: &ClientHome, arguments: &[&str]) -> Self {
        let mut command = home.command(&[&["sink", "--listen", "127.0.0.1:0"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let is_for_programs =
            arguments.iter().any(|it| ["--json", "-q", "json", "yaml"].contains(it));
        let first = if is_for_programs { line(&mut stderr) } else { line(&mut stdout) };
        let addr = first.strip_prefix("listening on http://").expect(&first).parse().unwrap();
        Self { child: Process(child), addr, stdout, stderr }
    }

    /// Without any credentials.
    pub fn alone(arguments: &[&str]) -> Self {
        Self::start(&ClientHome::new(), arguments)
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.addr)
    }

    /// The next line of standard output.
    pub fn line(&mut self) -> String {
        line(&mut self.stdout)
    }

    pub fn note(&mut self) -> String {
        line(&mut self.stderr)
    }

    /// Sends a delivery on a connection of its own.
    pub fn post(&self, headers: &[(&str, String)], body: &str) -> Response {
        let mut connection = self.send(headers, body);
        connection.plain_response()
    }

    pub fn send(&self, headers: &[(&str, String)], body: &str) -> Connection {
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut connection = Connection::open(self.addr).unwrap();
        let length = body.len();
        let head =
            format!("POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{headers}\r\n");
        connection.stream().write_all(format!("{head}{body}").as_bytes()).unwrap();
        connection
    }

    /// Waits for the end; returns the exit code and the rest of both outputs.
    pub fn end(mut self) -> (Option<i32>, String, String) {
        let code = until("the sink ends", || self.child.0.try_wait().unwrap()).code();
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        (code, stdout, stderr)
    }
}

#[track_caller]
fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    assert_ne!(output.read_line(&mut line).unwrap(), 0, "it has ended");
    line.trim_end().to_owned()
}
