//! What runs when, of all cues of an account (contract §4.13).

use crate::support::*;

fn worker(name: &str, schedule: Value) -> Value {
    json!({"name": name, "transport": "worker", "schedule": schedule})
}

fn cron(expression: &str, zone: &str) -> Value {
    json!({"type": "recurring", "cron": expression, "timezone": zone})
}

fn names(plan: &Value) -> Vec<&str> {
    plan.list("cues").iter().map(|cue| cue.text("name")).collect()
}

#[test]
fn the_runs_of_all_cues_are_those_that_each_cue_lists_on_a_day_without_an_hour_and_on_one_with_another()
 {
    for (before, midnight, next, hours) in [
        ("2026-03-28T22:59:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", 23),
        ("2026-10-24T21:59:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", 25),
    ] {
        let (_server, user) = Server::with_clock_and_user(before);
        let expressions = ["30 2 * * *", "0 */2 * * *", "15 * * * *", "*/4 1-3 * * *"];
        for expression in expressions {
            user.create(&worker(expression, cron(expression, "Europe/Berlin")));
        }
        let plan = user.read(&format!("/v1/upcoming?hours={hours}&from={midnight}"));
        assert_has(
            &plan,
            json!({"from": midnight, "until": next, "truncated": false, "waiting": []}),
        );
        assert_eq!(names(&plan), expressions, "the rarest first");
        for cue in plan.list("cues") {
            let path = format!("/v1/cues/{}/upcoming?limit=50&from={midnight}", cue.text("cue_id"));
            let listed = user.read(&path);
            let listed = listed.list("upcoming").iter();
            let of_the_day: Vec<&Value> = listed.filter(|at| at.as_str().unwrap() < next).collect();
            assert_eq!(cue.list("at").iter().collect::<Vec<_>>(), of_the_day);
            assert_has(
                cue,
                json!({"count": of_the_day.len(), "per_hour": null, "timezone": "Europe/Berlin"}),
            );
        }
        assert_eq!(plan["cues"][2]["count"], hours, "an hourly cue runs each real hour");
    }
}

#[test]
fn runs_that_happen_once_and_those_fired_for_later_are_in_it_and_those_of_paused_cues_are_not() {
    let (_server, user) = Server::with_clock_and_user("2026-01-05T08:30:00Z");
    let once = user.create(&worker("once", json!({"type": "once", "at": "2026-01-05T20:00:00Z"})));
    user.create(&worker("next week", json!({"type": "once", "at": "2026-01-12T20:00:00Z"})));
    let paused = user.create(&worker("paused", cron("0 * * * *", "UTC")));
    let path = cue_path(&paused);
    let later = json!({"send_at": "2026-01-05T18:00:00Z"});
    let fired = user.post(&format!("{path}/fire"), &later).expect(200);
    user.patch(&path, &json!({"status": "paused"})).expect(200);

    let plan = user.read("/v1/upcoming");
    assert_has(&plan, json!({"from": "2026-01-05T08:30:00Z", "until": "2026-01-06T08:30:00Z"}));
    let expected = json!([{
        "cue_id": id(&once), "name": "once", "transport": "worker", "timezone": "UTC", "count": 1,
        "at": ["2026-01-05T20:00:00Z"], "per_hour": null, "expected_ms": null,
    }]);
    assert_eq!(plan["cues"], expected);
    let expected = json!([{
        "execution_id": fired["execution_id"], "cue_id": id(&paused), "name": "paused",
        "at": "2026-01-05T18:00:00Z", "attempts": 0,
    }]);
    assert_eq!(plan["waiting"], expected);
    let later = user.read("/v1/upcoming?from=2026-01-05T19:00:00Z&hours=1");
    assert_eq!(later["cues"], json!([]), "the end is not included");
    assert_eq!(later["waiting"], json!([]), "the end is not included");
    let week = user.read("/v1/upcoming?hours=168&from=2026-01-05T20:00:00Z");
    assert_eq!(names(&week), ["once"]);
}

#[test]
fn a_retry_waits_in_it_and_the_median_duration_is_expected() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user("2026-01-05T08:30:00Z"), Receiver::start());
    receiver.first([Reaction::Status(500)]);
    let retry = json!({"retry": {"max_attempts": 2, "backoff_minutes": [45]}});
    let cue = user.create(&with(webhook_cue("hook", "0 10 * * *", &receiver.url()), retry));
    let run = user.fire(&cue);
    user.settle();
    let plan = user.read("/v1/upcoming");
    assert_has(
        &plan["waiting"][0],
        json!({"execution_id": run, "at": "2026-01-05T09:15:00Z", "attempts": 1}),
    );
    let took = &user.execution(&run)["duration_ms"];
    assert!(took.is_u64(), "{took}");
    assert_eq!(&plan["cues"][0]["expected_ms"], took);
}

#[test]
fn a_frequent_cue_has_a_number_for_each_hour_and_a_strangers_cue_is_not_shown() {
    let (server, user) = Server::with_clock_and_user("2026-01-05T08:30:00Z");
    server.user().create(&worker("foreign", cron("0 * * * *", "UTC")));
    user.create(&worker("often", cron("*/6 9-10 * * *", "UTC")));
    user.create(&worker("interval", json!({"type": "recurring", "every": "10s"})));
    let plan = user.read("/v1/upcoming?hours=3&from=2026-01-05T08:00:00Z");
    assert_eq!(names(&plan), ["often", "interval"]);
    assert_has(&plan["cues"][0], json!({"count": 20, "at": null, "per_hour": [0, 10, 10]}));
    assert_has(&plan["cues"][1], json!({"count": 899, "at": null, "per_hour": [179, 360, 360]}));
    let day = user.read("/v1/upcoming?from=2026-01-05T08:00:00Z");
    // The cue runs less than once an hour.
    assert_eq!(day["cues"][0].list("at").len(), 20);
}
