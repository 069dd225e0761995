//! `cued login`, `cued logout` and `cued whoami`.

mod login;
mod logout;
mod terminal;
mod whoami;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::client_command::ClientHome;
use crate::support::server::{Process, until};

/// A command that runs until somebody confirms its login.
pub struct Waiting {
    pub process: Process,
    output: PathBuf,
}

impl Waiting {
    /// Standard output and standard error go to one file.
    pub fn start(mut command: Command, home: &ClientHome, stdin: Stdio) -> Self {
        let output = home.folder().join("output");
        let file = File::create(&output).unwrap();
        let (stdout, stderr) = (file.try_clone().unwrap(), file);
        let child = command.stdin(stdin).stdout(stdout).stderr(stderr).spawn().unwrap();
        Self { process: Process(child), output }
    }

    pub fn output(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    /// Waits until the output has `text`.
    #[track_caller]
    pub fn until(&self, text: &str) {
        until(&format!("the command prints {text:?}"), || self.output().contains(text).then_some(()));
    }

    /// The rest of the word in the output that begins with `start`.
    #[track_caller]
    pub fn rest_of(&self, start: &str) -> String {
        until(&format!("the command prints {start:?} and more"), || {
            let output = self.output();
            let rest =
                output.split_once(start)?.1.split_once(|char: char| char.is_whitespace())?.0.to_owned();
            Some(rest)
        })
    }

    /// Waits for the end; returns the exit code.
    #[track_caller]
    pub fn code(&mut self) -> i32 {
        let status = until("the command ends", || self.process.0.try_wait().unwrap());
        status.code().unwrap_or(-1)
    }
}
