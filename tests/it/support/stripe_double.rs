//! A payment provider on loopback: checks each call as the real API does, and signs events as it does.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cued::domain::hex;
use cued::domain::webhook::signature::hmac_sha256;
use serde_json::{Value, json};

use crate::support::client::{Answer, Client, read_head};
use crate::support::server::Server;

pub const SECRET_KEY: &str = "sk_test_51HiddenKeyOfTheAccount";
pub const WEBHOOK_SECRET: &str = "whsec_HiddenSecretOfTheEndpoint";
/// The instant at which servers of this world stand, and its epoch seconds.
pub const NOW: &str = "2030-01-01T00:00:00Z";
pub const NOW_SECS: i64 = 1_893_456_000;

const PRICES: [&str; 4] = ["price_pm", "price_pa", "price_sm", "price_sa"];
const CHECKOUT_FIELDS: [&str; 11] = [
    "mode",
    "line_items[0][price]",
    "line_items[0][quantity]",
    "customer",
    "customer_email",
    "success_url",
    "cancel_url",
    "client_reference_id",
    "metadata[user_id]",
    "metadata[plan]",
    "metadata[interval]",
];

/// What the provider does with a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// 500, with the caller's key in the message.
    Broken,
    /// 200 with something that is no JSON.
    Gibberish,
    /// 200 with a session that has no address.
    NoUrl,
    /// No answer for as long as the caller waits.
    Hanging,
}

/// A call that was found in order.
#[derive(Debug, Clone)]
pub struct Call {
    pub path: String,
    pub form: BTreeMap<String, String>,
    pub idempotency_key: String,
}

/// The provider.
pub struct Provider {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    mood: Mutex<Mood>,
    calls: Mutex<Vec<Call>>,
    /// Why calls were refused, and the answers that were given under a key.
    refusals: Mutex<Vec<String>>,
    answers: Mutex<HashMap<String, String>>,
}

impl Provider {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            mood: Mutex::new(Mood::Well),
            calls: Mutex::default(),
            refusals: Mutex::default(),
            answers: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let served = Arc::clone(&served);
                thread::spawn(move || served.serve(stream.unwrap()));
            }
        });
        Self { addr, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn set(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    /// The newest call; none may have been refused.
    #[track_caller]
    pub fn last_call(&self) -> Call {
        assert_eq!(*self.shared.refusals.lock().unwrap(), Vec::<String>::new());
        self.shared.calls.lock().unwrap().last().cloned().expect("a call")
    }

    /// A server that is paid through this provider.
    pub fn server(&self) -> Server {
        let url = self.url();
        Server::start(&[&["--dev", "--test-clock", NOW][..], &flags(&url)].concat())
    }
}

/// The flags of a server that is paid through the provider at `url`.
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

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream);
        while let Ok(Some((first, headers))) = read_head(&mut reader) {
            let header = |name: &str| {
                headers.iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
            };
            let length = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let mood = *self.mood.lock().unwrap();
            let (status, text) = match mood {
                Mood::Hanging => return thread::park_timeout(Duration::from_secs(5)),
                Mood::Broken => (500, error(&format!("Something broke for {SECRET_KEY}"))),
                Mood::Gibberish => (200, "<html>".to_owned()),
                Mood::NoUrl => (200, json!({"id": "cs_1", "url": null}).to_string()),
                Mood::Well => self.judge(&first, header, &body),
            };
            let answer = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            );
            // A caller that has given up is not there to be answered.
            drop(reader.get_mut().write_all(answer.as_bytes()));
        }
    }

    fn judge<'a>(&self, first: &str, header: impl Fn(&str) -> Option<&'a str>, body: &[u8]) -> (u16, String) {
        let refuse = |status: u16, why: String| {
            self.refusals.lock().unwrap().push(why.clone());
            (status, error(&why))
        };
        let [method, path, _] = first.split(' ').collect::<Vec<_>>()[..] else {
            return refuse(400, first.to_owned());
        };
        if header("authorization") != Some(&format!("Bearer {SECRET_KEY}")) {
            return refuse(401, "Invalid API Key provided".to_owned());
        }
        if header("content-type") != Some("application/x-www-form-urlencoded") {
            return refuse(400, format!("Invalid content type: {:?}", header("content-type")));
        }
        let Some(key) = header("idempotency-key").filter(|key| (1..=255).contains(&key.len())) else {
            return refuse(400, "An idempotency key was expected".to_owned());
        };
        if let Some(answer) = self.answers.lock().unwrap().get(key) {
            return (200, answer.clone());
        }
        let form = decoded(body);
        let checked = match (method, path) {
            ("POST", "/v1/checkout/sessions") => check_checkout(&form),
            ("POST", "/v1/billing_portal/sessions") => check_portal(&form),
            _ => return refuse(404, format!("Unrecognized request URL ({method}: {path})")),
        };
        if let Err(why) = checked {
            return refuse(400, why);
        }
        let number = self.calls.lock().unwrap().len() + 1;
        let answer = json!({"id": format!("s_{number}"), "url": format!("https://pay.example.com/{number}")});
        self.calls.lock().unwrap().push(Call {
            path: path.to_owned(),
            form,
            idempotency_key: key.to_owned(),
        });
        self.answers.lock().unwrap().insert(key.to_owned(), answer.to_string());
        (200, answer.to_string())
    }
}

fn check_checkout(form: &BTreeMap<String, String>) -> Result<(), String> {
    known(form, |name| CHECKOUT_FIELDS.contains(&name) || name.starts_with("subscription_data[metadata]["))?;
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
        (None, Some(email)) if !email.contains('@') => Err(format!("Invalid email address: {email}")),
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
    if customer.starts_with("cus_") { Ok(()) } else { Err(format!("No such customer: '{customer}'")) }
}

fn error(message: &str) -> String {
    json!({"error": {"type": "invalid_request_error", "message": message}}).to_string()
}

/// The fields of a form; a double one is a mistake.
fn decoded(body: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.as_bytes();
        while let Some((first, after)) = rest.split_first() {
            let digits = after.get(..2).filter(|_| *first == b'%');
            bytes.push(match digits {
                Some(digits) => u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap(),
                None if *first == b'+' => b' ',
                None => *first,
            });
            rest = if digits.is_some() { &after[2..] } else { after };
        }
        String::from_utf8(bytes).unwrap()
    };
    let mut form = BTreeMap::new();
    for pair in text.split('&') {
        let (name, value) = pair.split_once('=').unwrap();
        assert!(form.insert(decode(name), decode(value)).is_none(), "{name} comes twice");
    }
    form
}

/// Sends an event, signed at `signed_at` with `secret`.
pub fn send_signed(client: &Client, event: &Value, secret: &str, signed_at: i64) -> Answer {
    let body = event.to_string();
    send_raw(client, &signature(&body, secret, signed_at), &body)
}

/// `Stripe-Signature` of a body.
pub fn signature(body: &str, secret: &str, signed_at: i64) -> String {
    let time = signed_at.to_string();
    let tag = hmac_sha256(secret.as_bytes(), &[time.as_bytes(), b".", body.as_bytes()]);
    format!("t={time},v1={},v0={}", hex::encode(&tag), "0".repeat(64))
}

/// Sends a body with a signature header as it stands.
pub fn send_raw(client: &Client, signature: &str, body: &str) -> Answer {
    let headers = [("Stripe-Signature", signature), ("Content-Type", "application/json")];
    client.call("POST", "/v1/billing/webhook", &headers, body.as_bytes()).unwrap()
}

/// Sends an event as the provider does; it must be taken.
#[track_caller]
pub fn send(client: &Client, event: &Value) {
    let answer = send_signed(client, event, WEBHOOK_SECRET, NOW_SECS);
    assert_eq!(answer.expect(200), json!({"received": true}));
}

/// An event made `created` seconds after the beginning of this world.
pub fn event(id: &str, kind: &str, created: i64, object: &Value) -> Value {
    json!({"id": id, "object": "event", "api_version": "2025-03-31.basil", "created": NOW_SECS + created,
           "livemode": false, "pending_webhooks": 1, "type": kind, "data": {"object": object}})
}

/// The user's purchase of `plan` as customer `cus_1` with subscription `sub_1`.
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
