//! A double of the Stripe API: checks each call as Stripe does, and signs events as Stripe does.

use std::collections::HashMap;

use cued::domain::text::hex;
use cued::domain::webhook::signature::hmac_sha256;

use crate::support::*;

pub const SECRET_KEY: &str = "sk_test_51HiddenKeyOfTheAccount";
pub const WEBHOOK_SECRET: &str = "whsec_HiddenSecretOfTheEndpoint";
/// The instant of the clock of these servers, and its epoch seconds.
pub const NOW: &str = "2030-01-01T00:00:00Z";
pub const NOW_SECS: i64 = 1_893_456_000;

const PRICES: [&str; 4] = ["price_pm", "price_pa", "price_sm", "price_sa"];
const CHECKOUT_FIELDS: &str = "mode line_items[0][price] line_items[0][quantity] customer customer_email success_url cancel_url \
    client_reference_id metadata[user_id] metadata[plan] metadata[interval]";

/// The behaviour of the provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Normal,
    /// 500, with the caller's key in the message.
    Broken,
    /// 200 without JSON.
    NotJson,
    /// 200 with a session that has no URL.
    NoUrl,
    /// No response.
    Hanging,
}

/// An accepted call.
#[derive(Debug, Clone)]
pub struct Call {
    pub path: String,
    pub form: BTreeMap<String, String>,
    pub idempotency_key: String,
}

/// A double of the payment provider.
pub struct StripeDouble {
    receiver: Receiver,
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Default)]
struct Ledger {
    calls: Vec<Call>,
    /// Why calls were refused.
    refusals: Vec<String>,
    /// The response to each idempotency key.
    responses: HashMap<String, String>,
}

impl StripeDouble {
    pub fn start() -> Self {
        let double = Self { receiver: Receiver::start(), ledger: Arc::default() };
        double.set(Mode::Normal);
        double
    }

    pub fn url(&self) -> String {
        self.receiver.url_of("")
    }

    pub fn set(&self, mode: Mode) {
        let respond = |status: u16, body: String| {
            let json = vec![("Content-Type", "application/json".to_owned())];
            Reaction::Full(status, json, body)
        };
        let ledger = Arc::clone(&self.ledger);
        self.receiver.react(match mode {
            Mode::Hanging => Reaction::Hang,
            Mode::Broken => respond(500, error(&format!("Something broke for {SECRET_KEY}"))),
            Mode::NotJson => respond(200, "<html>".to_owned()),
            Mode::NoUrl => respond(200, json!({"id": "cs_1", "url": null}).to_string()),
            Mode::Normal => Reaction::choose(move |call| {
                let (status, body) = ledger.lock().unwrap().process(call);
                respond(status, body)
            }),
        });
    }

    /// Calls without a response so far.
    pub fn hanging(&self) -> usize {
        self.receiver.hanging()
    }

    /// The newest call; no call may have been refused.
    #[track_caller]
    pub fn last_call(&self) -> Call {
        let ledger = self.ledger.lock().unwrap();
        assert_eq!(ledger.refusals, Vec::<String>::new());
        ledger.calls.last().cloned().expect("a call")
    }

    /// A server with this provider.
    pub fn server(&self) -> Server {
        let url = self.url();
        Server::start(&[&["--dev", "--test-clock", NOW][..], &flags(&url)].concat())
    }
}

/// The flags of a server with the provider at `url`.
pub fn flags(url: &str) -> [&str; 14] {
    [
        "--stripe-secret-key",
        SECRET_KEY,
        "--stripe-webhook-secret",
        WEBHOOK_SECRET,
        "--stripe-price-pro-monthly",
        PRICES[0],
        "--stripe-price-pro-annual",
        PRICES[1],
        "--stripe-price-scale-monthly",
        PRICES[2],
        "--stripe-price-scale-annual",
        PRICES[3],
        "--stripe-api-base",
        url,
    ]
}

impl Ledger {
    /// Checks a call as the Stripe API does; returns a status and a body.
    fn process(&mut self, call: &Delivery) -> (u16, String) {
        match self.accept(call) {
            Ok(body) => (200, body),
            Err((status, reason)) => {
                self.refusals.push(reason.clone());
                (status, error(&reason))
            }
        }
    }

    fn accept(&mut self, call: &Delivery) -> Result<String, (u16, String)> {
        if call.header("authorization") != Some(&format!("Bearer {SECRET_KEY}")) {
            return Err((401, "Invalid API Key provided".to_owned()));
        }
        let content_type = call.header("content-type");
        if content_type != Some("application/x-www-form-urlencoded") {
            return Err((400, format!("Invalid content type: {content_type:?}")));
        }
        let key = call.header("idempotency-key").filter(|key| (1..=255).contains(&key.len()));
        let key = key.ok_or_else(|| (400, "An idempotency key was expected".to_owned()))?;
        if let Some(response) = self.responses.get(key) {
            return Ok(response.clone());
        }
        let form = decoded(&call.body);
        let checked = match (call.method.as_str(), call.path.as_str()) {
            ("POST", "/v1/checkout/sessions") => check_checkout(&form),
            ("POST", "/v1/billing_portal/sessions") => check_portal(&form),
            _ => return Err((404, format!("Unrecognized request URL ({})", call.line()))),
        };
        checked.map_err(|reason| (400, reason))?;
        let number = self.calls.len() + 1;
        let response = json!({"id": format!("s_{number}"), "url": format!("https://pay.example.com/{number}")});
        self.calls.push(Call { path: call.path.clone(), form, idempotency_key: key.to_owned() });
        self.responses.insert(key.to_owned(), response.to_string());
        Ok(response.to_string())
    }
}

fn check_checkout(form: &BTreeMap<String, String>) -> Result<(), String> {
    known(form, |name| {
        words(CHECKOUT_FIELDS).contains(&name) || name.starts_with("subscription_data[metadata][")
    })?;
    if required(form, "mode")? != "subscription" {
        return Err("mode must be subscription for recurring prices".to_owned());
    }
    let price = required(form, "line_items[0][price]")?;
    if !PRICES.contains(&price) {
        return Err(format!("No such price: '{price}'"));
    }
    if required(form, "line_items[0][quantity]")?.parse::<u32>().is_err() {
        return Err("Invalid integer: line_items[0][quantity]".to_owned());
    }
    absolute(required(form, "success_url")?)?;
    absolute(required(form, "cancel_url")?)?;
    match (form.get("customer"), form.get("customer_email")) {
        (Some(_), Some(_)) => {
            Err("You may only specify one of these parameters: customer, customer_email".to_owned())
        }
        (Some(customer), None) => customer_known(customer),
        (None, Some(email)) if !email.contains('@') => {
            Err(format!("Invalid email address: {email}"))
        }
        _ => Ok(()),
    }
}

fn check_portal(form: &BTreeMap<String, String>) -> Result<(), String> {
    known(form, |name| ["customer", "return_url"].contains(&name))?;
    absolute(required(form, "return_url")?)?;
    customer_known(required(form, "customer")?)
}

fn known(form: &BTreeMap<String, String>, is_known: impl Fn(&str) -> bool) -> Result<(), String> {
    match form.keys().find(|name| !is_known(name)) {
        Some(name) => Err(format!("Received unknown parameter: {name}")),
        None => Ok(()),
    }
}

fn required<'a>(form: &'a BTreeMap<String, String>, name: &str) -> Result<&'a str, String> {
    form.get(name)
        .map(String::as_str)
        .filter(|value| !value.is_empty())
        .ok_or_else(|| format!("Missing required param: {name}"))
}

fn absolute(url: &str) -> Result<(), String> {
    if url.starts_with("http://") || url.starts_with("https://") {
        Ok(())
    } else {
        Err("Not a valid URL".to_owned())
    }
}

fn customer_known(customer: &str) -> Result<(), String> {
    if customer.starts_with("cus_") {
        Ok(())
    } else {
        Err(format!("No such customer: '{customer}'"))
    }
}

fn error(message: &str) -> String {
    json!({"error": {"type": "invalid_request_error", "message": message}}).to_string()
}

/// The fields of a form, none of them twice.
fn decoded(body: &[u8]) -> BTreeMap<String, String> {
    let mut form = BTreeMap::new();
    for (name, value) in url::form_urlencoded::parse(body).into_owned() {
        assert!(form.insert(name.clone(), value).is_none(), "{name} is repeated");
    }
    form
}

/// Sends an event, signed at `signed_at` with `secret`.
pub fn send_signed(client: &Client, event: &Value, secret: &str, signed_at: i64) -> Response {
    let body = event.to_string();
    send_raw(client, &signature(&body, secret, signed_at), &body)
}

/// `Stripe-Signature` of a body.
pub fn signature(body: &str, secret: &str, signed_at: i64) -> String {
    let time = signed_at.to_string();
    let tag = hmac_sha256(secret.as_bytes(), &[time.as_bytes(), b".", body.as_bytes()]);
    format!("t={time},v1={},v0={}", hex::encode(&tag), "0".repeat(64))
}

/// Sends a body with the given signature header.
pub fn send_raw(client: &Client, signature: &str, body: &str) -> Response {
    let headers = [("Stripe-Signature", signature), ("Content-Type", "application/json")];
    client.call("POST", "/v1/billing/webhook", &headers, body.as_bytes()).unwrap()
}

/// Sends an event as Stripe does; it must be accepted.
#[track_caller]
pub fn send(client: &Client, event: &Value) {
    let response = send_signed(client, event, WEBHOOK_SECRET, NOW_SECS);
    assert_eq!(response.expect(200), json!({"received": true}));
}

/// An event created `created` seconds after [`NOW`].
pub fn event(id: &str, kind: &str, created: i64, object: &Value) -> Value {
    json!({"id": id, "object": "event", "api_version": "2025-03-31.basil", "created": NOW_SECS + created,
           "livemode": false, "pending_webhooks": 1, "type": kind, "data": {"object": object}})
}

/// A purchase of `plan` by the user as customer `cus_1` with subscription `sub_1`.
pub fn purchase(user_id: &str, plan: &str, interval: &str) -> Value {
    json!({"id": "cs_1", "object": "checkout.session", "mode": "subscription", "customer": "cus_1",
           "subscription": "sub_1", "client_reference_id": user_id, "payment_status": "paid", "status": "complete",
           "metadata": {"user_id": user_id, "plan": plan, "interval": interval}})
}

/// Subscription `sub_1` of customer `cus_1`.
pub fn subscription(status: &str, price: &str) -> Value {
    json!({"id": "sub_1", "object": "subscription", "customer": "cus_1", "status": status, "metadata": {},
           "items": {"object": "list", "data": [{"id": "si_1", "price": {"id": price}, "quantity": 1}]}})
}
