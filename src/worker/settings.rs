//! The tasks and the settings of a worker.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};

/// A task and the command that does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Executions with this `payload.task`; `None` is any task of the agent.
    pub name: Option<String>,
    /// The program and its arguments. No shell reads them.
    pub command: Vec<OsString>,
    /// The time after which the command is ended.
    pub timeout: Duration,
    /// The working directory, if it is not that of the worker.
    pub folder: Option<PathBuf>,
    /// Variables of the environment in addition to those of the worker.
    pub environment: Vec<(String, String)>,
}

impl Task {
    /// The reason why the working directory cannot be used; `None` if it can.
    pub fn folder_fault(&self) -> Option<String> {
        let folder = self.folder.as_deref()?;
        let fault = match folder.metadata() {
            Ok(metadata) if metadata.is_dir() => return None,
            Ok(_) => "it is not a folder".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("cannot use the working directory {}: {fault}", folder.display()))
    }

    /// The reason why the command cannot be run; `None` if its working directory and its program exist.
    pub fn command_fault(&self) -> Option<String> {
        if let Some(fault) = self.folder_fault() {
            return Some(fault);
        }
        let program = self.command.first()?;
        if program.as_bytes().contains(&b'/') {
            let path = self.folder.as_deref().unwrap_or_else(|| Path::new("")).join(program);
            return program_fault(&path).map(|fault| format!("cannot run {}: {fault}", path.display()));
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        if std::env::split_paths(&folders).any(|folder| program_fault(&folder.join(program)).is_none()) {
            return None;
        }
        let program = program.display();
        let hint = if Path::new(self.command.first()?).exists() {
            format!("; write ./{program}")
        } else {
            String::new()
        };
        Some(format!("there is no program {program} in PATH{hint}"))
    }
}

fn program_fault(path: &Path) -> Option<String> {
    match path.metadata() {
        Err(error) => Some(error.to_string()),
        Ok(metadata) if !metadata.is_file() => Some("it is not a file".to_owned()),
        Ok(_) => access(path, Access::EXEC_OK)
            .err()
            .map(|error| format!("{}; `chmod +x` makes it executable", io::Error::from(error))),
    }
}

/// When a worker ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Never.
    Forever,
    /// After one run.
    Once,
    /// When nothing waits and nothing runs.
    Drain,
}

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name in the list of workers.
    pub worker_id: String,
    pub tasks: Vec<Task>,
    /// Only executions with this `payload.agent`.
    pub agent: Option<String>,
    /// Commands that run at a time.
    pub jobs: usize,
    /// The time that commands have to end after a stop signal.
    pub grace: Duration,
    pub mode: Mode,
    /// Commands get the key of the worker.
    pub passes_key: bool,
    /// Time between two heartbeats of the worker. A run has its own after a third of its lease, or after five times this time
    /// if that is shorter.
    pub beat: Duration,
}

impl Settings {
    /// The time between two extensions of a lease of so many seconds.
    pub fn lease_interval(&self, lease_seconds: u64) -> Duration {
        // A lease of zero would make a busy loop.
        (Duration::from_secs(lease_seconds.max(3)) / 3).min(self.beat * 5)
    }
}
