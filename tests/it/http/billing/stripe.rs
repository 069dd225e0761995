//! Stripe: API calls, events, and their effect on the limits of an account.

use cued::billing::stripe::{Stripe, StripeConfig};
use cued::domain::billing::Prices;

use crate::support::stripe_double::{
    Mode, NOW_SECS, SECRET_KEY, StripeDouble, WEBHOOK_SECRET, event, flags, purchase, send,
    send_raw, send_signed, signature, subscription,
};
use crate::support::*;

const UPDATED: &str = "customer.subscription.updated";
const DELETED: &str = "customer.subscription.deleted";
const COMPLETED: &str = "checkout.session.completed";

struct Account {
    client: Client,
    id: String,
    email: String,
}

impl Account {
    fn new(server: &Server) -> Self {
        let client = server.user();
        Self { id: id(&client.me()).to_owned(), email: client.email(), client }
    }

    fn plan(&self) -> String {
        self.client.me().text("plan").to_owned()
    }

    fn checkout(&self, plan: &str, interval: &str) -> Value {
        self.client
            .post("/v1/billing/checkout", &json!({"plan": plan, "interval": interval}))
            .expect(200)
    }

    fn buy(&self, plan: &str, interval: &str) {
        send(&self.client, &event("evt_buy", COMPLETED, 0, &purchase(&self.id, plan, interval)));
    }

    fn send_update(&self, id: &str, created: i64, status: &str, price: &str) {
        let kind = if status == "canceled" { DELETED } else { UPDATED };
        send(&self.client, &event(id, kind, created, &subscription(status, price)));
    }
}

/// A provider, a server that is configured for it, and an account.
fn customer() -> (StripeDouble, Server, Account) {
    let provider = StripeDouble::start();
    let server = provider.server();
    let account = Account::new(&server);
    (provider, server, account)
}

fn interval(server: &Server, account: &Account) -> Option<String> {
    let sql = "SELECT plan_interval FROM users WHERE id = ?1";
    server.sqlite().query_row(sql, [&account.id], |row| row.get(0)).unwrap()
}

#[test]
fn a_checkout_session_request_has_the_form_of_the_stripe_api() {
    let (provider, server, account) = customer();
    let response = account.checkout("scale", "annual");
    assert_eq!(response, json!({"checkout_url": "https://pay.example.com/1"}));
    let call = provider.last_call();
    assert_eq!(call.path, "/v1/checkout/sessions");
    let url = server.url();
    let expected = json!({
        "mode": "subscription",
        "line_items[0][price]": "price_sa",
        "line_items[0][quantity]": "1",
        "customer_email": account.email,
        "success_url": format!("{url}/billing/thanks"),
        "cancel_url": format!("{url}/billing/closed"),
        "client_reference_id": account.id,
        "metadata[user_id]": account.id,
        "metadata[plan]": "scale",
        "metadata[interval]": "annual",
        "subscription_data[metadata][user_id]": account.id,
    });
    assert_eq!(json!(call.form), expected);

    account.checkout("pro", "monthly");
    let second = provider.last_call();
    assert_eq!(second.form["line_items[0][price]"], "price_pm");
    assert_ne!(second.idempotency_key, call.idempotency_key);
    for path in ["/billing/thanks", "/billing/closed"] {
        assert_eq!(server.client().get(path).status, 200, "{path}");
    }
}

#[test]
fn a_paying_customer_is_recognized_by_checkout_and_portal() {
    let (provider, server, account) = customer();
    account.client.post("/v1/billing/portal", &json!({})).expect_error(400, "no_billing_customer");
    account.buy("pro", "monthly");

    let portal = account.client.bare("POST", "/v1/billing/portal").expect(200);
    assert_eq!(portal, json!({"portal_url": "https://pay.example.com/1"}));
    let call = provider.last_call();
    assert_eq!(call.path, "/v1/billing_portal/sessions");
    let url = server.url();
    assert_eq!(
        json!(call.form),
        json!({"customer": "cus_1", "return_url": format!("{url}/billing/closed")})
    );

    account.checkout("scale", "monthly");
    let form = provider.last_call().form;
    assert_eq!((form["customer"].as_str(), form.contains_key("customer_email")), ("cus_1", false));

    // One payment is enough, and applies to its own account only.
    account.send_update("evt_end", 1, "canceled", "price_pm");
    assert_eq!(account.client.post("/v1/billing/portal", &json!({})).status, 200);
    server.user().post("/v1/billing/portal", &json!({})).expect_error(400, "no_billing_customer");
}

#[test]
fn an_upgrade_and_a_cancellation_apply_to_the_next_request() {
    let (_provider, server, account) = customer();
    for number in 0..10 {
        account.client.create(&worker_cue(&format!("cue {number}"), YEARLY));
    }
    account
        .client
        .post("/v1/cues", &worker_cue("one too many", YEARLY))
        .expect_error(403, "cue_limit_exceeded");

    let assert_limits = |rate: &str, expected: Value, paid: Option<&str>| {
        let response = account.client.get("/v1/auth/me");
        assert_eq!(response.header("x-ratelimit-limit"), Some(rate));
        assert_has(&response.expect(200), expected);
        assert_eq!(interval(&server, &account).as_deref(), paid);
    };
    account.buy("pro", "annual");
    assert_limits("200", json!({"plan": "pro", "active_cue_limit": 100}), Some("annual"));
    let last = ["eleventh", "twelfth"].map(|name| account.client.create(&worker_cue(name, YEARLY)));
    account.send_update("evt_end", 1, "canceled", "price_pa");
    assert_limits("60", json!({"plan": "free", "active_cues": 10}), None);
    for cue in &last {
        assert_has(&account.client.cue(cue), json!({"status": "paused", "next_run": null}));
        let resumed = account.client.patch(&cue_path(cue), &json!({"status": "active"}));
        resumed.expect_error(403, "cue_limit_exceeded");
    }
}

#[test]
fn plan_and_interval_follow_the_price_and_the_status_of_the_subscription() {
    let (_provider, server, account) = customer();
    account.buy("pro", "monthly");
    let steps = [
        ("active", "price_sa", "scale", Some("annual")),
        ("past_due", "price_sa", "scale", Some("annual")),
        ("unpaid", "price_sa", "free", None),
        ("active", "price_pa", "pro", Some("annual")),
        ("trialing", "price_sm", "scale", Some("monthly")),
        ("active", "price_that_is_not_ours", "scale", Some("monthly")),
        ("canceled", "price_sm", "free", None),
        ("active", "price_sm", "free", None),
    ];
    for (number, (status, price, plan, paid)) in (1..).zip(steps) {
        account.send_update(&format!("evt_{number}"), number, status, price);
        let found = (account.plan(), interval(&server, &account));
        assert_eq!(found, (plan.to_owned(), paid.map(str::to_owned)), "{status} {price}");
    }
}

#[test]
fn each_event_counts_once_and_in_the_order_of_its_creation() {
    /// An event (id, creation, status, price) or a purchase (plan, "", interval, ""), and the plan after it.
    type Step = (&'static str, i64, &'static str, &'static str, &'static str);
    const BUY: i64 = -1;
    let rows: [(&str, &[Step]); 3] = [
        (
            "a repeated event claims to be newer",
            &[
                ("pro", BUY, "monthly", "", "pro"),
                ("evt_1", 1, "active", "price_sa", "scale"),
                ("evt_2", 2, "active", "price_pm", "pro"),
                ("evt_1", 3, "active", "price_sa", "pro"),
                ("scale", BUY, "annual", "", "pro"),
            ],
        ),
        (
            "any order: what the purchase lacks is known when its event arrives",
            &[
                ("evt_3", 3, "active", "price_sa", "free"),
                ("pro", BUY, "monthly", "", "scale"),
                ("evt_2", 2, "unpaid", "price_pm", "scale"),
                ("evt_1", 1, "canceled", "price_sa", "scale"),
                ("evt_9", 9, "canceled", "price_sa", "free"),
                ("evt_8", 8, "active", "price_sa", "free"),
            ],
        ),
        (
            "a cancellation before the purchase",
            &[("evt_2", 2, "canceled", "price_sa", "free"), ("scale", BUY, "annual", "", "free")],
        ),
    ];
    for (name, steps) in rows {
        let (_provider, _server, account) = customer();
        for (id, created, status, price, plan) in steps {
            match *created {
                BUY => account.buy(id, status),
                created => account.send_update(id, created, status, price),
            }
            assert_eq!(account.plan(), *plan, "{name}: after {id} {created} {status}");
        }
    }
}

#[test]
fn a_subscription_is_matched_by_its_own_metadata() {
    let (_provider, _server, account) = customer();
    let mut object = subscription("active", "price_pm");
    object["metadata"] = json!({"user_id": account.id});
    send(&account.client, &event("evt_1", "customer.subscription.created", 1, &object));
    assert_eq!(account.plan(), "pro");
}

#[test]
fn the_second_subscription_remains_when_the_first_ends() {
    let (_provider, _server, account) = customer();
    account.buy("pro", "monthly");
    let mut second = subscription("active", "price_sm");
    second["id"] = json!("sub_2");
    send(&account.client, &event("evt_1", UPDATED, 1, &second));
    assert_eq!(account.plan(), "scale");
    second["status"] = json!("canceled");
    send(&account.client, &event("evt_2", DELETED, 2, &second));
    assert_eq!(account.plan(), "pro");
}

#[test]
fn an_unpaid_checkout_counts_when_its_payment_arrives() {
    let (_provider, _server, account) = customer();
    let mut bought = purchase(&account.id, "pro", "monthly");
    bought["payment_status"] = json!("unpaid");
    send(&account.client, &event("evt_1", COMPLETED, 0, &bought));
    assert_eq!(account.plan(), "free");
    bought["payment_status"] = json!("paid");
    send(&account.client, &event("evt_2", "checkout.session.async_payment_succeeded", 1, &bought));
    assert_eq!(account.plan(), "pro");
}

#[test]
fn unsigned_or_stale_stripe_events_are_refused() {
    let (_provider, _server, account) = customer();
    let event = event("evt_1", COMPLETED, 0, &purchase(&account.id, "scale", "annual"));
    let body = event.to_string();
    let good = signature(&body, WEBHOOK_SECRET, NOW_SECS);
    let client = &account.client;
    for refused in [
        client.call("POST", "/v1/billing/webhook", &[], body.as_bytes()).unwrap(),
        send_signed(client, &event, "whsec_SomebodyElse", NOW_SECS),
        send_signed(client, &event, WEBHOOK_SECRET, NOW_SECS - 301),
        send_signed(client, &event, WEBHOOK_SECRET, NOW_SECS + 301),
        send_raw(client, &good, &body.replace("scale", "pro")),
        send_raw(client, &good, &format!("{body} ")),
        send_raw(client, &good.replace("v1=", "v2="), &body),
    ] {
        refused.expect_error(400, "invalid_signature");
    }
    assert_eq!(account.plan(), "free");
    // The server's own clock decides on staleness; the event itself was never processed.
    client.advance("PT5M");
    let rolled = good.replace("v1=", &format!("v1={},v1=", "0".repeat(64)));
    send_raw(client, &rolled, &body).expect(200);
    assert_eq!(account.plan(), "scale");
}

#[test]
fn stripe_events_without_effect_are_accepted_and_logged() {
    let (_provider, server, account) = customer();
    let client = &account.client;
    send(client, &event("evt_1", "invoice.paid", 1, &json!({"customer": "cus_1"})));
    send(client, &event("evt_2", UPDATED, 2, &subscription("active", "price_of_a_mug")));
    send(client, &event("evt_3", COMPLETED, 3, &purchase("nobody", "pro", "monthly")));
    assert_eq!(account.plan(), "free");
    account.buy("pro", "monthly");
    send(client, &event("evt_4", "invoice.payment_failed", 4, &json!({"customer": "cus_1"})));
    assert_eq!(account.plan(), "pro");
    let log = server.log();
    for expected in ["invoice.paid", "sub_1", "nobody", "payment failed"] {
        assert!(log.contains(expected), "{expected} in {log}");
    }
    send_raw(client, &signature("[]", WEBHOOK_SECRET, NOW_SECS), "[]")
        .expect_error(400, "bad_request");
}

#[test]
fn a_failing_provider_is_a_502_and_the_log_has_the_reason_without_secrets() {
    let (provider, server, account) = customer();
    for mode in [Mode::Broken, Mode::NotJson, Mode::NoUrl] {
        provider.set(mode);
        let wanted = json!({"plan": "pro", "interval": "monthly"});
        let refusal =
            account.client.post("/v1/billing/checkout", &wanted).expect_error(502, "billing_error");
        assert!(!refusal.to_string().contains("Something broke"), "{refusal}");
    }
    let log = server.log();
    assert!(log.contains("Something broke"), "{log}");
    assert!(!log.contains("Hidden"), "{log}");
    provider.set(Mode::Normal);
    account.checkout("pro", "monthly");
}

#[test]
fn an_unreachable_provider_is_a_502() {
    let server = {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", gone.local_addr().unwrap());
        Server::start(&[&["--dev"][..], &flags(&url)].concat())
    };
    let wanted = json!({"plan": "pro", "interval": "monthly"});
    server.user().post("/v1/billing/checkout", &wanted).expect_error(502, "billing_error");
}

#[test]
fn a_hanging_provider_is_cut_by_the_timeout() {
    let provider = StripeDouble::start();
    provider.set(Mode::Hanging);
    let stripe = Stripe::new(StripeConfig {
        secret_key: SECRET_KEY.to_owned().into(),
        webhook_secret: WEBHOOK_SECRET.to_owned().into(),
        prices: Prices::new(["a", "b", "c", "d"].map(str::to_owned)).unwrap(),
        api_base: provider.url(),
        timeout: Duration::from_millis(200),
    });
    // The provider never responds, so only the timeout ends the call.
    let call = move || stripe.portal("http://127.0.0.1:1", "cus_1").unwrap_err();
    let error = bounded("the call of the provider", call);
    assert!(error.to_string().starts_with("billing_error"), "{error}");
    assert_eq!(provider.hanging(), 1, "the call reached the provider");
}

#[test]
fn an_incomplete_stripe_configuration_refuses_to_start() {
    let all = flags("https://api.example.com");
    let same = [&all[..10], &[all[10], "price_pm"]].concat();
    let no_url = [&all[..12], &["--stripe-api-base", "api.example.com"]].concat();
    let mut cases = vec![
        (all[..2].to_vec(), "--stripe-price-scale-annual"),
        (same, "same id"),
        (no_url, "not an http"),
    ];
    let without = |place: usize| [&all[..place], &all[place + 2..]].concat();
    cases.extend((0..12).step_by(2).map(|place| (without(place), all[place])));
    for (flags, named) in cases {
        let output = run(&[&["serve", "--ephemeral"], &flags[..]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(named) && !stderr.contains("Hidden"), "{named}: {stderr}");
    }
}

#[test]
fn manual_billing_pages_are_absent_under_stripe() {
    let provider = StripeDouble::start();
    let server = provider.server();
    for path in ["/billing/checkout?token=x", "/billing/portal?token=x"] {
        assert_eq!(server.client().get(path).status, 404);
    }
}
