//! What ends a login that is confirmed and not claimed.

use crate::cli::administration::ok;
use crate::http::device_login::{ANN, CODE, MailingServer, POLL, assert_keys};
use crate::http::sessions::{link_of, sign_in};
use crate::support::*;

/// A server with a user whose address is confirmed.
fn open() -> (MailingServer, Client) {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let user = mailing.client().register(ANN);
    (mailing, user)
}

/// The code of a login of that user, once it is confirmed.
fn confirmed(mailing: &MailingServer, purpose: &str, other_keys: &str) -> String {
    let made = mailing.client().post(CODE, &json!({"for": purpose})).expect(201);
    let code = made.text("device_code").to_owned();
    let token = mailing.mail(&code, ANN).token();
    let form = [("token", token.as_str()), ("device_code", &code), ("other_keys", other_keys)];
    assert_eq!(mailing.confirm_with(&form).status, 200);
    code
}

/// Those of a login for a key, and of one for a session.
fn both(mailing: &MailingServer) -> [String; 2] {
    ["key", "session"].map(|purpose| confirmed(mailing, purpose, "keep"))
}

/// Asserts that a login gives neither a key nor a session.
#[track_caller]
fn assert_ended(client: &Client, code: &str) {
    let polled = client.post(POLL, &json!({"device_code": code}));
    assert_eq!(polled.expect(200), json!({"status": "expired"}));
    sign_in(client, &json!({"device_code": code})).expect_error(404, "device_code_not_found");
}

#[test]
fn a_login_that_revokes_the_other_keys_ends_the_others() {
    let (mailing, _) = open();
    let others = both(&mailing);
    let code = confirmed(&mailing, "key", "revoke");
    others.iter().for_each(|code| assert_ended(&mailing.client(), code));
    assert_keys(&mailing.polled(&code), 1);
}

#[test]
fn the_end_of_all_sessions_ends_the_logins_for_one() {
    let (mailing, user) = open();
    let [key, session] = both(&mailing);
    user.delete("/v1/auth/sessions").expect(200);
    assert_ended(&mailing.client(), &session);
    assert_eq!(mailing.status(&key), "approved");
}

#[test]
fn a_disabled_account_has_no_logins_and_links_when_it_is_enabled_again() {
    let (mailing, user) = open();
    mailing.client().register("second@example.com");
    let (codes, link) = (both(&mailing), link_of(&user));
    ["disable", "enable"].iter().for_each(|action| mailing.server.administer(&[action, ANN]));
    codes.iter().for_each(|code| assert_ended(&mailing.client(), code));
    sign_in(&mailing.client(), &link).expect_error(401, "invalid_api_key");
    user.me();
}

#[test]
fn a_single_key_takes_no_login_with_it() {
    let (mailing, user) = open();
    let codes = both(&mailing);
    let second = user.post("/v1/auth/keys", &json!({"name": "second"})).expect(201);
    user.delete(&format!("/v1/auth/keys/{}", id(&second))).expect(204);
    user.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert_eq!(codes.map(|code| mailing.status(&code)), ["approved", "approved"]);
}

#[test]
fn a_restored_copy_has_no_logins() {
    let (mailing, _) = open();
    let codes = both(&mailing);
    let file = |name: &str| mailing.server.db().with_file_name(name);
    ok(&mailing.server.db(), &["backup", file("backup").to_str().unwrap()]);
    ok(&file("restored"), &["restore", file("backup").to_str().unwrap()]);
    let flags = [DEV_UNLIMITED, &["--test-clock", super::BEGIN]].concat();
    let restored = Server::start_on(&file("restored"), &flags);
    codes.iter().for_each(|code| assert_ended(&restored.client(), code));
}
