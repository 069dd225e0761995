//! `cued login` at a terminal, which `script` of util-linux is.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};

use serde_json::json;

use super::Waiting;
use super::login::printed_link;
use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, Server, skip};

/// A command at a terminal, and its keyboard.
fn at_terminal(home: &ClientHome, arguments: &str) -> Option<(Waiting, ChildStdin)> {
    if Command::new("script").arg("--version").output().is_err() {
        skip("there is no command `script`");
        return None;
    }
    let line = format!("{} {arguments}", env!("CARGO_BIN_EXE_cued"));
    let environment = home.command(&[]);
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]).current_dir(home.folder());
    for (name, value) in environment.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    let mut waiting = Waiting::start(script, home, Stdio::piped());
    let keyboard = waiting.process.0.stdin.take().unwrap();
    Some((waiting, keyboard))
}

#[test]
fn the_address_is_asked_for_and_the_link_is_taken() {
    let server = Server::start(DEV_UNLIMITED);
    server.client().register("ann@example.com");
    let home = ClientHome::new().env("CUED_URL", server.url());
    let Some((mut login, mut keyboard)) = at_terminal(&home, "login") else { return };
    login.until("Email address: ");
    keyboard.write_all(b"ann@example.com\n").unwrap();
    login.until("Or paste the link here: ");
    keyboard.write_all(b"http://x/v1/auth/verify?token=t&user_code=AAAA-BBBB\n").unwrap();
    login.until("This link is of another login.");
    let link = printed_link(&server, "ann@example.com");
    keyboard.write_all(format!("mail to ann@example.com: {link}\n").as_bytes()).unwrap();
    login.until("Signed in to");
    assert_eq!(login.code(), 0, "{}", login.output());
    assert_eq!(home.stored()["profiles"]["default"]["email"], json!("ann@example.com"));
}

#[test]
fn a_key_is_not_shown_while_it_is_entered() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let home = ClientHome::new().env("CUED_URL", server.url());
    let Some((mut login, mut keyboard)) = at_terminal(&home, "login --key -") else { return };
    login.until("API key: ");
    keyboard.write_all(format!("{}\n", user.key()).as_bytes()).unwrap();
    assert_eq!(login.code(), 0, "{}", login.output());
    assert!(!login.output().contains(user.key()), "{}", login.output());
    assert_eq!(home.stored()["profiles"]["default"]["api_key"], json!(user.key()));
}

#[test]
fn the_page_is_opened_in_the_browser_unless_that_is_not_wanted() {
    let mailing = crate::http::device_login::flow::MailingServer::open(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_URL", mailing.server.url());
    let (browser, opened) = (home.folder().join("browser"), home.folder().join("opened"));
    std::fs::write(&browser, format!("#!/bin/sh\necho \"$1\" > {}\n", opened.display())).unwrap();
    std::fs::set_permissions(&browser, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let home = home.env("BROWSER", browser.into_os_string());
    let Some((login, _keyboard)) = at_terminal(&home, "login --no-browser") else { return };
    login.until("Open this page in a browser");
    login.until("Or enter the address here: ");
    drop(login);
    assert!(!opened.exists());
    let Some((login, _keyboard)) = at_terminal(&home, "login") else { return };
    let code = login.rest_of("/auth/device?code=");
    let page = crate::support::server::until("the page is opened", || {
        std::fs::read_to_string(&opened).ok().filter(|page| page.ends_with('\n'))
    });
    assert_eq!(page.trim_end(), format!("{}/auth/device?code={code}", mailing.server.url()));
}
