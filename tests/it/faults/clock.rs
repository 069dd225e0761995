//! Jumps of the clock, and accepting it.

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::account::plan::Plans;
use cued::domain::schedule::wall_clock::PROOF_TIME;
use cued::engine::Engine;
use cued::store::Store;
use cued::store::maintenance::clock_accept::{self, AcceptedClock};

use crate::support::*;

const NOON: &str = "2026-03-01T12:00:00Z";
const MINUTE: Duration = Duration::from_secs(60);

fn healthy() -> (String, String) {
    ("healthy".to_owned(), "ok".to_owned())
}

/// The whole program on a manual system clock, and its user.
struct Machine {
    api: Api,
    user: User,
    engine: Option<Engine>,
    webhook_client: Arc<RecordingClient>,
    folder: Arc<TempDir>,
}

impl Machine {
    fn boots(at: &str) -> Self {
        Self::on(Arc::new(TempDir::new().unwrap()), at, |api| api.user("ann"))
    }

    /// The same machine after a stop, and after something that happens meanwhile to its file.
    fn reboots_after(self, meanwhile: impl FnOnce(&Path), at: &str) -> Self {
        let (folder, user) = (Arc::clone(&self.folder), self.api.reconnect(&self.user));
        drop(self);
        meanwhile(&folder.path().join("cued.db"));
        Self::on(folder, at, |api| api.reconnect(&user))
    }

    fn reboots(self, at: &str) -> Self {
        self.reboots_after(|_| (), at)
    }

    fn on(folder: Arc<TempDir>, at: &str, user: impl FnOnce(&Api) -> User) -> Self {
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
        let user = user(&api);
        Self { api, user, engine: Some(engine), webhook_client, folder }
    }

    /// Sets the clock and waits for a pass of the scheduler.
    fn set(&self, to: &str) {
        self.api.fixture.app.clock.set(to.parse().unwrap());
        self.wait_for_pass();
    }

    /// The same for a jump of more than a day that lasts until it is believed, at `to`.
    fn set_for_good(&self, to: &str) {
        self.api.fixture.app.clock.set(to.parse::<Timestamp>().unwrap() - PROOF_TIME);
        self.wait_for_pass();
        self.elapse(PROOF_TIME);
    }

    /// Lets time pass on the clock, right or wrong.
    fn elapse(&self, span: Duration) {
        self.api.fixture.app.clock.elapse(span);
        self.wait_for_pass();
    }

    fn wait_for_pass(&self) {
        let app = &self.api.fixture.app;
        let turns = app.engine_stats.passes.get();
        until("the scheduler has turned", || {
            app.notifiers.schedule.notify();
            // The first pass may have started before the clock was set.
            (app.engine_stats.passes.get() > turns + 1).then_some(())
        });
    }

    fn scheduled(&self, schedule: &Value) -> String {
        let cue = with(
            webhook_cue("hook", YEARLY, "https://example.com/"),
            json!({ "schedule": schedule }),
        );
        id(&self.user.create(&cue)).to_owned()
    }

    fn hourly(&self) -> String {
        self.scheduled(&json!({"type": "recurring", "cron": "0 * * * *"}))
    }

    fn cue(&self, id: &str) -> Value {
        self.user.read(&format!("/v1/cues/{id}"))
    }

    fn instants(&self, id: &str) -> Vec<String> {
        let times = self.cue(id).column("executions", "scheduled_for");
        times.iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    fn missed(&self, id: &str) -> Value {
        self.user.read(&format!("/v1/cues/{id}/missed"))["missed"].clone()
    }

    /// The state of the server, and of its scheduler.
    fn state(&self) -> (String, String) {
        let health = self.user.get("/health").json();
        assert_eq!(self.user.get("/status").json()["status"], health["status"]);
        (health.text("status").to_owned(), health["services"].text("poller").to_owned())
    }

    fn fire(&self, id: &str) {
        let delivered = self.webhook_client.requests().len();
        self.user.post(&format!("/v1/cues/{id}/fire"), &json!({})).expect(200);
        until_true("the manual run is delivered", || {
            self.webhook_client.requests().len() > delivered
        });
    }

    /// As `cued clock accept` beside the server, by the clock of the system.
    fn accept(&self, now: &str) -> AcceptedClock {
        clock_accept::accept(&self.api.fixture.app.store, now.parse().unwrap()).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let engine = self.engine.take().filter(|_| !thread::panicking());
        engine.into_iter().for_each(Engine::stop);
    }
}

#[test]
fn clock_jumps_of_twelve_hours_lose_no_instant_and_fire_still_works() {
    let machine = Machine::boots(NOON);
    let id = machine.hourly();

    machine.set("2026-03-02T00:00:30Z");
    until_true("the newest run fires", || machine.instants(&id).len() == 1);
    assert_eq!(machine.instants(&id), ["2026-03-02T00:00:00Z"]);
    let gap = json!([{"first": "2026-03-01T13:00:00Z", "last": "2026-03-01T23:00:00Z", "count": 11, "reason": "clock"}]);
    assert_eq!(machine.missed(&id), gap);

    machine.set("2026-03-01T12:01:00Z");
    for hour in 13..16 {
        machine.set(&format!("2026-03-01T{hour}:00:01Z"));
    }
    // The runs of these hours have fired or are missed.
    assert_eq!(machine.instants(&id).len(), 1);
    machine.fire(&id);
    assert_eq!(machine.cue(&id)["next_run"], "2026-03-02T01:00:00+00:00");

    machine.set("2026-03-02T01:00:01Z");
    until_true("the cue fires again", || machine.instants(&id).len() == 3);
    assert_eq!(machine.instants(&id)[0], "2026-03-02T01:00:00Z");
}

#[test]
fn a_machine_booted_in_1970_runs_manually_and_catches_up_once_its_clock_is_set() {
    let machine = Machine::boots(NOON);
    let id = machine.hourly();
    machine.set("2026-03-01T12:00:30Z");
    let machine = machine.reboots("1970-01-01T00:00:10Z");
    machine.set("1970-01-01T02:00:00Z");
    assert_eq!(machine.instants(&id), [""; 0], "nothing fires by schedule");
    machine.fire(&id);
    assert_eq!(machine.state(), ("degraded".to_owned(), "clock_behind".to_owned()));
    machine.set("2026-03-01T15:30:00Z");
    assert_eq!(machine.state(), healthy());
    until_true("the newest run fires", || {
        machine.instants(&id).first().is_some_and(|it| it == "2026-03-01T15:00:00Z")
    });
    // The run of 1970 is decades old by its date, and was made after the clock had shown 2026.
    machine.set("2026-03-01T15:31:00Z");
    assert_eq!(machine.instants(&id)[1], "1970-01-01T02:00:00Z");
    assert_eq!(machine.cue(&id)["missed_count"], 2);
}

#[test]
fn a_clock_that_is_far_ahead_for_a_while_deletes_no_history() {
    let machine = Machine::boots(NOON);
    let id = machine.hourly();
    machine.fire(&id);
    machine.set("2026-03-01T12:01:00Z");
    machine.set_for_good("2099-01-01T00:00:30Z");
    until_true("the newest run fires", || machine.instants(&id).len() == 2);
    machine.set("2099-01-01T00:01:30Z");
    assert_eq!(machine.instants(&id), ["2099-01-01T00:00:00Z", NOON]);
    // The same for a process that starts while the clock is ahead.
    let machine = machine.reboots("2098-01-01T00:00:30Z");
    machine.set("2098-01-01T00:01:30Z");
    machine.set("2026-03-01T12:10:00Z");
    assert_eq!(machine.instants(&id), ["2099-01-01T00:00:00Z", NOON]);
}

#[test]
fn a_start_at_the_date_of_an_image_loses_no_history() {
    let machine = Machine::boots(NOON);
    let id = machine.hourly();
    machine.set(NOON);
    let machine = machine.reboots("2024-05-01T00:00:00Z");
    machine.set("2024-05-01T00:00:05Z");
    machine.fire(&id);
    machine.set("2025-05-01T00:00:00Z");
    machine.fire(&id);
    let machine = machine.reboots("2026-03-01T12:10:00Z");
    machine.set("2026-03-01T12:11:00Z");
    assert_eq!(machine.instants(&id), ["2025-05-01T00:00:00Z", "2024-05-01T00:00:05Z"]);
}

#[test]
fn a_clock_that_is_ahead_for_a_while_drops_no_stored_response_and_no_worker() {
    let machine = Machine::boots(NOON);
    let id = machine.hourly();
    machine.set(NOON);
    let repeat = |machine: &Machine, key: &str| {
        let fired = machine.user.keyed(&format!("/v1/cues/{id}/fire"), key, &json!({}));
        fired.expect(200)["execution_id"].clone()
    };
    let first = repeat(&machine, "order-1");
    machine.user.beat("w");
    machine.set_for_good("2026-03-03T12:00:00Z");
    let machine = machine.reboots("2026-04-10T12:00:00Z");
    machine.set("2026-04-10T12:00:05Z");
    machine.set("2026-03-01T12:01:00Z");
    assert_eq!(repeat(&machine, "order-1"), first);
    assert_eq!(machine.user.read("/v1/workers").list("workers").len(), 1);
    // One that is stored while the clock is behind.
    machine.set("2024-05-01T00:00:00Z");
    let behind = repeat(&machine, "order-2");
    machine.set("2026-03-01T12:02:00Z");
    assert_eq!(repeat(&machine, "order-2"), behind);
}

#[test]
fn a_jump_of_forty_years_for_twenty_seconds_changes_nothing() {
    let machine = Machine::boots("2026-03-01T12:59:50Z");
    let id = machine.hourly();
    let once = machine.scheduled(&json!({"type": "once", "at": "2030-01-01T00:00:00Z"}));
    machine.set("2066-03-01T12:59:50Z");
    assert_eq!(machine.state(), ("degraded".to_owned(), "clock_ahead".to_owned()));
    let reason = machine.user.get("/health").json().text("reason").to_owned();
    assert_contains(&reason, &["2066-03-01T12:59:50Z", "cued clock accept"]);
    machine.elapse(Duration::from_secs(20));
    until_true("the run of the right time fires", || machine.instants(&id).len() == 1);
    machine.fire(&id);
    machine.set("2026-03-01T13:00:12Z");
    assert_eq!(machine.state(), healthy());
    machine.elapse(60 * MINUTE);
    let machine = machine.reboots("2026-03-01T14:30:00Z");
    machine.elapse(30 * MINUTE);
    let expected = [
        "2026-03-01T15:00:00Z",
        "2026-03-01T14:00:00Z",
        "2026-03-01T13:00:10Z",
        "2026-03-01T13:00:00Z",
    ];
    until_true("the hours go on", || machine.instants(&id) == expected);
    assert_eq!((machine.instants(&once), machine.state()), (vec![], healthy()));
    assert_eq!((machine.missed(&id), &machine.cue(&once)["status"]), (json!([]), &json!("active")));
}

#[test]
fn a_jump_of_days_is_believed_once_it_has_lasted_for_ten_minutes() {
    let machine = Machine::boots(NOON);
    let id = machine.hourly();
    machine.set("2026-03-03T12:00:30Z");
    machine.elapse(PROOF_TIME - MINUTE);
    assert_eq!((machine.instants(&id), machine.state().0), (vec![], "degraded".to_owned()));
    machine.elapse(MINUTE);
    until_true("the newest run fires", || machine.instants(&id).len() == 1);
    assert_eq!(
        (&machine.instants(&id)[0][..], machine.state()),
        ("2026-03-03T12:00:00Z", healthy())
    );
}

/// How often each instant of an hourly cue has run or is recorded as missed.
fn accounted(machine: &Machine, id: &str) -> BTreeMap<Timestamp, usize> {
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
    for gap in machine.missed(id).as_array().unwrap() {
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
fn back_from_the_future() -> (Machine, [String; 2]) {
    let machine = Machine::boots(NOON);
    let ids = ["latest", "all"].map(|catch_up| {
        machine.scheduled(&json!({"type": "recurring", "cron": "0 * * * *", "catch_up": catch_up}))
    });
    machine.set_for_good("2026-03-06T12:30:30Z");
    until_true("the hours catch up", || {
        machine.cue(&ids[1])["run_count"] == 100 && machine.instants(&ids[0]).len() == 1
    });
    machine.set("2026-03-01T12:45:00Z");
    (machine, ids)
}

#[test]
fn a_clock_that_was_ahead_is_told_everywhere_and_accepted_without_a_second_run() {
    let (machine, ids) = back_from_the_future();
    assert_eq!(machine.state(), ("degraded".to_owned(), "clock_behind".to_owned()));
    let health = machine.user.get("/health").json();
    assert_eq!(health["clock_behind_until"], "2026-03-06T12:30:30Z");
    let reason = health.text("reason");
    assert_contains(reason, &["2026-03-06T12:30:30Z", "cued clock accept"]);
    let overview = machine.user.get("/v1/overview").json();
    assert_has(&overview["server"], json!({"status": "degraded", "reason": health["reason"]}));
    let alerts = || machine.user.read("/v1/alerts?alert_type=clock_behind").list("alerts").clone();
    machine.elapse(9 * MINUTE);
    assert_eq!(alerts().len(), 0, "a boot without a battery is over by then");
    machine.elapse(140 * MINUTE);
    machine.elapse(MINUTE);
    assert_eq!(alerts().len(), 1, "{:?}", alerts());
    assert_has(&alerts()[0], json!({"severity": "critical", "cue_id": null}));
    assert_eq!(machine.cue(&ids[0])["next_run"], "2026-03-06T13:00:00+00:00");

    let now = "2026-03-01T15:15:00Z";
    let accepted = machine.accept(now);
    assert_eq!(accepted.newest, Some("2026-03-06T12:30:30Z".parse().unwrap()));
    assert_eq!((accepted.cues, accepted.missed), (2, 2));
    machine.wait_for_pass();
    assert_eq!(machine.state(), healthy());
    for id in &ids {
        let missed = json!([{"first": "2026-03-01T13:00:00Z", "last": "2026-03-01T15:00:00Z", "count": 3, "reason": "clock"}]);
        let cue = machine.cue(id);
        assert_has(&cue, json!({"next_run": "2026-03-01T16:00:00+00:00", "missed_count": 3}));
        assert_eq!(machine.missed(id), missed);
    }
    let again = machine.accept(now);
    assert_eq!((again.newest, again.cues), (None, 0));
    // An hour at a time, past the instant that the clock had shown.
    (0..122).for_each(|_| machine.elapse(60 * MINUTE));
    for id in &ids {
        let accounted = accounted(&machine, id);
        let hours = Timestamp::from_second(1_772_370_000).unwrap();
        let expected: BTreeMap<_, _> =
            (0..125).map(|hour| (hours + hour * 60 * MINUTE, 1)).collect();
        assert_eq!(accounted, expected);
    }
}

#[test]
fn a_file_without_a_server_is_accepted_as_well() {
    let (machine, ids) = back_from_the_future();
    let machine = machine.reboots("2026-03-01T12:50:00Z");
    assert_eq!(machine.state().1, "clock_behind", "after a restart too");
    let accept = |db: &Path| {
        let store = Store::open_shared(db).unwrap();
        let now = "2026-03-01T12:55:00Z".parse().unwrap();
        assert_eq!(clock_accept::accept(&store, now).unwrap().cues, 2);
    };
    let machine = machine.reboots_after(accept, "2026-03-01T14:10:00Z");
    until_true("the runs since then catch up", || machine.cue(&ids[1])["run_count"] == 102);
    assert_eq!((machine.state(), machine.missed(&ids[1])), (healthy(), json!([])));
}

#[test]
fn a_jump_that_is_right_can_be_accepted_at_once() {
    let machine = Machine::boots(NOON);
    let id = machine.hourly();
    machine.set("2026-03-03T12:00:30Z");
    assert_eq!(machine.state().1, "clock_ahead");
    assert_eq!(machine.accept("2026-03-03T12:00:30Z").newest, None);
    machine.wait_for_pass();
    until_true("the newest run fires", || machine.instants(&id) == ["2026-03-03T12:00:00Z"]);
    assert_eq!(machine.state(), healthy());
}

/// Nothing was wrong: a run that falls due before the next pass of the server is on time.
#[test]
fn accepting_a_clock_that_is_right_changes_nothing() {
    let machine = Machine::boots("2026-03-01T12:00:58Z");
    let id =
        machine.scheduled(&json!({"type": "recurring", "cron": "* * * * *", "catch_up": "none"}));
    assert_eq!(machine.accept("2026-03-01T12:00:58Z").newest, None);
    machine.set("2026-03-01T12:01:00Z");
    until_true("the run fires", || machine.instants(&id) == ["2026-03-01T12:01:00Z"]);
    assert_eq!(machine.missed(&id), json!([]));
}

#[test]
fn a_flow_that_was_used_while_the_clock_was_ahead_keeps_its_rate_once_it_is_right() {
    let machine = Machine::boots(NOON);
    let callback = json!({"url": "https://example.com/", "flow": {"key": "nas", "per_minute": 60}});
    let daily = json!({"type": "recurring", "cron": "@daily"});
    let cue = json!({"name": "hook", "schedule": daily, "callback": callback});
    let cue = machine.user.create(&cue);
    let fire = || drop(machine.user.fire(&cue));
    let sent = |count: u64| {
        until_true("the runs are delivered", || {
            machine.user.total("/v1/executions?status=success") == count
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
}

/// As `kill -STOP` for 19 minutes.
#[test]
fn a_process_that_was_stopped_for_over_a_minute_treats_due_runs_as_missed() {
    let machine = Machine::boots(NOON);
    let ids = ["none", "latest", "all"].map(|catch_up| {
        machine.scheduled(&json!({"type": "recurring", "every": "10s", "catch_up": catch_up}))
    });
    let once = machine.scheduled(&json!({"type": "once", "at": "2026-03-01T12:01:00Z"}));
    machine.wait_for_pass();
    machine.elapse(19 * MINUTE + Duration::from_secs(5));
    let ran = |id: &str| machine.cue(id)["run_count"].as_i64().unwrap();
    until_true("the cues catch up", || ran(&once) == 1 && ran(&ids[2]) == 100);
    assert_eq!((ran(&ids[0]), ran(&ids[1])), (0, 1));
    for (id, (last, count)) in
        ids.iter().zip([("12:19:00", 114), ("12:18:50", 113), ("12:02:20", 14)])
    {
        let last = format!("2026-03-01T{last}Z");
        let row = json!([{"first": "2026-03-01T12:00:10Z", "last": last, "count": count, "reason": "downtime"}]);
        assert_eq!(machine.missed(id), row);
        assert_eq!(machine.cue(id)["next_run"], "2026-03-01T12:19:10+00:00");
    }
    let alerts = machine.user.get("/v1/alerts").json()["alerts"].clone();
    assert_eq!(alerts.as_array().unwrap().len(), 1, "{alerts}");
    assert_eq!(alerts[0]["metadata"]["runs"], 102, "{alerts}");
    // A delay of a minute is none.
    machine.elapse(MINUTE);
    until_true("the late runs fire", || ran(&ids[0]) == 6);
    assert_eq!(machine.cue(&ids[0])["missed_count"], 114);
}
