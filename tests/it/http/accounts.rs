//! `/v1/auth`: registration, the account, keys, the webhook secret.

use cued::domain::webhook::signature::{SigningSecrets, standard_signature};

use crate::support::*;

const START: &str = "2026-01-05T00:00:00Z";

fn is_lower_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn keys(user: &Client) -> Vec<Value> {
    user.read("/v1/auth/keys").list("keys").clone()
}

#[test]
fn registration_returns_the_key_once() {
    let server = Server::start(DEV_UNLIMITED);
    let client = server.client();
    let made =
        client.post("/v1/auth/register", &json!({"email": "  Ann@Example.COM "})).expect(201);
    assert_eq!(made["email"], "ann@example.com");
    let key = made.text("api_key");
    assert!(is_lower_hex(key.strip_prefix("cue_sk_").unwrap(), 32), "{key}");
    let me = client.with_key(key).me();
    assert_eq!(me["id"], made["id"]);
    assert!(!me.to_string().contains(key));
    assert!(!server.log().contains(key));
}

#[test]
fn by_default_registration_closes_after_the_first_user() {
    let server = Server::start(&[]);
    let statuses: Vec<u16> = thread::scope(|scope| {
        let racers: Vec<_> = (0..12)
            .map(|number| {
                let client = server.client();
                let body = json!({"email": format!("u{number}@example.com")});
                scope.spawn(move || client.post("/v1/auth/register", &body).status)
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 403).count(), 11, "{statuses:?}");
}

#[test]
fn closed_registration_refuses_and_names_the_operator_command() {
    let server = Server::start(&["--registration", "closed"]);
    let response = server.client().post("/v1/auth/register", &json!({"email": "ann@example.com"}));
    response.refuses(403, "registration_disabled", "cued user add");
}

#[test]
fn me_returns_the_account_its_limits_and_its_usage() {
    let server = Server::start(&["--dev", "--test-clock", "2026-01-31T23:30:00Z"]);
    let (user, receiver) = (server.client().register("ann@example.com"), Receiver::start());
    user.create(&webhook_cue("hook", "0 * * * *", &receiver.url()));
    let me = user.me();
    let id = id(&me).to_owned();
    let key_id = keys(&user)[0]["id"].clone();
    assert_eq!(
        me,
        json!({
            "id": id, "email": "ann@example.com", "plan": "free", "is_operator": true,
            "has_webhook_secret": true, "alert_webhook_url": null,
            "active_cues": 1, "active_cue_limit": 10,
            "monthly_executions": 0, "executions_this_month": 0, "monthly_execution_limit": 300,
            "rate_limit_per_minute": 60, "api_key_prefix": &user.key()[..12],
            "created_at": "2026-01-31T23:30:00Z", "auth": {"via": "key", "id": key_id},
        })
    );
    assert_eq!(id.len(), 36, "{id} is a UUID");
    user.advance_to("2026-02-01T02:30:00Z");
    let me = user.me();
    assert_eq!((&me["monthly_executions"], &me["executions_this_month"]), (&json!(3), &json!(3)));
}

#[test]
fn both_secrets_sign_for_24_hours_after_a_rotation() {
    let server = Server::with_test_clock(START);
    let (user, receiver) = (server.user(), Receiver::start());
    let response = user.read("/v1/auth/webhook-secret");
    let first = response["webhook_secret"].clone();
    assert!(is_lower_hex(first.as_str().unwrap().strip_prefix("whsec_").unwrap(), 64), "{first}");
    let cue = user.create(&webhook_cue("hook", YEARLY, &receiver.url()));
    let rotate = || {
        let rotated = user.bare("POST", "/v1/auth/webhook-secret/regenerate").expect(200);
        let shown = user.read("/v1/auth/webhook-secret");
        assert_eq!(shown["webhook_secret"], rotated["webhook_secret"]);
        rotated
    };
    let assert_signed_by = |current: &Value, previous: Option<&Value>| {
        user.fire(&cue);
        user.settle();
        let delivery = receiver.deliveries().pop().unwrap();
        assert_eq!(
            delivery.header("webhook-signature").unwrap(),
            signature(&delivery, current, previous)
        );
    };
    assert_signed_by(&first, None);

    let rotated = rotate();
    assert_eq!(rotated["previous_secret_expires_at"], "2026-01-06T00:00:00Z");
    let second = rotated["webhook_secret"].clone();
    assert_ne!(second, first);
    assert_signed_by(&second, Some(&first));
    user.advance("PT23H59M59S");
    assert_signed_by(&second, Some(&first));

    let third = rotate()["webhook_secret"].clone();
    assert_signed_by(&third, Some(&second));
    user.advance("PT23H59M59S");
    assert_signed_by(&third, Some(&second));
    user.advance("PT1S");
    assert_signed_by(&third, None);
}

/// The value of `webhook-signature` for a delivery signed with these secrets.
fn signature(delivery: &Delivery, current: &Value, previous: Option<&Value>) -> String {
    let secrets = SigningSecrets {
        current: current.as_str().unwrap(),
        previous: previous.map(|it| it.as_str().unwrap()),
    };
    let timestamp = delivery.header("webhook-timestamp").unwrap().parse().unwrap();
    standard_signature(secrets, delivery.header("webhook-id").unwrap(), timestamp, &delivery.body)
}

#[test]
fn only_the_hash_of_a_key_is_stored() {
    let (mut server, user) = Server::with_user(DEV_UNLIMITED);
    let made = user.post("/v1/auth/keys", &json!({"name": "laptop"})).expect(201);
    let response = user.bare("POST", "/v1/auth/key/regenerate").expect(200);
    let given = [user.key(), made.text("api_key"), response.text("api_key")];
    let folder = server.db().parent().unwrap().to_owned();
    let holds = |needle: &[u8]| {
        std::fs::read_dir(&folder).unwrap().any(|entry| {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            bytes.windows(needle.len()).any(|window| window == needle)
        })
    };
    for stopped in [false, true] {
        if stopped {
            assert_eq!(server.stop(), Some(0));
        }
        for key in given {
            let digits = &key["cue_sk_".len()..];
            assert!(!holds(digits.as_bytes()), "stopped: {stopped}");
            // Lists show its first 12 characters; the rest is stored nowhere.
            assert!(!holds(&digits.as_bytes()[5..]), "stopped: {stopped}");
        }
        let hash = cued::domain::account::credentials::sha256(given[2].as_bytes());
        assert!(holds(&hash), "the search finds a known value");
    }
}
