//! Figures over time and the overview (contract §8.11, §8.12).

use crate::http::cues::START;
use crate::support::*;

fn webhook(receiver: &Receiver, name: &str, cron: &str) -> Value {
    let retry = json!({"retry": {"max_attempts": 3, "backoff_minutes": [1]}});
    with(webhook_cue(name, cron, &receiver.url()), retry)
}

/// The counts of a step: succeeded, failed, retried, missed.
fn counts(figures: &Value) -> [i64; 4] {
    ["succeeded", "failed", "retried", "missed"].map(|name| figures[name].as_i64().unwrap())
}

/// The steps with any figure, by their begin.
fn busy(stats: &Value) -> Vec<(String, [i64; 4])> {
    let steps = stats.list("series");
    let steps = steps.iter().map(|step| (step.text("at").to_owned(), counts(step)));
    steps.filter(|(_, counts)| *counts != [0; 4]).collect()
}

fn report(user: &Client, execution: &str, success: bool) {
    user.report(execution, &json!({"success": success}));
}

#[test]
fn each_end_of_an_execution_and_each_retry_counts_in_its_hour() {
    let ((server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    receiver.first([Reaction::Status(503), Reaction::Status(503), Reaction::Status(200)]);
    let hook = user.create(&webhook(&receiver, "hook", "59 * * * *"));
    user.advance("PT1H5M");
    // At 09:59, 10:00 and 10:01.
    let stats = user.read("/v1/stats");
    assert_eq!(
        busy(&stats),
        [
            ("2026-01-05T09:00:00Z".to_owned(), [0, 0, 1, 0]),
            ("2026-01-05T10:00:00Z".to_owned(), [1, 0, 1, 0])
        ]
    );
    assert_eq!((counts(&stats["totals"]), stats.list("series").len()), ([1, 0, 2, 0], 24));
    assert_eq!((&stats["step"], &stats["truncated"]), (&json!("hour"), &json!(false)));
    // The duration of an attempt is measured, also under a test clock.
    let took = &user.read("/v1/executions")["executions"][0]["duration_ms"];
    let ended = json!({
        "at": "2026-01-05T10:00:00Z", "succeeded": 1, "failed": 0, "retried": 1, "missed": 0,
        "late_avg_ms": 0, "late_max_ms": 0, "took_avg_ms": took,
    });
    assert_eq!(stats["series"][23], ended);
    let idle = json!({
        "at": "2026-01-04T11:00:00Z", "succeeded": 0, "failed": 0, "retried": 0, "missed": 0,
        "late_avg_ms": null, "late_max_ms": null, "took_avg_ms": null,
    });
    assert_eq!(stats["series"][0], idle, "an hour without executions has a step");
    // The history of the cue has them, too, with the retries in the hour of the end.
    let of_cue = user.read(&format!("/v1/stats?cue_id={}", id(&hook)));
    assert_eq!(busy(&of_cue), [("2026-01-05T10:00:00Z".to_owned(), [1, 0, 2, 0])]);
    assert_eq!(of_cue["truncated"], false);
    // Other accounts have figures of their own.
    assert_eq!(server.user().read("/v1/stats")["totals"]["succeeded"], 0);
}

#[test]
fn a_worker_execution_counts_with_its_report_or_its_last_lost_claim() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&with(hourly_cue("work"), json!({"retry": {"max_attempts": 2}})));
    let fire = || drop(user.fire(&cue));
    let stats = || user.read("/v1/stats");
    fire();
    fire();
    user.advance("PT10M");
    let first = user.claim("w");
    user.advance("PT5M");
    report(&user, &first, true);
    let (step, _) = without(&stats()["series"][23], "at");
    let expected = json!({
        "succeeded": 1, "failed": 0, "retried": 0, "missed": 0,
        "late_avg_ms": 600_000, "late_max_ms": 600_000, "took_avg_ms": 300_000,
    });
    assert_eq!(step, expected);
    let second = user.claim("w");
    report(&user, &second, false);
    assert_eq!(counts(&stats()["totals"]), [1, 1, 0, 0]);
    // A claim that is lost is followed by another; the last one that is lost is a failure.
    fire();
    let lost = user.claim("w");
    user.advance("PT16M");
    assert_eq!(counts(&stats()["totals"]), [1, 1, 1, 0]);
    assert_eq!(user.claim("w"), lost);
    user.advance("PT16M");
    assert_eq!(counts(&stats()["totals"]), [1, 2, 1, 0]);
    // Its worker reports after all, in a later hour: the failure is taken back where it was counted.
    user.change(&cue, &json!({"status": "paused"}));
    user.advance("PT1H");
    report(&user, &lost, true);
    assert_eq!(
        busy(&stats()),
        [
            ("2026-01-05T09:00:00Z".to_owned(), [1, 1, 1, 0]),
            ("2026-01-05T10:00:00Z".to_owned(), [1, 0, 0, 0])
        ]
    );
}

#[test]
fn runs_that_fail_without_an_attempt_count_without_times() {
    let plans = Plans::free(&json!({"cues": 10, "executions": 1, "requests_per_minute": 1000}));
    let (server, user) = plans.with_user(&["--test-clock", START]);
    user.create(&hourly_cue("work"));
    // One within the quota, one within the doubled quota, then 48 hours of failures.
    user.advance("P3D");
    let failed = |query: &str| user.read(&format!("/v1/stats{query}"))["totals"].clone();
    let figures = failed("?step=day");
    assert_eq!(figures["failed"], 70, "{figures}");
    assert_eq!(figures["late_max_ms"], Value::Null, "{figures}");
    // A disabled account fails what is left.
    server.administer(&["disable", &user.email()]);
    assert_eq!(server.count("SELECT sum(failed) FROM hourly_stats"), 72);
}

#[test]
fn missed_runs_count_in_the_hour_in_which_they_are_recorded() {
    let (mut server, user) = Server::with_clock_and_user(START);
    let mut cue = hourly_cue("work");
    cue["schedule"]["catch_up"] = json!("none");
    let cue = user.create(&cue);
    server.kill();
    let user = user.at(server.restart_at("2026-01-05T12:30:00Z"));
    user.settle();
    let expected = [("2026-01-05T12:00:00Z".to_owned(), [0, 0, 0, 3])];
    assert_eq!(busy(&user.read("/v1/stats")), expected);
    let of_cue = user.read(&format!("/v1/stats?step=day&cue_id={}", id(&cue)));
    assert_eq!(busy(&of_cue), [("2026-01-05T00:00:00Z".to_owned(), [0, 0, 0, 3])]);
    let missed = json!([{
        "cue_id": id(&cue), "name": "work", "first": "2026-01-05T10:00:00Z", "last": "2026-01-05T12:00:00Z",
        "count": 3, "reason": "downtime",
    }]);
    assert_eq!(user.read("/v1/overview")["missed"], missed);
}

#[test]
fn a_span_is_read_in_whole_steps_of_utc() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    user.create(&webhook(&receiver, "hook", "30 * * * *"));
    user.advance("PT26H");
    let series = |query: &str| busy(&user.read(&format!("/v1/stats?{query}")));
    let day = |day: u8, runs: i64| (format!("2026-01-0{day}T00:00:00Z"), [runs, 0, 0, 0]);
    assert_eq!(series("step=day"), [day(5, 15), day(6, 11)]);
    assert_eq!(series("step=day&from=2026-01-06T10:00:00Z"), [day(6, 11)]);
    assert_eq!(series("step=day&to=2026-01-06T01:00:00%2B01:00"), [day(5, 15)]);
    let hour = user.read("/v1/stats?from=2026-01-05T10:59:59Z&to=2026-01-05T11:00:00Z");
    assert_eq!(hour.list("series").len(), 1);
    assert_eq!(
        (&hour["series"][0]["at"], counts(&hour["totals"])),
        (&json!("2026-01-05T10:00:00Z"), [1, 0, 0, 0])
    );
    // Hours before those that are kept.
    let old = user.read("/v1/stats?step=day&from=2024-01-01T00:00:00Z&to=2024-01-02T00:00:00Z");
    assert_eq!((counts(&old["totals"]), &old["truncated"]), ([0; 4], &json!(true)));
    let most = user.read("/v1/stats?step=day&from=2023-04-12T00:00:00Z&to=2026-01-06T00:00:00Z");
    assert_eq!(most.list("series").len(), 1_000);
}

#[test]
fn the_figures_of_a_cue_say_when_its_history_is_cut() {
    let receiver = Receiver::start();
    let (_server, user) =
        Server::with_user(&[DEV_UNLIMITED, &["--test-clock", START, "--retain", "3"]].concat());
    let cue = user.create(&webhook(&receiver, "hook", "30 * * * *"));
    user.advance("PT3H");
    let stats = |query: &str| user.read(&format!("/v1/stats?cue_id={}{query}", id(&cue)));
    let all = stats("");
    assert_eq!((counts(&all["totals"])[0], &all["truncated"]), (3, &json!(false)));
    // Replays are not runs of the cue, and do not hide that runs are missing.
    user.advance("P6D");
    let some = stats("&step=day");
    assert!((3..=20).contains(&counts(&some["totals"])[0]) && some["truncated"] == true, "{some}");
    let newest = stats("&from=2026-01-11T11:20:00Z");
    assert_eq!((counts(&newest["totals"])[0], &newest["truncated"]), (1, &json!(false)));
    // The figures of the account are not cut.
    assert_eq!(user.read("/v1/stats?step=day")["totals"]["succeeded"], 147);
}

#[test]
fn the_overview_of_a_new_account_has_every_field() {
    let (_server, user) = Server::with_clock_and_user(START);
    let (overview, usage) = without(&user.read("/v1/overview"), "usage");
    let (rest, hours) = without(&overview, "hours");
    let (server_state, uptime) = without(&rest["server"], "uptime_seconds");
    assert!(uptime.is_u64(), "{uptime}");
    let expected = json!({
        "status": "healthy", "reason": null, "held_since": null, "test_clock": true, "writable": true,
        "version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(server_state, expected);
    let expected = json!({
        "now": START,
        "cues": {"active": 0, "paused": 0, "completed": 0, "failed": 0, "failing": 0},
        "next": [], "failing": [], "missed": [],
        "waiting": {"send": 0, "claim": 0, "retry": 0, "delivering": 0},
        "channels": {"count": 0, "failing": []},
        "workers": {"active": 0, "stale": 0, "dead": 0},
    });
    assert_eq!(without(&rest, "server").0, expected);
    let hours = hours.as_array().unwrap();
    let last = json!({"at": START, "succeeded": 0, "failed": 0, "late_max_ms": null});
    assert_eq!(hours.len(), 24);
    assert_eq!(hours[0]["at"], "2026-01-04T10:00:00Z");
    assert_eq!(hours[23], last);
    assert_eq!(usage, user.read("/v1/usage"));
}

#[test]
fn the_overview_shows_what_needs_attention_first() {
    let ((server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    receiver.react(Reaction::Status(503));
    let mut once = webhook(&receiver, "often", "*/20 * * * *");
    once["retry"]["max_attempts"] = json!(1);
    let often = user.create(&once);
    once["name"] = json!("rarely");
    once["schedule"]["cron"] = json!("30 * * * *");
    let rarely = user.create(&once);
    let retried = user.create(&webhook(&receiver, "retried", "59 9 * * *"));
    let paused = user.create(&hourly_cue("paused"));
    user.change(&paused, &json!({"status": "paused"}));
    let work = user.create(&hourly_cue("work"));
    for (worker, later) in [("dead", "PT10M"), ("stale", "PT46M"), ("active", "PT3M59S")] {
        user.beat(worker).expect(200);
        user.advance(later);
    }
    user.beat("active").expect(200);
    user.beat("stale").expect(200);
    user.advance("PT4M");
    user.beat("active").expect(200);
    (0..2).for_each(|_| drop(user.fire(&work)));
    user.claim("w");
    user.fire_with(&work, &json!({"send_at": "2026-01-06T00:00:00Z"}));
    // It is 10:03:59. `often` ran at :20, :40 and :00, `rarely` at :30; `retried` failed at 09:59 and 10:00 and 10:01.
    let overview = user.read("/v1/overview");
    let counts = json!({"active": 4, "paused": 1, "completed": 0, "failed": 0, "failing": 3});
    assert_eq!(overview["cues"], counts);
    assert_eq!(overview.column("failing", "name"), ["often", "rarely", "retried"]);
    assert_eq!(overview.column("failing", "streak"), [3, 1, 1]);
    let last = &user.executions_of(id(&often))[0];
    let (found, _) = without(&overview["failing"][0], "cause");
    let expected = json!({
        "cue_id": id(&often), "name": "often", "streak": 3, "execution_id": id(last), "at": "2026-01-05T10:00:00Z",
        "http_status": 503, "error_message": last["error_message"],
    });
    assert_eq!(found, expected);
    let at = |at: &str| json!(format!("2026-01-0{at}:00Z"));
    let next = [&often, &rarely, &work, &retried].map(|cue| cue["id"].clone());
    assert_eq!(overview.column("next", "cue_id"), next);
    assert_eq!(overview.column("next", "at"), ["5T10:20", "5T10:30", "5T11:00", "6T09:59"].map(at));
    assert_eq!(
        overview["next"][0],
        json!({"cue_id": id(&often), "name": "often", "at": at("5T10:20"), "timezone": "UTC"})
    );
    // The execution of 10:00 waits for a worker as well; the one of tomorrow is no retry.
    assert_eq!(overview["waiting"], json!({"send": 0, "claim": 2, "retry": 0, "delivering": 1}));
    assert_eq!(overview["workers"], json!({"active": 1, "stale": 1, "dead": 1}));
    let hours: Vec<_> = overview.list("hours")[22..].iter().map(|hour| &hour["failed"]).collect();
    assert_eq!(hours, [&json!(3), &json!(2)]);
    let (others, _) = without(&server.user().read("/v1/overview")["waiting"], "send");
    assert_eq!(others, json!({"claim": 0, "retry": 0, "delivering": 0}));
}

#[test]
fn a_cancelled_execution_has_no_times_and_is_no_failure_of_its_cue() {
    let ((_server, user), receiver) = (Server::with_clock_and_user(START), Receiver::start());
    receiver.react(Reaction::Status(503));
    let retry = json!({"retry": {"max_attempts": 2, "backoff_minutes": [30]}});
    let hook = user.create(&with(webhook(&receiver, "hook", "59 9 * * *"), retry));
    let fire = |body: Value| user.fire_with(&hook, &body);
    let early = fire(json!({}));
    user.advance("PT5M");
    let cancelled = fire(json!({}));
    user.advance("PT5M");
    user.act(&cancelled, "cancel").expect(200);
    let stats = |query: &str| user.read(&format!("/v1/stats{query}"))["totals"].clone();
    let expected = json!({
        "succeeded": 0, "failed": 1, "retried": 2, "missed": 0,
        "late_avg_ms": null, "late_max_ms": null, "took_avg_ms": null,
    });
    assert_eq!(stats(""), expected);
    let expected = json!({
        "succeeded": 0, "failed": 1, "retried": 1, "missed": 0,
        "late_avg_ms": null, "late_max_ms": null, "took_avg_ms": null,
    });
    assert_eq!(stats(&format!("?cue_id={}", id(&hook))), expected, "the other one has not ended");
    // A later execution fails before the retry of the first one, and another one is cancelled before its only attempt.
    let change = json!({"retry": {"max_attempts": 1, "backoff_minutes": [1]}});
    user.change(&hook, &change);
    let later = fire(json!({}));
    user.advance("PT1M");
    let failing = || user.read("/v1/overview")["failing"][0].clone();
    assert_has(&failing(), json!({"execution_id": later, "http_status": 503}));
    user.advance("PT30M");
    let waiting = fire(json!({"send_at": "2026-01-06T00:00:00Z"}));
    user.act(&waiting, "cancel").expect(200);
    let last = failing();
    assert_eq!((&last["execution_id"], &last["streak"]), (&json!(early), &json!(2)), "{last}");
    let of_cue = stats(&format!("?cue_id={}", id(&hook)));
    assert_eq!(of_cue, stats(""));
}
