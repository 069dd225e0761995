//! An empty file, as `touch` creates it: a server accepts it, a command that needs a database does not.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::cli::administration::{fails, mode, new_file, ok};
use crate::support::server::{DEV_UNLIMITED, Server};

/// An empty, world-readable file.
fn make(db: &Path) {
    fs::write(db, b"").unwrap();
    fs::set_permissions(db, Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn an_empty_world_readable_file_becomes_private_before_the_first_write() {
    let (_folder, db) = new_file();
    make(&db);
    let server = Server::start_on(&db, DEV_UNLIMITED);
    server.user();
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&PathBuf::from(format!("{}{suffix}", db.display()))), 0o600, "{suffix}");
    }
    let (_folder, db) = new_file();
    make(&db);
    ok(&db, &["user", "add", "ann@example.com"]);
    assert_eq!(mode(&db), 0o600);
}

#[test]
fn a_command_that_needs_a_database_creates_none() {
    let (_folder, db) = new_file();
    let commands: [&[&str]; 3] = [&["promote"], &["user", "list"], &["key", "list", "ann@example.com"]];
    for command in commands {
        let text = fails(&db, command, 1);
        assert!(text.contains("does not exist") && !db.exists(), "{command:?}: {text}");
    }
    make(&db);
    for command in commands {
        let text = fails(&db, command, 1);
        assert!(text.contains("cued.db is empty"), "{command:?}: {text}");
        assert_eq!((fs::read(&db).unwrap().len(), mode(&db)), (0, 0o644), "{command:?}");
    }
}

#[test]
fn a_wal_without_its_database_is_kept() {
    let mut server = Server::start(DEV_UNLIMITED);
    let key = server.user();
    let db = server.db();
    let moved = db.with_extension("moved");
    server.kill();
    fs::rename(&db, &moved).unwrap();
    let log = PathBuf::from(format!("{}-wal", db.display()));
    let before = fs::read(&log).unwrap();
    for empty in [false, true] {
        let text = fails(&db, &["serve", "--listen", "127.0.0.1:0"], 1);
        assert!(text.contains("-wal contains writes of a database that is no longer at"), "{text}");
        assert!(fails(&db, &["user", "add", "ann@example.com"], 1).contains("-wal contains writes"));
        assert!(fs::read(&log).unwrap() == before && db.exists() == empty);
        fs::write(&db, b"").unwrap();
    }
    fs::rename(&moved, &db).unwrap();
    server.restart();
    key.at(server.addr()).get("/v1/cues").expect(200);
}
