//! Keys: where they are stored, and that nothing shows them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::support::client_command::ClientHome;
use crate::support::live_command::LiveCommand;
use crate::support::server::{DEV_UNLIMITED, Server};

#[test]
fn no_output_and_no_log_has_the_key() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::signed_in(&server, &user);
    let given = ClientHome::new().env("CUED_URL", server.url());
    let login = given.run_with_stdin(&["login", "--key", "-", "--verbose"], user.key());
    assert_eq!(login.code, 0, "{}", login.stderr);
    assert!(login.stderr.contains("GET ") && login.stderr.contains("/v1/auth/me 200"), "{}", login.stderr);
    let elsewhere = ClientHome::signed_in(&server, &user).env("CUED_URL", "http://127.0.0.1:1");
    let unknown =
        ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", format!("{}0", user.key()));
    let runs = [
        login,
        home.run(&["whoami", "--verbose"]),
        home.run(&["whoami", "--curl"]),
        home.run(&["account", "keys", "--json", "--verbose"]),
        home.run(&["account", "keys", "revoke", user.key()]),
        given.run(&["whoami"]),
        given.run(&["logout", "--curl"]),
        elsewhere.run(&["whoami", "--verbose"]),
        unknown.run(&["whoami", "--verbose"]),
    ];
    for run in runs {
        assert!(!run.stdout.contains(user.key()) && !run.stderr.contains(user.key()), "{run:?}");
    }
    assert!(!server.log().contains(user.key()));
    let shown = home.ok(&["whoami", "--curl"]);
    assert!(shown.contains("Bearer $CUED_API_KEY"), "{shown}");
}

#[test]
fn a_key_as_an_argument_is_refused_and_not_repeated() {
    let key = "cue_sk_0123456789abcdef0123456789abcdef";
    let home = ClientHome::new();
    for arguments in [
        &["login", "--key", key][..],
        &["login", key],
        &["login", &format!("--key={key}")],
        &["health", "--url", key],
    ] {
        let text = home.fails(arguments, 2);
        assert!(!text.contains("0123456789"), "{text}");
        assert!(text.contains("evoke") && text.contains("every user of this machine"), "{text}");
    }
    let text = home.fails(&["login", "--key", "file.txt"], 2);
    assert!(text.contains("cued login --key - < FILE") && !text.contains("Revoke"), "{text}");
}

#[test]
fn the_list_of_processes_shows_no_key() {
    let server = Server::start(DEV_UNLIMITED);
    let user = server.client().register("ann@example.com");
    let home = ClientHome::new();
    let login = home.run_with_stdin(&["login", &server.url(), "--key", "-"], user.key());
    assert_eq!(login.code, 0, "{}", login.stderr);
    let tail = LiveCommand::following(&home, &["tail"]);
    let mut work = LiveCommand::start(&home, &["work", "--task", "report", "--", "true"]);
    work.wait_for_note("worker started");
    // What `ps` shows to every user.
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok());
    let lines: Vec<String> =
        processes.map(|line| String::from_utf8_lossy(&line).replace('\0', " ")).collect();
    assert!(lines.iter().any(|line| line.contains("cued tail ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("cued work --task report ")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(user.key())), "{lines:?}");
    drop(tail);
}

#[test]
fn a_credentials_file_that_others_can_read_is_refused() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new();
    home.ok(&["login", &server.url(), "--email", "ann@example.com"]);
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(home.credentials(), Permissions::from_mode(mode)).unwrap();
        for arguments in [&["whoami"][..], &["logout"], &["login", "--email", "bob@example.com"]] {
            let text = home.fails(arguments, 4);
            assert!(text.contains("can be read by others") && text.contains("chmod 600"), "{text}");
        }
    }
    fs::set_permissions(home.credentials(), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(home.json(&["whoami"])["email"], json!("ann@example.com"));
}

#[test]
fn a_lock_that_is_a_link_is_refused_and_what_it_leads_to_is_kept() {
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new();
    let user = server.user();
    let login = || home.run_with_stdin(&["login", &server.url(), "--key", "-"], user.key());
    assert_eq!(login().code, 0);
    let lock = home.credentials().with_file_name(".credentials.lock");
    let precious = home.folder().join("precious");
    fs::write(&precious, "content").unwrap();
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(&precious, &lock).unwrap();
    let refused = login();
    let text = refused.stderr;
    assert_eq!(refused.code, 1, "{text}");
    assert!(text.contains(".credentials.lock is a symbolic link") && text.contains("remove it"), "{text}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "content");
    fs::remove_file(&lock).unwrap();
    home.ok(&["logout", "--keep-key"]);
    assert_eq!(fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_damaged_credentials_file_is_reported_and_kept() {
    let home = ClientHome::new();
    fs::create_dir_all(home.credentials().parent().unwrap()).unwrap();
    fs::write(home.credentials(), "{").unwrap();
    fs::set_permissions(home.credentials(), Permissions::from_mode(0o600)).unwrap();
    for arguments in [&["whoami"][..], &["logout"], &["login", "127.0.0.1:1"]] {
        let error = home.json_error(arguments, 4);
        assert!(error["message"].as_str().unwrap().contains("is damaged"), "{error}");
    }
    assert_eq!(fs::read_to_string(home.credentials()).unwrap(), "{");
}
