//! The process is killed in the middle of a herd, while workers claim and report and users create: acknowledged writes
//! are present, due work is done, and no execution runs twice at once.

use std::io;
use std::sync::Barrier;

use cued::store::db::counters;
use rusqlite::Connection;
use uuid::Uuid;

use crate::support::*;

/// Cues due at one instant, half of them webhook cues and half worker cues.
const HERD: usize = 2_000;
const START: i64 = 1_767_225_600; // 2026-01-01T00:00:00Z

/// Everything the server has acknowledged, over all rounds.
#[derive(Default)]
struct AcknowledgedWrites {
    /// Cues by id, each with two flags: part of the herd (and so due), webhook.
    created: Mutex<BTreeMap<String, (bool, bool)>>,
    /// Executions and the worker of each claim.
    claimed: Mutex<BTreeMap<String, String>>,
    /// Executions and the reported result.
    reported: Mutex<BTreeMap<String, String>>,
}

fn instant(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

#[test]
fn a_kill_loses_no_acknowledged_write_and_no_due_run() {
    let rounds = if is_full_run() { 20 } else { 3 };
    let mut random = Random::seeded("crash");
    let (folder, receiver) = (folder_in_memory(), Receiver::start());
    let clock = ["--test-clock", &instant(START)];
    let mut server =
        Server::start_on(&folder.path().join("cued.db"), &[DEV_UNLIMITED, &clock].concat());
    let mut user = server.user().unchecked();
    let acknowledged = AcknowledgedWrites::default();
    let mut now = START;
    for round in 0..rounds {
        create_herd(&user, &receiver, now + 5, &acknowledged);
        let before = receiver.count();
        let victims = usize::try_from(random.below(HERD as u64 / 2)).unwrap();
        let others_run = Barrier::new(7);
        thread::scope(|scope| {
            for number in 0..3 {
                let (client, acknowledged, start) = (user.clone(), &acknowledged, &others_run);
                let worker = format!("worker-{round}-{number}");
                scope.spawn(move || work(&client, &worker, acknowledged, start));
                let (client, url) = (user.clone(), receiver.url());
                scope.spawn(move || create_until_cut(&client, &url, acknowledged, start));
            }
            others_run.wait();
            let mover = user.clone();
            let target = instant(now + 5);
            scope.spawn(move || drop(mover.try_post("/v1/test/clock", &json!({"to": target}))));
            receiver.wait_for(before + victims);
            server.kill();
        });
        now += 6;
        user = user.at(server.restart_at(&instant(now)));
        user.settle();
    }
    finish_claims(&user, &acknowledged);
    drain(&user, &server.sqlite());
    assert_eq!(server.stop(), Some(0));
    check(&server.sqlite(), &receiver, &acknowledged);
}

/// Cues of the catch-up below, each with a run missed in every year since 2020.
const LATE: usize = 1_000;

#[test]
fn a_kill_amid_the_catch_up_loses_and_repeats_no_missed_run() {
    let (mut server, user) = Server::with_user(&["--dev", "--limits", "off"]);
    let yearly = json!({"type": "recurring", "cron": "0 0 1 1 *", "catch_up": "all"});
    let cue = json!({"name": "work", "schedule": yearly, "transport": "worker"});
    thread::scope(|scope| {
        for _ in 0..8 {
            let (client, cue) = (user.clone(), &cue);
            scope.spawn(move || (0..LATE / 8).for_each(|_| drop(client.create(cue))));
        }
    });
    server.stop();
    let file = server.sqlite();
    let overdue = "UPDATE cues SET next_run = unixepoch('2020-01-01') * 1000";
    assert_eq!(file.execute(overdue, []).unwrap(), LATE);
    let runs = usize::from(jiff::Zoned::now().year().unsigned_abs()) - 2019;
    let count = |sql: &str| -> usize {
        usize::try_from(file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()).unwrap()
    };
    for share in 1..4 {
        server.restart();
        until_true("a part has caught up", || {
            count("SELECT count(*) FROM executions") >= share * LATE * runs / 8
        });
        server.kill();
    }
    // Every kill came after the catch-up.
    assert!(count("SELECT count(*) FROM executions") < LATE * runs);
    let user = user.at(server.restart());
    until_true("all have caught up", || {
        count("SELECT count(*) FROM cues WHERE next_run < unixepoch() * 1000") == 0
    });
    assert_eq!(count("SELECT count(*) FROM executions"), LATE * runs);
    assert_eq!(
        count("SELECT count(*) FROM (SELECT DISTINCT cue_key, scheduled_for FROM executions)"),
        LATE * runs
    );
    assert_eq!(count("SELECT sum(missed_count) FROM cues"), 0);
    let alerts = user.read("/v1/alerts?alert_type=catch_up");
    let caught_up: i64 =
        alerts.list("alerts").iter().filter_map(|it| it["metadata"]["runs"].as_i64()).sum();
    assert_eq!(usize::try_from(caught_up).unwrap(), LATE * runs, "{alerts}");
}

fn cue(number: usize, due: Option<i64>, url: &str) -> Value {
    let schedule = match due {
        Some(due) => json!({"type": "once", "at": instant(due)}),
        None => json!({"type": "recurring", "cron": "0 0 1 1 *"}),
    };
    if number.is_multiple_of(2) {
        json!({"name": "hook", "schedule": schedule, "callback": {"url": url}})
    } else {
        json!({"name": "work", "schedule": schedule, "transport": "worker"})
    }
}

fn create_herd(user: &Client, receiver: &Receiver, due: i64, acknowledged: &AcknowledgedWrites) {
    thread::scope(|scope| {
        for part in 0..8 {
            let (client, url) = (user.clone(), receiver.url());
            scope.spawn(move || {
                for number in (part..HERD).step_by(8) {
                    let created = client.create(&cue(number, Some(due), &url));
                    let id = id(&created).to_owned();
                    acknowledged
                        .created
                        .lock()
                        .unwrap()
                        .insert(id, (true, number.is_multiple_of(2)));
                }
            });
        }
    });
}

/// Creates cues that are not due, until the server is gone.
fn create_until_cut(
    client: &Client,
    url: &str,
    acknowledged: &AcknowledgedWrites,
    start: &Barrier,
) {
    start.wait();
    for number in 0_usize.. {
        let Ok(response) = client.try_post("/v1/cues", &cue(number, None, url)) else { return };
        let id = response.expect(201).text("id").to_owned();
        acknowledged.created.lock().unwrap().insert(id, (false, number.is_multiple_of(2)));
    }
}

/// Claims and reports until the server is gone; every second claim is not reported.
fn work(client: &Client, worker: &str, acknowledged: &AcknowledgedWrites, start: &Barrier) {
    start.wait();
    for number in 0_usize.. {
        match claim(client, worker, acknowledged) {
            Err(_) => return,
            Ok(None) => {}
            Ok(Some(_)) if number.is_multiple_of(2) => {}
            Ok(Some(execution)) => {
                if report(client, &execution, worker, acknowledged).is_err() {
                    return;
                }
            }
        }
    }
}

fn claim(
    client: &Client,
    worker: &str,
    acknowledged: &AcknowledgedWrites,
) -> io::Result<Option<String>> {
    let response = client.try_post("/v1/executions/claim", &json!({"worker_id": worker}))?;
    if response.status == 409 {
        response.expect_error(409, "claim_failed");
        return Ok(None);
    }
    let id = response.expect(200).text("execution_id").to_owned();
    let earlier = acknowledged.claimed.lock().unwrap().insert(id.clone(), worker.to_owned());
    assert_eq!(earlier, None, "{id} was claimed twice");
    Ok(Some(id))
}

fn report(
    client: &Client,
    execution: &str,
    result: &str,
    acknowledged: &AcknowledgedWrites,
) -> io::Result<Response> {
    let outcome = json!({"success": true, "result": result});
    let response = client.try_post(&format!("/v1/executions/{execution}/outcome"), &outcome)?;
    if response.status == 200 {
        acknowledged.reported.lock().unwrap().insert(execution.to_owned(), result.to_owned());
    } else {
        // Stored by a request whose response was lost with the server.
        response.expect_error(409, "outcome_already_reported");
    }
    Ok(response)
}

/// Reports the unreported claims: an acknowledged claim survives the kill.
fn finish_claims(user: &Client, acknowledged: &AcknowledgedWrites) {
    let claimed = acknowledged.claimed.lock().unwrap().clone();
    let reported: BTreeSet<String> =
        acknowledged.reported.lock().unwrap().keys().cloned().collect();
    for (execution, worker) in claimed.iter().filter(|(id, _)| !reported.contains(*id)) {
        let seen = user.execution(execution);
        assert_eq!(seen["claimed_by_worker"], worker.as_str(), "{seen}");
        report(user, execution, worker, acknowledged).unwrap();
    }
}

/// Finishes unclaimed executions, and those with an unacknowledged claim.
fn drain(user: &Client, file: &Connection) {
    let nobody = &AcknowledgedWrites::default();
    thread::scope(|scope| {
        for client in [(); 8].map(|()| user.clone()) {
            scope.spawn(move || {
                while let Some(execution) = claim(&client, "the-last", nobody).unwrap() {
                    report(&client, &execution, "the-last", nobody).unwrap();
                }
            });
        }
    });
    let mut statement =
        file.prepare("SELECT id FROM executions WHERE status = 'delivering'").unwrap();
    let ids = statement.query_map([], |row| row.get(0)).unwrap();
    for id in ids.map(|id| Uuid::from_bytes(id.unwrap()).to_string()) {
        report(user, &id, "the-last", nobody).unwrap().expect(200);
    }
}

fn check(file: &Connection, receiver: &Receiver, acknowledged: &AcknowledgedWrites) {
    let integrity: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    assert_eq!(counters::discrepancies(file).unwrap(), Vec::<String>::new());
    assert_eq!(receiver.overlaps(), Vec::<String>::new(), "two requests of one execution at once");

    let sql = "SELECT c.id, count(e.key), coalesce(min(e.status), '') FROM cues c \
               LEFT JOIN executions e ON e.cue_key = c.key GROUP BY c.key";
    let mut statement = file.prepare(sql).unwrap();
    let stored: BTreeMap<String, (i64, String)> = statement
        .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let delivered: BTreeSet<String> =
        receiver.deliveries().into_iter().map(|it| it.cue_id).collect();
    let created = acknowledged.created.lock().unwrap();
    for (id, (due, by_webhook)) in created.iter() {
        let expected = if *due { (1, "success".to_owned()) } else { (0, String::new()) };
        assert_eq!(stored.get(id), Some(&expected), "{id}: due {due}, webhook {by_webhook}");
        assert_eq!(delivered.contains(id), *due && *by_webhook, "{id}");
    }

    let sql = "SELECT e.id, coalesce(e.claimed_by_worker, ''), coalesce(o.result, '') FROM executions e \
               JOIN outcomes o ON o.execution_key = e.key";
    let mut statement = file.prepare(sql).unwrap();
    let row = |row: &rusqlite::Row<'_>| {
        Ok((Uuid::from_bytes(row.get(0)?).to_string(), (row.get(1)?, row.get(2)?)))
    };
    let outcomes: BTreeMap<String, (String, String)> =
        statement.query_map([], row).unwrap().map(Result::unwrap).collect();
    for (execution, worker) in acknowledged.claimed.lock().unwrap().iter() {
        assert_eq!(outcomes[execution].0, *worker, "the claim of {execution}");
    }
    for (execution, result) in acknowledged.reported.lock().unwrap().iter() {
        assert_eq!(outcomes[execution].1, *result, "the outcome of {execution}");
    }
    eprintln!(
        "{} cues, {} deliveries, {} claims and {} outcomes acknowledged",
        created.len(),
        receiver.count(),
        acknowledged.claimed.lock().unwrap().len(),
        acknowledged.reported.lock().unwrap().len()
    );
}
