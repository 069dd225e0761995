//! `cued login`, `cued logout` and `cued whoami`.

use serde_json::json;

use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, Server};

#[test]
fn whoami_shows_the_account_of_the_key() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::signed_in(&server, &user);
    let shown = home.ok(&["whoami"]);
    assert!(shown.contains("email       ann@example.com\n") && shown.contains(&server.url()), "{shown}");
    assert!(shown.contains("cues        0 active, no limit\n"), "{shown}");
    assert!(shown.contains(&format!("key         {}… from CUED_API_KEY\n", &user.key()[..12])), "{shown}");
    assert_eq!(home.json(&["whoami"])["email"], json!("ann@example.com"));
}

#[test]
fn whoami_has_an_exit_code_for_each_failure() {
    let server = Server::start(DEV_UNLIMITED);
    let url = server.url();
    let unknown = ClientHome::new().env("CUED_URL", &url).env("CUED_API_KEY", "cue_sk_unknown");
    assert_eq!(unknown.json_error(&["whoami"], 4)["code"], json!("invalid_api_key"));
    let none = ClientHome::new().env("CUED_URL", &url);
    assert_eq!(none.json_error(&["whoami"], 4)["code"], json!("not_signed_in"));
    let alone = ClientHome::without_server();
    assert_eq!(alone.json_error(&["whoami"], 1)["code"], json!("unreachable"));
    assert!(alone.fails(&["whoami"], 1).contains("is `cued serve` running there?"));
}
