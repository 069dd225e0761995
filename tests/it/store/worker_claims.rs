//! The list of executions, and the claims of workers.

use cued::domain::api_error::ErrorCode;
use cued::domain::cue;
use cued::domain::cue::tags::Tags;
use cued::domain::execution::attempt::FailureCause;
use cued::domain::execution::outcome::OutcomeState;
use cued::domain::execution::{ExecutionStatus, Trigger};
use cued::domain::ids::ExecutionId;
use cued::domain::row_keys::{CueKey, UserKey};
use cued::service::executions::{claim, claim_next};
use cued::service::workers::{record_heartbeat, remove};
use cued::store::executions::claims::ClaimableExecution;
use cued::store::executions::execution_list::{self, CreatedRange, ExecutionFilter};
use cued::store::executions::{self, workers};
use rusqlite::params;

use crate::support::*;

#[test]
fn filters_apply_before_the_limit_and_the_oldest_comes_first() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let cue = fixture.worker_cue(user, |_| ());
    for number in 0..20 {
        fixture.run(
            &cue,
            json!({"task": "resize", "agent": if number % 2 == 0 { "a" } else { "b" }, "n": number}),
        );
    }
    let wanted = [20, 21, 22]
        .map(|number| fixture.run(&cue, json!({"task": "mail", "agent": "a", "n": number})));
    let ids = |list: Vec<ClaimableExecution>| list.into_iter().map(|it| it.id).collect::<Vec<_>>();
    assert_eq!(ids(fixture.claimable(user, Some("mail"), None, 2)), wanted[..2]);
    assert_eq!(ids(fixture.claimable(user, Some("mail"), Some("b"), 2)), []);
    let numbers: Vec<_> = fixture
        .claimable(user, None, Some("b"), 3)
        .into_iter()
        .map(|it| {
            serde_json::from_str::<Value>(&it.payload.unwrap()).unwrap()["n"].as_i64().unwrap()
        })
        .collect();
    assert_eq!(numbers, [1, 3, 5]);
    assert_eq!(fixture.claimable(user, None, None, 100).len(), 23);
    let next =
        claim_next(&fixture.app, user, Some("mail".to_owned()), "w".to_owned()).wait().unwrap();
    assert_eq!((next.id, next.attempt, next.cue_name), (wanted[0], 1, "resize images".to_owned()));
    assert_eq!(
        code(claim_next(&fixture.app, user, Some("none".to_owned()), "w".to_owned()).wait()),
        ErrorCode::ClaimFailed
    );
}

#[test]
fn a_report_keeps_the_status_of_a_webhook_execution() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let mut cue = fixture.worker_cue(user, |_| ());
    cue.fields.transport = cue::Transport::Webhook;
    let id = fixture.run(&cue, json!({}));
    assert_eq!(
        code(claim(&fixture.app, user, id, "w".to_owned()).wait()),
        ErrorCode::AlreadyClaimed
    );
    fixture.report(user, id, false).unwrap();
    let seen = fixture.execution(user, id).execution;
    assert_eq!(seen.status, ExecutionStatus::Pending);
    assert_eq!(seen.outcome_state, Some(OutcomeState::ReportedFailure));
    assert_eq!(code(fixture.report(user, id, true)), ErrorCode::OutcomeAlreadyReported);
}

#[test]
fn executions_of_a_cue_are_paged_newest_first() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let (cue, other) = (fixture.worker_cue(user, |_| ()), fixture.worker_cue(user, |_| ()));
    let ids: Vec<ExecutionId> =
        (0..5).map(|number| fixture.run(&cue, json!({"n": number}))).collect();
    fixture.run(&other, json!({}));
    let page = |limit, offset| {
        let key = cue.key;
        let (page, total) =
            fixture.read(move |read| execution_list::list_by_cue(read, key, limit, offset));
        assert_eq!(total, 5);
        page.into_iter().map(|listed| listed.execution.id).collect::<Vec<_>>()
    };
    assert_eq!(page(2, 0), [ids[4], ids[3]]);
    assert_eq!(page(2, 4), [ids[0]]);
    assert_eq!(page(2, 6), []);
}

#[test]
fn a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    fixture.heartbeat(user, "w1");
    fixture.advance(60);
    record_heartbeat(&fixture.app, user, "w1".to_owned(), "[]".to_owned()).wait().unwrap();
    let list = || fixture.read(move |read| workers::list(read, user)).0;
    let workers = list();
    assert_eq!(workers.len(), 1);
    assert_eq!(workers[0].handlers.as_str(), "[]");
    assert_eq!(workers[0].registered_since, after_begin(0));
    assert_eq!(workers[0].last_heartbeat, after_begin(60));
    remove(&fixture.app, user, "w1".to_owned()).wait().unwrap();
    assert!(list().is_empty());
    assert_eq!(code(remove(&fixture.app, user, "w1".to_owned()).wait()), ErrorCode::WorkerNotFound);
}

#[test]
fn a_later_execution_cannot_be_claimed_before_its_time() {
    let fixture = Fixture::new();
    let user = fixture.user("ada");
    let mut new = fixture.new_execution(&fixture.worker_cue(user, |_| ()), &json!({}));
    let id = new.id;
    new.scheduled_for = after_begin(60);
    fixture.app.store.write(move |tx| executions::insert(tx, &new)).wait().unwrap();
    assert!(fixture.claimable(user, None, None, 10).is_empty());
    assert_eq!(
        code(claim(&fixture.app, user, id, "w".to_owned()).wait()),
        ErrorCode::AlreadyClaimed
    );
    assert_eq!(
        code(claim_next(&fixture.app, user, None, "w".to_owned()).wait()),
        ErrorCode::ClaimFailed
    );
    assert_eq!(fixture.execution(user, id).execution.next_retry, None);
    // A worker that did the work nevertheless may report it: then the execution is never listed.
    fixture.report(user, id, true).unwrap();
    assert_eq!(fixture.execution(user, id).execution.status, ExecutionStatus::Success);
}

const ROWS: u64 = 600;
const FILTERS: usize = 600;
const STATUSES: [ExecutionStatus; 5] = [
    ExecutionStatus::Pending,
    ExecutionStatus::Delivering,
    ExecutionStatus::Retrying,
    ExecutionStatus::Success,
    ExecutionStatus::Failed,
];
const TRIGGERS: [Trigger; 3] = [Trigger::Schedule, Trigger::ManualFire, Trigger::Replay];

/// The filterable fields of an execution, and its id.
struct Row {
    id: String,
    cue_id: String,
    status: ExecutionStatus,
    outcome: Option<&'static str>,
    worker: Option<&'static str>,
    trigger: Trigger,
    cause: Option<FailureCause>,
    original: Option<ExecutionId>,
    created_at: Timestamp,
}

/// The rows of a user, oldest first, among those of another user. Most are finished, as in any history.
fn rows(fixture: &Fixture, random: &mut Random) -> (UserKey, String, Vec<Row>) {
    let users = [fixture.user("ada"), fixture.user("bob")];
    let cues = [users[0], users[0], users[1]].map(|user| fixture.worker_cue(user, |_| ()));
    fixture.sql(&format!(
        r#"UPDATE cues SET tags = '["a"]'; UPDATE cues SET tags = '["b","a"]' WHERE key = {}"#,
        cues[0].key
    ));
    let failing = cues[1].key;
    let streak = "INSERT INTO consecutive_failures VALUES (?1, 2, 0, 0, 0)";
    fixture.app.store.write(move |tx| Ok(tx.execute(streak, [failing])?)).wait().unwrap();
    let originals = [1, 2].map(|byte| ExecutionId::from_bytes([byte; 16]));
    let mut created_at = fixture.now();
    let mut newest = created_at;
    let mut rows = Vec::new();
    for _ in 0..ROWS {
        // The clock is set back now and then, but never by an hour in all.
        let minutes = i64::try_from(random.below(9)).unwrap();
        created_at +=
            SignedDuration::from_mins(if random.below(20) == 0 { minutes - 30 } else { minutes });
        newest = newest.max(created_at);
        created_at = created_at.max(newest - SignedDuration::from_mins(59));
        let cause = [None, None, Some(FailureCause::Timeout), Some(FailureCause::Status5xx)];
        let cause = cause[usize::try_from(random.below(4)).unwrap()];
        let original = [None, Some(originals[0]), Some(originals[1])];
        let original = original[usize::try_from(random.below(3)).unwrap()];
        let cue = &cues[usize::try_from(random.below(3)).unwrap()];
        let status = match random.below(10) {
            0..=6 => ExecutionStatus::Success,
            other => {
                STATUSES[usize::try_from(other - 7).unwrap()
                    + usize::try_from(random.below(3)).unwrap()]
            }
        };
        let pick = |random: &mut Random, some: [Option<&'static str>; 3]| {
            some[usize::try_from(random.below(3)).unwrap()]
        };
        let outcome = pick(random, [None, Some("reported_success"), Some("verified_success")]);
        let worker = pick(random, [None, Some("w1"), Some("w2")]);
        let trigger = TRIGGERS[usize::try_from(random.below(3)).unwrap()];
        let (queue, due) = match status {
            ExecutionStatus::Pending if random.below(2) == 0 => (Some("waiting"), Some(1)),
            ExecutionStatus::Pending => (Some("claim"), None),
            ExecutionStatus::Retrying if random.below(2) == 0 => (Some("send"), None),
            ExecutionStatus::Retrying => (Some("waiting"), Some(1)),
            _ => (None, None),
        };
        let id = fixture.app.ids.next(created_at).unwrap();
        let (cue_key, user_key) = (cue.key, cue.user_key);
        let insert = fixture.app.store.write(move |tx| {
            let sql = "INSERT INTO executions (id, cue_key, user_key, transport, status, queue_name, due_at, destination_hash, scheduled_for,
                           triggered_by, attempts, last_attempt_at, claimed_by_worker, outcome_state, created_at, updated_at,
                           cause, replayed_from)
                       VALUES (?1, ?2, ?3, 'worker', ?4, ?5, ?6, 7, 0, ?7, 0, 0, ?8, ?9, ?10, 0, ?11, ?12)";
            let (status, trigger, at) = (status.as_str(), trigger.as_str(), created_at.as_millisecond());
            let (cause, original) = (cause.map(FailureCause::as_str), original.as_ref().map(ExecutionId::bytes));
            let key = (id.bytes(), cue_key, user_key);
            tx.execute(sql, params![key.0, key.1, key.2, status, queue, due, trigger, worker, outcome, at, cause, original])?;
            Ok(())
        });
        insert.wait().unwrap();
        if cue.user_key == users[0] {
            let (id, cue_id) = (id.to_string(), cue.id.clone());
            rows.push(Row {
                id,
                cue_id,
                status,
                outcome,
                worker,
                trigger,
                cause,
                original,
                created_at,
            });
        }
    }
    let count = "UPDATE backlog SET count = (SELECT count(*) FROM executions WHERE
        CASE name WHEN 'retry' THEN queue_name = 'waiting' AND status = 'retrying' ELSE queue_name = name END)";
    fixture.app.store.write(move |tx| Ok(tx.execute(count, [])?)).wait().unwrap();
    (users[0], cues[1].id.clone(), rows)
}

fn filter(random: &mut Random, rows: &[Row]) -> ExecutionFilter {
    let mut filter = ExecutionFilter::default();
    let mut one_in = |most: u64| random.below(most) == 0;
    let asked = (one_in(4), one_in(4), one_in(4), one_in(3), one_in(2));
    let more = (one_in(4), one_in(4), one_in(4), one_in(3), one_in(3));
    let row = &rows[usize::try_from(random.below(u64::try_from(rows.len()).unwrap())).unwrap()];
    filter.cue_id = asked.0.then(|| row.cue_id.clone());
    filter.worker_id = row.worker.filter(|_| asked.1).map(str::to_owned);
    filter.outcome_state = row.outcome.filter(|_| asked.2).and_then(OutcomeState::parse);
    filter.triggered_by = asked.3.then_some(row.trigger);
    filter.cause = row.cause.filter(|_| more.0);
    filter.replayed_from = row.original.filter(|_| more.1);
    filter.of_failing_cues = more.2;
    let tags: [&[&str]; 6] = [&[], &[], &["a"], &["b"], &["b", "a"], &["c"]];
    let tags = tags[usize::try_from(random.below(6)).unwrap()].iter();
    filter.tags = Tags::new(tags.map(|tag| (*tag).to_owned()).collect());
    let minutes = |minutes| SignedDuration::from_mins(i64::try_from(minutes).unwrap());
    filter.created.since = more.3.then_some(row.created_at);
    filter.created.until = more.4.then(|| row.created_at + minutes(random.below(2_000)));
    if asked.4 {
        filter.statuses = STATUSES.into_iter().filter(|_| random.below(2) == 0).collect();
    }
    filter
}

fn fits(row: &Row, filter: &ExecutionFilter, failing_cue: &str) -> bool {
    let CreatedRange { since, until } = filter.created;
    let outcome = filter.outcome_state.map(OutcomeState::as_str);
    filter.cue_id.as_ref().is_none_or(|id| *id == row.cue_id)
        && filter.worker_id.as_deref().is_none_or(|id| Some(id) == row.worker)
        && outcome.is_none_or(|state| Some(state) == row.outcome)
        && filter.triggered_by.is_none_or(|trigger| trigger == row.trigger)
        && filter.cause.is_none_or(|cause| Some(cause) == row.cause)
        && filter.replayed_from.is_none_or(|original| Some(original) == row.original)
        && (!filter.of_failing_cues || row.cue_id == failing_cue)
        && filter.tags.iter().all(|tag| tag == "a" || (tag == "b" && row.cue_id != failing_cue))
        && since.is_none_or(|since| row.created_at >= since)
        && until.is_none_or(|until| row.created_at < until)
        && (filter.statuses.is_empty() || filter.statuses.contains(&row.status))
}

#[test]
fn every_filter_and_page_matches_a_full_scan() {
    let fixture = Fixture::new();
    let mut random = Random::seeded("history");
    let (user, failing_cue, rows) = rows(&fixture, &mut random);
    for _ in 0..FILTERS {
        let filter = filter(&mut random, &rows);
        let (limit, offset) = (u32::try_from(random.below(100)).unwrap() + 1, random.below(ROWS));
        let expected: Vec<&str> = rows
            .iter()
            .rev()
            .filter(|row| fits(row, &filter, &failing_cue))
            .map(|row| row.id.as_str())
            .collect();
        let asked = filter.clone();
        let page = fixture
            .app
            .store
            .read(move |read| execution_list::list(read, user, &asked, limit, offset));
        let (page, total) = page.wait().unwrap();
        let shown: Vec<String> =
            page.iter().map(|listed| listed.execution.id.to_string()).collect();
        let wanted = expected
            .iter()
            .skip(usize::try_from(offset).unwrap())
            .take(usize::try_from(limit).unwrap());
        assert_eq!(shown, wanted.copied().collect::<Vec<_>>(), "{filter:?} {limit} {offset}");
        assert_eq!(total, i64::try_from(expected.len()).unwrap(), "{filter:?}");
    }
}

/// The work of a list in SQLite's virtual machine, in calls of the progress handler.
fn cost(fixture: &Fixture, user: UserKey, filter: &ExecutionFilter) -> usize {
    let (steps, filter) = (Arc::new(AtomicUsize::new(0)), filter.clone());
    let counter = Arc::clone(&steps);
    let read = fixture.app.store.read(move |read| {
        let count = move || {
            counter.fetch_add(1, Ordering::SeqCst);
            false
        };
        read.progress_handler(1, Some(count))?;
        let page = execution_list::list(read, user, &filter, 20, 0)?;
        read.progress_handler(0, None::<fn() -> bool>)?;
        Ok(page)
    });
    assert!(!read.wait().unwrap().0.is_empty());
    steps.load(Ordering::SeqCst)
}

#[test]
fn the_cost_of_a_list_does_not_depend_on_the_executions_of_others() {
    let fixture = Fixture::new().without_counter_check();
    let (user, other) = (fixture.user("ada"), fixture.user("eve"));
    let (cue, crowd) = (fixture.worker_cue(user, |_| ()), fixture.worker_cue(other, |_| ()));
    let fill = |user: UserKey, cue: CueKey, count: usize, seed: &str| {
        // Status, queue, due_at, lease_expires_at.
        let states = [
            "'pending', 'waiting', 1, NULL",
            "'retrying', 'waiting', 1, NULL",
            "'pending', 'claim', NULL, NULL",
            "'delivering', NULL, NULL, 1",
            "'success', NULL, NULL, NULL",
        ];
        for (number, state) in states.iter().enumerate() {
            fixture.sql(&format!(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
                 INSERT INTO executions (id, cue_key, user_key, transport, status, queue_name, due_at,
                     lease_expires_at, last_attempt_at, claimed_by_worker, outcome_state, scheduled_for, triggered_by,
                     attempts, created_at, updated_at)
                 SELECT CAST(printf('{seed}%1d%014d', {number}, i) AS BLOB), {cue}, {user}, 'worker', {state}, 0, 'w',
                     'reported_success', 0, 'manual_fire', 0, 0, 0 FROM n"
            ));
        }
    };
    fill(user, cue.key, 5, "a");
    let all = ExecutionFilter::default;
    let filters = [
        all(),
        ExecutionFilter { statuses: vec![ExecutionStatus::Pending], ..all() },
        ExecutionFilter {
            statuses: vec![ExecutionStatus::Delivering, ExecutionStatus::Retrying],
            ..all()
        },
        ExecutionFilter { statuses: STATUSES.to_vec(), ..all() },
        ExecutionFilter { worker_id: Some("w".to_owned()), ..all() },
        ExecutionFilter { outcome_state: OutcomeState::parse("reported_success"), ..all() },
        ExecutionFilter { triggered_by: Some(Trigger::ManualFire), ..all() },
        ExecutionFilter { cue_id: Some(cue.id.clone()), ..all() },
    ];
    let costs = || filters.iter().map(|filter| cost(&fixture, user, filter)).collect::<Vec<_>>();
    let alone = costs();
    fill(other, crowd.key, 2_000, "b");
    for ((filter, alone), beside) in filters.iter().zip(alone).zip(costs()) {
        // A reader thread that runs a statement for the first time also prepares it. Reading the rows of the other
        // would take several steps for each of 2,000.
        assert!(
            beside < alone + 1_000,
            "{filter:?}: {alone} steps alone, {beside} beside another user"
        );
    }
}
