//! `cued login`, `logout` and `whoami`.

use std::io::Write as _;
use std::process::ChildStdin;

use crate::cli::administration::mode;
use crate::http::device_login::{MailingServer, post_form};
use crate::http::sessions::{sign_in, token_of};
use crate::support::*;

/// A server without development mode, which asks for an address.
const OPEN: &[&str] = &["--registration", "open", "--limits", "off"];

/// The rest of the word in the output that begins with `start`.
#[track_caller]
fn rest_of(command: &BackgroundCommand, start: &str) -> String {
    until(&format!("the command prints {start:?} and more"), || {
        let output = command.output();
        let (word, _) = output.split_once(start)?.1.split_once(char::is_whitespace)?;
        Some(word.to_owned())
    })
}

fn start(home: &ClientHome, arguments: &[&str]) -> BackgroundCommand {
    let command = home.command(&[&["login"], arguments].concat());
    BackgroundCommand::start(command, home.folder().join("output"), true)
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

/// The link that a server without development mode has written to its log.
fn logged_link(server: &Server) -> String {
    until("the link is in the log", || {
        let log = server.log();
        let (_, rest) =
            log.split_once("http://").filter(|(_, rest)| rest.contains("verify?token="))?;
        Some(format!("http://{}", rest.split([' ', '"', '\n']).next()?))
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
    assert!(run.stderr.contains("Created an account for"), "{}", run.stderr);
    let profile = &home.stored()["profiles"]["default"];
    assert_eq!(home.stored()["current"], json!("default"));
    assert_has(profile, json!({"url": server.url(), "email": "ann@example.com"}));
    assert_eq!(mode(&home.credentials()), 0o600);
    let user = server.client().with_key(profile.text("api_key"));
    assert_eq!(user.read("/v1/auth/keys")["keys"][0]["id"], profile["key_id"]);
    let shown = home.ok(&["whoami"]);
    assert!(shown.contains("of profile default") && shown.contains("ann@example.com"), "{shown}");
}

#[test]
fn a_development_server_is_entered_without_an_address_as_its_page_is() {
    let server = Server::start(DEV_UNLIMITED);
    let email = |home: &ClientHome| home.stored()["profiles"]["default"]["email"].clone();
    let home = ClientHome::new().env("CUED_URL", server.url());
    let expected = format!("Signed in to {} as dev@example.com (profile default).\n", server.url());
    assert_eq!(home.ok(&["login"]), expected);
    let page = sign_in(&server.client(), &json!({"dev": true})).expect(201);
    assert_eq!(page["user"]["email"], email(&home));
    // The session is that of the page.
    assert_eq!(home.json(&["account", "sessions"]).list("sessions").len(), 1);
    server.client().register("ann@example.com");
    home.ok(&["logout", "--keep-key"]);
    home.ok(&["login"]);
    assert_eq!(email(&home), "dev@example.com");
}

#[test]
fn a_new_address_beside_an_account_of_a_development_server_needs_a_yes() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_URL", server.url());
    home.ok(&["login", "--email", "ada@example.com"]);
    let line = ["login", "--email", "ada@exmaple.com"];
    let expected = "cued: ada@exmaple.com is new on this server; its first account is ada@example.com. Create another one? \
                    Not a terminal: add -y to confirm\n";
    assert_eq!(home.fails(&line, 2), expected);
    if let Some((mut login, mut keyboard)) = at_terminal(&home, "login --email ada@exmaple.com") {
        login.until("Create another one? [y/N] ");
        keyboard.write_all(b"n\n").unwrap();
        assert_eq!(login.code(), 2, "{}", login.output());
    }
    assert_eq!(server.client().read("/v1/info")["accounts"], json!(["ada@example.com"]));
    home.ok(&[&line[..], &["-y"]].concat());
    assert_eq!(home.stored()["profiles"]["default"]["email"], "ada@exmaple.com");
}

#[test]
fn a_known_address_confirms_by_the_link_in_the_log() {
    let server = Server::start(OPEN);
    let first = server.client().register("ann@example.com");
    let home = ClientHome::new();
    let mut login =
        start(&home, &[&server.url(), "--email", "ann@example.com", "--profile", "home"]);
    login.until("This server sends no mail");
    confirm(&server.client(), &logged_link(&server));
    assert_eq!(login.code(), 0, "{}", login.output());
    assert!(login.output().contains("as ann@example.com (profile home)"), "{}", login.output());
    assert_eq!(home.json(&["whoami"])["email"], json!("ann@example.com"));
    let keys = first.read("/v1/auth/keys");
    assert_eq!(keys.list("keys").len(), 2, "the earlier key is kept: {keys}");
}

#[test]
fn the_address_is_entered_on_the_page_when_nobody_can_be_asked() {
    let mailing = MailingServer::open(OPEN);
    let home = ClientHome::new();
    let mut login = start(&home, &[&mailing.server.url()]);
    let code = rest_of(&login, "/auth/device?code=");
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
    let mailing = MailingServer::open(OPEN);
    (0..5).for_each(|_| drop(mailing.code()));
    let home = ClientHome::new();
    let error = home.json_error(&["login", &mailing.server.url()], 6);
    assert_eq!(error["code"], json!("rate_limit_exceeded"));
    let error = home.json_error(&["login", "127.0.0.1:1"], 1);
    assert_eq!(error["code"], json!("unreachable"));
    assert!(home.stored().is_null());
}

#[test]
fn a_replaced_key_of_deleted_data_is_not_called_valid() {
    let (folder, home) = (TempDir::new().unwrap(), ClientHome::new());
    let mut server = Server::start_on(&folder.path().join("cued.db"), DEV_UNLIMITED);
    home.ok(&["login", &server.url()]);
    let earlier = home.stored()["profiles"]["default"]["api_key"].clone();
    assert_eq!(server.stop(), Some(0));
    for file in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    server.restart_in_place();
    let run = home.run(&["login"]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_ne!(home.stored()["profiles"]["default"]["api_key"], earlier);
    home.ok(&["whoami"]);
}

#[test]
fn the_first_account_of_a_development_server_is_entered_with_its_address_too() {
    let server = Server::start(DEV_UNLIMITED);
    server.client().register("ann@example.com");
    let home = ClientHome::new().env("CUED_URL", server.url());
    home.ok(&["login", "--email", "Ann@example.com"]);
    assert_eq!(home.stored()["profiles"]["default"]["email"], json!("ann@example.com"));
    server.client().register("bob@example.com");
    let mut login = start(&home, &["--email", "bob@example.com", "--profile", "bob"]);
    // The ways without a mail.
    login.until("This server sends no mail");
    login.until(&format!("cued login {} --key -", server.url()));
    login.until("cued user link EMAIL");
    confirm(&server.client(), &printed_link(&server, "bob@example.com"));
    assert_eq!(login.code(), 0, "{}", login.output());
    let text = home.fails(&["login", "--email", "notanemail"], 2);
    assert_eq!(text, "cued: \"notanemail\": must have exactly one @\n");
}

#[test]
fn without_the_server_nothing_is_removed() {
    let mut server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new();
    home.ok(&["login", &server.url()]);
    let before = home.stored();
    server.stop();
    let text = home.fails(&["logout"], 1);
    assert!(text.contains("the key is still valid"), "{text}");
    assert_eq!(home.stored(), before);
    home.ok(&["logout", "--keep-key"]);
    assert_eq!(home.stored()["profiles"], json!({}));
}

/// A command at a terminal, and its keyboard.
pub fn at_terminal(home: &ClientHome, arguments: &str) -> Option<(BackgroundCommand, ChildStdin)> {
    let mut command = home.at_terminal(arguments)?;
    command.stdin(Stdio::piped());
    let mut waiting = BackgroundCommand::start(command, home.folder().join("output"), true);
    let keyboard = waiting.process.0.stdin.take().unwrap();
    Some((waiting, keyboard))
}

#[test]
fn the_address_is_asked_for_and_the_link_is_taken() {
    let server = Server::start(OPEN);
    server.client().register("ann@example.com");
    let home = ClientHome::new().env("CUED_URL", server.url());
    let Some((mut login, mut keyboard)) = at_terminal(&home, "login") else { return };
    login.until("Email address: ");
    keyboard.write_all(b"ann@example.com\n").unwrap();
    login.until("Or paste the link here: ");
    keyboard.write_all(b"http://x/v1/auth/verify?token=t&user_code=AAAA-BBBB\n").unwrap();
    login.until("This link is of another login.");
    let link = logged_link(&server);
    keyboard.write_all(format!("mail to ann@example.com: {link}\n").as_bytes()).unwrap();
    login.until("Signed in to");
    assert_eq!(login.code(), 0, "{}", login.output());
    assert_eq!(home.stored()["profiles"]["default"]["email"], json!("ann@example.com"));
}

#[test]
fn a_key_is_not_shown_while_it_is_entered() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
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
    let mailing = crate::http::device_login::MailingServer::open(OPEN);
    let home = ClientHome::new().env("CUED_URL", mailing.server.url());
    let (browser, opened) = (home.folder().join("browser"), home.folder().join("opened"));
    std::fs::write(&browser, format!("#!/bin/sh\necho \"$1\" > {}\n", opened.display())).unwrap();
    std::fs::set_permissions(&browser, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let home = home.env("BROWSER", browser.into_os_string());
    let Some((login, _keyboard)) = at_terminal(&home, "login --no-browser") else { return };
    login.until("Open this page in a browser");
    login.until("Or enter the address here: ");
    drop(login);
    assert!(!opened.exists());
    let Some((login, _keyboard)) = at_terminal(&home, "login") else { return };
    let code = rest_of(&login, "/auth/device?code=");
    let page = until("the page is opened", || {
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
    std::fs::set_permissions(&browser, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .unwrap();
    let home = home.env("BROWSER", browser.into_os_string());
    let Some((mut open, _keyboard)) = at_terminal(&home, "open runs?a=1\\&b=2") else { return };
    let shown = until("the page is opened", || std::fs::read_to_string(&shown).ok());
    let [address, mode, page] = shown.splitn(3, '\n').collect::<Vec<_>>()[..] else {
        panic!("{shown}")
    };
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
