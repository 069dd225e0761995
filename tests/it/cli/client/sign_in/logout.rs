//! `cued logout`.

use serde_json::json;

use crate::support::client::Client;
use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, Server};

/// A home that is signed in with a second key of `user`; that key.
fn signed_in(server: &Server, user: &Client, profile: &str, home: &ClientHome) -> Client {
    let key = user.post("/v1/auth/keys", &json!({"name": "laptop"})).expect(201)["api_key"].clone();
    let key = key.as_str().unwrap();
    let run = home.run_with_stdin(&["login", &server.url(), "--key", "-", "--profile", profile], key);
    assert_eq!(run.code, 0, "{}", run.stderr);
    server.client().with_key(key)
}

#[test]
fn the_key_is_revoked_and_the_profile_removed() {
    let server = Server::start(DEV_UNLIMITED);
    let (user, home) = (server.user(), ClientHome::new());
    let device = signed_in(&server, &user, "home", &home);
    let expected = format!("Signed out of {} (profile home); its key is revoked.\n", server.url());
    assert_eq!(home.ok(&["logout"]), expected);
    device.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    user.get("/v1/auth/me").expect(200);
    assert_eq!(home.stored(), json!({"current": null, "profiles": {}}));
    home.fails(&["whoami", "--url", &server.url()], 4);
    assert_eq!(home.json_error(&["logout"], 4)["code"], json!("not_signed_in"));
}

#[test]
fn a_key_that_is_revoked_already_is_no_obstacle() {
    let server = Server::start(DEV_UNLIMITED);
    let (user, home) = (server.user(), ClientHome::new());
    signed_in(&server, &user, "home", &home);
    let id = home.stored()["profiles"]["home"]["key_id"].as_str().unwrap().to_owned();
    assert_eq!(user.delete(&format!("/v1/auth/keys/{id}")).status, 204);
    let run = home.run(&["logout"]);
    assert!(run.code == 0 && run.stderr.contains("not valid any more"), "{run:?}");
    assert_eq!(home.stored()["profiles"], json!({}));
}

#[test]
fn the_only_key_of_an_account_is_kept_unless_only_the_profile_goes() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new();
    home.ok(&["login", &server.url(), "--email", "ann@example.com"]);
    let before = home.stored();
    let text = home.fails(&["logout"], 5);
    assert!(text.contains("Nothing was changed") && text.contains("--keep-key"), "{text}");
    assert_eq!(home.stored(), before);
    assert!(home.ok(&["logout", "--keep-key"]).contains("its key is still valid"));
    let key = before["profiles"]["default"]["api_key"].as_str().unwrap();
    server.client().with_key(key).get("/v1/auth/me").expect(200);
    assert_eq!(home.stored()["profiles"], json!({}));
}

#[test]
fn without_the_server_nothing_is_removed() {
    let mut server = Server::start(DEV_UNLIMITED);
    let (user, home) = (server.user(), ClientHome::new());
    signed_in(&server, &user, "home", &home);
    let before = home.stored();
    server.stop();
    let text = home.fails(&["logout"], 1);
    assert!(text.contains("the key is still valid"), "{text}");
    assert_eq!(home.stored(), before);
    home.ok(&["logout", "--keep-key"]);
    assert_eq!(home.stored()["profiles"], json!({}));
}

#[test]
fn all_profiles_are_left_except_those_whose_server_refuses() {
    let server = Server::start(DEV_UNLIMITED);
    let (user, home) = (server.user(), ClientHome::new());
    home.ok(&["login", &server.url(), "--email", "only@example.com", "--profile", "a"]);
    let device = signed_in(&server, &user, "b", &home);
    let run = home.run(&["logout", "--all"]);
    assert_eq!(run.code, 5, "{run:?}");
    assert!(run.stdout.contains("(profile b); its key is revoked"), "{run:?}");
    device.get("/v1/auth/me").expect_error(401, "invalid_api_key");
    assert_eq!(home.stored()["profiles"].as_object().unwrap().keys().collect::<Vec<_>>(), ["a"]);
}

#[test]
fn no_other_profile_becomes_current() {
    let server = Server::start(DEV_UNLIMITED);
    let (user, home) = (server.user(), ClientHome::new());
    signed_in(&server, &user, "a", &home);
    signed_in(&server, &user, "b", &home);
    let run = home.run(&["logout"]);
    assert!(run.code == 0 && run.stderr.contains("No profile is current now"), "{run:?}");
    home.fails(&["logout", "--profile", "b"], 4);
    home.ok(&["whoami", "--profile", "a"]);
}

#[test]
fn a_key_of_the_environment_is_not_left() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let home = ClientHome::signed_in(&server, &user);
    assert!(home.fails(&["logout"], 2).contains("the key comes from CUED_API_KEY"));
    user.get("/v1/auth/me").expect(200);
}
