//! A wrong wall clock, as seen by the user. The passes of the scheduler are tested in `engine::scheduler`.

use std::sync::Arc;

use cued::app::App;
use cued::clock::Clock;
use cued::config::Config;
use cued::domain::account::plan::Plans;
use cued::engine::Engine;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::api::{Api, User};
use crate::support::delivery_fixture::RecordingClient;
use crate::support::fixture::Fixture;
use crate::support::server::until;

const NOON: &str = "2026-03-01T12:00:00Z";

/// The whole program on a manual system clock.
struct Machine {
    api: Api,
    engine: Engine,
    webhook_client: Arc<RecordingClient>,
}

impl Machine {
    fn boots(folder: &TempDir, at: &str) -> Self {
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
    fn set(&self, to: &str) {
        let (app, to) = (&self.api.fixture.app, to.parse::<Timestamp>().unwrap());
        app.clock.set(to);
        let turns = app.engine_stats.passes();
        until("the scheduler has turned", || {
            app.notifiers.schedule.notify();
            // The first pass may have started before the clock was set.
            (app.engine_stats.passes() > turns + 1).then_some(())
        });
    }

    fn cue(&self, user: &User, id: &str) -> Value {
        let found = user.get(&format!("/v1/cues/{id}"));
        assert_eq!(found.status, 200, "{}", found.text());
        found.json()
    }

    fn instants(&self, user: &User, id: &str) -> Vec<String> {
        let cue = self.cue(user, id);
        let executions = cue["executions"].as_array().unwrap();
        executions.iter().map(|it| it["scheduled_for"].as_str().unwrap().to_owned()).collect()
    }

    fn fire(&self, user: &User, id: &str) {
        let delivered = self.webhook_client.requests().len();
        assert_eq!(user.post(&format!("/v1/cues/{id}/fire"), &json!({})).status, 200);
        until("the manual run is delivered", || {
            (self.webhook_client.requests().len() > delivered).then_some(())
        });
    }

    fn stops(self) {
        self.engine.stop();
    }
}

fn hourly(user: &User) -> String {
    let created = user.post(
        "/v1/cues",
        &json!({
            "name": "hook",
            "schedule": {"type": "recurring", "cron": "0 * * * *"},
            "callback": {"url": "https://example.com/"},
        }),
    );
    assert_eq!(created.status, 201, "{}", created.text());
    created.json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn clock_jumps_of_twelve_hours_lose_no_instant_and_fire_still_works() {
    let folder = TempDir::new().unwrap();
    let machine = Machine::boots(&folder, NOON);
    let user = machine.api.user("ann");
    let id = hourly(&user);

    machine.set("2026-03-02T00:00:30Z");
    until("the newest run fires", || (machine.instants(&user, &id).len() == 1).then_some(()));
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
    assert_eq!(machine.instants(&user, &id).len(), 1, "the runs of these hours have fired or are missed");
    machine.fire(&user, &id);
    assert_eq!(machine.cue(&user, &id)["next_run"], "2026-03-02T01:00:00+00:00");

    machine.set("2026-03-02T01:00:01Z");
    until("the cue fires again", || (machine.instants(&user, &id).len() == 3).then_some(()));
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
    assert_eq!(user.get("/health").json()["status"], "healthy");
    machine.set("2026-03-01T15:30:00Z");
    until("the newest run fires", || {
        machine.instants(&user, &id).first().is_some_and(|it| it == "2026-03-01T15:00:00Z").then_some(())
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
    machine.set("2099-01-01T00:00:30Z");
    until("the newest run fires", || (machine.instants(&user, &id).len() == 2).then_some(()));
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
    user.post("/v1/worker/heartbeat", &json!({"worker_id": "w", "handlers": []}));
    machine.set("2026-03-03T12:00:00Z");
    machine.stops();
    let machine = Machine::boots(&folder, "2026-04-10T12:00:00Z");
    machine.set("2026-04-10T12:00:05Z");
    let user = machine.api.reconnect(&user);
    assert_eq!(repeat(&user, "order-1"), first, "not even while the clock is ahead");
    machine.set("2026-03-01T12:01:00Z");
    assert_eq!(repeat(&user, "order-1"), first);
    assert_eq!(user.get("/v1/workers").json()["workers"].as_array().unwrap().len(), 1);
    // One that is stored while the clock is behind.
    machine.set("2024-05-01T00:00:00Z");
    let behind = repeat(&user, "order-2");
    machine.set("2026-03-01T12:02:00Z");
    assert_eq!(repeat(&user, "order-2"), behind);
    machine.stops();
}
