//! A backup on a disk that is too small: a file system in memory, for processes that may mount one.

use std::process::Command;

use super::{BEGIN, insert_history, work};
use crate::cli::administration::stderr;
use crate::support::server::{Server, skip};

#[test]
fn a_backup_that_fills_the_disk_reports_it_and_leaves_no_file() {
    let server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let cue = work(&user);
    insert_history(&mut server.sqlite(), &cue, 2_000, true, BEGIN);
    let folder = tempfile::TempDir::new().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=1m none {small} || exit 77
         {cued} backup {small}/out --db {db}; echo $?; ls -A {small}
         {cued} user add somebody@example.com --db {db} > {small}/fits; echo $?",
        small = folder.path().display(),
        cued = env!("CARGO_BIN_EXE_cued"),
        db = server.db().display(),
    );
    let small = Command::new("unshare").args(["--mount", "--map-root-user", "sh", "-c", &script]).output();
    let Some(output) = small.ok().filter(|output| ![Some(77), Some(1)].contains(&output.status.code()))
    else {
        skip("no disk can be mounted in a user namespace");
        return;
    };
    let (text, stderr) = (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output));
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["1", "0"], "{text}{stderr}");
    assert!(stderr.contains("the disk is full") && stderr.contains("MB"), "{stderr}");
}
