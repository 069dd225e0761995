//! A file with nothing in it, as `touch` makes one: a server takes it for its own, a command that needs a database does not.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::administration::{fails, mode, new_file, ok};
use crate::server::{ALONE, Server};

/// An empty file that everybody may read.
fn make(db: &Path) {
    fs::write(db, b"").unwrap();
    fs::set_permissions(db, Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn an_empty_file_that_everybody_may_read_becomes_its_owners_before_anything_is_in_it() {
    let (_folder, db) = new_file();
    make(&db);
    let server = Server::start_on(&db, ALONE);
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
fn a_command_that_needs_a_database_makes_none() {
    let (_folder, db) = new_file();
    let commands: [&[&str]; 3] = [&["promote"], &["user", "list"], &["key", "list", "ann@example.com"]];
    for command in commands {
        let said = fails(&db, command, 1);
        assert!(said.contains("does not exist") && !db.exists(), "{command:?}: {said}");
    }
    make(&db);
    for command in commands {
        let said = fails(&db, command, 1);
        assert!(said.contains("cued.db is empty"), "{command:?}: {said}");
        assert_eq!((fs::read(&db).unwrap().len(), mode(&db)), (0, 0o644), "{command:?}");
    }
}
