//! `cued account`: usage, keys and secrets.

use serde_json::json;

use crate::http::sessions::{Browser, sign_in};
use crate::support::client::Client;
use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, Server};

fn start() -> (Server, Client, ClientHome) {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::signed_in(&server, &user);
    (server, user, home)
}

#[test]
fn usage_shows_each_amount_with_its_limit() {
    let server = Server::start(&["--dev"]);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::signed_in(&server, &user);
    let shown = home.ok(&["account", "usage"]);
    assert!(shown.contains("plan         free\n") && shown.contains("active cues  0 of 10\n"), "{shown}");
    assert!(shown.contains("0 reported: 0 succeeded, 0 failed\n"), "{shown}");
    let usage = home.json(&["account", "usage"]);
    assert_eq!(usage["plan"], user.get("/v1/usage").expect(200)["plan"]);
    assert_eq!(home.ok(&["account", "usage", "-q"]), "free\n");
    let (_server, _user, unlimited) = start();
    let shown = unlimited.ok(&["account", "usage"]);
    assert!(shown.contains("active cues  0, no limit\n") && shown.contains("0 kB of "), "{shown}");
}

#[test]
fn keys_are_added_listed_and_revoked() {
    let (server, _user, home) = start();
    let added = home.run(&["account", "keys", "add", "laptop"]);
    assert!(added.stderr.contains("not shown again"), "{added:?}");
    let line = |name: &str| {
        let line = added.stdout.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_owned()
    };
    let laptop = server.client().with_key(&line("key "));
    laptop.get("/v1/auth/me").expect(200);
    let listed = home.ok(&["account", "keys"]);
    assert!(
        listed.starts_with("ID ") && listed.contains("laptop") && listed.contains("in use here"),
        "{listed}"
    );
    assert!(!listed.contains(&line("key ")), "a key is printed once");
    assert_eq!(home.json(&["account", "keys", "list"])["keys"].as_array().unwrap().len(), 2);
    assert!(home.ok(&["account", "keys", "list", "-q"]).contains(&line("id ")));
    let revoked = home.ok(&["account", "keys", "revoke", "laptop"]);
    assert_eq!(revoked, format!("Key laptop ({}) is revoked.\n", line("id ")));
    laptop.get("/v1/auth/me").expect_error(401, "invalid_api_key");
}

#[test]
fn a_key_is_revoked_only_if_it_is_meant() {
    let (_server, user, home) = start();
    assert!(home.fails(&["account", "keys", "revoke", "nowhere"], 3).contains("no key \"nowhere\""));
    for _ in 0..2 {
        home.ok(&["account", "keys", "add", "twin"]);
    }
    assert!(home.fails(&["account", "keys", "revoke", "twin"], 5).contains("2 keys are named \"twin\""));
    let text = home.fails(&["account", "keys", "revoke", "default"], 2);
    assert!(text.contains("the one that this command uses") && text.contains("-y"), "{text}");
    user.get("/v1/auth/me").expect(200);
    home.ok(&["account", "keys", "revoke", "default", "-y"]);
    user.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    let (_server, _user, alone) = start();
    assert_eq!(
        alone.json_error(&["account", "keys", "revoke", "default", "-y"], 5)["code"],
        json!("last_key")
    );
}

#[test]
fn secrets_are_printed_on_request_only() {
    let (_server, user, home) = start();
    assert_eq!(home.run(&["account", "secret"]).code, 2);
    for (flag, path, field) in [
        (None, "/v1/auth/webhook-secret", "webhook_secret"),
        (Some("--alert"), "/v1/auth/alert-webhook-secret", "alert_webhook_secret"),
    ] {
        let with = |words: &[&'static str]| -> Vec<&'static str> {
            ["account", "secret"].iter().chain(words).copied().chain(flag).collect()
        };
        let secret = user.get(path).expect(200)[field].as_str().unwrap().to_owned();
        assert_eq!(home.ok(&with(&["show"])), format!("{secret}\n"));
        assert_eq!(home.json(&with(&["show"])), user.get(path).expect(200));
        assert!(home.fails(&with(&["regenerate"]), 2).contains("add -y"));
        let new = home.ok(&with(&["regenerate", "-y"]));
        assert_eq!(new, format!("{}\n", user.get(path).expect(200)[field].as_str().unwrap()));
        assert_ne!(new.trim_end(), secret);
    }
}

#[test]
fn each_failure_has_its_exit_code() {
    let (server, _user, _home) = start();
    let unknown = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", "cue_sk_unknown");
    assert_eq!(unknown.json_error(&["account", "usage"], 4)["code"], json!("invalid_api_key"));
    assert_eq!(unknown.json_error(&["account", "keys", "add", "x"], 4)["code"], json!("invalid_api_key"));
    let alone = ClientHome::without_server();
    assert_eq!(alone.json_error(&["account", "secret", "show"], 1)["code"], json!("unreachable"));
}

#[test]
fn a_request_above_the_rate_limit_is_a_limit() {
    let plans = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(plans.path(), r#"{"free": {"cues": 10, "executions": 10, "requests_per_minute": 1}}"#)
        .unwrap();
    let server = Server::start(&["--dev", "--plans", plans.path().to_str().unwrap()]);
    let user = server.client().register("ann@example.com");
    user.get("/v1/auth/me").expect(200);
    let home = ClientHome::signed_in(&server, &user);
    // Not sent again, because it is no request that may be repeated.
    let error = home.json_error(&["account", "keys", "add", "x"], 6);
    assert_eq!(error["code"], json!("rate_limit_exceeded"));
}

#[test]
fn sessions_are_listed_and_ended() {
    let (server, user, home) = start();
    let browsers = [0; 3].map(|_| {
        let signed_in = sign_in(&server.client(), &json!({"api_key": user.key()}));
        Browser::new(&server.client(), &signed_in)
    });
    let listed = home.json(&["account", "sessions"]);
    let ids: Vec<&str> =
        listed["sessions"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    let table = home.ok(&["account", "sessions", "list"]);
    assert!(table.contains(ids[0]) && table.contains("127.0.0.1") && table.contains("BY"), "{table}");
    assert_eq!(home.ok(&["account", "sessions", "rm", ids[0]]), format!("Session {} is ended.\n", ids[0]));
    assert!(!browsers[0].is_signed_in() && browsers[1].is_signed_in());
    home.fails(&["account", "sessions", "rm", ids[0]], 3);
    home.fails(&["account", "sessions", "rm"], 2);
    assert_eq!(home.ok(&["account", "sessions", "rm", "--others", "-y"]), "2 sessions are ended.\n");
    assert!(!browsers[1].is_signed_in() && !browsers[2].is_signed_in());
}

#[test]
fn open_prints_a_link_that_signs_in_once() {
    let (server, _user, home) = start();
    let printed = home.ok(&["open", "--no-browser"]);
    let token = |url: &str| url.trim().rsplit_once("/enter/").expect(url).1.to_owned();
    assert!(printed.starts_with(&format!("{}/#/enter/", server.url())), "{printed}");
    sign_in(&server.client(), &json!({"link_token": token(&printed)})).expect(201);
    sign_in(&server.client(), &json!({"link_token": token(&printed)})).expect_error(401, "invalid_api_key");
    let screen = home.ok(&["open", "#/cues/cue_1"]);
    assert!(screen.ends_with("/cues/cue_1\n"), "{screen}");
    let link = home.json(&["open"]);
    sign_in(&server.client(), &json!({"link_token": token(link["url"].as_str().unwrap())})).expect(201);
    home.fails(&["open", "a b"], 2);
    assert!(home.ok(&["open", "--curl"]).contains("/v1/auth/session-link"));
}
