//! `cued login` and `cued open` at a terminal.

use std::io::Write as _;
use std::process::{ChildStdin, Stdio};

use serde_json::json;

use super::Waiting;
use super::login::printed_link;
use crate::http::sessions::{sign_in, token_of};
use crate::support::client_command::ClientHome;
use crate::support::server::{DEV_UNLIMITED, Server, until};

/// A command at a terminal, and its keyboard.
fn at_terminal(home: &ClientHome, arguments: &str) -> Option<(Waiting, ChildStdin)> {
    let mut waiting = Waiting::start(home.at_terminal(arguments)?, home, Stdio::piped());
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

#[test]
fn the_browser_gets_the_link_in_a_file_and_not_as_an_argument() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::signed_in(&server, &server.user());
    let [browser, shown] = ["browser", "shown"].map(|name| home.folder().join(name));
    let script = "#!/bin/sh\nfile=${1#file://}\n{ echo \"$1\"; stat -c %a \"$file\"; cat \"$file\"; } > taken\nmv taken shown\n";
    std::fs::write(&browser, script).unwrap();
    std::fs::set_permissions(&browser, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let home = home.env("BROWSER", browser.into_os_string());
    let Some((mut open, _keyboard)) = at_terminal(&home, "open runs?a=1\\&b=2") else { return };
    let shown = until("the page is opened", || std::fs::read_to_string(&shown).ok());
    let [address, mode, page] = shown.splitn(3, '\n').collect::<Vec<_>>()[..] else { panic!("{shown}") };
    assert!(address.starts_with("file:///") && !address.contains("enter"), "{address}");
    assert_eq!(mode, "600");
    assert!(page.contains("content=\"no-referrer\""), "{page}");
    let (_, link) = page.split_once("0;url=").unwrap();
    let (link, rest) = link.split_once("/runs?").unwrap();
    assert_eq!(rest, "a=1&amp;b=2\">\n");
    let file = std::path::Path::new(address.strip_prefix("file://").unwrap());
    assert!(file.exists(), "the link was not used yet");
    sign_in(&server.client(), &token_of(link)).expect(201);
    assert_eq!(open.code(), 0, "{}", open.output());
    assert!(!file.exists());
    assert!(open.output().contains("Opened in the browser"), "{}", open.output());
}
