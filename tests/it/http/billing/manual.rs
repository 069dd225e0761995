//! Manual billing: links, pages, and the operator's decisions, over HTTP and on the command line.

use cued::domain::account::credentials::sha256;
use cued::domain::cue::CueStatus;
use cued::domain::row_keys::CueKey;
use cued::service::finish::pause_above_limit;

use crate::support::*;

const NOW: &str = "2030-01-01T00:00:00Z";

fn server() -> Server {
    Server::start(&["--dev", "--test-clock", NOW])
}

fn limited() -> (Server, Client) {
    Server::with_user(&["--dev", "--test-clock", NOW])
}

/// Runs `cued billing` while the server runs; returns output and exit code.
fn billing(server: &Server, arguments: &[&str]) -> (String, Option<i32>) {
    let output = cued(&["billing"]).args(arguments).arg("--db").arg(server.db()).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (String::from_utf8(printed).unwrap(), output.status.code())
}

/// The ids of the pending requests.
fn waiting(server: &Server) -> Vec<String> {
    let (printed, code) = billing(server, &["list"]);
    assert_eq!(code, Some(0), "{printed}");
    printed.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[track_caller]
fn decide(server: &Server, decision: &str) -> String {
    let ids = waiting(server);
    assert_eq!(ids.len(), 1);
    let (printed, code) = billing(server, &[decision, &ids[0]]);
    assert_eq!(code, Some(0), "{printed}");
    printed
}

/// The token of the returned link.
fn token(server: &Server, url: &Value, path: &str) -> String {
    let url = url.as_str().unwrap();
    url.strip_prefix(&format!("{}{path}?token=", server.url())).expect(url).to_owned()
}

fn checkout(server: &Server, user: &Client, plan: &str, interval: &str) -> String {
    let response =
        user.post("/v1/billing/checkout", &json!({"plan": plan, "interval": interval})).expect(200);
    token(server, &response["checkout_url"], "/billing/checkout")
}

fn portal(server: &Server, user: &Client) -> String {
    let response = user.call("POST", "/v1/billing/portal", &[], b"").unwrap().expect(200);
    token(server, &response["portal_url"], "/billing/portal")
}

fn see(server: &Server, path: &str, token: &str) -> Response {
    server.client().get(&format!("{path}?token={token}"))
}

fn submit(server: &Server, path: &str, form: &str) -> Response {
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    server.client().call("POST", path, &headers, form.as_bytes()).unwrap()
}

fn confirm(server: &Server, token: &str) -> Response {
    submit(server, "/billing/checkout", &format!("token={token}"))
}

fn plan(user: &Client) -> String {
    user.get("/v1/auth/me").expect(200)["plan"].as_str().unwrap().to_owned()
}

#[track_caller]
fn shows(response: &Response, status: u16, texts: &[&str]) {
    assert_eq!(response.status, status, "{}", response.text());
    for text in texts {
        assert!(response.text().contains(text), "{text} in {}", response.text());
    }
}

fn cue(number: usize) -> Value {
    json!({"name": format!("cue {number}"), "transport": "worker",
           "schedule": {"type": "recurring", "cron": "0 0 1 1 *"}})
}

#[test]
fn an_upgrade_and_a_cancellation_apply_to_the_next_request() {
    let (server, user) = limited();
    (0..10).for_each(|number| drop(user.create(&cue(number))));
    user.post("/v1/cues", &cue(10)).expect_error(403, "cue_limit_exceeded");

    let token = checkout(&server, &user, "pro", "monthly");
    shows(
        &see(&server, "/billing/checkout", &token),
        200,
        &["pro, monthly", "100", "5000", "Request this plan"],
    );
    // Looking changes nothing.
    assert_eq!((plan(&user).as_str(), waiting(&server).len()), ("free", 0));
    shows(&confirm(&server, &token), 200, &["was sent"]);
    assert_eq!(plan(&user), "free", "the operator has yet to decide");
    let printed = decide(&server, "approve");
    assert!(printed.contains("is now on plan pro (monthly)"), "{printed}");

    let response = user.get("/v1/auth/me");
    assert_eq!(response.header("x-ratelimit-limit"), Some("200"));
    let me = response.expect(200);
    assert_eq!((&me["plan"], &me["active_cue_limit"]), (&json!("pro"), &json!(100)));
    assert_eq!(stored_interval(&server).as_deref(), Some("monthly"));
    let last: Vec<Value> = (10..13).map(|number| user.create(&cue(number))).collect();
    shows(&see(&server, "/billing/checkout", &token), 200, &["was approved"]);

    let token = portal(&server, &user);
    shows(&see(&server, "/billing/portal", &token), 200, &["Your plan", "pro", "Cancel the plan"]);
    let form = format!("token={token}");
    shows(
        &submit(&server, "/billing/portal", &form),
        200,
        &["Cancel the plan?", "3 of your active cues", "Yes, cancel"],
    );
    assert_eq!(plan(&user), "pro", "a request changes nothing");
    let ended = submit(&server, "/billing/portal", &format!("{form}&confirmed=yes"));
    shows(&ended, 200, &["Your plan has ended", "Your 3 newest active cues were paused"]);

    let response = user.get("/v1/auth/me");
    assert_eq!(response.header("x-ratelimit-limit"), Some("60"));
    let me = response.expect(200);
    assert_eq!((&me["plan"], &me["active_cues"]), (&json!("free"), &json!(10)));
    assert_eq!(stored_interval(&server), None);
    for cue in last {
        let cue = user.get(&format!("/v1/cues/{}", id(&cue))).expect(200);
        assert_eq!(cue["status"], "paused");
    }
    user.post("/v1/cues", &cue(13)).expect_error(403, "cue_limit_exceeded");
    let again = submit(&server, "/billing/portal", &format!("{form}&confirmed=yes"));
    shows(&again, 404, &["already used"]);
    // A user who was on a paid plan keeps access to the portal.
    shows(&see(&server, "/billing/portal", &portal(&server, &user)), 200, &["nothing to cancel"]);
}

fn stored_interval(server: &Server) -> Option<String> {
    server.sqlite().query_row("SELECT plan_interval FROM users", [], |row| row.get(0)).unwrap()
}

#[test]
fn invalid_purchases_are_refused() {
    let (server, user) = limited();
    let buy = |body: &Value| user.post("/v1/billing/checkout", body);
    buy(&json!({"plan": "free", "interval": "monthly"})).expect_error(400, "invalid_plan");
    buy(&json!({"plan": "gold", "interval": "never"})).expect_error(400, "invalid_plan");
    buy(&json!({"plan": "pro", "interval": "weekly"})).expect_error(400, "invalid_interval");
    let refusal = buy(&json!({"interval": 5})).expect_error(422, "validation_error");
    assert_eq!(refusal["detail"][0]["loc"], json!(["body", "plan"]));
    assert_eq!(refusal["detail"][1]["type"], "string_type");
    user.post("/v1/billing/portal", &json!({})).expect_error(400, "no_billing_customer");
    let stranger = server.client();
    for path in ["/v1/billing/checkout", "/v1/billing/portal"] {
        stranger
            .post(path, &json!({"plan": "pro", "interval": "monthly"}))
            .expect_error(401, "invalid_api_key");
    }
    // Under manual billing there are no events.
    stranger.post("/v1/billing/webhook", &json!({})).expect_error(404, "not_found");
}

#[test]
fn a_plan_absent_from_the_table_cannot_be_bought() {
    let folder = tempfile::tempdir().unwrap();
    let plans = folder.path().join("plans.json");
    let table = r#"{"free": {"cues": 1, "executions": 1, "requests_per_minute": 100},
                    "pro": {"cues": null, "executions": 1, "requests_per_minute": 100}}"#;
    std::fs::write(&plans, table).unwrap();
    let (server, user) = Server::with_user(&["--dev", "--plans", plans.to_str().unwrap()]);
    let wanted = json!({"plan": "scale", "interval": "monthly"});
    user.post("/v1/billing/checkout", &wanted).expect_error(400, "invalid_plan");
    let token = checkout(&server, &user, "pro", "annual");
    shows(&see(&server, "/billing/checkout", &token), 200, &["no limit"]);
}

#[test]
fn a_checkout_link_works_once_within_a_day() {
    let (server, user) = limited();
    let first = checkout(&server, &user, "pro", "monthly");
    confirm(&server, &first);
    shows(&confirm(&server, &first), 200, &["was sent"]);
    assert_eq!(waiting(&server).len(), 1, "confirming twice asks once");
    decide(&server, "decline");
    shows(&confirm(&server, &first), 200, &["was declined"]);
    assert_eq!(waiting(&server).len(), 0, "a decided request is not listed");

    let second = checkout(&server, &user, "pro", "monthly");
    user.advance("PT23H59M59S");
    shows(&see(&server, "/billing/checkout", &second), 200, &["Request this plan"]);
    user.advance("PT1S");
    for response in [see(&server, "/billing/checkout", &second), confirm(&server, &second)] {
        shows(&response, 404, &["expired"]);
    }
    assert_eq!(waiting(&server).len(), 0);
}

#[test]
fn a_link_to_the_plan_lasts_a_day() {
    let (server, user) = limited();
    confirm(&server, &checkout(&server, &user, "scale", "annual"));
    decide(&server, "approve");
    let token = portal(&server, &user);
    user.advance("P1D");
    let form = format!("token={token}&confirmed=yes");
    for response in
        [see(&server, "/billing/portal", &token), submit(&server, "/billing/portal", &form)]
    {
        shows(&response, 404, &["expired"]);
    }
    assert_eq!(plan(&user), "scale");
}

#[test]
fn billing_tokens_are_random_and_not_stored() {
    let (server, user) = limited();
    let token = checkout(&server, &user, "pro", "monthly");
    assert_eq!(token.len(), 64);
    let stored: Vec<u8> = server
        .sqlite()
        .query_row("SELECT link_hash FROM billing_requests", [], |row| row.get(0))
        .unwrap();
    assert_eq!(stored, sha256(token.as_bytes()));
    let near = token.replace(&token[..1], if token.starts_with('0') { "1" } else { "0" });
    for wrong in ["", "x", &near, "%00", "a&token="] {
        shows(&see(&server, "/billing/checkout", wrong), 404, &["This link is unknown"]);
        shows(&see(&server, "/billing/portal", wrong), 404, &["This link is unknown"]);
        shows(&confirm(&server, wrong), 404, &["This link is unknown"]);
    }
    // A link to one kind of page is invalid for the others.
    shows(&see(&server, "/billing/portal", &token), 404, &[]);
    assert!(!server.log().contains(&token));
}

#[test]
fn a_later_request_replaces_a_pending_one() {
    let (server, user) = limited();
    let (first, second) =
        (checkout(&server, &user, "pro", "monthly"), checkout(&server, &user, "scale", "annual"));
    confirm(&server, &first);
    let replaced = waiting(&server);
    confirm(&server, &second);
    let (printed, _) = billing(&server, &["list"]);
    assert!(
        printed.contains("scale") && printed.contains("annual") && !printed.contains("monthly"),
        "{printed}"
    );
    let (printed, code) = billing(&server, &["approve", &replaced[0]]);
    assert!(code == Some(1) && printed.contains("There is no request"), "{printed}");
    shows(&see(&server, "/billing/checkout", &first), 404, &[]);
    decide(&server, "approve");
    assert_eq!(plan(&user), "scale");
}

#[test]
fn a_request_is_decided_once() {
    let (server, user) = limited();
    confirm(&server, &checkout(&server, &user, "pro", "monthly"));
    let id = waiting(&server).remove(0);
    assert_eq!(billing(&server, &["decline", &id]).1, Some(0));
    let (printed, code) = billing(&server, &["approve", &id]);
    assert!(code == Some(1) && printed.contains("is already declined"), "{printed}");
    assert_eq!(plan(&user), "free");
    let (printed, _) = billing(&server, &["list", "--all"]);
    assert!(printed.contains(&id) && printed.contains("declined"), "{printed}");
    let (printed, code) = billing(&server, &["approve", "nonsense"]);
    assert!(code == Some(1) && printed.contains("cued billing list"), "{printed}");
}

#[test]
fn an_approved_downgrade_lists_paused_cues_and_pauses_none_without_limits() {
    let (server, user) =
        Server::with_user(&["--dev", "--limits", "off", "--default-plan", "scale"]);
    (0..101).for_each(|number| drop(user.create(&cue(number))));
    let active = || user.get("/v1/auth/me").expect(200)["active_cues"].clone();
    for (limits, paused) in [("off", 0), ("on", 1)] {
        confirm(&server, &checkout(&server, &user, "pro", "monthly"));
        let id = waiting(&server).remove(0);
        let (printed, code) = billing(&server, &["approve", &id, "--limits", limits]);
        assert_eq!(code, Some(0), "{printed}");
        assert_eq!(printed.contains("paused 1 active cue"), paused == 1, "{printed}");
        assert_eq!(active(), json!(101 - paused));
    }
}

#[test]
fn runs_of_a_cue_paused_by_a_downgrade_are_recorded() {
    let fixture = Fixture::new();
    let user = fixture.user("u");
    let cues: Vec<CueKey> = (0..3).map(|_| fixture.worker_cue(user, |_| ()).key).collect();
    fixture.advance(2 * 3_600);
    let now = fixture.now();
    let pause = |limit| {
        fixture.app.store.write(move |tx| pause_above_limit(tx, user, limit, now)).wait().unwrap()
    };
    assert_eq!((pause(None), pause(Some(3)), pause(Some(1)), pause(Some(1))), (0, 0, 2, 0));
    let found = |key: CueKey| (fixture.cue(key).status, fixture.cue(key).missed_count);
    assert_eq!(found(cues[0]), (CueStatus::Active, 0), "the oldest cue stays active and due");
    assert_eq!([found(cues[1]), found(cues[2])], [(CueStatus::Paused, 2), (CueStatus::Paused, 2)]);
}

#[test]
fn cancelling_withdraws_a_pending_request() {
    let (server, user) = limited();
    confirm(&server, &checkout(&server, &user, "pro", "monthly"));
    decide(&server, "approve");
    confirm(&server, &checkout(&server, &user, "scale", "monthly"));
    let token = portal(&server, &user);
    shows(
        &see(&server, "/billing/portal", &token),
        200,
        &["Your request for scale, monthly is waiting"],
    );
    submit(&server, "/billing/portal", &format!("token={token}&confirmed=yes"));
    assert_eq!((plan(&user).as_str(), waiting(&server).len()), ("free", 0));
}

#[test]
fn the_links_of_a_disabled_user_are_invalid() {
    let server = server();
    let user = server.client().register("gone@example.com");
    confirm(&server, &checkout(&server, &user, "pro", "monthly"));
    decide(&server, "approve");
    let (asked, seen) = (checkout(&server, &user, "scale", "monthly"), portal(&server, &user));
    let disabled =
        cued(&["user", "disable", "gone@example.com", "--db"]).arg(server.db()).status().unwrap();
    assert!(disabled.success());
    for response in [
        see(&server, "/billing/checkout", &asked),
        confirm(&server, &asked),
        see(&server, "/billing/portal", &seen),
        submit(&server, "/billing/portal", &format!("token={seen}&confirmed=yes")),
    ] {
        assert_eq!(response.status, 404);
    }
}

#[test]
fn unused_links_are_deleted() {
    let (server, user) = limited();
    let tokens: Vec<String> = (0..12).map(|_| checkout(&server, &user, "pro", "monthly")).collect();
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        server.sqlite().query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(count("billing_requests"), 10);
    shows(&see(&server, "/billing/checkout", &tokens[1]), 404, &[]);
    confirm(&server, &tokens[2]);
    decide(&server, "approve");
    (0..12).for_each(|_| drop(portal(&server, &user)));
    assert_eq!(count("links"), 10);
    user.advance("P1D");
    checkout(&server, &user, "pro", "monthly");
    portal(&server, &user);
    assert_eq!((count("billing_requests"), count("links")), (2, 1), "one was approved");
}

#[test]
fn billing_pages_have_security_headers_and_escape_values() {
    let server = server();
    let user = server.client().register("a&b'c@example.com");
    let token = checkout(&server, &user, "pro", "monthly");
    let page = see(&server, "/billing/checkout", &token);
    shows(&page, 200, &["a&amp;b&#39;c@example.com"]);
    let tag = format!("name=\"token\" value=\"{token}\"");
    assert!(page.text().contains(&tag) && !page.text().contains("<script"), "{}", page.text());
    for path in ["/billing/checkout", "/billing/portal", "/billing/thanks", "/billing/closed"] {
        let response = server.client().get(path);
        let policy = response.header("content-security-policy").unwrap_or_default();
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{path}"
        );
        assert_eq!(response.header("referrer-policy"), Some("same-origin"), "{path}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
    }
}
