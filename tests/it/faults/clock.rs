//! Jumps of the clock, and accepting it.

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::account::plan::Plans;
use cued::domain::schedule::wall_clock::PROOF_TIME;
use cued::engine::Engine;
use cued::store::Store;
use cued::store::maintenance::clock_accept;

use crate::support::*;

pub const NOON: &str = "2026-03-01T12:00:00Z";
pub const MINUTE: Duration = Duration::from_secs(60);

pub fn healthy() -> (String, String) {
    ("healthy".to_owned(), "ok".to_owned())
}

/// The whole program on a manual system clock.
pub struct Machine {
    pub api: Api,
    engine: Engine,
    webhook_client: Arc<RecordingClient>,
}

impl Machine {
    pub fn boots(folder: &TempDir, at: &str) -> Self {
        let clock = Clock::manual(at.parse().unwrap());
        let config = Config {
            // The test polls without a rate limit.
            plans: Plans::default().limited(false),
            ..Config::new(folder.path().join("cued.db"))
        };
        let app = App::open(clock, config).unwrap();
        let api = Api::from_fixture(Fixture::from_app(app));
        let webhook_client = Arc::new(RecordingClient::default());
        let engine = Engine::start(&api.fixture.app, Arc::clone(&webhook_client) as _).unwrap();
        Self { api, engine, webhook_client }
    }

    /// Sets the clock and waits for a pass of the scheduler.
    pub fn set(&self, to: &str) {
        self.api.fixture.app.clock.set(to.parse().unwrap());
        self.wait_for_pass();
    }

    /// The same for a jump of more than a day that lasts until it is believed, at `to`.
    pub fn set_for_good(&self, to: &str) {
        self.api.fixture.app.clock.set(to.parse::<Timestamp>().unwrap() - PROOF_TIME);
        self.wait_for_pass();
        self.elapse(PROOF_TIME);
    }

    /// Lets time pass on the clock, right or wrong.
    pub fn elapse(&self, span: Duration) {
        self.api.fixture.app.clock.elapse(span);
        self.wait_for_pass();
    }

    pub fn wait_for_pass(&self) {
        let app = &self.api.fixture.app;
        let turns = app.engine_stats.passes.get();
        until("the scheduler has turned", || {
            app.notifiers.schedule.notify();
            // The first pass may have started before the clock was set.
            (app.engine_stats.passes.get() > turns + 1).then_some(())
        });
    }

    pub fn cue(&self, user: &User, id: &str) -> Value {
        let found = user.get(&format!("/v1/cues/{id}"));
        assert_eq!(found.status, 200, "{}", found.text());
        found.json()
    }

    pub fn instants(&self, user: &User, id: &str) -> Vec<String> {
        let cue = self.cue(user, id);
        let executions = cue.list("executions");
        executions.iter().map(|it| it.text("scheduled_for").to_owned()).collect()
    }

    pub fn missed(&self, user: &User, id: &str) -> Value {
        user.get(&format!("/v1/cues/{id}/missed")).json()["missed"].clone()
    }

    /// The state of the server, and of its scheduler.
    pub fn state(&self, user: &User) -> (String, String) {
        let health = user.get("/health").json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        assert_eq!(user.get("/status").json()["status"], health["status"]);
        (text(&health["status"]), text(&health["services"]["poller"]))
    }

    pub fn fire(&self, user: &User, id: &str) {
        let delivered = self.webhook_client.requests().len();
        assert_eq!(user.post(&format!("/v1/cues/{id}/fire"), &json!({})).status, 200);
        until_true("the manual run is delivered", || {
            self.webhook_client.requests().len() > delivered
        });
    }

    pub fn stops(self) {
        self.engine.stop();
    }
}

pub fn hourly(user: &User) -> String {
    scheduled(user, &json!({"type": "recurring", "cron": "0 * * * *"}))
}

pub fn scheduled(user: &User, schedule: &Value) -> String {
    let callback = json!({"url": "https://example.com/"});
    let created =
        user.post("/v1/cues", &json!({"name": "hook", "schedule": schedule, "callback": callback}));
    assert_eq!(created.status, 201, "{}", created.text());
    created.json().text("id").to_owned()
}

#[test]
fn clock_jumps_of_twelve_hours_lose_no_instant_and_fire_still_works() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let id = hourly(&user);

    machine.set("2026-03-02T00:00:30Z");
    until_true("the newest run fires", || machine.instants(&user, &id).len() == 1);
    assert_eq!(machine.instants(&user, &id), ["2026-03-02T00:00:00Z"]);
    let missed = user.get(&format!("/v1/cues/{id}/missed")).json();
    let expected = json!([{
        "first": "2026-03-01T13:00:00Z", "last": "2026-03-01T23:00:00Z", "count": 11, "reason": "clock",
    }]);
    assert_eq!(missed["missed"], expected);

    machine.set("2026-03-01T12:01:00Z");
    for hour in 13..16 {
        machine.set(&format!("2026-03-01T{hour}:00:01Z"));
    }
    // The runs of these hours have fired or are missed.
    assert_eq!(machine.instants(&user, &id).len(), 1);
    machine.fire(&user, &id);
    assert_eq!(machine.cue(&user, &id)["next_run"], "2026-03-02T01:00:00+00:00");

    machine.set("2026-03-02T01:00:01Z");
    until_true("the cue fires again", || machine.instants(&user, &id).len() == 3);
    assert_eq!(machine.instants(&user, &id)[0], "2026-03-02T01:00:00Z");
    machine.stops();
}

#[test]
fn a_machine_booted_in_1970_runs_manually_and_catches_up_once_its_clock_is_set() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let id = hourly(&user);
    machine.set("2026-03-01T12:00:30Z");
    machine.stops();

    let machine = Machine::boots(&folder, "1970-01-01T00:00:10Z");
    let user = machine.api.reconnect(&user);
    machine.set("1970-01-01T02:00:00Z");
    assert_eq!(machine.instants(&user, &id), [""; 0], "nothing fires by schedule");
    machine.fire(&user, &id);
    assert_eq!(machine.state(&user), ("degraded".to_owned(), "clock_behind".to_owned()));
    machine.set("2026-03-01T15:30:00Z");
    assert_eq!(machine.state(&user), healthy());
    until("the newest run fires", || {
        machine
            .instants(&user, &id)
            .first()
            .is_some_and(|it| it == "2026-03-01T15:00:00Z")
            .then_some(())
    });
    // The run of 1970 is decades old by its date, and was made after the clock had shown 2026.
    machine.set("2026-03-01T15:31:00Z");
    assert_eq!(machine.instants(&user, &id)[1], "1970-01-01T02:00:00Z");
    assert_eq!(machine.cue(&user, &id)["missed_count"], 2);
    machine.stops();
}

#[test]
fn a_clock_that_is_far_ahead_for_a_while_deletes_no_history() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let id = hourly(&user);
    machine.fire(&user, &id);
    machine.set("2026-03-01T12:01:00Z");
    machine.set_for_good("2099-01-01T00:00:30Z");
    until_true("the newest run fires", || machine.instants(&user, &id).len() == 2);
    machine.set("2099-01-01T00:01:30Z");
    assert_eq!(machine.instants(&user, &id), ["2099-01-01T00:00:00Z", NOON]);
    machine.stops();
    // The same for a process that starts while the clock is ahead.
    let machine = Machine::boots(&folder, "2098-01-01T00:00:30Z");
    let user = machine.api.reconnect(&user);
    machine.set("2098-01-01T00:01:30Z");
    machine.set("2026-03-01T12:10:00Z");
    assert_eq!(machine.instants(&user, &id), ["2099-01-01T00:00:00Z", NOON]);
    machine.stops();
}

#[test]
fn a_start_at_the_date_of_an_image_loses_no_history() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let id = hourly(&user);
    machine.set(NOON);
    machine.stops();
    let machine = Machine::boots(&folder, "2024-05-01T00:00:00Z");
    let user = machine.api.reconnect(&user);
    machine.set("2024-05-01T00:00:05Z");
    machine.fire(&user, &id);
    machine.set("2025-05-01T00:00:00Z");
    machine.fire(&user, &id);
    machine.stops();
    let machine = Machine::boots(&folder, "2026-03-01T12:10:00Z");
    let user = machine.api.reconnect(&user);
    machine.set("2026-03-01T12:11:00Z");
    assert_eq!(machine.instants(&user, &id), ["2025-05-01T00:00:00Z", "2024-05-01T00:00:05Z"]);
    machine.stops();
}

#[test]
fn a_clock_that_is_ahead_for_a_while_drops_no_stored_response_and_no_worker() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let id = hourly(&user);
    machine.set(NOON);
    let repeat = |user: &User, key: &str| {
        let headers = [("Idempotency-Key", key), ("Content-Type", "application/json")];
        let fired = user.call("POST", &format!("/v1/cues/{id}/fire"), &headers, b"{}").unwrap();
        fired.expect(200)["execution_id"].clone()
    };
    let first = repeat(&user, "order-1");
    user.beat("w");
    machine.set_for_good("2026-03-03T12:00:00Z");
    machine.stops();
    let machine = Machine::boots(&folder, "2026-04-10T12:00:00Z");
    machine.set("2026-04-10T12:00:05Z");
    let user = machine.api.reconnect(&user);
    machine.set("2026-03-01T12:01:00Z");
    assert_eq!(repeat(&user, "order-1"), first);
    assert_eq!(user.get("/v1/workers").json().list("workers").len(), 1);
    // One that is stored while the clock is behind.
    machine.set("2024-05-01T00:00:00Z");
    let behind = repeat(&user, "order-2");
    machine.set("2026-03-01T12:02:00Z");
    assert_eq!(repeat(&user, "order-2"), behind);
    machine.stops();
}

#[test]
fn a_jump_of_forty_years_for_twenty_seconds_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, "2026-03-01T12:59:50Z");
    let user = machine.api.user("ann");
    let id = hourly(&user);
    let once = scheduled(&user, &json!({"type": "once", "at": "2030-01-01T00:00:00Z"}));
    machine.set("2066-03-01T12:59:50Z");
    assert_eq!(machine.state(&user), ("degraded".to_owned(), "clock_ahead".to_owned()));
    let reason = user.get("/health").json().text("reason").to_owned();
    assert_contains(&reason, &["2066-03-01T12:59:50Z", "cued clock accept"]);
    machine.elapse(Duration::from_secs(20));
    until_true("the run of the right time fires", || machine.instants(&user, &id).len() == 1);
    machine.fire(&user, &id);
    machine.set("2026-03-01T13:00:12Z");
    assert_eq!(machine.state(&user), healthy());
    machine.elapse(60 * MINUTE);
    machine.stops();

    let machine = Machine::boots(&folder, "2026-03-01T14:30:00Z");
    let user = machine.api.reconnect(&user);
    machine.elapse(30 * MINUTE);
    let expected = [
        "2026-03-01T15:00:00Z",
        "2026-03-01T14:00:00Z",
        "2026-03-01T13:00:10Z",
        "2026-03-01T13:00:00Z",
    ];
    until_true("the hours go on", || machine.instants(&user, &id) == expected);
    assert_eq!((machine.instants(&user, &once), machine.state(&user)), (vec![], healthy()));
    assert_eq!(
        (machine.missed(&user, &id), &machine.cue(&user, &once)["status"]),
        (json!([]), &json!("active"))
    );
    machine.stops();
}

#[test]
fn a_jump_of_days_is_believed_once_it_has_lasted_for_ten_minutes() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let id = hourly(&user);
    machine.set("2026-03-03T12:00:30Z");
    machine.elapse(PROOF_TIME - MINUTE);
    assert_eq!(
        (machine.instants(&user, &id), machine.state(&user).0),
        (vec![], "degraded".to_owned())
    );
    machine.elapse(MINUTE);
    until_true("the newest run fires", || machine.instants(&user, &id).len() == 1);
    assert_eq!(
        (&machine.instants(&user, &id)[0][..], machine.state(&user)),
        ("2026-03-03T12:00:00Z", healthy())
    );
    machine.stops();
}

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

/// A machine whose clock was five days ahead and believed, and is right again at 12:45, and its two hourly cues. The
/// newest hundred of the hours that the jump has skipped have fired for the second one.
fn back_from_the_future(folder: &TempDir) -> (Machine, User, [String; 2]) {
    let machine = Machine::boots(folder, NOON);
    let user = machine.api.user("ann");
    let ids = ["latest", "all"].map(|catch_up| {
        scheduled(&user, &json!({"type": "recurring", "cron": "0 * * * *", "catch_up": catch_up}))
    });
    machine.set_for_good("2026-03-06T12:30:30Z");
    until_true("the hours catch up", || {
        machine.cue(&user, &ids[1])["run_count"] == 100
            && machine.instants(&user, &ids[0]).len() == 1
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
    let reason = health.text("reason");
    assert_contains(reason, &["2026-03-06T12:30:30Z", "cued clock accept"]);
    let overview = user.get("/v1/overview").json();
    assert_has(&overview["server"], json!({"status": "degraded", "reason": health["reason"]}));
    let alerts = || user.get("/v1/alerts?alert_type=clock_behind").json().list("alerts").clone();
    machine.elapse(9 * MINUTE);
    assert_eq!(alerts().len(), 0, "a boot without a battery is over by then");
    machine.elapse(140 * MINUTE);
    machine.elapse(MINUTE);
    assert_eq!(alerts().len(), 1, "{:?}", alerts());
    assert_has(&alerts()[0], json!({"severity": "critical", "cue_id": null}));
    assert_eq!(machine.cue(&user, &ids[0])["next_run"], "2026-03-06T13:00:00+00:00");

    let app = &machine.api.fixture.app;
    let accepted = clock_accept::accept(&app.store, app.clock.now()).unwrap();
    assert_eq!(accepted.newest, Some("2026-03-06T12:30:30Z".parse().unwrap()));
    assert_eq!(accepted.cues, 2);
    assert_eq!(accepted.missed, 2);
    machine.wait_for_pass();
    assert_eq!(machine.state(&user), healthy());
    for id in &ids {
        let missed = json!([{"first": "2026-03-01T13:00:00Z", "last": "2026-03-01T15:00:00Z", "count": 3, "reason": "clock"}]);
        let cue = machine.cue(&user, id);
        assert_has(&cue, json!({"next_run": "2026-03-01T16:00:00+00:00", "missed_count": 3}));
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
        let expected: BTreeMap<_, _> =
            (0..125).map(|hour| (hours + hour * 60 * MINUTE, 1)).collect();
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
    assert_eq!(
        clock_accept::accept(&store, "2026-03-01T12:55:00Z".parse().unwrap()).unwrap().cues,
        2
    );
    drop(store);
    let machine = Machine::boots(&folder, "2026-03-01T14:10:00Z");
    let user = machine.api.reconnect(&user);
    until_true("the runs since then catch up", || machine.cue(&user, &ids[1])["run_count"] == 102);
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
    assert_eq!(
        clock_accept::accept(store, "2026-03-03T12:00:30Z".parse().unwrap()).unwrap().newest,
        None
    );
    machine.wait_for_pass();
    until_true("the newest run fires", || machine.instants(&user, &id) == ["2026-03-03T12:00:00Z"]);
    assert_eq!(machine.state(&user), healthy());
    machine.stops();
}

/// Nothing was wrong: a run that falls due before the next pass of the server is on time.
#[test]
fn accepting_a_clock_that_is_right_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, "2026-03-01T12:00:58Z");
    let user = machine.api.user("ann");
    let id =
        scheduled(&user, &json!({"type": "recurring", "cron": "* * * * *", "catch_up": "none"}));
    let store = &machine.api.fixture.app.store;
    assert_eq!(
        clock_accept::accept(store, "2026-03-01T12:00:58Z".parse().unwrap()).unwrap().newest,
        None
    );
    machine.set("2026-03-01T12:01:00Z");
    until_true("the run fires", || machine.instants(&user, &id) == ["2026-03-01T12:01:00Z"]);
    assert_eq!(machine.missed(&user, &id), json!([]));
    machine.stops();
}

#[test]
fn a_flow_that_was_used_while_the_clock_was_ahead_keeps_its_rate_once_it_is_right() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let callback = json!({"url": "https://example.com/", "flow": {"key": "nas", "per_minute": 60}});
    let daily = json!({"type": "recurring", "cron": "@daily"});
    let cue =
        user.post("/v1/cues", &json!({"name": "hook", "schedule": daily, "callback": callback}));
    let path = format!("/v1/cues/{}/fire", cue.json().text("id"));
    let fire = || assert_eq!(user.post(&path, &json!({})).status, 200);
    let sent = |count: u64| {
        until("the runs are delivered", || {
            let done = user.get("/v1/executions?status=success").json()["total"] == count;
            done.then_some(())
        });
    };
    let second = Duration::from_secs(1);
    machine.set("2026-03-01T13:30:00Z");
    // One by one: the turn of the second follows from when the first was sent.
    fire();
    sent(1);
    fire();
    machine.elapse(second);
    sent(2);
    machine.set("2026-03-01T12:10:00Z");
    (0..3).for_each(|_| fire());
    sent(3);
    let send = &machine.api.fixture.app.notifiers.send;
    for count in 4..=5 {
        let before = send.generation();
        machine.elapse(second);
        // The turn wakes the dispatcher, which looks every 5 s otherwise.
        until_true("the turn", || send.generation() > before);
        sent(count);
    }
    machine.stops();
}

/// As `kill -STOP` for 19 minutes.
#[test]
fn a_process_that_was_stopped_for_over_a_minute_treats_due_runs_as_missed() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let ids = ["none", "latest", "all"].map(|catch_up| {
        scheduled(&user, &json!({"type": "recurring", "every": "10s", "catch_up": catch_up}))
    });
    let once = scheduled(&user, &json!({"type": "once", "at": "2026-03-01T12:01:00Z"}));
    machine.wait_for_pass();
    machine.elapse(19 * MINUTE + Duration::from_secs(5));
    let ran = |id: &str| machine.cue(&user, id)["run_count"].as_i64().unwrap();
    until_true("the cues catch up", || ran(&once) == 1 && ran(&ids[2]) == 100);
    assert_eq!((ran(&ids[0]), ran(&ids[1])), (0, 1));
    for (id, (last, count)) in
        ids.iter().zip([("12:19:00", 114), ("12:18:50", 113), ("12:02:20", 14)])
    {
        let last = format!("2026-03-01T{last}Z");
        let row = json!([{"first": "2026-03-01T12:00:10Z", "last": last, "count": count, "reason": "downtime"}]);
        assert_eq!(machine.missed(&user, id), row);
        assert_eq!(machine.cue(&user, id)["next_run"], "2026-03-01T12:19:10+00:00");
    }
    let alerts = user.get("/v1/alerts").json()["alerts"].clone();
    assert_eq!(alerts.as_array().unwrap().len(), 1, "{alerts}");
    assert_eq!(alerts[0]["metadata"]["runs"], 102, "{alerts}");
    // A delay of a minute is none.
    machine.elapse(MINUTE);
    until_true("the late runs fire", || ran(&ids[0]) == 6);
    assert_eq!(machine.cue(&user, &ids[0])["missed_count"], 114);
    machine.stops();
}
