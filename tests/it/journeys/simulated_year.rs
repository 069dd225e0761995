//! A simulated year (a week in the everyday run) of a cue that runs every five minutes, while the process is killed and
//! restarted at random instants: each due instant has exactly one execution or is counted as missed exactly once.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cued::store::db::counters;
use rusqlite::Connection;
use serde_json::json;

use crate::support::client::Client;
use crate::support::random::Random;
use crate::support::server::{DEV_UNLIMITED, Server, is_full_run};

const START: i64 = 1_767_225_600; // 2026-01-01T00:00:00Z
const STEP: i64 = 300;

fn instant(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

#[test]
fn every_due_instant_runs_once_or_is_missed_once() {
    let mut random = Random::seeded("year");
    let (days, kills) = if is_full_run() { (365, 120) } else { (7, 12) };
    let end = START + days * 86_400;
    // The end of the test counts all of the history. No worker claims it, so that the retained part would be scanned
    // for years.
    let begin = instant(START);
    let flags = [DEV_UNLIMITED, &["--test-clock", &begin, "--retain", "off"]].concat();
    let mut server = Server::start(&flags);
    let mut user = server.user();
    let cues = ["latest", "all", "none"].map(|catch_up| {
        let schedule = json!({"type": "recurring", "cron": "*/5 * * * *", "catch_up": catch_up});
        let cue = user.create(&json!({"name": catch_up, "transport": "worker", "schedule": schedule}));
        cue["id"].as_str().unwrap().to_owned()
    });
    let mut now = START;
    for kill in 0..kills {
        let left = end - now;
        let target = now
            + left / (kills - kill) / 2
            + i64::try_from(random.below(1 + left.unsigned_abs() / 16)).unwrap();
        if random.below(2) == 0 {
            user.advance_to(&instant(target));
        } else {
            // The kill comes at a random point of the move, from its start to its usual duration.
            kill_while_moving(&user, target, Duration::from_micros(random.below(150_000)), &mut server);
        }
        server.kill();
        // From seconds to more than the hundred runs of a catch-up.
        let away = [10, 400, 7_200, 100_000][usize::try_from(random.below(4)).unwrap()];
        now = (target + i64::try_from(random.below(away)).unwrap()).min(end);
        server.restart_at(&instant(now));
        user = user.at(server.addr());
    }
    user.advance_to(&instant(end));
    assert_eq!(server.stop(), Some(0));
    let file = server.sqlite();
    let integrity: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    assert_eq!(counters::discrepancies(&file).unwrap(), Vec::<String>::new());
    for cue in &cues {
        account_for(&file, cue, end);
    }
}

fn kill_while_moving(user: &Client, target: i64, patience: Duration, server: &mut Server) {
    let (done, waiting) = mpsc::channel();
    let moving = user.clone();
    let mover = thread::spawn(move || {
        // The kill ends the request more often than its response.
        drop(moving.try_post("/v1/test/clock", &json!({"to": instant(target)})));
        done.send(()).unwrap_or_default();
    });
    waiting.recv_timeout(patience).unwrap_or_default();
    server.kill();
    mover.join().unwrap();
}

/// Checks that every due instant of the cue from its creation to `end` occurs exactly once.
fn account_for(file: &Connection, cue: &str, end: i64) {
    let mut left: BTreeSet<i64> = (1..=(end - START) / STEP).map(|step| START + step * STEP).collect();
    let due = left.len();
    let sql = "SELECT e.scheduled_for FROM executions e JOIN cues c ON c.key = e.cue_key WHERE c.id = ?1";
    let mut statement = file.prepare(sql).unwrap();
    let executed: Vec<i64> =
        statement.query_map([cue], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    for scheduled_for in &executed {
        assert!(
            left.remove(&(scheduled_for / 1_000)),
            "{cue}: not due or run twice: {}",
            instant(scheduled_for / 1_000)
        );
    }
    let sql =
        "SELECT m.first, m.last, m.count FROM missed_runs m JOIN cues c ON c.key = m.cue_key WHERE c.id = ?1";
    let mut statement = file.prepare(sql).unwrap();
    let rows = statement.query_map([cue], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    for (first, last, count) in rows.map(Result::<(i64, i64, i64), _>::unwrap) {
        let gap: Vec<i64> = left.range(first / 1_000..=last / 1_000).copied().collect();
        let bounds = (gap.first().copied(), gap.last().copied());
        assert_eq!(
            bounds,
            (Some(first / 1_000), Some(last / 1_000)),
            "{cue}: the gap's ends are due and not yet counted"
        );
        assert_eq!(
            i64::try_from(gap.len()).unwrap(),
            count,
            "{cue}: {}..{}",
            instant(first / 1_000),
            instant(last / 1_000)
        );
        for counted in gap {
            left.remove(&counted);
        }
    }
    let lost: Vec<String> = left.into_iter().map(instant).collect();
    assert!(
        lost.is_empty(),
        "{cue}: {} of {due} due instants are lost: {:?}",
        lost.len(),
        &lost[..lost.len().min(5)]
    );
    eprintln!("{cue}: {due} due, {} run, {} missed", executed.len(), due - executed.len());
}
