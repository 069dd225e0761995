//! A clock that was ahead and believed, until `cued clock accept`.

use std::collections::BTreeMap;

use cued::store::Store;
use cued::store::maintenance::clock_accept;
use jiff::Timestamp;
use serde_json::json;
use tempfile::TempDir;

use crate::faults::clock::{MINUTE, Machine, NOON, healthy, hourly, scheduled};
use crate::support::api::User;
use crate::support::server::until;

/// How often each instant of an hourly cue has run or is recorded as missed.
fn accounted(machine: &Machine, user: &User, id: &str) -> BTreeMap<Timestamp, usize> {
    let (mut found, cue) = (BTreeMap::new(), id.to_owned());
    let runs = machine.api.fixture.write(move |tx| {
        let mut runs = tx
            .prepare(
                "SELECT scheduled_for FROM executions JOIN cues ON cues.key = cue_key WHERE cues.id = ?1",
            )
            .unwrap();
        let read = runs.query_map([cue], |row| row.get::<_, i64>(0)).unwrap();
        read.collect::<rusqlite::Result<Vec<_>>>().unwrap()
    });
    for run in runs {
        *found.entry(Timestamp::from_millisecond(run).unwrap()).or_default() += 1;
    }
    for gap in machine.missed(user, id).as_array().unwrap() {
        let at = |field: &str| gap[field].as_str().unwrap().parse::<Timestamp>().unwrap();
        let (mut next, mut count) = (at("first"), 0);
        while next <= at("last") {
            *found.entry(next).or_default() += 1;
            (next, count) = (next + 60 * MINUTE, count + 1);
        }
        assert_eq!(gap["count"], count, "{gap}");
    }
    found
}

/// A machine whose clock was five days ahead and believed, and is right again at 12:45, and its two hourly cues. The newest
/// hundred of the hours that the jump has skipped have fired for the second one.
fn back_from_the_future(folder: &TempDir) -> (Machine, User, [String; 2]) {
    let machine = Machine::boots(folder, NOON);
    let user = machine.api.user("ann");
    let ids = ["latest", "all"].map(|catch_up| {
        scheduled(&user, &json!({"type": "recurring", "cron": "0 * * * *", "catch_up": catch_up}))
    });
    machine.set_for_good("2026-03-06T12:30:30Z");
    until("the hours catch up", || {
        (machine.cue(&user, &ids[1])["run_count"] == 100 && machine.instants(&user, &ids[0]).len() == 1)
            .then_some(())
    });
    machine.set("2026-03-01T12:45:00Z");
    (machine, user, ids)
}

#[test]
fn a_clock_that_was_ahead_is_told_everywhere_and_accepted_without_a_second_run() {
    let folder = TempDir::new().unwrap();
    let (machine, user, ids) = back_from_the_future(&folder);
    assert_eq!(machine.state(&user), ("degraded".to_owned(), "clock_behind".to_owned()));
    let health = user.get("/health").json();
    assert_eq!(health["clock_behind_until"], "2026-03-06T12:30:30Z");
    let reason = health["reason"].as_str().unwrap();
    assert!(reason.contains("2026-03-06T12:30:30Z") && reason.contains("cued clock accept"), "{reason}");
    let overview = user.get("/v1/overview").json();
    assert_eq!(
        (&overview["server"]["status"], &overview["server"]["reason"]),
        (&json!("degraded"), &health["reason"])
    );
    let alerts =
        || user.get("/v1/alerts?alert_type=clock_behind").json()["alerts"].as_array().unwrap().clone();
    machine.elapse(9 * MINUTE);
    assert_eq!(alerts().len(), 0, "a boot without a battery is over by then");
    machine.elapse(140 * MINUTE);
    machine.elapse(MINUTE);
    assert_eq!(alerts().len(), 1, "{:?}", alerts());
    assert_eq!((&alerts()[0]["severity"], &alerts()[0]["cue_id"]), (&json!("critical"), &json!(null)));
    assert_eq!(machine.cue(&user, &ids[0])["next_run"], "2026-03-06T13:00:00+00:00");

    let app = &machine.api.fixture.app;
    let accepted = clock_accept::accept(&app.store, app.clock.now()).unwrap();
    assert_eq!(
        (accepted.newest, accepted.cues, accepted.missed),
        (Some("2026-03-06T12:30:30Z".parse().unwrap()), 2, 2)
    );
    machine.wait_for_pass();
    assert_eq!(machine.state(&user), healthy());
    for id in &ids {
        let missed = json!([{"first": "2026-03-01T13:00:00Z", "last": "2026-03-01T15:00:00Z", "count": 3, "reason": "clock"}]);
        let cue = machine.cue(&user, id);
        assert_eq!(
            (&cue["next_run"], &cue["missed_count"]),
            (&json!("2026-03-01T16:00:00+00:00"), &json!(3))
        );
        assert_eq!(machine.missed(&user, id), missed);
    }
    let again = clock_accept::accept(&app.store, app.clock.now()).unwrap();
    assert_eq!((again.newest, again.cues), (None, 0));
    // An hour at a time, past the instant that the clock had shown.
    for _ in 0..122 {
        machine.elapse(60 * MINUTE);
    }
    for id in &ids {
        let accounted = accounted(&machine, &user, id);
        let hours = Timestamp::from_second(1_772_370_000).unwrap();
        let expected: BTreeMap<_, _> = (0..125).map(|hour| (hours + hour * 60 * MINUTE, 1)).collect();
        assert_eq!(accounted, expected);
    }
    machine.stops();
}

#[test]
fn a_file_without_a_server_is_accepted_as_well() {
    let folder = TempDir::new().unwrap();
    let (machine, user, ids) = back_from_the_future(&folder);
    machine.stops();
    let machine = Machine::boots(&folder, "2026-03-01T12:50:00Z");
    let user = machine.api.reconnect(&user);
    assert_eq!(machine.state(&user).1, "clock_behind", "after a restart too");
    machine.stops();
    let db = folder.path().join("cued.db");
    let store = Store::open_shared(&db).unwrap();
    assert_eq!(clock_accept::accept(&store, "2026-03-01T12:55:00Z".parse().unwrap()).unwrap().cues, 2);
    drop(store);
    let machine = Machine::boots(&folder, "2026-03-01T14:10:00Z");
    let user = machine.api.reconnect(&user);
    until("the runs since then catch up", || (machine.cue(&user, &ids[1])["run_count"] == 102).then_some(()));
    assert_eq!((machine.state(&user), machine.missed(&user, &ids[1])), (healthy(), json!([])));
    machine.stops();
}

#[test]
fn a_jump_that_is_right_can_be_accepted_at_once() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let id = hourly(&user);
    machine.set("2026-03-03T12:00:30Z");
    assert_eq!(machine.state(&user).1, "clock_ahead");
    let store = &machine.api.fixture.app.store;
    assert_eq!(clock_accept::accept(store, "2026-03-03T12:00:30Z".parse().unwrap()).unwrap().newest, None);
    machine.wait_for_pass();
    until("the newest run fires", || {
        (machine.instants(&user, &id) == ["2026-03-03T12:00:00Z"]).then_some(())
    });
    assert_eq!(machine.state(&user), healthy());
    machine.stops();
}

/// Nothing was wrong: a run that falls due before the next pass of the server is on time.
#[test]
fn accepting_a_clock_that_is_right_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, "2026-03-01T12:00:58Z");
    let user = machine.api.user("ann");
    let id = scheduled(&user, &json!({"type": "recurring", "cron": "* * * * *", "catch_up": "none"}));
    let store = &machine.api.fixture.app.store;
    assert_eq!(clock_accept::accept(store, "2026-03-01T12:00:58Z".parse().unwrap()).unwrap().newest, None);
    machine.set("2026-03-01T12:01:00Z");
    until("the run fires", || (machine.instants(&user, &id) == ["2026-03-01T12:01:00Z"]).then_some(()));
    assert_eq!(machine.missed(&user, &id), json!([]));
    machine.stops();
}
