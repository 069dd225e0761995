//! The threads that claim executions while fewer commands run than may run at a time.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::worker::run::execute;
use crate::worker::settings::Mode;
use crate::worker::state::Shared;

/// Threads at most. The server holds 20 polls of an account.
pub const MAX_CLAIMERS: usize = 8;

/// Seconds for which the server holds a poll.
const POLL_SECONDS: u64 = 25;

/// From the begin of a poll that found nothing to the next one.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause after a poll whose work other workers claimed. Each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    Claimed,
    /// Other workers were faster.
    Lost,
    Nothing,
}

/// Claims executions of the tasks at these places, in turns, until nothing more is claimed.
pub fn run(worker: &Arc<Shared>, places: &[usize]) {
    let mut has_work = vec![false; places.len()];
    let mut lost = 0;
    loop {
        let begin = worker.clock().monotonic();
        let mut pause = PAUSE;
        let mut seen = 0;
        for (index, place) in places.iter().enumerate() {
            let wait = match worker.settings.mode {
                Mode::Drain => 0,
                _ if places.len() == 1 => POLL_SECONDS,
                _ if has_work.contains(&true) => 0,
                _ => 1,
            };
            let Some(changes) = worker.wait_for_slot(false) else { return };
            seen = changes;
            let found = search(worker, *place, has_work[index], wait, changes);
            has_work[index] = found == Search::Claimed;
            match found {
                Search::Claimed => (lost, pause) = (0, Duration::ZERO),
                Search::Lost => {
                    pause = pause.min(FIRST_PAUSE * 2_u32.pow(lost));
                    lost = (lost + 1).min(5);
                }
                Search::Nothing => {}
            }
        }
        worker.wait_for_change(seen, begin + pause);
    }
}

/// Polls for work, unless the task has some, and claims it.
fn search(worker: &Arc<Shared>, place: usize, has_work: bool, wait: u64, changes: u64) -> Search {
    let (task, agent) = (worker.task(place).name.as_deref(), worker.settings.agent.as_deref());
    let mut id = None;
    if !has_work || agent.is_some() {
        match worker.api().poll(task, agent, wait) {
            // The next execution of the task may be of another agent.
            Ok(Some(found)) => id = agent.map(|_| found),
            Ok(None) => {
                worker.found_nothing(place, changes);
                return Search::Nothing;
            }
            Err(error) => {
                worker.request_failed(error, false);
                return Search::Nothing;
            }
        }
    }
    // Other tasks may have taken the slots.
    if worker.wait_for_slot(true).is_none() {
        return Search::Nothing;
    }
    match worker.api().claim(id.as_deref(), task) {
        Ok(Some(claim)) => {
            let (run, shared) = (worker.begin(place, claim), Arc::clone(worker));
            let (claimed, builder) = (Arc::clone(&run), thread::Builder::new().name("run".to_owned()));
            if let Err(error) = builder.spawn(move || execute(&shared, &claimed)) {
                tracing::error!(%error, "the machine cannot start a thread for a run");
                worker.claim_no_more();
                worker.end(&run, Some(format!("the run was not started: {error}")), false);
            }
            return Search::Claimed;
        }
        Ok(None) => worker.claim_found_nothing(),
        Err(error) => worker.request_failed(error, true),
    }
    Search::Lost
}
