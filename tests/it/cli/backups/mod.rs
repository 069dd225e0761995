//! Backups: consistency, progress, empty files and full disks.

mod folder;
mod hold;
mod restore;

use std::fs::Permissions;
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt as _;

use rusqlite::Connection;
use rusqlite::types::Value;

use crate::cli::administration::{fails, mode, new_file, ok, on, stderr};
use crate::support::*;

pub const BEGIN: &str = "2026-01-01T10:30:00Z";

/// A worker cue that runs every hour.
pub fn work(user: &Client) -> String {
    id(&user.create(&hourly_cue("work"))).to_owned()
}

/// A cue that calls `url` every hour, with a single attempt.
pub fn hook(user: &Client, url: &str) -> String {
    let once = json!({"retry": {"max_attempts": 1}});
    id(&user.create(&with(webhook_cue("hook", "0 * * * *", url), once))).to_owned()
}

/// Fires a cue; returns the id of the execution.
pub fn fire(user: &Client, cue: &str) -> String {
    user.fire(&json!({ "id": cue }))
}

/// Reports a success of a worker execution.
pub fn report(user: &Client, execution: &str) {
    let outcome = json!({"success": true, "result": "done"});
    user.report(execution, &outcome);
}

/// A backup of the file of a server, next to it.
pub fn backup(server: &Server, name: &str) -> PathBuf {
    let out = server.db().with_file_name(name);
    let text = ok(&server.db(), &["backup", out.to_str().unwrap()]);
    assert!(text.contains(name) && text.contains("B)"), "{text}");
    out
}

/// Writes many executions of a cue, all created at `at`: finished with an outcome each, or pending for a worker.
pub fn insert_history(file: &mut Connection, cue: &str, count: u32, is_over: bool, at: &str) {
    let at = at.parse::<jiff::Timestamp>().unwrap().as_millisecond();
    let (status, queue) = if is_over { ("success", None) } else { ("pending", Some("claim")) };
    let all = file.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let first: i64 = all
        .query_row("SELECT coalesce(max(key), 0) + 1 FROM executions", [], |row| row.get(0))
        .unwrap();
    all.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
         INSERT INTO executions (id, cue_key, user_key, transport, status, queue_name, scheduled_for, triggered_by,
                                 attempts, response_body, created_at, updated_at)
         SELECT randomblob(16), key, user_key, transport, ?3, ?4, ?5, 'schedule', 0, hex(zeroblob(500)), ?5, ?5
           FROM n, cues WHERE id = ?1",
        (cue, count, status, queue, at),
    )
    .unwrap();
    if is_over {
        all.execute(
            "INSERT INTO outcomes (execution_key, success, result, recorded_at)
             SELECT key, 1, 'done', ?2 FROM executions WHERE key >= ?1",
            (first, at),
        )
        .unwrap();
    } else {
        all.execute("UPDATE backlog SET count = count + ?1 WHERE name = 'claim'", [count]).unwrap();
    }
    all.commit().unwrap();
}

#[track_caller]
pub fn rows(file: &Connection, table: &str) -> i64 {
    file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

/// Waits until a table has this number of rows.
#[track_caller]
pub fn until_rows(file: &Connection, table: &str, count: i64) {
    until(&format!("{table} has {count} rows"), || (rows(file, table) == count).then_some(()));
}

/// Every row of every table, except the mark of a held copy.
pub fn contents(path: &Path) -> BTreeMap<String, Vec<Vec<Value>>> {
    let file = Connection::open(path).unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut tables = file.prepare(tables).unwrap();
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let read = |table: &str| {
        let mut all = file.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let width = all.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..width).map(|column| row.get(column)).collect();
        let rows: Vec<Vec<Value>> = all.query_map([], row).unwrap().map(Result::unwrap).collect();
        let of_a_copy = ["held_since", "instance"].map(|name| Value::from(name.to_owned()));
        rows.into_iter().filter(|row| !of_a_copy.contains(&row[0])).collect()
    };
    tables.iter().map(|table| (table.clone(), read(table))).collect()
}

fn files(server: &Server) -> Vec<String> {
    let names = fs::read_dir(server.db().parent().unwrap()).unwrap();
    let mut names: Vec<String> =
        names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !["cued.log", "cued.out"].contains(&name.as_str()));
    names.sort();
    names
}

fn cue_ids(path: &Path) -> BTreeSet<String> {
    let file = Connection::open(path).unwrap();
    let mut ids = file.prepare("SELECT id FROM cues").unwrap();
    ids.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Creates and fires cues until it is stopped.
fn create(client: &Client, acknowledged: &Mutex<BTreeSet<String>>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let cue = work(client);
        acknowledged.lock().unwrap().insert(cue.clone());
        report(client, &fire(client, &cue));
    }
}

#[test]
fn a_backup_under_load_has_every_earlier_acknowledged_write() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let long = work(&user);
    insert_history(&mut server.sqlite(), &long, 20_000, true, BEGIN);
    let (acknowledged, is_over) = (Mutex::default(), AtomicBool::new(false));
    let backups: Vec<(BTreeSet<String>, PathBuf)> = thread::scope(|scope| {
        for _ in 0..4 {
            let client = user.clone();
            scope.spawn(|| {
                let client = client;
                create(&client, &acknowledged, &is_over);
            });
        }
        let backups = (1..=3).map(|number| {
            until_true("the load is running", || acknowledged.lock().unwrap().len() > 20 * number);
            let before = acknowledged.lock().unwrap().clone();
            (before, backup(&server, &format!("backup-{number}.db")))
        });
        let backups = backups.collect();
        is_over.store(true, Ordering::Relaxed);
        backups
    });
    assert!(backups[0].0.len() < backups[2].0.len());
    for (before, path) in &backups {
        let there = cue_ids(path);
        assert!(before.is_subset(&there), "{:?} are missing", before.difference(&there));
        let checked = run(&["check", path.to_str().unwrap()]);
        assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
        let restored = path.with_extension("restored");
        ok(&restored, &["restore", path.to_str().unwrap()]);
        assert!(contents(&restored) == contents(path), "every row of every table");
    }
    user.read("/v1/auth/me");
}

#[test]
fn a_backup_is_one_private_file_and_leaves_no_other() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    work(&user);
    let beside = files(&server);
    let out = backup(&server, "a.backup");
    assert_eq!(mode(&out), 0o600);
    assert_eq!(files(&server), [&["a.backup".to_owned()], &beside[..]].concat());
    server.stop();
    let (stopped, before) = (backup(&server, "b.backup"), fs::read(server.db()).unwrap());
    assert_eq!(files(&server), ["a.backup", "b.backup", "cued.db"], "also of a stopped server");
    assert!(contents(&stopped) == contents(&server.db()));
    assert!(contents(&out) == contents(&stopped), "no change in between");
    assert!(fs::read(server.db()).unwrap() == before);
}

#[test]
fn a_backup_contains_the_wal_left_by_a_crash() {
    let (mut server, user) = Server::with_clock_and_user(BEGIN);
    server.kill();
    let log = PathBuf::from(format!("{}-wal", server.db().display()));
    let before = (fs::read(server.db()).unwrap(), fs::read(&log).unwrap());
    assert!(!before.1.is_empty());
    let out = backup(&server, "a.backup");
    assert_eq!(fs::read(server.db()).unwrap(), before.0);
    assert!(fs::read(&log).unwrap() == before.1, "whose it is to put it back");
    server.restart();
    user.at(server.addr()).read("/v1/auth/me");
    assert_eq!(contents(&out)["users"].len(), 1);
}

#[test]
fn a_foreign_file_named_like_a_partial_backup_is_kept() {
    let server = Server::with_test_clock(BEGIN);
    let partial = server.db().with_file_name("out.partial");
    fs::write(&partial, "somebody's").unwrap();
    let out = backup(&server, "out");
    assert_eq!(fs::read(&partial).unwrap(), b"somebody's");
    let left = files(&server).into_iter().filter(|name| name.starts_with("out"));
    assert_eq!(left.collect::<Vec<_>>(), ["out", "out.partial"]);
    let checked = run(&["check", out.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
}

#[test]
fn a_stale_wal_does_not_enter_a_backup_of_that_name() {
    let mut dead = Server::with_test_clock(BEGIN);
    work(&dead.user());
    dead.kill();
    let server = Server::with_test_clock(BEGIN);
    let out = server.db().with_file_name("out");
    for suffix in ["-wal", "-shm", "-journal"] {
        let left = server.db().with_file_name(format!("out{suffix}"));
        fs::copy(format!("{}-wal", dead.db().display()), &left).unwrap();
        let before = fs::read(&left).unwrap();
        let said = fails(&server.db(), &["backup", out.to_str().unwrap()], 1);
        assert_contains(
            &said,
            &[
                &format!("out{suffix} is left over"),
                "Move it away, or give the backup another name",
            ],
        );
        assert!(!out.exists() && fs::read(&left).unwrap() == before);
        fs::remove_file(left).unwrap();
    }
    backup(&server, "out");
}

#[test]
fn a_backup_of_a_backup_is_held_since_the_first_backup() {
    let server = Server::with_test_clock(BEGIN);
    let first = backup(&server, "first");
    let held = |path: &Path| {
        let sql = "SELECT value FROM meta WHERE name = 'held_since'";
        Connection::open(path).unwrap().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let second = server.db().with_file_name("second");
    let output = on(&first, &["backup", second.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(held(&second), held(&first));
    let file = server.sqlite();
    assert!(
        !file.prepare("SELECT 1 FROM meta WHERE name = 'held_since'").unwrap().exists([]).unwrap()
    );
}

#[test]
fn a_backup_can_shrink_like_its_original() {
    let server =
        Server::start(&[DEV_UNLIMITED, &["--test-clock", BEGIN, "--retain", "off"]].concat());
    let copy = Connection::open(backup(&server, "out")).unwrap();
    assert_eq!(copy.query_row("PRAGMA auto_vacuum", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
}

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
    for suffix in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(mode(&PathBuf::from(format!("{}{suffix}", db.display()))), 0o600, "{suffix}");
    }
    let (_folder, db) = new_file();
    make(&db);
    ok(&db, &["user", "add", "ann@example.com"]);
    assert_eq!(mode(&db), 0o600);
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
        assert!(
            fails(&db, &["user", "add", "ann@example.com"], 1).contains("-wal contains writes")
        );
        assert!(fs::read(&log).unwrap() == before && db.exists() == empty);
        fs::write(&db, b"").unwrap();
    }
    fs::rename(&moved, &db).unwrap();
    server.restart();
    key.at(server.addr()).read("/v1/cues");
}

#[test]
fn a_backup_that_fills_the_disk_reports_it_and_leaves_no_file() {
    let (server, user) = Server::with_clock_and_user(BEGIN);
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
    let small =
        Command::new("unshare").args(["--mount", "--map-root-user", "sh", "-c", &script]).output();
    let Some(output) =
        small.ok().filter(|output| ![Some(77), Some(1)].contains(&output.status.code()))
    else {
        skip("no disk can be mounted in a user namespace");
        return;
    };
    let (text, stderr) = (String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output));
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["1", "0"], "{text}{stderr}");
    assert!(stderr.contains("the disk is full") && stderr.contains("MB"), "{stderr}");
}

#[test]
fn the_name_of_a_file_is_no_uri() {
    let folder = TempDir::new().unwrap();
    let command = |arguments: &[&str]| {
        let mut command = cued(arguments);
        command.current_dir(folder.path());
        command
    };
    let ok = |arguments: &[&str]| {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    fs::create_dir(folder.path().join("file:backups")).unwrap();
    for db in ["file:a.db", "file:b.db?mode=memory", ":memory:"] {
        ok(&["user", "add", "ann@example.com", "--db", db]);
        let serve = ["serve", "--listen", "127.0.0.1:0", "--registration", "open", "--db", db];
        let mut server =
            Process(command(&serve).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let addr =
            read_addr(&mut BufReader::new(server.0.stdout.take().unwrap())).expect("a start");
        Client::new(addr).register("bob@example.com");
        drop(server);
        let (copy, restored) = (format!("file:{db}.copy"), format!("file:{db}.restored"));
        ok(&["backup", &copy, "--db", db]);
        ok(&["backup", "file:backups", "--db", db, "--keep", "9"]);
        ok(&["check", &copy]);
        ok(&["restore", &copy, "--db", &restored]);
        ok(&["promote", "--db", &restored]);
        let users = ok(&["user", "list", "--db", &restored]);
        assert_contains(&users, &["ann@example.com", "bob@example.com"]);
        for file in [db, &copy, &restored] {
            assert!(fs::metadata(folder.path().join(file)).unwrap().len() > 0, "{file}");
        }
    }
    for copy in fs::read_dir(folder.path().join("file:backups")).unwrap() {
        assert!(copy.unwrap().metadata().unwrap().len() > 0);
    }
}
