//! Backups in a folder: their names, and which ones are kept.

use crate::cli::administration::{fails, ok, on, stderr};
use crate::support::*;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

/// Files with names of old backups, and one with another name.
fn with_old_backups() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in ["cued-20200101T000000Z.db", "cued-20200102T000000Z.db", "cued-2020.db"] {
        fs::write(folder.path().join(name), "old").unwrap();
    }
    folder
}

#[test]
fn a_backup_in_a_folder_has_its_time_in_its_name_and_replaces_the_oldest() {
    let (server, _) = Server::with_user(DEV_UNLIMITED);
    let folder = with_old_backups();
    let text = ok(&server.db(), &["backup", folder.path().to_str().unwrap(), "--keep", "2"]);
    let left = names(folder.path());
    assert_eq!(left[..2], ["cued-2020.db", "cued-20200102T000000Z.db"]);
    assert_eq!((left.len(), &left[2][..6]), (3, "cued-2"));
    assert!(text.contains(&left[2]) && text.ends_with("deleted 1 older backup\n"), "{text}");
    let checked = run(&["check", folder.path().join(&left[2]).to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
}

#[test]
fn the_folder_may_come_from_the_setting_of_the_server() {
    let (server, _) = Server::with_user(DEV_UNLIMITED);
    let folder = with_old_backups();
    let db = server.db();
    let command = |arguments: &[&str]| {
        let command = [&["backup", "--db", db.to_str().unwrap()], arguments].concat();
        cued(&command).env("CUED_BACKUP_DIR", folder.path()).output().unwrap()
    };
    let made = command(&[]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert_eq!(names(folder.path()).len(), 4, "nothing is deleted without --keep");
    let elsewhere = folder.path().join("named");
    assert_eq!(command(&[elsewhere.to_str().unwrap()]).status.code(), Some(0));
    assert!(elsewhere.is_file(), "a name that is given wins");
}

#[test]
fn what_is_no_folder_is_refused_and_nothing_is_deleted() {
    let (server, _) = Server::with_user(DEV_UNLIMITED);
    let folder = with_old_backups();
    let missing = folder.path().join("missing");
    let missing = missing.to_str().unwrap();
    let said = fails(&server.db(), &["backup", missing, "--keep", "1"], 2);
    assert!(said.contains("--keep needs a folder"), "{said}");
    let said = fails(&server.db(), &["backup", "--backup-dir", missing], 1);
    assert!(said.contains("does not exist: create the folder first"), "{said}");
    fails(&server.db(), &["backup", folder.path().to_str().unwrap(), "--keep", "0"], 2);
    let without = on(&server.db(), &["backup"]);
    assert_eq!(without.status.code(), Some(2));
    assert_eq!(names(folder.path()).len(), 3);
}
