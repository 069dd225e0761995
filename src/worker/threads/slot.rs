//! Claims executions and runs their commands, one at a time.

use std::io::{self, PipeReader};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tempfile::TempPath;

use crate::worker::environment::{Common, REMOVED, variables};
use crate::worker::outcome::file::OutcomeFile;
use crate::worker::outcome::{Ended, Report};
use crate::worker::process;
use crate::worker::process::Finished;
use crate::worker::process::handle::Handle;
use crate::worker::process::life::Cause;
use crate::worker::queues::Permit;
use crate::worker::run::Run;
use crate::worker::state::Shared;
use crate::worker::state::shortages::is_shortage;
use crate::worker::task::Task;
use crate::worker::threads::reports;

/// The parts of a run that are made before the claim: an execution that is claimed must be run.
struct Preparation {
    handle: Handle,
    wakes: PipeReader,
    outcome: TempPath,
}

impl Preparation {
    fn new(worker: &Shared) -> io::Result<Self> {
        let (handle, wakes) = Handle::new()?;
        Ok(Self { handle, wakes, outcome: worker.outcome_folder.new_file()? })
    }

    /// Tries until it succeeds. `None` if nothing more is to be claimed.
    fn repeat(worker: &Shared) -> Option<Self> {
        let mut shortage = None;
        loop {
            match Self::new(worker) {
                Ok(preparation) => return Some(preparation),
                Err(error) => {
                    if !shortage.get_or_insert_with(|| worker.shortage()).wait(&error, None) {
                        return None;
                    }
                }
            }
        }
    }
}

/// The reason why a run has no report.
enum Abandoned {
    /// The execution is no longer this worker's.
    Lost,
    /// The worker stops, and the command has not been started for lack of resources: another worker can run it.
    NotStarted(io::Error),
}

/// Works until nothing more is to be claimed.
pub fn run(worker: &Shared) {
    while let Some((place, permit)) = worker.next_claim() {
        let Some(Preparation { handle, wakes, outcome }) = Preparation::repeat(worker) else {
            worker.cancel_claim(place);
            continue;
        };
        let claimed = match &permit {
            Permit::Next => worker.api().claim_next(worker.task(place).name.as_deref()),
            Permit::One(id) => worker.api().claim_one(id),
        };
        match claimed {
            Ok(Some(claim)) => execute(worker, &worker.begin(place, claim, handle), wakes, &outcome),
            Ok(None) => worker.claim_found_nothing(place),
            Err(error) => worker.claim_failed(place, error),
        }
    }
}

/// Runs an execution and reports its outcome.
fn execute(worker: &Shared, run: &Arc<Run>, mut wakes: PipeReader, outcome: &Path) {
    let (claim, task) = (&run.claim, worker.task(run.place));
    let id = claim.execution_id.as_str();
    worker.wait_for_earlier(run);
    let name = task.name.clone().unwrap_or_else(|| task_of(claim.payload.get()));
    tracing::info!(
        execution_id = id,
        task = name,
        cue = claim.cue_name,
        attempt = claim.attempt,
        "run started"
    );
    let begin = worker.clock().monotonic();
    let report = attempt(worker, run, &name, &mut wakes, outcome);
    run.end_lease();
    let end = worker.clock().monotonic();
    let duration_ms = u64::try_from((end - begin).as_millis()).unwrap_or(u64::MAX);
    let report = match report {
        Ok(report) => report,
        Err(Abandoned::Lost) => {
            let message = "run ended: the execution is no longer this worker's";
            tracing::warn!(execution_id = id, task = name, duration_ms, message);
            worker.end(run, Some("the claim was lost".to_owned()), true);
            return;
        }
        Err(Abandoned::NotStarted(error)) => {
            let message =
                "run ended before its command was started; another worker can run it after the lease";
            tracing::warn!(execution_id = id, task = name, duration_ms, %error, message);
            worker.end(run, Some(format!("the command was not started: {error}")), true);
            return;
        }
    };
    match &report.reason {
        None => tracing::info!(execution_id = id, task = name, duration_ms, "run succeeded"),
        Some(reason) => tracing::warn!(execution_id = id, task = name, duration_ms, reason, "run failed"),
    }
    let is_reported = reports::deliver(worker, id, &report, end);
    worker.end(run, report.reason, is_reported);
}

/// Runs the command.
fn attempt(
    worker: &Shared,
    run: &Run,
    name: &str,
    wakes: &mut PipeReader,
    outcome: &Path,
) -> Result<Report, Abandoned> {
    let task = worker.task(run.place);
    let failed = |reason: String| Report::new(&Ended::NotStarted(reason), "", "", &OutcomeFile::default());
    let mut command = command(worker, run, name, outcome);
    let input = run.claim.payload.get().as_bytes();
    let mut shortage = None;
    let process = loop {
        match process::start(&mut command, input, &run.handle) {
            Ok(process) => break process,
            Err(error) if is_shortage(&error) => {
                if !shortage.get_or_insert_with(|| worker.shortage()).wait(&error, Some(run)) {
                    return Err(match run.handle.state().requested {
                        Some(Cause::Lost) => Abandoned::Lost,
                        _ => Abandoned::NotStarted(error),
                    });
                }
            }
            Err(error) => {
                // The system has the same error for a missing folder as for a missing program.
                let program = || format!("cannot run {}: {error}", command.get_program().display());
                return Ok(failed(task.folder_fault().unwrap_or_else(program)));
            }
        }
    };
    drop(shortage);
    match process.finish(task.timeout, (&run.handle, wakes), worker.clock()) {
        Err(error) => Ok(failed(format!("the worker cannot supervise the command: {error}"))),
        Ok(Finished { cause: Some(Cause::Lost), .. }) => Err(Abandoned::Lost),
        Ok(finished) => {
            let file = OutcomeFile::read(outcome);
            let (stdout, stderr) = (finished.stdout.text(), finished.stderr.text());
            Ok(Report::new(&ended(&finished, task.timeout), &stdout, &stderr, &file))
        }
    }
}

fn ended(finished: &Finished, timeout: Duration) -> Ended {
    match finished.cause {
        Some(Cause::TimedOut) => Ended::TimedOut(timeout),
        Some(_) => Ended::Stopped,
        None => match process::code_or_signal(finished.status) {
            Ok(code) => Ended::Exit(code),
            Err(signal) => Ended::Signal(signal),
        },
    }
}

fn command(worker: &Shared, run: &Run, name: &str, outcome: &Path) -> Command {
    let task: &Task = worker.task(run.place);
    let connection = worker.client.connection();
    let common = Common {
        worker_id: &worker.settings.worker_id,
        url: &connection.url,
        key: connection.key.as_deref().filter(|_| worker.settings.passes_key),
    };
    let (program, arguments) =
        task.command.split_first().map_or((None, &[][..]), |(program, rest)| (Some(program), rest));
    let mut command = Command::new(program.map(|program| program.as_os_str()).unwrap_or_default());
    command.args(arguments);
    for name in REMOVED {
        command.env_remove(name);
    }
    command.envs(variables(common, &run.claim, name, outcome));
    command.envs(task.environment.iter().map(|(name, value)| (name, value)));
    if let Some(folder) = &task.folder {
        command.current_dir(folder);
    }
    command
}

/// The task in a payload; empty if it names none.
fn task_of(payload: &str) -> String {
    #[derive(Deserialize)]
    struct Payload {
        task: String,
    }
    serde_json::from_str(payload).map_or_else(|_| String::new(), |payload: Payload| payload.task)
}
