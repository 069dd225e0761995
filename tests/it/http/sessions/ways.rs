//! The ways to sign in without typing a key: one-time links, mail, and development mode.

use serde_json::{Value, json};

use crate::cli::administration::{fails, ok};
use crate::http::sessions::{Browser, send, sign_in, token_of};
use crate::support::api::{Api, User};
use crate::support::client::Client;
use crate::support::server::{DEV_UNLIMITED, Server, until};

#[test]
fn a_one_time_link_works_once_within_five_minutes() {
    let api = Api::start();
    let ada = api.user("ada");
    let client = Client::new(api.addr());
    let link = || {
        let link = ada.post("/v1/auth/session-link", &json!({})).expect(201);
        let url = link["url"].as_str().unwrap().to_owned();
        assert!(url.starts_with(&format!("http://{}/#/enter/", api.addr())), "{url}");
        token_of(&url)
    };
    let first = link();
    let signed_in = sign_in(&client, &first);
    let browser = Browser::new(&client, &signed_in);
    assert_eq!(browser.get("/v1/auth/sessions").expect(200)["sessions"][0]["via"], "link");
    sign_in(&client, &first).expect_error(401, "invalid_api_key");
    let late = link();
    api.fixture.advance(300);
    sign_in(&client, &late).expect_error(401, "invalid_api_key");
    let in_time = link();
    api.fixture.advance(299);
    sign_in(&client, &in_time).expect(201);
    let of_old_key = link();
    let key = ada.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert!(!browser.is_signed_in(), "the session ends with the key that made its link");
    sign_in(&client, &of_old_key).expect_error(401, "invalid_api_key");
    let ada = ada.with_key(key["api_key"].as_str().unwrap());
    let links: Vec<Value> = (0..11)
        .map(|_| token_of(ada.post("/v1/auth/session-link", &json!({})).expect(201)["url"].as_str().unwrap()))
        .collect();
    sign_in(&client, &links[0]).expect_error(401, "invalid_api_key");
    sign_in(&client, &links[1]).expect(201);
}

#[test]
fn a_link_changes_the_account_of_a_browser_only_if_that_is_asked_for() {
    let api = Api::start();
    let (ada, eve) = (api.user("ada"), api.user("eve"));
    let client = Client::new(api.addr());
    let link_of = |user: &User| {
        token_of(user.post("/v1/auth/session-link", &json!({})).expect(201)["url"].as_str().unwrap())
    };
    let browser = Browser::new(&client, &sign_in(&client, &json!({"api_key": ada.key()})));
    let enter = |browser: &Browser, link: &Value| {
        let headers = [("Content-Type", "application/json"), ("Sec-Fetch-Site", "same-origin")];
        browser.call_with("POST", "/v1/auth/session", &headers, &link.to_string())
    };
    let mut link = link_of(&eve);
    for _ in 0..11 {
        let refused = enter(&browser, &link);
        refused.expect_error(409, "invalid_state");
        assert_eq!(refused.header("set-cookie"), None);
    }
    assert_eq!(enter(&browser, &link_of(&ada)).expect(201)["user"]["id"], "ada", "the same account");
    link["switch_account"] = json!(true);
    assert_eq!(enter(&browser, &link).expect(201)["user"]["id"], "eve", "the link was not used up");
    let third = link_of(&eve);
    assert_eq!(browser.call("DELETE", "/v1/auth/session", "").status, 204);
    assert_eq!(enter(&browser, &third).expect(201)["user"]["id"], "eve", "nobody is signed in");
    let odd = json!({"link_token": "x", "switch_account": 1});
    sign_in(&client, &odd).expect_error(422, "validation_error");
}

#[test]
fn a_link_leads_to_the_public_url_if_there_is_one() {
    let server = Server::start(&["--registration", "open", "--public-url", "https://example.com/cued"]);
    let link = server.user().post("/v1/auth/session-link", &json!({})).expect(201);
    assert!(link["url"].as_str().unwrap().starts_with("https://example.com/cued/#/enter/"), "{link}");
}

#[test]
fn an_operator_makes_a_link_with_the_file_alone() {
    let server = Server::start(&["--registration", "open"]);
    let user = server.user();
    let email = user.get("/v1/auth/me").expect(200)["email"].as_str().unwrap().to_owned();
    let printed = ok(&server.db(), &["user", "link", &email]);
    assert!(printed.starts_with("http://127.0.0.1:8000/#/enter/"), "{printed}");
    sign_in(&server.client(), &token_of(&printed)).expect(201);
    sign_in(&server.client(), &token_of(&printed)).expect_error(401, "invalid_api_key");
    let printed = ok(&server.db(), &["user", "link", &email, "--public-url", "https://cue.example.com/x/"]);
    assert!(printed.starts_with("https://cue.example.com/x/#/enter/"), "{printed}");
    assert!(fails(&server.db(), &["user", "link", "no@example.com"], 1).contains("cued user list"));
    ok(&server.db(), &["user", "disable", &email]);
    assert!(fails(&server.db(), &["user", "link", &email], 1).contains("disabled"));
    sign_in(&server.client(), &token_of(&printed)).expect_error(401, "invalid_api_key");
}

/// Starts a device login for `purpose` and returns its code, and the query of the link that is mailed to `email`.
fn mailed_link(server: &Server, purpose: &str, email: &Value) -> (Value, String) {
    let client = server.client();
    let code = client.post("/v1/auth/device-code", &json!({ "for": purpose })).expect(201);
    let by_code = json!({"device_code": code["device_code"]});
    sign_in(&client, &by_code).expect_error(
        if purpose == "session" { 409 } else { 404 },
        match purpose {
            "session" => "invalid_state",
            _ => "device_code_not_found",
        },
    );
    let submitted = json!({"device_code": code["device_code"], "email": email});
    client.post("/v1/auth/device-code/submit-email", &submitted).expect(200);
    let user_code = code["user_code"].as_str().unwrap();
    let link = until("the link is in the log", || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains(user_code) && line.contains("verify?token="))?;
        let (_, rest) = line.split_once("verify?")?;
        Some(rest.split(|char: char| char == '"' || char.is_whitespace()).next()?.to_owned())
    });
    (by_code, link)
}

#[test]
fn a_mailed_link_begins_a_session_and_makes_no_key() {
    let server = Server::start(&["--registration", "open"]);
    let (client, user) = (server.client(), server.user());
    let email = user.get("/v1/auth/me").expect(200)["email"].clone();
    let (by_code, link) = mailed_link(&server, "session", &email);
    let confirm = |link: &str| send(&client, "POST", &format!("/v1/auth/verify?{link}"), &[], "").status;
    assert_eq!(confirm(&format!("{link}&other_keys=keep")), 200);
    for _ in 0..2 {
        let poll = client.post("/v1/auth/device-code/poll", &by_code).expect(200);
        assert_eq!(poll, json!({"status": "approved", "email": email}));
    }
    let signed_in = sign_in(&client, &by_code);
    let browser = Browser::new(&client, &signed_in);
    assert_eq!(browser.get("/v1/auth/sessions").expect(200)["sessions"][0]["via"], "mail");
    assert_eq!(browser.get("/v1/auth/keys").expect(200)["keys"].as_array().unwrap().len(), 1);
    assert_eq!(browser.get("/v1/auth/me").expect(200)["api_key_prefix"], Value::Null);
    sign_in(&client, &by_code).expect_error(404, "device_code_not_found");
    let refused = client.post("/v1/auth/device-code", &json!({"for": "cookie"}));
    refused.expect_error(422, "validation_error");

    let unused =
        token_of(user.post("/v1/auth/session-link", &json!({})).expect(201)["url"].as_str().unwrap());
    let (_, link) = mailed_link(&server, "key", &email);
    assert_eq!(confirm(&format!("{link}&other_keys=revoke")), 200);
    assert!(!browser.is_signed_in(), "who revokes the other keys shuts out browsers as well");
    sign_in(&client, &unused).expect_error(401, "invalid_api_key");
}

#[test]
fn in_development_mode_the_machine_of_the_server_signs_in_without_a_credential() {
    let server = Server::start(&["--dev"]);
    let client = server.client();
    let info = client.get("/v1/info").expect(200);
    assert_eq!((&info["dev"], &info["users"]), (&json!(true), &json!(false)));
    assert_eq!(info["sign_in"], json!(["key", "mail", "link", "dev"]));
    let signed_in = sign_in(&client, &json!({"dev": true}));
    assert_eq!(signed_in.expect(201)["user"]["email"], "dev@example.com");
    assert!(Browser::new(&client, &signed_in).is_signed_in());
    assert_eq!(client.get("/v1/info").expect(200)["users"], true);
    client.register("ann@example.com");
    assert_eq!(sign_in(&client, &json!({"dev": true})).expect(201)["user"]["email"], "dev@example.com");
}

#[test]
fn no_other_name_and_no_proxy_reaches_the_sign_in_of_development_mode() {
    let server = Server::start(&["--dev", "--allow-host", "pi.lan"]);
    let (client, port) = (server.client(), server.addr().port());
    let attempt = |host: &str, header: &str| {
        let body = r#"{"dev": true}"#;
        let request = format!(
            "POST /v1/auth/session HTTP/1.1\r\nHost: {host}\r\n{header}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        client.clone().send(request.as_bytes()).unwrap()
    };
    for host in ["localhost", "LOCALHOST:1", "[::1]", &format!("127.0.0.1:{port}")] {
        attempt(host, "").expect(201);
    }
    for host in ["pi.lan", "evil.example", "app.localhost", "2130706433"] {
        attempt(host, "").expect_error(403, "forbidden_host");
    }
    for header in ["X-Forwarded-For: 127.0.0.1\r\n", "Forwarded: for=127.0.0.1\r\n", "Via: 1.1 x\r\n"] {
        attempt("localhost", header).expect_error(403, "forbidden_host");
    }
    let plain = Server::start(&[]);
    sign_in(&plain.client(), &json!({"dev": true})).expect_error(409, "invalid_state");
    assert_eq!(plain.client().get("/v1/info").expect(200)["sign_in"], json!(["key", "mail", "link"]));
}

#[test]
fn the_first_account_is_made_and_signed_in_over_http() {
    let server = Server::start(DEV_UNLIMITED);
    let client = server.client();
    let account = client.post("/v1/auth/register", &json!({"email": "me@example.com"})).expect(201);
    let signed_in = sign_in(&client, &json!({"api_key": account["api_key"]}));
    assert_eq!(signed_in.expect(201)["user"]["id"], account["id"]);
    assert!(Browser::new(&client, &signed_in).is_signed_in());
}
