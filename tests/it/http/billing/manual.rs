//! Manual billing: links, pages, and the operator's decisions, over HTTP and on the command line.

use cued::domain::account::credentials::sha256;
use cued::domain::cue::CueStatus;
use cued::domain::row_keys::CueKey;
use cued::service::finish::pause_above_limit;

use crate::cli::administration::ok;
use crate::http::device_login::post_form;
use crate::support::*;

const CHECKOUT: &str = "/billing/checkout";
const PORTAL: &str = "/billing/portal";

/// A server with plan limits, and a user.
struct Shop {
    server: Server,
    user: Client,
}

impl Shop {
    fn open() -> Self {
        Self::with(&["--dev", "--test-clock", "2030-01-01T00:00:00Z"])
    }

    fn with(flags: &[&str]) -> Self {
        let (server, user) = Server::with_user(flags);
        Self { server, user }
    }

    /// The output of `cued billing` beside the server, and its exit code.
    fn billing(&self, arguments: &[&str]) -> (String, Option<i32>) {
        let mut command = cued(&["billing"]);
        let output = command.args(arguments).arg("--db").arg(self.server.db()).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (String::from_utf8(printed).unwrap(), output.status.code())
    }

    /// The ids of the pending requests.
    fn waiting(&self) -> Vec<String> {
        let printed = ok(&self.server.db(), &["billing", "list"]);
        let ids = printed.lines().skip(1).map(|line| line.split_whitespace().next().unwrap());
        ids.map(str::to_owned).collect()
    }

    #[track_caller]
    fn decide(&self, decision: &str) -> String {
        let ids = self.waiting();
        assert_eq!(ids.len(), 1);
        ok(&self.server.db(), &["billing", decision, &ids[0]])
    }

    /// The token of the returned link.
    fn token(&self, link: &Value, field: &str, path: &str) -> String {
        let begin = format!("{}{path}?token=", self.server.url());
        link.text(field).strip_prefix(&begin).unwrap_or_else(|| panic!("{link}")).to_owned()
    }

    fn checkout(&self, plan: &str, interval: &str) -> String {
        let wanted = json!({"plan": plan, "interval": interval});
        let link = self.user.post("/v1/billing/checkout", &wanted).expect(200);
        self.token(&link, "checkout_url", CHECKOUT)
    }

    fn portal(&self) -> String {
        let link = self.user.bare("POST", "/v1/billing/portal").expect(200);
        self.token(&link, "portal_url", PORTAL)
    }

    fn see(&self, path: &str, token: &str) -> Response {
        self.server.client().get(&format!("{path}?token={token}"))
    }

    fn confirm(&self, token: &str) -> Response {
        post_form(&self.server.client(), CHECKOUT, &[("token", token)])
    }

    /// Asks for a plan.
    fn ask(&self, plan: &str, interval: &str) {
        self.confirm(&self.checkout(plan, interval));
    }

    fn cancel(&self, token: &str, confirmed: &str) -> Response {
        post_form(&self.server.client(), PORTAL, &[("token", token), ("confirmed", confirmed)])
    }

    fn plan(&self) -> String {
        self.user.me().text("plan").to_owned()
    }

    /// The account, after a response with this rate.
    #[track_caller]
    fn assert_limits(&self, rate: &str, expected: Value, interval: Option<&str>) {
        let response = self.user.get("/v1/auth/me");
        assert_eq!(response.header("x-ratelimit-limit"), Some(rate));
        assert_has(&response.expect(200), expected);
        let stored = "SELECT plan_interval FROM users";
        let stored: Option<String> =
            self.server.sqlite().query_row(stored, [], |row| row.get(0)).unwrap();
        assert_eq!(stored.as_deref(), interval);
    }
}

#[track_caller]
fn shows(response: &Response, status: u16, texts: &[&str]) {
    assert_eq!(response.status, status, "{}", response.text());
    assert_contains(&response.text(), texts);
}

fn cue(number: usize) -> Value {
    worker_cue(&format!("cue {number}"), YEARLY)
}

#[test]
fn an_upgrade_and_a_cancellation_apply_to_the_next_request() {
    let it = Shop::open();
    (0..10).for_each(|number| drop(it.user.create(&cue(number))));
    it.user.post("/v1/cues", &cue(10)).expect_error(403, "cue_limit_exceeded");

    let token = it.checkout("pro", "monthly");
    let offer = ["pro, monthly", "100", "5000", "Request this plan"];
    shows(&it.see(CHECKOUT, &token), 200, &offer);
    // Looking changes nothing.
    assert_eq!((it.plan().as_str(), it.waiting().len()), ("free", 0));
    shows(&it.confirm(&token), 200, &["was sent"]);
    assert_eq!(it.plan(), "free", "the operator has yet to decide");
    assert_contains(&it.decide("approve"), &["is now on plan pro (monthly)"]);
    it.assert_limits("200", json!({"plan": "pro", "active_cue_limit": 100}), Some("monthly"));
    let last: Vec<Value> = (10..13).map(|number| it.user.create(&cue(number))).collect();
    shows(&it.see(CHECKOUT, &token), 200, &["was approved"]);

    let token = it.portal();
    shows(&it.see(PORTAL, &token), 200, &["Your plan", "pro", "Cancel the plan"]);
    let question = ["Cancel the plan?", "3 of your active cues", "Yes, cancel"];
    shows(&it.cancel(&token, ""), 200, &question);
    assert_eq!(it.plan(), "pro", "a request changes nothing");
    let ended = ["Your plan has ended", "Your 3 newest active cues were paused"];
    shows(&it.cancel(&token, "yes"), 200, &ended);
    it.assert_limits("60", json!({"plan": "free", "active_cues": 10}), None);
    assert!(last.iter().all(|cue| it.user.cue(cue)["status"] == "paused"));
    it.user.post("/v1/cues", &cue(13)).expect_error(403, "cue_limit_exceeded");
    shows(&it.cancel(&token, "yes"), 404, &["already used"]);
    // A user who was on a paid plan keeps access to the portal.
    shows(&it.see(PORTAL, &it.portal()), 200, &["nothing to cancel"]);
}

#[test]
fn invalid_purchases_are_refused() {
    let it = Shop::open();
    for (plan, interval, code) in [
        ("free", "monthly", "invalid_plan"),
        ("gold", "never", "invalid_plan"),
        ("pro", "weekly", "invalid_interval"),
    ] {
        let wanted = json!({"plan": plan, "interval": interval});
        it.user.post("/v1/billing/checkout", &wanted).expect_error(400, code);
    }
    let refusal = it.user.post("/v1/billing/checkout", &json!({"interval": 5}));
    let refusal = refusal.expect_error(422, "validation_error");
    assert_eq!(refusal["detail"][0]["loc"], json!(["body", "plan"]));
    assert_eq!(refusal["detail"][1]["type"], "string_type");
    it.user.post("/v1/billing/portal", &json!({})).expect_error(400, "no_billing_customer");
    let (stranger, wanted) = (it.server.client(), json!({"plan": "pro", "interval": "monthly"}));
    for path in ["/v1/billing/checkout", "/v1/billing/portal"] {
        stranger.post(path, &wanted).expect_error(401, "invalid_api_key");
    }
    // Under manual billing there are no events.
    stranger.post("/v1/billing/webhook", &json!({})).expect_error(404, "not_found");
}

#[test]
fn a_plan_absent_from_the_table_cannot_be_bought() {
    let plan = |cues: Value| json!({"cues": cues, "executions": 1, "requests_per_minute": 100});
    let plans = Plans::new(&json!({"free": plan(json!(1)), "pro": plan(Value::Null)}));
    let it = Shop::with(&["--dev", "--plans", &plans.path()]);
    let wanted = json!({"plan": "scale", "interval": "monthly"});
    it.user.post("/v1/billing/checkout", &wanted).expect_error(400, "invalid_plan");
    shows(&it.see(CHECKOUT, &it.checkout("pro", "annual")), 200, &["no limit"]);
}

#[test]
fn a_checkout_link_works_once_within_a_day() {
    let it = Shop::open();
    let first = it.checkout("pro", "monthly");
    it.confirm(&first);
    shows(&it.confirm(&first), 200, &["was sent"]);
    assert_eq!(it.waiting().len(), 1, "confirming twice asks once");
    it.decide("decline");
    shows(&it.confirm(&first), 200, &["was declined"]);
    assert_eq!(it.waiting().len(), 0, "a decided request is not listed");

    let second = it.checkout("pro", "monthly");
    it.user.advance("PT23H59M59S");
    shows(&it.see(CHECKOUT, &second), 200, &["Request this plan"]);
    it.user.advance("PT1S");
    shows(&it.see(CHECKOUT, &second), 404, &["expired"]);
    shows(&it.confirm(&second), 404, &["expired"]);
    assert_eq!(it.waiting().len(), 0);
}

#[test]
fn a_link_to_the_plan_lasts_a_day() {
    let it = Shop::open();
    it.ask("scale", "annual");
    it.decide("approve");
    let token = it.portal();
    it.user.advance("P1D");
    shows(&it.see(PORTAL, &token), 404, &["expired"]);
    shows(&it.cancel(&token, "yes"), 404, &["expired"]);
    assert_eq!(it.plan(), "scale");
}

#[test]
fn billing_tokens_are_random_and_not_stored() {
    let it = Shop::open();
    let token = it.checkout("pro", "monthly");
    assert_eq!(token.len(), 64);
    let stored = "SELECT link_hash FROM billing_requests";
    let stored: Vec<u8> = it.server.sqlite().query_row(stored, [], |row| row.get(0)).unwrap();
    assert_eq!(stored, sha256(token.as_bytes()));
    let near = token.replace(&token[..1], if token.starts_with('0') { "1" } else { "0" });
    for wrong in ["", "x", &near, "%00", "a&token="] {
        for response in [it.see(CHECKOUT, wrong), it.see(PORTAL, wrong), it.confirm(wrong)] {
            shows(&response, 404, &["This link is unknown"]);
        }
    }
    // A link to one kind of page is invalid for the others.
    shows(&it.see(PORTAL, &token), 404, &[]);
    assert!(!it.server.log().contains(&token));
}

#[test]
fn a_later_request_replaces_a_pending_one() {
    let it = Shop::open();
    let (first, second) = (it.checkout("pro", "monthly"), it.checkout("scale", "annual"));
    it.confirm(&first);
    let replaced = it.waiting();
    it.confirm(&second);
    let (printed, _) = it.billing(&["list"]);
    assert_contains(&printed, &["scale", "annual"]);
    assert!(!printed.contains("monthly"), "{printed}");
    let (printed, code) = it.billing(&["approve", &replaced[0]]);
    assert!(code == Some(1) && printed.contains("There is no request"), "{printed}");
    shows(&it.see(CHECKOUT, &first), 404, &[]);
    it.decide("approve");
    assert_eq!(it.plan(), "scale");
}

#[test]
fn a_request_is_decided_once() {
    let it = Shop::open();
    it.ask("pro", "monthly");
    let id = it.waiting().remove(0);
    for (arguments, code, part) in [
        (&["decline", &id][..], 0, ""),
        (&["approve", &id], 1, "is already declined"),
        (&["list", "--all"], 0, &id),
        (&["list", "--all"], 0, "declined"),
        (&["approve", "nonsense"], 1, "cued billing list"),
    ] {
        let (printed, exit) = it.billing(arguments);
        assert_eq!(exit, Some(code), "{arguments:?}: {printed}");
        assert_contains(&printed, &[part]);
    }
    assert_eq!(it.plan(), "free");
}

#[test]
fn an_approved_downgrade_lists_paused_cues_and_pauses_none_without_limits() {
    let it = Shop::with(&["--dev", "--limits", "off", "--default-plan", "scale"]);
    (0..101).for_each(|number| drop(it.user.create(&cue(number))));
    for (limits, paused) in [("off", 0), ("on", 1)] {
        it.ask("pro", "monthly");
        let id = it.waiting().remove(0);
        let (printed, code) = it.billing(&["approve", &id, "--limits", limits]);
        assert_eq!(code, Some(0), "{printed}");
        assert_eq!(printed.contains("paused 1 active cue"), paused == 1, "{printed}");
        assert_eq!(it.user.me()["active_cues"], 101 - paused);
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
    let it = Shop::open();
    it.ask("pro", "monthly");
    it.decide("approve");
    it.ask("scale", "monthly");
    let token = it.portal();
    shows(&it.see(PORTAL, &token), 200, &["Your request for scale, monthly is waiting"]);
    it.cancel(&token, "yes");
    assert_eq!((it.plan().as_str(), it.waiting().len()), ("free", 0));
}

#[test]
fn the_links_of_a_disabled_user_are_invalid() {
    let it = Shop::open();
    it.ask("pro", "monthly");
    it.decide("approve");
    let (asked, seen) = (it.checkout("scale", "monthly"), it.portal());
    it.server.administer(&["disable", &it.user.email()]);
    for response in [
        it.see(CHECKOUT, &asked),
        it.confirm(&asked),
        it.see(PORTAL, &seen),
        it.cancel(&seen, "yes"),
    ] {
        assert_eq!(response.status, 404);
    }
}

#[test]
fn unused_links_are_deleted() {
    let it = Shop::open();
    let tokens: Vec<String> = (0..12).map(|_| it.checkout("pro", "monthly")).collect();
    let count = |table: &str| it.server.count(&format!("SELECT count(*) FROM {table}"));
    assert_eq!(count("billing_requests"), 10);
    shows(&it.see(CHECKOUT, &tokens[1]), 404, &[]);
    it.confirm(&tokens[2]);
    it.decide("approve");
    (0..12).for_each(|_| drop(it.portal()));
    assert_eq!(count("links"), 10);
    it.user.advance("P1D");
    it.checkout("pro", "monthly");
    it.portal();
    assert_eq!((count("billing_requests"), count("links")), (2, 1), "one was approved");
}

#[test]
fn billing_pages_have_security_headers_and_escape_values() {
    let mut it = Shop::open();
    it.user = it.server.client().register("a&b'c@example.com");
    let token = it.checkout("pro", "monthly");
    let page = it.see(CHECKOUT, &token);
    let field = format!("name=\"token\" value=\"{token}\"");
    shows(&page, 200, &["a&amp;b&#39;c@example.com", &field]);
    assert!(!page.text().contains("<script"), "{}", page.text());
    for path in [CHECKOUT, PORTAL, "/billing/thanks", "/billing/closed"] {
        let response = it.server.client().get(path);
        let policy = response.header("content-security-policy").unwrap_or_default();
        assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
        assert_contains(policy, &["frame-ancestors 'none'"]);
        for (name, value) in [
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("content-type", "text/html; charset=utf-8"),
        ] {
            assert_eq!(response.header(name), Some(value), "{name} of {path}");
        }
    }
}
