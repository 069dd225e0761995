//! Announces the worker, and extends the leases of its runs.

use std::time::Duration;

use crate::client::error::ClientError;
use crate::worker::process::life::Cause;
use crate::worker::run::Run;
use crate::worker::state::Shared;

/// Sends heartbeats for ever; the end of the process ends the thread.
pub fn run(worker: &Shared) {
    let mut beat_at = Duration::ZERO;
    loop {
        let now = worker.clock().monotonic();
        if now >= beat_at {
            beat_at = now + worker.settings.beat;
            announce(worker);
        }
        let next = extend_leases(worker);
        worker.record_sign_of_life();
        worker.wait_until(next.map_or(beat_at, |next| next.min(beat_at)));
    }
}

fn announce(worker: &Shared) {
    let tasks: Vec<&str> = worker.settings.tasks.iter().filter_map(|task| task.name.as_deref()).collect();
    worker.record_sign_of_life();
    match worker.api().beat(&worker.settings.worker_id, &tasks) {
        Ok(()) => {}
        Err(error) if is_unauthorized(&error) => worker.give_up(error),
        Err(error) => tracing::warn!(%error, "heartbeat failed"),
    }
}

/// Extends the leases that are due, and returns the instant of the next one.
fn extend_leases(worker: &Shared) -> Option<Duration> {
    let (due, next) = worker.due_leases();
    // The command of a run may have ended since, during the requests for the runs before it.
    for run in due.into_iter().filter(|run| run.extend_at().is_some()) {
        // Each request may take its whole time-out.
        worker.record_sign_of_life();
        extend_lease(worker, &run);
    }
    next
}

fn extend_lease(worker: &Shared, run: &Run) {
    let id = run.claim.execution_id.as_str();
    match worker.api().extend_lease(id) {
        Ok(true) => worker.schedule_extension(run, true),
        // Its outcome was reported meanwhile.
        Ok(false) if run.extend_at().is_none() => {}
        Ok(false) => {
            tracing::warn!(execution_id = id, "the execution is no longer this worker's; ending the command");
            run.handle.end(Cause::Lost);
            run.end_lease();
        }
        Err(error) => {
            tracing::warn!(execution_id = id, %error, "the lease was not extended; trying again");
            worker.schedule_extension(run, false);
        }
    }
}

#[must_use]
fn is_unauthorized(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused(refused) if refused.status == 401)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::thread;

    use serde_json::value::RawValue;

    use super::*;
    use crate::client::tls::TlsOptions;
    use crate::client::{Client, Connection};
    use crate::worker::api::Claim;
    use crate::worker::outcome::folder::OutcomeFolder;
    use crate::worker::process::handle::Handle;
    use crate::worker::task::{Mode, Settings, Task};

    fn worker(url: String) -> Shared {
        let task = Task {
            name: Some("t".to_owned()),
            command: vec!["true".into()],
            timeout: Duration::from_secs(60),
            folder: None,
            environment: Vec::new(),
        };
        let settings = Settings {
            worker_id: "w".to_owned(),
            tasks: vec![task],
            agent: None,
            jobs: 8,
            grace: Duration::ZERO,
            mode: Mode::Forever,
            passes_key: false,
            // The leases are due at once.
            beat: Duration::ZERO,
        };
        let connection = Connection { url, key: Some("k".to_owned()), tls: TlsOptions::default() };
        let client = Arc::new(Client::new(connection).unwrap());
        Shared::new(settings, client, "w/1".to_owned(), OutcomeFolder::create().unwrap(), Box::new(|_| ()))
    }

    fn claim(id: usize) -> Claim {
        Claim {
            execution_id: id.to_string(),
            cue_id: "c".to_owned(),
            cue_name: "n".to_owned(),
            scheduled_for: "2030-01-01T00:00:00Z".to_owned(),
            attempt: 1,
            lease_seconds: 900,
            payload: RawValue::from_string("{}".to_owned()).unwrap(),
        }
    }

    #[test]
    fn each_request_of_the_heartbeats_has_its_own_sign_of_life() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let worker = Arc::new(worker(format!("http://{}", listener.local_addr().unwrap())));
        for id in 0..3 {
            worker.begin_test_run(claim(id), Handle::new().unwrap().0);
        }
        let (sender, signs) = std::sync::mpsc::channel();
        let observed = Arc::clone(&worker);
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let _: usize = stream.read(&mut [0; 4096]).unwrap();
                sender.send(observed.sign_of_life()).unwrap();
                // The connection closes without an answer.
            }
        });
        announce(&worker);
        extend_leases(&worker);
        worker.outcome_folder.remove();
        let signs: Vec<Duration> = signs.try_iter().collect();
        assert_eq!(signs.len(), 4);
        assert!(signs.is_sorted_by(|one, next| one < next), "{signs:?}");
    }
}
