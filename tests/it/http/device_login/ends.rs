//! What ends a login that is confirmed and not claimed.

use crate::cli::administration::ok;
use crate::http::device_login::{CODE, MailingServer, post_form};
use crate::http::sessions::sign_in;
use crate::support::*;

const EMAIL: &str = "ann@example.com";

/// A server with a user whose address is confirmed.
fn open() -> (MailingServer, Client) {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let user = mailing.client().register(EMAIL);
    (mailing, user)
}

/// The code of a login of that user, once it is confirmed.
fn confirmed(mailing: &MailingServer, purpose: &str, other_keys: &str) -> String {
    let made = mailing.client().post(CODE, &json!({"for": purpose})).expect(201);
    let code = made["device_code"].as_str().unwrap().to_owned();
    let token = mailing.mail(&code, EMAIL).token();
    let form = [("token", token.as_str()), ("device_code", &code), ("other_keys", other_keys)];
    assert_eq!(post_form(&mailing.client(), "/v1/auth/verify", &form).status, 200);
    code
}

/// Asserts that a login gives neither a key nor a session.
#[track_caller]
fn assert_ended(client: &Client, code: &str) {
    let polled = client.post("/v1/auth/device-code/poll", &json!({"device_code": code}));
    assert_eq!(polled.expect(200), json!({"status": "expired"}));
    sign_in(client, &json!({"device_code": code})).expect_error(404, "device_code_not_found");
}

#[test]
fn a_login_that_revokes_the_other_keys_ends_the_others() {
    let (mailing, _) = open();
    let others = [confirmed(&mailing, "key", "keep"), confirmed(&mailing, "session", "keep")];
    let code = confirmed(&mailing, "key", "revoke");
    others.iter().for_each(|code| assert_ended(&mailing.client(), code));
    let key = mailing.poll(&code)["api_key"].as_str().unwrap().to_owned();
    let keys = mailing.client().with_key(&key).get("/v1/auth/keys").expect(200);
    assert_eq!(keys["keys"].as_array().unwrap().len(), 1, "{keys}");
}

#[test]
fn the_end_of_all_sessions_ends_the_logins_for_one() {
    let (mailing, user) = open();
    let [key, session] = ["key", "session"].map(|purpose| confirmed(&mailing, purpose, "keep"));
    user.delete("/v1/auth/sessions").expect(200);
    assert_ended(&mailing.client(), &session);
    assert_eq!(mailing.status(&key), "approved");
}

#[test]
fn a_disabled_account_has_no_logins_and_links_when_it_is_enabled_again() {
    let (mailing, user) = open();
    mailing.client().register("second@example.com");
    let codes = ["key", "session"].map(|purpose| confirmed(&mailing, purpose, "keep"));
    let link = user.post("/v1/auth/session-link", &json!({})).expect(201);
    let link = crate::http::sessions::token_of(link["url"].as_str().unwrap());
    for action in ["disable", "enable"] {
        ok(&mailing.server.db(), &["user", action, EMAIL]);
    }
    codes.iter().for_each(|code| assert_ended(&mailing.client(), code));
    sign_in(&mailing.client(), &link).expect_error(401, "invalid_api_key");
    user.get("/v1/auth/me").expect(200);
}

#[test]
fn a_single_key_takes_no_login_with_it() {
    let (mailing, user) = open();
    let codes = ["key", "session"].map(|purpose| confirmed(&mailing, purpose, "keep"));
    let second = user.post("/v1/auth/keys", &json!({"name": "second"})).expect(201);
    user.delete(&format!("/v1/auth/keys/{}", id(&second))).expect(204);
    user.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert_eq!(codes.map(|code| mailing.status(&code)), ["approved", "approved"]);
}

#[test]
fn a_restored_copy_has_no_logins() {
    let (mailing, _) = open();
    let codes = ["key", "session"].map(|purpose| confirmed(&mailing, purpose, "keep"));
    let file = |name: &str| mailing.server.db().with_file_name(name);
    ok(&mailing.server.db(), &["backup", file("backup").to_str().unwrap()]);
    ok(&file("restored"), &["restore", file("backup").to_str().unwrap()]);
    let restored = Server::start_on(
        &file("restored"),
        &[DEV_UNLIMITED, &["--test-clock", super::BEGIN]].concat(),
    );
    codes.iter().for_each(|code| assert_ended(&restored.client(), code));
}
