//! `cued restore`: a sound backup replaces a database without a server, and nothing of the old one remains in it.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::{BEGIN, backup, contents, work};
use crate::cli::administration::{fails, mode, new_file, ok};
use crate::http::sessions::{Browser, cookie_of, sign_in};
use crate::support::server::Server;

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

#[test]
fn restore_keeps_an_existing_file_and_moves_it_aside_with_replace() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    work(&user);
    let backup = backup(&server, "backup");
    let backup = backup.to_str().unwrap();
    work(&user);
    server.stop();
    let later = contents(&server.db());
    let text = fails(&server.db(), &["restore", backup], 1);
    assert!(text.contains("exists already") && text.contains("--replace"), "{text}");
    assert!(contents(&server.db()) == later);
    let text = ok(&server.db(), &["restore", backup, "--replace"]);
    assert!(text.contains("cued.db.replaced") && text.contains("cued promote"), "{text}");
    assert!(contents(&server.db()) == contents(Path::new(backup)));
    assert_eq!(mode(&server.db()), 0o600);
    assert!(contents(&beside(&server.db(), ".replaced")) == later);
    ok(&server.db(), &["restore", backup, "--replace"]);
    assert!(beside(&server.db(), ".replaced-2").exists(), "no moved file is lost");
}

#[test]
fn a_file_in_use_by_a_server_is_not_replaced() {
    let server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let backup = backup(&server, "backup");
    let backup = backup.to_str().unwrap();
    work(&user);
    for flags in [&["restore", backup][..], &["restore", backup, "--replace"]] {
        let text = fails(&server.db(), flags, 1);
        assert!(
            text.contains("in use by another cued") && text.contains(&server.pid().to_string()),
            "{text}"
        );
    }
    work(&user);
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 2);
    let text = fails(Path::new(backup), &["restore", backup, "--replace"], 1);
    assert!(text.contains("from itself"), "{text}");
}

#[test]
fn the_wal_of_a_killed_server_does_not_enter_the_restored_file() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    work(&user);
    let backup = backup(&server, "backup");
    let backup = backup.to_str().unwrap();
    for _ in 0..50 {
        work(&user);
    }
    server.kill();
    assert!(fs::metadata(beside(&server.db(), "-wal")).unwrap().len() > 0);
    ok(&server.db(), &["restore", backup, "--replace"]);
    assert!(contents(&server.db()) == contents(Path::new(backup)));
    let aside = contents(&beside(&server.db(), ".replaced"));
    assert_eq!(aside["cues"].len(), 51, "the log moved with its file");
}

#[test]
fn a_wal_is_kept_and_restored_with_its_moved_database() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let backup = backup(&server, "backup");
    let backup = backup.to_str().unwrap();
    work(&user);
    server.kill();
    let (db, moved) = (server.db(), beside(&server.db(), ".broken"));
    fs::rename(&db, &moved).unwrap();
    // A foreign file under the first name that restore would choose.
    fs::write(beside(&db, ".replaced-wal"), "another one's").unwrap();
    let said = ok(&db, &["restore", backup]);
    assert!(said.contains("cued.db-wal as") && said.contains("cued.db.replaced-2-wal"), "{said}");
    assert!(said.contains("no longer exists"), "{said}");
    assert!(contents(&db) == contents(Path::new(backup)));
    assert_eq!(fs::read(beside(&db, ".replaced-wal")).unwrap(), b"another one's");
    fs::rename(beside(&db, ".replaced-2-wal"), beside(&moved, "-wal")).unwrap();
    assert_eq!(contents(&moved)["cues"].len(), 1, "what was acknowledged");
}

#[test]
fn a_damaged_or_missing_backup_is_not_restored() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    work(&user);
    let backup = backup(&server, "backup");
    let backup = backup.to_str().unwrap();
    server.stop();
    let before = contents(&server.db());
    let file = Connection::open(backup).unwrap();
    file.execute_batch("UPDATE users SET active_cues = 9").unwrap();
    drop(file);
    let said = fails(&server.db(), &["restore", backup, "--replace"], 1);
    assert!(said.contains("is 9 but should be 1") && said.contains("failed the check"), "{said}");
    fs::write(backup, "no backup").unwrap();
    let text = fails(&server.db(), &["restore", backup, "--replace"], 1);
    assert!(text.contains("not a cued database"), "{text}");
    let text = fails(&server.db(), &["restore", "no-such-file", "--replace"], 1);
    assert!(text.contains("no-such-file does not exist"), "{text}");
    assert!(contents(&server.db()) == before);
    let (_folder, nowhere) = new_file();
    fails(&nowhere, &["restore", backup], 1);
    assert!(!nowhere.exists() && !beside(&nowhere, ".partial").exists());
    fails(&nowhere, &["restore"], 2);
}

#[test]
fn a_restored_copy_has_no_sessions_and_a_cookie_of_its_own() {
    let mut server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let credential = serde_json::json!({"api_key": user.key()});
    let original = Browser::new(&server.client(), &sign_in(&server.client(), &credential));
    user.post("/v1/auth/session-link", &serde_json::json!({})).expect(201);
    let backup = backup(&server, "backup");
    server.stop();
    ok(&server.db(), &["restore", backup.to_str().unwrap(), "--replace"]);
    let file = Connection::open(server.db()).unwrap();
    let left = "SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM links)";
    assert_eq!(file.query_row(left, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    drop(file);
    server.restart();
    let restored = sign_in(&server.client(), &credential);
    let name = |cookie: &str| cookie.split_once('=').unwrap().0.to_owned();
    assert_ne!(name(&original.cookie), name(&cookie_of(&restored)));
}
