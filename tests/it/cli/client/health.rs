//! `cued health` and `cued info`, which need no key.

use serde_json::json;

use crate::cli::administration::ok;
use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, Server, signal};

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
    assert!(run.stderr.contains("the server is not healthy: held: a restored copy fires no cue"), "{run:?}");
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
fn a_local_check_finds_the_server_by_its_own_settings_and_prints_one_word() {
    let server = Server::start(DEV_UNLIMITED);
    let port = server.addr().port();
    // It must use none of these.
    let home = ClientHome::new()
        .env("CUED_URL", "http://127.0.0.1:1")
        .env("CUED_PROFILE", "none")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("ALL_PROXY", "http://127.0.0.1:1");
    for address in ["127.0.0.1", "localhost", "0.0.0.0", "[::]"] {
        let listen = format!("{address}:{port}");
        assert_eq!(home.ok(&["health", "--local", "--listen", &listen]), "healthy\n");
    }
    let home = home.env("CUED_LISTEN", format!("0.0.0.0:{port}"));
    assert_eq!(home.ok(&["health", "--local"]), "healthy\n");
    assert_eq!(home.json(&["health", "--local"])["status"], json!("healthy"));
    let homeless = home.command(&["health", "--local"]).env_remove("HOME").output().unwrap();
    assert_eq!(homeless.status.code(), Some(0), "{homeless:?}");
}

#[test]
fn a_local_check_that_fails_exits_with_1_and_one_sentence() {
    let mut server = Server::start(DEV_UNLIMITED);
    let listen = server.addr().to_string();
    let home = ClientHome::new().env("CUED_LISTEN", &listen);
    signal("-STOP", server.pid());
    let hung = home.fails(&["health", "--local"], 1);
    signal("-CONT", server.pid());
    assert!(hung.contains("did not answer in time") && hung.lines().count() == 1, "{hung}");
    server.stop();
    let gone = home.fails(&["health", "--local"], 1);
    assert!(gone.contains(&format!("no server answers at http://{listen}")), "{gone}");
    assert!(gone.contains("CUED_LISTEN") && gone.lines().count() == 1, "{gone}");
    assert_eq!(home.json_error(&["health", "--local"], 1)["code"], json!("failed"));
}

#[test]
fn a_local_check_of_a_held_server_says_so() {
    let server = Server::start(DEV_UNLIMITED);
    let folder = tempfile::TempDir::new().unwrap();
    let copy = folder.path().join("copy");
    ok(&server.db(), &["backup", copy.to_str().unwrap()]);
    let held = Server::start_on(&copy, DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_LISTEN", held.addr().to_string());
    let sentence = home.fails(&["health", "--local"], 1);
    assert_eq!(
        sentence,
        "cued: the server is not healthy: held: a restored copy fires no cue until you run `cued promote`\n"
    );
}

#[test]
fn a_local_check_of_no_address_fails_and_says_so() {
    let home = ClientHome::new().env("CUED_LISTEN", "8000");
    let wrong = home.fails(&["health", "--local"], 1);
    assert!(wrong.contains("CUED_LISTEN: \"8000\"") && wrong.contains("127.0.0.1:8000"), "{wrong}");
    let home = ClientHome::new().env("CUED_LISTEN", "127.0.0.1:0");
    assert!(home.fails(&["health", "--local"], 1).contains("--listen"));
    for flags in [["--url", "http://127.0.0.1:8000"], ["--profile", "work"]] {
        assert_eq!(home.run(&[&["health", "--local"], &flags[..]].concat()).code, 2, "{flags:?}");
    }
    assert_eq!(home.run(&["health", "--listen", "127.0.0.1:8000"]).code, 2, "--listen without --local");
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
