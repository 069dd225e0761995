//! The rate limit and the monthly quota.

use crate::http::limits::{HOURLY, LIMITED, number, small_plans, worker};
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
    let (_server, user) = Server::with_user(LIMITED);
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
    (0..29).for_each(|_| drop(user.me()));
    assert_eq!(refused(&me(&user)), 10);
}

#[test]
fn on_the_system_clock_a_limited_client_passes_after_a_minute() {
    let plans = Plans::free(&json!({"cues": 1, "executions": 1, "requests_per_minute": 3}));
    let (_server, user) = plans.with_user(&["--dev"]);
    let first = number(&me(&user), "x-ratelimit-reset");
    (0..2).for_each(|_| drop(user.me()));
    let wait = refused(&me(&user));
    assert!((50..=60).contains(&wait), "{wait} s");
    if is_full_run() {
        // Asking all the time would take a core for a minute.
        thread::sleep(Duration::from_secs(wait.unsigned_abs() - 1));
        // The server says when it processed a request: the window is empty a minute after the latest one.
        let passed = until_within("the window slides", Duration::from_secs(120), || {
            Some(me(&user)).filter(|response| response.status != 429)
        });
        assert_eq!(passed.status, 200);
        // A minute after the first request.
        assert!(number(&passed, "x-ratelimit-reset") >= first + 60);
    }
}

#[test]
fn the_keys_of_a_user_share_one_rate_window() {
    let (server, user) = Server::with_user(LIMITED);
    let made = user.post("/v1/auth/keys", &json!({"name": "second"})).expect(201);
    let second = user.with_key(made.text("api_key"));
    for (client, left) in [(second, 58), (user, 57), (server.user(), 59)] {
        assert_eq!(standing(&me(&client)), (60, left));
    }
}

#[test]
fn every_request_counts_and_the_rate_is_checked_before_the_body() {
    let (_server, user) = Server::with_user(LIMITED);
    for left in (0..60).rev() {
        let response = match left % 4 {
            0 => user.get("/v1/nowhere"),
            1 => user.bare("PUT", "/v1/cues"),
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
    for flags in [LIMITED, &[DEV_UNLIMITED, &["--test-clock", super::START]].concat()] {
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
        let register = json!({"email": "new@example.com"});
        for response in [nobody.get("/v1/cues"), nobody.post("/v1/auth/register", &register)] {
            assert_eq!(refused(&response), 60);
        }
        user.me();
        user.advance("PT60S");
        nobody.get("/v1/cues").expect_error(401, "invalid_api_key");
    }
}

#[test]
fn health_and_the_test_clock_are_not_rate_limited() {
    let server = Server::start(LIMITED);
    let nobody = server.client();
    for _ in 0..100 {
        for path in ["/health", "/status", "/v1/test/clock"] {
            let response = nobody.get(path);
            response.expect(200);
            assert_eq!(standing(&response), (60, 60), "{path}");
        }
    }
    (0..60).for_each(|_| drop(nobody.get("/v1/cues").expect(401)));
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
    let rate = user.read("/v1/usage")["rate_limit"].clone();
    assert_eq!(rate, json!({"limit": 1_000_000_000, "current_usage": 0}));
}

#[test]
fn the_rate_of_a_new_plan_applies_to_the_next_request() {
    let (server, user) = Server::with_user(LIMITED);
    let email = user.email();
    (0..59).for_each(|_| drop(user.me()));
    refused(&me(&user));
    server.administer(&["set-plan", &email, "pro"]);
    assert_eq!(standing(&me(&user)), (200, 139));
    let rate = user.read("/v1/usage")["rate_limit"].clone();
    assert_eq!(rate, json!({"limit": 200, "current_usage": 62}));
    server.administer(&["set-plan", &email, "free"]);
    // 62 requests are in a window of 60: three must leave first, and all came at the same instant.
    assert_eq!(refused(&me(&user)), 60);
}

fn warned(response: &Response) -> bool {
    let warning = response.header("x-cueapi-usage-warning");
    assert!(warning.is_none_or(|warning| warning == "approaching_limit"), "{warning:?}");
    warning.is_some()
}

fn fire(user: &Client, cue: &Value) -> Response {
    user.try_fire(cue, &json!({}))
}

/// Runs the cue so many times.
fn fires(user: &Client, cue: &Value, count: usize) {
    (0..count).for_each(|_| drop(user.fire(cue)));
}

#[track_caller]
fn refuses_to_fire(user: &Client, cue: &Value) {
    fire(user, cue).expect_error(403, "execution_limit_exceeded");
}

#[track_caller]
fn assert_used(user: &Client, used: i64) {
    assert_eq!(user.read("/v1/usage")["executions"]["used"], used);
}

/// The number of executions of the cue by state, among its newest hundred.
fn states(user: &Client, cue: &Value) -> (usize, usize) {
    let all = user.executions_of(id(cue));
    let is_blocked = |it: &&Value| it["error_message"] == "execution_limit_exceeded";
    let blocked: Vec<_> = all.iter().filter(is_blocked).collect();
    blocked.iter().for_each(|it| assert_has(it, json!({"status": "failed", "attempts": 0})));
    (all.len() - blocked.len(), blocked.len())
}

#[test]
fn responses_warn_from_80_percent_of_the_quota_on() {
    let (server, user) = small_plans().with_user(LIMITED);
    let (other, cue) = (server.user(), user.create(&worker(YEARLY)));
    (0..3).for_each(|_| assert!(!warned(&fire(&user, &cue))));
    assert!(!warned(&user.get("/v1/usage")));
    // The fourth of five is 80 %, and its own response says so.
    assert!(warned(&fire(&user, &cue)));
    for path in ["/v1/auth/me", "/v1/cues/cue_000000000000", "/v1/nowhere"] {
        assert!(warned(&user.get(path)), "{path}");
    }
    assert!(!warned(&me(&other)));
    assert!(!warned(&server.client().get("/v1/cues")));
    user.advance_to("2026-02-01T00:00:00Z");
    assert!(!warned(&me(&user)), "a new month");
}

#[test]
fn runs_above_the_quota_continue_for_a_day_and_then_fail_until_the_month_ends() {
    let (plans, receiver) = (small_plans(), Receiver::start());
    let (server, user) = plans.with_user(LIMITED);
    plans.set(&server, &user.email(), "daily");
    let cue = user.create(&webhook_cue("work", HOURLY, &receiver.url()));
    let assert_sent = |used: i64, sent: usize| {
        assert_used(&user, used);
        assert_eq!(receiver.count(), sent);
    };
    // Thirty hourly runs are within the quota; the one at 07:00 is the first above it.
    user.advance_to("2026-01-31T06:59:59Z");
    assert_sent(54, 54);
    let once = json!({"schedule": {"type": "once", "at": "2026-01-31T07:30:00Z"}});
    let late = user.create(&with(webhook_cue("once", HOURLY, &receiver.url()), once));
    assert_eq!(user.advance_to("2026-01-31T08:30:00Z")["delivered"], 0);
    assert_sent(54, 54);
    assert_eq!((states(&user, &cue), states(&user, &late)), ((54, 2), (0, 1)));
    assert_has(&user.cue(&late), json!({"status": "failed", "next_run": null}));
    let next = "2026-01-31T09:00:00+00:00";
    assert_has(&user.cue(&cue), json!({"status": "active", "next_run": next}));
    let over = user.executions_of(id(&cue)).remove(2);
    assert_eq!(over["status"], "success");
    refuses_to_fire(&user, &cue);
    user.act(id(&over), "replay").expect_error(403, "execution_limit_exceeded");
    assert_used(&user, 54);
    user.advance_to("2026-02-01T01:30:00Z");
    assert_sent(2, 56);
    user.fire(&cue);
}

#[test]
fn within_the_day_at_most_twice_the_quota_runs() {
    let (_server, user) = small_plans().with_user(LIMITED);
    let cue = user.create(&worker(HOURLY));
    user.advance("PT1H");
    fires(&user, &cue, 9);
    refuses_to_fire(&user, &cue);
    user.advance("PT1H");
    assert_eq!(states(&user, &cue), (10, 1), "a scheduled run is recorded as failed");
    assert_used(&user, 10);
}

/// A user whose quota of five is exceeded by one run, and a function that changes the plan.
fn above_the_quota() -> (Server, Client, Value, impl Fn(&Server, &str)) {
    let plans = small_plans();
    let (server, user) = plans.with_user(LIMITED);
    let (email, cue) = (user.email(), user.create(&worker(YEARLY)));
    fires(&user, &cue, 6);
    (server, user, cue, move |server: &Server, plan: &str| plans.set(server, &email, plan))
}

#[test]
fn a_plan_change_never_restarts_the_grace_period() {
    let (server, user, cue, change) = above_the_quota();
    user.advance("PT24H");
    refuses_to_fire(&user, &cue);
    change(&server, "pro");
    user.fire(&cue);
    assert_used(&user, 7);
    // A quota below the usage again: its 24 hours are over.
    change(&server, "free");
    refuses_to_fire(&user, &cue);
    user.advance("PT12H");
    change(&server, "plus");
    refuses_to_fire(&user, &cue);
    change(&server, "daily");
    user.fire(&cue);
    // The next month has its own.
    change(&server, "free");
    user.advance_to("2026-02-01T00:00:00Z");
    fires(&user, &cue, 6);
}

#[test]
fn a_plan_change_within_the_grace_period_does_not_end_it() {
    let (server, user, cue, change) = above_the_quota();
    user.advance("PT12H");
    change(&server, "pro");
    change(&server, "free");
    user.advance("PT11H59M");
    user.fire(&cue);
    user.advance("PT1M");
    refuses_to_fire(&user, &cue);
}

#[test]
fn without_limits_everything_runs_and_is_counted() {
    let (_server, user) = Server::with_clock_and_user(super::START);
    let cue = user.create(&worker("* * * * *"));
    user.advance("PT8H");
    let response = fire(&user, &cue);
    response.expect(200);
    assert!(!warned(&response));
    assert_used(&user, 481);
}
