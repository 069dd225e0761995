//! A `cued sink` as a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{ChildStderr, ChildStdout, Stdio};

use crate::support::client::{Connection, Response};
use crate::support::client_command::ClientHome;
use crate::support::server::{Process, until};

/// A running `cued sink`, and its output.
pub struct Sink {
    pub child: Process,
    pub addr: SocketAddr,
    pub stdout: BufReader<ChildStdout>,
    pub stderr: BufReader<ChildStderr>,
}

impl Sink {
    /// On a free port, which it tells on its first line.
    pub fn start(home: &ClientHome, arguments: &[&str]) -> Self {
        let mut command = home.command(&[&["sink", "--listen", "127.0.0.1:0"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let is_for_programs = arguments.iter().any(|it| ["--json", "-q", "json", "yaml"].contains(it));
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
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let mut connection = Connection::open(self.addr).unwrap();
        let length = body.len();
        let head = format!("POST /hook HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{headers}\r\n");
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
