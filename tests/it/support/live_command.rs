//! A command that goes on until it is ended: its lines are read while it runs.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use crate::support::client_command::ClientHome;
use crate::support::server::{HANG_TIMEOUT, Process, signal, until};

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
        command.arg("--verbose").env("LANG", "C.UTF-8").stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::of(command.spawn().unwrap())
    }

    /// A command that was started with pipes.
    pub fn of(mut child: Child) -> Self {
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
            let note = note.unwrap_or_else(|error| panic!("no note {text:?}: {error}; {}", self.stderr));
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

/// The lines of an output. A line without its end is told as such.
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
