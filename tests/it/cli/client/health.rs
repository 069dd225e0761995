//! `cued health` and `cued info`, which need no key.

use serde_json::json;

use crate::cli::administration::ok;
use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, Server};

#[test]
fn a_healthy_server_is_shown_without_a_key_and_without_a_home() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_URL", server.url());
    let shown = home.ok(&["health"]);
    assert!(shown.contains("status      healthy\n") && shown.contains("database    ok\n"), "{shown}");
    assert!(shown.contains("to deliver  0\n"), "{shown}");
    let health = home.json(&["health"]);
    assert_eq!((&health["status"], &health["services"]["poller"]), (&json!("healthy"), &json!("ok")));
    assert_eq!(home.ok(&["health", "-q"]), "healthy\n");
    let homeless = home.command(&["health"]).env_remove("HOME").output().unwrap();
    assert_eq!(homeless.status.code(), Some(0), "{homeless:?}");
}

#[test]
fn a_server_that_is_not_healthy_or_not_there_exits_with_1() {
    let mut server = Server::start(DEV_UNLIMITED);
    let folder = tempfile::TempDir::new().unwrap();
    let (copy, restored) = (folder.path().join("copy"), folder.path().join("cued.db"));
    ok(&server.db(), &["backup", copy.to_str().unwrap()]);
    ok(&restored, &["restore", copy.to_str().unwrap()]);
    let held = Server::start_on(&restored, DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_URL", held.url());
    let run = home.run(&["health"]);
    assert!(run.code == 1 && run.stdout.contains("poller      held\n"), "{run:?}");
    assert!(run.stderr.contains("the server is not healthy: degraded, and held: `cued promote`"), "{run:?}");
    let run = home.run(&["health", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!((run.code, &error["error"]["code"]), (1, &json!("failed")));
    assert!(serde_json::from_str::<serde_json::Value>(&run.stdout).unwrap()["held_since"].is_string());
    let home = ClientHome::new().env("CUED_URL", server.url());
    server.stop();
    assert_eq!(home.json_error(&["health"], 1)["code"], json!("unreachable"));
    assert_eq!(home.json_error(&["info"], 1)["code"], json!("unreachable"));
}

#[test]
fn info_shows_the_public_settings() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_URL", server.url());
    let shown = home.ok(&["info"]);
    assert!(shown.contains("registration  open\n") && shown.contains("mail          log\n"), "{shown}");
    assert!(shown.contains(&format!("version       {}\n", env!("CARGO_PKG_VERSION"))), "{shown}");
    let (mut info, mut expected) = (home.json(&["info"]), server.client().get("/v1/info").expect(200));
    for answer in [&mut info, &mut expected] {
        assert!(answer["time"].take().is_string());
    }
    assert_eq!(info, expected);
}
