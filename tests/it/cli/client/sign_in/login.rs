//! `cued login` without a terminal.

use std::process::Stdio;

use serde_json::json;

use super::Waiting;
use crate::cli::administration::mode;
use crate::http::device_login::flow::{MailingServer, post_form};
use crate::support::client::Client;
use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, Server, until};

fn start(home: &ClientHome, arguments: &[&str]) -> Waiting {
    Waiting::start(home.command(&[&["login"], arguments].concat()), home, Stdio::null())
}

/// The link that the server has printed for an address.
pub fn printed_link(server: &Server, email: &str) -> String {
    let start = format!("mail to {email}: ");
    until("the server prints the link", || {
        let stdout = server.stdout();
        let rest = stdout.split_once(&start)?.1;
        rest.split_once('\n').map(|(link, _)| link.to_owned())
    })
}

/// Opens the link, and presses the button of its page.
pub fn confirm(client: &Client, link: &str) {
    let value = |name: &str| {
        let rest = link.split_once(&format!("{name}=")).unwrap().1;
        rest.split('&').next().unwrap().to_owned()
    };
    let form = [("token", value("token")), ("user_code", value("user_code"))];
    let form = form.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(post_form(client, "/v1/auth/verify", &form).status, 200);
}

#[test]
fn a_new_address_has_an_account_at_once_on_a_server_without_mail() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new();
    let run = home.run(&["login", &server.addr().to_string(), "--email", "ann@example.com"]);
    let expected = format!("Signed in to {} as ann@example.com (profile default).\n", server.url());
    assert_eq!((run.code, run.stdout), (0, expected), "{}", run.stderr);
    assert!(run.stderr.contains("had no account here"), "{}", run.stderr);
    let profile = &home.stored()["profiles"]["default"];
    assert_eq!(home.stored()["current"], json!("default"));
    assert_eq!((&profile["url"], &profile["email"]), (&json!(server.url()), &json!("ann@example.com")));
    assert_eq!(mode(&home.credentials()), 0o600);
    let user = server.client().with_key(profile["api_key"].as_str().unwrap());
    assert_eq!(user.get("/v1/auth/keys").expect(200)["keys"][0]["id"], profile["key_id"]);
    let shown = home.ok(&["whoami"]);
    assert!(shown.contains("of profile default") && shown.contains("ann@example.com"), "{shown}");
}

#[test]
fn a_known_address_confirms_by_the_link_in_the_log() {
    let server = Server::start(DEV_UNLIMITED);
    let first = server.client().register("ann@example.com");
    let home = ClientHome::new();
    let mut login = start(&home, &[&server.url(), "--email", "ann@example.com", "--profile", "home"]);
    login.until("This server sends no mail");
    confirm(&server.client(), &printed_link(&server, "ann@example.com"));
    assert_eq!(login.code(), 0, "{}", login.output());
    assert!(login.output().contains("as ann@example.com (profile home)"), "{}", login.output());
    assert_eq!(home.json(&["whoami"])["email"], json!("ann@example.com"));
    let keys = first.get("/v1/auth/keys").expect(200);
    assert_eq!(keys["keys"].as_array().unwrap().len(), 2, "the earlier key is kept: {keys}");
}

#[test]
fn the_address_is_entered_on_the_page_when_nobody_can_be_asked() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let home = ClientHome::new();
    let mut login = start(&home, &[&mailing.server.url()]);
    let code = login.rest_of("/auth/device?code=");
    login.until(&format!("It shows the code {code}."));
    let form = [("code", code.as_str()), ("email", "bob@example.com")];
    assert_eq!(post_form(&mailing.client(), "/auth/device", &form).status, 200);
    login.until("Open the link in the mail to that address");
    confirm(&mailing.client(), &mailing.mailbox.next().link());
    assert_eq!(login.code(), 0, "{}", login.output());
    assert_eq!(home.stored()["profiles"]["default"]["email"], json!("bob@example.com"));
}

#[test]
fn a_login_ends_when_its_code_expires() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    let home = ClientHome::new();
    let mut login = start(&home, &[&mailing.server.url(), "--email", "ann@example.com"]);
    login.until("Open the link in the mail to ann@example.com");
    mailing.advance("PT16M");
    assert_eq!(login.code(), 1);
    assert!(login.output().contains("expired without a confirmation"), "{}", login.output());
    assert!(home.stored().is_null());
}

#[test]
fn a_login_waits_for_a_server_that_is_away() {
    let mut mailing = MailingServer::open(DEV_UNLIMITED);
    let home = ClientHome::new();
    let login = start(&home, &[&mailing.server.url(), "--email", "ann@example.com"]);
    login.until("Open the link in the mail to ann@example.com");
    mailing.server.kill();
    login.until("is `cued serve` running there? (--url or CUED_URL). Still waiting.");
}

#[test]
fn too_many_logins_are_a_limit_and_no_server_is_a_failure() {
    let mailing = MailingServer::open(DEV_UNLIMITED);
    for _ in 0..5 {
        mailing.code();
    }
    let home = ClientHome::new();
    let error = home.json_error(&["login", &mailing.server.url()], 6);
    assert_eq!(error["code"], json!("rate_limit_exceeded"));
    let error = home.json_error(&["login", "127.0.0.1:1"], 1);
    assert_eq!(error["code"], json!("unreachable"));
    assert!(home.stored().is_null());
}

#[test]
fn a_key_from_standard_input_is_verified_before_it_is_stored() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::new().env("CUED_URL", server.url());
    let wrong = home.run_with_stdin(&["login", "--key", "-"], "cue_sk_00000000000000000000000000000000\n");
    assert_eq!((wrong.code, wrong.stdout.as_str()), (4, ""), "{}", wrong.stderr);
    for nothing in ["", "\n", "two words"] {
        assert_eq!(home.run_with_stdin(&["login", "--key", "-"], nothing).code, 2, "{nothing:?}");
    }
    assert!(home.stored().is_null(), "nothing is stored");
    let run = home.run_with_stdin(&["login", "--key", "-", "--json"], &format!("{}\n", user.key()));
    assert_eq!(run.code, 0, "{}", run.stderr);
    let answer: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(answer["email"], json!("ann@example.com"));
    assert_eq!(home.stored()["profiles"]["default"]["api_key"], json!(user.key()));
}

#[test]
fn a_second_login_replaces_the_key_and_another_server_has_its_own_profile() {
    let (server, other) = (Server::start(DEV_UNLIMITED), Server::start(DEV_UNLIMITED));
    let home = ClientHome::new();
    home.ok(&["login", &server.url(), "--email", "ann@example.com"]);
    let first = home.stored()["profiles"]["default"].clone();
    let ann = server.client().with_key(first["api_key"].as_str().unwrap());
    let added = ann.post("/v1/auth/keys", &json!({"name": "laptop"})).expect(201);
    let run = home.run_with_stdin(&["login", "--key", "-"], added["api_key"].as_str().unwrap());
    let advice = format!("still valid: `cued account keys revoke {}`", first["key_id"].as_str().unwrap());
    assert!(run.code == 0 && run.stderr.contains(&advice), "{}", run.stderr);
    let run = home.run(&["login", &server.url(), "--email", "bob@example.com"]);
    let advice = format!("is replaced, and still valid for ann@example.com at {}", server.url());
    assert!(run.stderr.contains(&advice), "{}", run.stderr);
    assert_eq!(home.stored()["profiles"]["default"]["email"], json!("bob@example.com"));
    home.ok(&["login", &other.url(), "--email", "cid@example.com"]);
    assert_eq!(home.stored()["current"], json!(other.addr().to_string()));
    assert_eq!(home.json(&["whoami"])["email"], json!("cid@example.com"));
    assert_eq!(home.json(&["whoami", "--profile", "default"])["email"], json!("bob@example.com"));
    let shown = home.ok(&["whoami"]);
    assert!(shown.contains(&format!("{}, default", other.addr())), "{shown}");
}

#[test]
fn the_key_of_the_environment_is_not_stored() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::signed_in(&server, &user);
    let run = home.run(&["login", "--email", "bob@example.com"]);
    assert!(run.stderr.contains("CUED_API_KEY is set, and counts before this profile"), "{}", run.stderr);
    assert_ne!(home.stored()["profiles"]["default"]["api_key"], json!(user.key()));
    assert_eq!(home.stored()["profiles"]["default"]["email"], json!("bob@example.com"));
}

#[test]
fn a_bad_address_is_wrong_usage() {
    let home = ClientHome::new();
    for (address, word) in [
        ("a b", "no address of a server"),
        ("ftp://pi", "not with ftp://"),
        ("http://me:word@pi", "no user name"),
        ("http://pi/auth/device?code=AB", "is a page"),
    ] {
        for arguments in [&["login", address][..], &["whoami", "--url", address]] {
            let text = home.fails(arguments, 2);
            assert!(text.contains(word), "{text}");
        }
    }
    assert!(home.fails(&["login", "--profile", "", "127.0.0.1:1"], 2).contains("--profile"));
}
