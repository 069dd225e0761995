//! The limits of a cue on the command line: overlap, maximum age, deadline of an outcome, flows.

use crate::cli::client::{Desk, start, stored};
use crate::support::*;

#[test]
fn limits_are_set_by_flags_changed_one_by_one_and_shown_in_words() {
    let (_server, user, home) = start();
    let id = home.ok(&words(
        "cue add --name n --every 1h --url http://127.0.0.1:9/ --overlap buffer_one --max-age 10m \
         --outcome-deadline 1h30m --parallelism 2 --per-minute 30 -q",
    ));
    let cue = stored(&user, id.trim());
    assert_has(
        &cue,
        json!({"overlap": "buffer_one", "max_age_seconds": 600, "outcome_deadline_seconds": 5_400}),
    );
    assert_eq!(
        cue["callback"]["flow"],
        json!({"key": "127.0.0.1:9", "parallelism": 2, "per_minute": 30})
    );
    let shown = home.ok(&["cue", "show", "n"]);
    let lines = "overlap        one run waits while an earlier one lasts\n\
                 max age        10m\n\
                 report within  1h 30m\n\
                 flow           127.0.0.1:9, 2 at once, 30 a minute\n";
    assert_contains(&shown, &[lines]);
    home.ok(&words(
        "cue set n overlap=skip max_age_seconds=null outcome_deadline_seconds=null callback.flow.per_minute=null \
         callback.flow.key=8080",
    ));
    let flow = json!({"key": "8080", "parallelism": 2, "per_minute": null});
    assert_eq!(stored(&user, id.trim())["callback"]["flow"], flow, "the other parts stay");
    let shown = home.ok(&["cue", "show", "n"]);
    assert_contains(
        &shown,
        &[
            "\noverlap       runs are skipped while an earlier one lasts\nflow          8080, 2 at once\n",
        ],
    );
    home.ok(&words("cue set n overlap=allow callback.flow=null"));
    let shown = home.ok(&["cue", "show", "n"]);
    let absent = ["\noverlap", "\nmax age", "\nreport within", "\nflow"];
    assert!(absent.iter().all(|line| !shown.contains(line)), "the defaults: {shown}");
}

#[test]
fn wrong_limits_are_explained() {
    let (_server, user, home) = start();
    for (flags, code, reason) in [
        (
            "--url http://127.0.0.1:9/ --overlap never",
            2,
            "[possible values: allow, skip, buffer_one]",
        ),
        ("--url http://127.0.0.1:9/ --max-age 10", 2, "examples are 90s, 10m, 2h and 1d"),
        ("--url http://127.0.0.1:9/ --parallelism 65", 2, "65 is not in 1..=64"),
        ("--url http://127.0.0.1:9/ --per-minute 0", 2, "0 is not in 1..=6000"),
        ("--url http://127.0.0.1:9/ --flow-key k", 2, "add --parallelism, --per-minute, or both"),
        ("--worker --outcome-deadline 1h", 2, "cannot be used with"),
        ("--worker --parallelism 1", 2, "cannot be used with"),
        ("--url http://127.0.0.1:9/ --max-age 59s", 5, "--max-age: must be at least 1m\n"),
        (
            "--url http://127.0.0.1:9/ --outcome-deadline 8d",
            5,
            "--outcome-deadline: must be at most 7d\n",
        ),
    ] {
        let add = ["cue", "add", "--name", "x", "--every", "5m"];
        let error = home.fails(&[&add[..], &words(flags)[..]].concat(), code);
        assert!(error.contains(reason), "{flags}: {error}");
    }
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
}

#[test]
fn runs_say_what_they_wait_for_and_when_they_give_up() {
    let desk = Desk::new();
    let schedule = json!({"type": "recurring", "cron": "0 * * * *"});
    desk.user.create(
        &json!({"name": "report", "transport": "worker", "schedule": schedule, "overlap": "buffer_one",
                             "max_age_seconds": 7_200}),
    );
    let flow = json!({"per_minute": 1, "key": "nas"});
    let callback = json!({"url": "http://127.0.0.1:9/", "flow": flow});
    let sync =
        desk.user.create(&json!({"name": "sync", "callback": callback, "schedule": schedule}));
    desk.user.patch(&format!("/v1/cues/{}", id(&sync)), &json!({"status": "paused"})).expect(200);
    desk.user.advance("PT2H");
    let (first, second) = (desk.fire(id(&sync)), desk.fire(id(&sync)));
    desk.user.settle();
    let listed = desk.home.ok(&["run", "list"]);
    let line =
        |id: &str| listed.lines().find(|line| line.starts_with(id)).unwrap_or_default().to_owned();
    assert_contains(&line(&first), &["retrying\tconnection"]);
    assert_contains(&line(&second), &["pending\twaits for its turn (flow nas)"]);
    assert_contains(&listed, &["pending\twaits for the earlier run"]);
    assert!(listed.lines().all(|line| line.chars().count() <= 110), "{listed}");
    let shown = desk.home.ok(&["run", "show", &second]);
    assert_contains(&shown, &["why            it waits for its turn (flow nas)\n"]);
    let runs = desk.home.json(&["run", "list", "--cue", "report"])["executions"].clone();
    let shown = desk.home.ok(&["run", "show", id(&runs[0])]);
    assert_contains(
        &shown,
        &[
            "why            it waits for the earlier run\n",
            "gives up at    2030-01-01 04:00:00+00:00\n",
        ],
    );
    let flows = "FLOW\tAT ONCE\tA MINUTE\tCUES\tWAITING\tRUNNING\nnas\t\t1\t1\t1\t0\n";
    assert_eq!(desk.home.ok(&["flow", "list"]), flows);
    assert_eq!(
        desk.home.json(&["flow", "list"])["flows"],
        desk.user.get("/v1/flows").expect(200)["flows"]
    );
    desk.user.advance("PT1H");
    let expired = desk.home.ok(&["run", "show", id(&runs[1])]);
    assert_contains(&expired, &["why            it reached its maximum age after 0 attempts\n"]);
    let listed = desk.home.ok(&["run", "list", "--cause", "expired", "--cue", "report"]);
    assert_contains(&listed, &[&format!("{}\treport\tfailed\texpired", id(&runs[1]))]);
}

#[test]
fn a_delivered_run_shows_whether_its_result_is_due_missing_or_known() {
    let (desk, receiver) = (Desk::new(), Receiver::start());
    let cue = desk.webhook_cue("hook", &receiver.url());
    desk.user
        .patch(&format!("/v1/cues/{cue}"), &json!({"outcome_deadline_seconds": 3_600}))
        .expect(200);
    let run = desk.fire(&cue);
    desk.user.settle();
    let shown = desk.home.ok(&["run", "show", &run]);
    assert_contains(
        &shown,
        &["why            delivered; no result yet, due at 2030-01-01 01:00:00+00:00\n"],
    );
    assert_contains(&desk.home.ok(&["run", "list"]), &["success\t200, no result yet"]);
    desk.user.advance("PT1H");
    assert_contains(
        &desk.home.ok(&["run", "show", &run]),
        &[
            "why            it was delivered, but nobody reported its result in time\n",
            "outcome        no result in time\n",
        ],
    );
    assert_contains(
        &desk.home.ok(&["run", "list", "--outcome", "missing"]),
        &["success\t200, no result in time"],
    );
    assert_contains(
        &desk.home.ok(&["alert", "list", "--type", "outcome_missing"]),
        &["outcome missing", "hook"],
    );
    desk.user.report(&run, &json!({"success": true}));
    assert_contains(&desk.home.ok(&["run", "list"]), &["success\t200"]);
    assert!(!desk.home.ok(&["run", "show", &run]).contains("why  "));
}

#[test]
fn a_preview_has_all_parts_of_a_schedule() {
    let (_server, _user, home) = start();
    let flags = "preview --every 90m --start 2030-03-01T08:00 --end 2030-03-01T12:00 --jitter 40";
    let shown = home.json(&words(flags));
    let expected = json!(["2030-03-01T08:00:00Z", "2030-03-01T09:30:00Z", "2030-03-01T11:00:00Z"]);
    assert_eq!(shown["upcoming"], expected);
    assert_contains(
        &text(&shown["description"]),
        &["Every 1 h 30 min from 1 March 2030 at 08:00", "up to 40 s later"],
    );
    for (flags, code, reason) in [
        ("--every 5m '* * * * *'", 2, "cannot be used with"),
        ("--every 5m --at 2031-01-01T00:00", 2, "cannot be used with"),
        ("--at 2031-01-01T00:00 --start 2030-01-01T00:00", 2, "cannot be used with"),
        ("--every 9s", 5, "every"),
        ("--every 5m --jitter 301", 5, "--jitter"),
        ("--every 5m --end soon", 5, "end"),
    ] {
        let error = home.fails(&[&["preview"], &words(flags)[..]].concat(), code);
        assert!(error.contains(reason), "{flags}: {error}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
