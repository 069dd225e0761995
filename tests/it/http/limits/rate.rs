//! The rate limit and the monthly quota.

use crate::http::limits::{Plans, administer, email, id, limited, limited_user, number, worker};
use crate::support::*;

/// Epoch seconds of [`super::START`].
const START: i64 = 1_769_646_600;

fn me(user: &Client) -> Response {
    user.get("/v1/auth/me")
}

fn standing(response: &Response) -> (i64, i64) {
    (number(response, "x-ratelimit-limit"), number(response, "x-ratelimit-remaining"))
}

fn refused(response: &Response) -> i64 {
    response.expect_error(429, "rate_limit_exceeded");
    assert_eq!(number(response, "x-ratelimit-remaining"), 0);
    number(response, "retry-after")
}

#[test]
fn the_61st_request_is_refused_until_the_window_slides() {
    let (_server, user) = limited_user();
    for count in 1..=60 {
        if count == 31 {
            user.advance("PT10S");
        }
        let response = me(&user);
        assert_eq!((response.status, standing(&response)), (200, (60, 60 - count)));
        let newest = if count < 31 { START } else { START + 10 };
        assert_eq!(number(&response, "x-ratelimit-reset"), newest + 60);
    }
    assert_eq!(refused(&me(&user)), 50);
    user.advance("PT49.5S");
    assert_eq!(refused(&me(&user)), 1);
    user.advance("PT0.5S");
    // Thirty requests have left the window, rejected ones did not count, and this is the first new one.
    assert_eq!(standing(&me(&user)), (60, 29));
    for _ in 0..29 {
        me(&user).expect(200);
    }
    assert_eq!(refused(&me(&user)), 10);
}

#[test]
fn on_the_system_clock_a_limited_client_passes_after_a_minute() {
    let plans =
        Plans::new(&json!({"free": {"cues": 1, "executions": 1, "requests_per_minute": 3}}));
    let (_server, user) = Server::with_user(&["--dev", "--plans", &plans.path()]);
    let first = number(&me(&user), "x-ratelimit-reset");
    for _ in 0..2 {
        me(&user).expect(200);
    }
    let wait = refused(&me(&user));
    assert!((50..=60).contains(&wait), "{wait} s");
    if is_full_run() {
        // The server says when it processed a request: the window is empty a minute after the latest one.
        let passed = until_within("the window slides", Duration::from_secs(120), || {
            let response = me(&user);
            (response.status != 429).then_some(response)
        });
        assert_eq!(passed.status, 200);
        // A minute after the first request.
        assert!(number(&passed, "x-ratelimit-reset") >= first + 60);
    }
}

#[test]
fn the_keys_of_a_user_share_one_rate_window() {
    let (server, user) = limited_user();
    let made = user.post("/v1/auth/keys", &json!({"name": "second"})).expect(201);
    let second = user.with_key(made["api_key"].as_str().unwrap());
    assert_eq!(standing(&me(&second)), (60, 58));
    assert_eq!(standing(&me(&user)), (60, 57));
    assert_eq!(standing(&me(&server.user())), (60, 59));
}

#[test]
fn every_request_counts_and_the_rate_is_checked_before_the_body() {
    let (_server, user) = limited_user();
    for left in (0..60).rev() {
        let response = match left % 4 {
            0 => user.get("/v1/nowhere"),
            1 => user.call("PUT", "/v1/cues", &[], b"").unwrap(),
            2 => user.call("POST", "/v1/cues", &[], b"{").unwrap(),
            _ => user.get("/v1/cues/cue_000000000000"),
        };
        assert!([404, 405, 400].contains(&response.status));
        assert_eq!(standing(&response), (60, left), "{}", response.text());
    }
    let too_large = [("Content-Length", "3000000")];
    assert_eq!(refused(&user.clone().call("POST", "/v1/cues", &too_large, b"").unwrap()), 60);
    // An unknown path is a 404 at any rate.
    assert_eq!(user.get("/v1/nowhere").status, 404);
}

#[test]
fn requests_without_a_valid_key_share_sixty_a_minute_per_address() {
    for flags in [
        &["--dev", "--test-clock", super::START][..],
        &[DEV_UNLIMITED, &["--test-clock", super::START]].concat(),
    ] {
        let server = Server::start(flags);
        // The registration is the first request.
        let (user, nobody) = (server.user(), server.client());
        for left in (0..59).rev() {
            let response = match left % 3 {
                0 => nobody.get("/v1/cues"),
                1 => nobody.with_key("cue_sk_00000000000000000000000000000000").get("/v1/cues"),
                _ => nobody.get("/v1/nowhere"),
            };
            assert_eq!(standing(&response), (60, left), "{}", response.text());
        }
        assert_eq!(refused(&nobody.get("/v1/cues")), 60);
        assert_eq!(
            refused(&nobody.post("/v1/auth/register", &json!({"email": "new@example.com"}))),
            60
        );
        me(&user).expect(200);
        user.advance("PT60S");
        nobody.get("/v1/cues").expect_error(401, "invalid_api_key");
    }
}

#[test]
fn health_and_the_test_clock_are_not_rate_limited() {
    let server = limited();
    let nobody = server.client();
    for _ in 0..100 {
        for path in ["/health", "/status", "/v1/test/clock"] {
            let response = nobody.get(path);
            response.expect(200);
            assert_eq!(standing(&response), (60, 60), "{path}");
        }
    }
    for _ in 0..60 {
        nobody.get("/v1/cues").expect(401);
    }
    refused(&nobody.get("/v1/cues"));
    let health = nobody.get("/health");
    health.expect(200);
    assert_eq!(standing(&health), (60, 0));
    // The real time passes too.
    assert!(number(&health, "x-ratelimit-reset") >= START + 60);
}

#[test]
fn without_limits_the_shown_limit_is_a_billion() {
    let (_server, user) = Server::with_clock_and_user(super::START);
    for _ in 0..100 {
        let response = me(&user);
        assert_eq!((response.status, standing(&response)), (200, (1_000_000_000, 1_000_000_000)));
    }
    let usage = user.get("/v1/usage").expect(200);
    assert_eq!(usage["rate_limit"], json!({"limit": 1_000_000_000, "current_usage": 0}));
}

#[test]
fn the_rate_of_a_new_plan_applies_to_the_next_request() {
    let (server, user) = limited_user();
    let email = email(&user);
    for _ in 0..59 {
        me(&user).expect(200);
    }
    refused(&me(&user));
    administer(&server, &["set-plan", &email, "pro"]);
    assert_eq!(standing(&me(&user)), (200, 139));
    let usage = user.get("/v1/usage").expect(200);
    assert_eq!(usage["rate_limit"], json!({"limit": 200, "current_usage": 62}));
    administer(&server, &["set-plan", &email, "free"]);
    // 62 requests are in a window of 60: three must leave first, and all came at the same instant.
    assert_eq!(refused(&me(&user)), 60);
}

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
    let (server, user) = plans.with_user();
    administer(&server, &["set-plan", &email(&user), "daily", "--plans", &plans.path()]);
    let mut cue = worker("0 * * * *");
    cue["transport"] = json!("webhook");
    cue["callback"] = json!({"url": receiver.url()});
    let cue = user.create(&cue);
    // Thirty hourly runs are within the quota; the one at 07:00 is the first above it.
    user.advance_to("2026-01-31T06:59:59Z");
    assert_eq!((used(&user), receiver.deliveries().len()), (json!(54), 54));
    let late = user.create(
        &json!({"name": "once", "schedule": {"type": "once", "at": "2026-01-31T07:30:00Z"},
                                   "callback": {"url": receiver.url()}}),
    );
    let moved = user.advance_to("2026-01-31T08:30:00Z");
    assert_eq!(moved["delivered"], 0);
    assert_eq!((used(&user), receiver.deliveries().len()), (json!(54), 54));
    assert_eq!(states(&user, &cue), (54, 2));
    assert_eq!(states(&user, &late), (0, 1));
    let shown = user.get(&format!("/v1/cues/{}", id(&late))).expect(200);
    assert_eq!((&shown["status"], &shown["next_run"]), (&json!("failed"), &Value::Null));
    let recurring = user.get(&format!("/v1/cues/{}", id(&cue))).expect(200);
    assert_has(&recurring, json!({"status": "active", "next_run": "2026-01-31T09:00:00+00:00"}));
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
    let (_server, user) = Plans::small().with_user();
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
    let (server, user) = plans.with_user();
    let (email, cue) = (email(&user), user.create(&worker("0 0 1 1 *")));
    let change =
        |plan: &str| administer(&server, &["set-plan", &email, plan, "--plans", &plans.path()]);
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
    let (server, user) = plans.with_user();
    let (email, cue) = (email(&user), user.create(&worker("0 0 1 1 *")));
    let change =
        |plan: &str| administer(&server, &["set-plan", &email, plan, "--plans", &plans.path()]);
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
    let (_server, user) = Server::with_clock_and_user(super::START);
    let cue = user.create(&worker("* * * * *"));
    user.advance("PT8H");
    let response = fire(&user, &cue);
    response.expect(200);
    assert!(!warned(&response));
    assert_eq!(used(&user), json!(481));
}
