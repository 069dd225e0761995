//! Claims executions and runs their commands, one at a time.

use std::io::{self, PipeReader};
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
use crate::worker::task::Task;
use crate::worker::threads::reports;

/// Works until nothing more is to be claimed.
pub fn run(worker: &Shared) {
    while let Some((place, permit)) = worker.next_claim() {
        // Before the claim: an execution that is claimed must be run.
        let (handle, wakes) = match Handle::new() {
            Ok(pipe) => pipe,
            Err(error) => {
                tracing::error!(%error, "no pipe is left");
                worker.claim_failed(place, None);
                continue;
            }
        };
        let claimed = match &permit {
            Permit::Next => worker.api().claim_next(worker.task(place).name.as_deref()),
            Permit::One(id) => worker.api().claim_one(id),
        };
        match claimed {
            Ok(Some(claim)) => execute(worker, &worker.begin(place, claim, handle), wakes),
            Ok(None) => worker.missed(place),
            Err(error) => worker.claim_failed(place, Some(error)),
        }
    }
}

/// Runs an execution and reports its outcome.
fn execute(worker: &Shared, run: &Arc<Run>, mut wakes: PipeReader) {
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
    let report = attempt(worker, run, &name, &mut wakes);
    run.end_lease();
    let end = worker.clock().monotonic();
    let duration_ms = u64::try_from((end - begin).as_millis()).unwrap_or(u64::MAX);
    let Some(report) = report else {
        tracing::warn!(
            execution_id = id,
            task = name,
            duration_ms,
            "run ended: another worker has the claim"
        );
        worker.end(run, Some("the claim was lost".to_owned()), true);
        return;
    };
    match &report.reason {
        None => tracing::info!(execution_id = id, task = name, duration_ms, "run succeeded"),
        Some(reason) => tracing::warn!(execution_id = id, task = name, duration_ms, reason, "run failed"),
    }
    let is_reported = reports::deliver(worker, id, &report, end);
    worker.end(run, report.reason, is_reported);
}

/// Runs the command. `None` if the execution is no longer ours.
fn attempt(worker: &Shared, run: &Run, name: &str, wakes: &mut PipeReader) -> Option<Report> {
    let task = worker.task(run.place);
    let failed =
        |reason: String| Some(Report::new(&Ended::NotStarted(reason), "", "", &OutcomeFile::default()));
    let outcome = match outcome_path() {
        Ok(outcome) => outcome,
        Err(error) => return failed(format!("the worker cannot make an outcome file: {error}")),
    };
    let mut command = command(worker, run, name, &outcome);
    let input = run.claim.payload.get().as_bytes();
    match process::run(&mut command, input, task.timeout, (&run.handle, wakes), worker.clock()) {
        Err(error) => failed(format!("cannot run {}: {error}", command.get_program().display())),
        Ok(Finished { cause: Some(Cause::Lost), .. }) => None,
        Ok(finished) => {
            let file = OutcomeFile::read(&outcome);
            let (stdout, stderr) = (finished.stdout.text(), finished.stderr.text());
            Some(Report::new(&ended(&finished, task.timeout), &stdout, &stderr, &file))
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

/// An empty file that only this user can read. It is removed after the run.
fn outcome_path() -> io::Result<TempPath> {
    let file = tempfile::Builder::new().prefix("cued-outcome-").suffix(".json").tempfile()?;
    Ok(file.into_temp_path())
}

fn command(worker: &Shared, run: &Run, name: &str, outcome: &TempPath) -> Command {
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
