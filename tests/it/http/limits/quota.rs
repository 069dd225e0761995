//! The monthly quota: the warning, the grace period, its end, and what restores the quota.

use serde_json::{Value, json};

use super::{Plans, administer, email, id, worker};
use crate::support::client::{Client, Response};
use crate::support::receiver::Receiver;

fn warned(response: &Response) -> bool {
    match response.header("x-cueapi-usage-warning") {
        Some(warning) => {
            assert_eq!(warning, "approaching_limit");
            true
        }
        None => false,
    }
}

fn fire(user: &Client, cue: &Value) -> Response {
    user.post(&format!("/v1/cues/{}/fire", id(cue)), &json!({}))
}

fn used(user: &Client) -> Value {
    user.get("/v1/usage").expect(200)["executions"]["used"].clone()
}

/// The number of executions of the cue by state, among its newest hundred.
fn states(user: &Client, cue: &Value) -> (usize, usize) {
    let all = user.executions_of(id(cue));
    let blocked = all.iter().filter(|it| it["error_message"] == "execution_limit_exceeded");
    for execution in blocked.clone() {
        assert_eq!((&execution["status"], &execution["attempts"]), (&json!("failed"), &json!(0)));
    }
    let blocked = blocked.count();
    (all.len() - blocked, blocked)
}

#[test]
fn responses_warn_from_80_percent_of_the_quota_on() {
    let server = Plans::small().server();
    let (user, other) = (server.user(), server.user());
    let cue = user.create(&worker("0 0 1 1 *"));
    for _ in 0..3 {
        assert!(!warned(&fire(&user, &cue)));
    }
    assert!(!warned(&user.get("/v1/usage")));
    // The fourth of five is 80 %, and its own response says so.
    assert!(warned(&fire(&user, &cue)));
    assert!(warned(&user.get("/v1/auth/me")));
    assert!(warned(&user.get("/v1/cues/cue_000000000000")));
    assert!(warned(&user.get("/v1/nowhere")));
    assert!(!warned(&other.get("/v1/auth/me")));
    assert!(!warned(&server.client().get("/v1/cues")));
    user.advance_to("2026-02-01T00:00:00Z");
    assert!(!warned(&user.get("/v1/auth/me")), "a new month");
}

#[test]
fn runs_above_the_quota_continue_for_a_day_and_then_fail_until_the_month_ends() {
    let (plans, receiver) = (Plans::small(), Receiver::start());
    let server = plans.server();
    let user = server.user();
    administer(&server, &["set-plan", &email(&user), "daily", "--plans", &plans.path()]);
    let mut cue = worker("0 * * * *");
    cue["transport"] = json!("webhook");
    cue["callback"] = json!({"url": receiver.url()});
    let cue = user.create(&cue);
    // Thirty hourly runs are within the quota; the one at 07:00 is the first above it.
    user.advance_to("2026-01-31T06:59:59Z");
    assert_eq!((used(&user), receiver.deliveries().len()), (json!(54), 54));
    let late = user
        .create(&json!({"name": "once", "schedule": {"type": "once", "at": "2026-01-31T07:30:00Z"},
                                   "callback": {"url": receiver.url()}}));
    let moved = user.advance_to("2026-01-31T08:30:00Z");
    assert_eq!(moved["delivered"], 0);
    assert_eq!((used(&user), receiver.deliveries().len()), (json!(54), 54));
    assert_eq!(states(&user, &cue), (54, 2));
    assert_eq!(states(&user, &late), (0, 1));
    let shown = user.get(&format!("/v1/cues/{}", id(&late))).expect(200);
    assert_eq!((&shown["status"], &shown["next_run"]), (&json!("failed"), &Value::Null));
    let recurring = user.get(&format!("/v1/cues/{}", id(&cue))).expect(200);
    assert_eq!(
        (&recurring["status"], &recurring["next_run"]),
        (&json!("active"), &json!("2026-01-31T09:00:00+00:00"))
    );
    let over = user.executions_of(id(&cue)).remove(2);
    assert_eq!(over["status"], "success");
    fire(&user, &cue).expect_error(403, "execution_limit_exceeded");
    user.post(&format!("/v1/executions/{}/replay", id(&over)), &json!({}))
        .expect_error(403, "execution_limit_exceeded");
    assert_eq!(used(&user), json!(54));
    user.advance_to("2026-02-01T01:30:00Z");
    assert_eq!((used(&user), receiver.deliveries().len()), (json!(2), 56));
    fire(&user, &cue).expect(200);
}

#[test]
fn within_the_day_at_most_twice_the_quota_runs() {
    let server = Plans::small().server();
    let user = server.user();
    let cue = user.create(&worker("0 * * * *"));
    user.advance("PT1H");
    for _ in 0..9 {
        fire(&user, &cue).expect(200);
    }
    fire(&user, &cue).expect_error(403, "execution_limit_exceeded");
    user.advance("PT1H");
    assert_eq!(states(&user, &cue), (10, 1), "a scheduled run is recorded as failed");
    assert_eq!(used(&user), json!(10));
}

#[test]
fn a_plan_change_never_restarts_the_grace_period() {
    let plans = Plans::small();
    let server = plans.server();
    let user = server.user();
    let (email, cue) = (email(&user), user.create(&worker("0 0 1 1 *")));
    let change = |plan: &str| administer(&server, &["set-plan", &email, plan, "--plans", &plans.path()]);
    for _ in 0..6 {
        fire(&user, &cue).expect(200);
    }
    user.advance("PT24H");
    fire(&user, &cue).expect_error(403, "execution_limit_exceeded");
    change("pro");
    fire(&user, &cue).expect(200);
    assert_eq!(used(&user), json!(7));
    // A quota below the usage again: its 24 hours are over.
    change("free");
    fire(&user, &cue).expect_error(403, "execution_limit_exceeded");
    user.advance("PT12H");
    change("plus");
    fire(&user, &cue).expect_error(403, "execution_limit_exceeded");
    change("daily");
    fire(&user, &cue).expect(200);
    // The next month has its own.
    change("free");
    user.advance_to("2026-02-01T00:00:00Z");
    for _ in 0..6 {
        fire(&user, &cue).expect(200);
    }
}

#[test]
fn a_plan_change_within_the_grace_period_does_not_end_it() {
    let plans = Plans::small();
    let server = plans.server();
    let user = server.user();
    let (email, cue) = (email(&user), user.create(&worker("0 0 1 1 *")));
    let change = |plan: &str| administer(&server, &["set-plan", &email, plan, "--plans", &plans.path()]);
    for _ in 0..6 {
        fire(&user, &cue).expect(200);
    }
    user.advance("PT12H");
    change("pro");
    change("free");
    user.advance("PT11H59M");
    fire(&user, &cue).expect(200);
    user.advance("PT1M");
    fire(&user, &cue).expect_error(403, "execution_limit_exceeded");
}

#[test]
fn without_limits_everything_runs_and_is_counted() {
    let server = crate::support::server::Server::with_test_clock(super::START);
    let user = server.user();
    let cue = user.create(&worker("* * * * *"));
    user.advance("PT8H");
    let response = fire(&user, &cue);
    response.expect(200);
    assert!(!warned(&response));
    assert_eq!(used(&user), json!(481));
}
