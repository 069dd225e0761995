//! The tasks and the settings of a worker.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

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
    #[must_use]
    pub fn folder_fault(&self) -> Option<String> {
        let folder = self.folder.as_deref()?;
        let fault = match folder.metadata() {
            Ok(metadata) if metadata.is_dir() => return None,
            Ok(_) => "it is not a folder".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(format!("cannot use the working directory {}: {fault}", folder.display()))
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
