//! The upgrade of a file of schema version 1 to 4 (`tests/data/version-N.db`, with rows in every table) to the present one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cued::domain::account::credentials::sha256;
use cued::domain::text::hex;
use cued::store::Store;
use cued::store::db::counters;
use cued::store::db::open::SCHEMA_VERSION;
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::json;
use tempfile::TempDir;

use crate::cli::administration::{fails, ok};
use crate::cli::backups::contents;
use crate::faults::disk::assert_sound;
use crate::support::server::{DEV_UNLIMITED, Server, run, until};

/// The rows of each table.
pub type Contents = BTreeMap<String, Vec<Vec<Value>>>;

const RENAMED_TABLES: [(&str, &str); 8] = [
    ("months", "monthly_usage"),
    ("removed_cues", "deleted_cues"),
    ("overgrown_cues", "retention_queue"),
    ("missed", "missed_runs"),
    ("idempotent_answers", "idempotency_keys"),
    ("logins", "device_logins"),
    ("failure_streaks", "consecutive_failures"),
    ("outbox_backlogs", "outbox_overflow"),
];

/// A copy of the file of version 1, named `cued.db`, in a folder of its own.
pub fn version_1() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("cued.db");
    fs::write(&db, version_1_bytes()).unwrap();
    (folder, db)
}

pub fn version_1_bytes() -> Vec<u8> {
    fs::read(fixture(1)).unwrap()
}

pub fn version_of(db: &Path) -> i64 {
    Connection::open(db).unwrap().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// The rows of a file of version 1, under the names of version 2.
pub fn with_new_names(mut tables: Contents) -> Contents {
    for (old, new) in RENAMED_TABLES {
        let rows = tables.remove(old).expect(old);
        tables.insert(new.to_owned(), rows);
    }
    for row in tables.get_mut("meta").unwrap() {
        if row[0] == Value::from("runs_kept".to_owned()) {
            row[0] = Value::from("retained_runs".to_owned());
        }
    }
    tables
}

/// The rows of an old file are in a migrated one. Later versions may add tables, and columns after the last one.
#[track_caller]
pub fn assert_kept(found: &Contents, expected: &Contents) {
    for (table, rows) in expected {
        let of_old_columns: Vec<_> = found[table]
            .iter()
            .zip(rows)
            .map(|(found, old)| found[..old.len().min(found.len())].to_vec())
            .collect();
        assert_eq!((found[table].len(), &of_old_columns), (rows.len(), rows), "the rows of {table}");
    }
}

#[track_caller]
pub fn assert_same(found: &Contents, expected: &Contents) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (table, rows) in expected {
        assert_eq!(&found[table], rows, "the rows of {table}");
    }
}

/// Opens the file as a server does, and closes it.
fn migrate(db: &Path) {
    drop(Store::open(db, Arc::new(|_| ())).unwrap());
}

/// Files of version 1 exist at users and no program writes new ones: nothing may replace this one.
#[test]
fn the_file_of_version_1_is_never_changed() {
    assert_eq!(
        hex::encode(&sha256(&version_1_bytes())),
        "ae7bf6076fbadbd19e618f914a3195933c7b4ddd77643daf7ae8f01db12fe4c7"
    );
}

/// The path of a fixture.
fn fixture(version: i64) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/version-{version}.db"))
}

/// A file of `version`, of the SHA-256 `hash`, keeps all rows and becomes like a new file.
#[track_caller]
fn assert_keeps_every_row(version: i64, hash: &str) {
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("cued.db");
    let bytes = fs::read(fixture(version)).unwrap();
    assert_eq!(hex::encode(&sha256(&bytes)), hash, "the fixture of version {version} was changed");
    fs::write(&db, bytes).unwrap();
    let before = contents(&db);
    let empty: Vec<_> = before.iter().filter(|(_, rows)| rows.is_empty()).collect();
    assert!(empty.is_empty(), "the fixture has rows in every table: {empty:?}");
    migrate(&db);
    assert_eq!(version_of(&db), SCHEMA_VERSION);
    assert_kept(&contents(&db), &before);
    let new = folder.path().join("new.db");
    migrate(&new);
    assert_eq!(schema(&db), schema(&new));
    let unconfirmed = "SELECT count(*) FROM users WHERE confirmed_at IS NOT created_at";
    let unconfirmed: i64 =
        Connection::open(&db).unwrap().query_row(unconfirmed, [], |row| row.get(0)).unwrap();
    assert_eq!(unconfirmed, 0, "users of earlier versions keep their failure mails");
    let uncounted = "SELECT (SELECT count(*) FROM executions WHERE status IN ('success', 'failed'))
                            - (SELECT sum(succeeded + failed) FROM hours),
                            (SELECT sum(count) FROM missed_runs JOIN cues ON cues.key = cue_key)
                            - (SELECT sum(missed) FROM hours)";
    let uncounted = Connection::open(&db)
        .unwrap()
        .query_row(uncounted, [], |row| Ok([row.get::<_, i64>(0)?, row.get(1)?]))
        .unwrap();
    assert_eq!(uncounted, [0, 0], "the hours are filled from the history");
    assert_eq!(counters::discrepancies(&Connection::open(&db).unwrap()).unwrap(), Vec::<String>::new());
}

#[test]
fn a_file_of_version_2_keeps_every_row() {
    assert_keeps_every_row(2, "17e207ee505d50a0afd0ad748946d95082467666a791b7ff7fc5dd21d7f91f04");
}

#[test]
fn a_file_of_version_3_keeps_every_row() {
    assert_keeps_every_row(3, "b31309c0b1cd1a58842a5cef23b1418ecf7e23cc48bca46bbc39f03f5a2adf2f");
}

#[test]
fn a_file_of_version_4_keeps_every_row() {
    assert_keeps_every_row(4, "9939b32428810e1fb0e6ac5db41258682672e38daa76ec9d6984973a3088b423");
}

#[test]
fn stored_responses_lose_their_payload_and_long_words_are_no_filters() {
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("cued.db");
    fs::copy(fixture(2), &db).unwrap();
    let connection = Connection::open(&db).unwrap();
    let body =
        r#"{"id":"cue_1","payload":{"payload":1,"n":1e400},"warning":null,"n":12345678901234567890123}"#;
    let insert = "INSERT INTO idempotency_keys VALUES (1, ?1, x'00', ?2, ?3, 1)";
    for (key, status, body) in [("create", 201, body), ("fire", 200, body), ("damaged", 201, "{")] {
        connection.execute(insert, (key, status, body)).unwrap();
    }
    let (short, long) = ("ä".repeat(255), "ä".repeat(256));
    for table in ["payloads", "executions"] {
        let set =
            format!("UPDATE {table} SET task = ?1, agent = ?2 WHERE key = (SELECT min(key) FROM {table})");
        connection.execute(&set, (&short, &long)).unwrap();
    }
    drop(connection);
    migrate(&db);
    let connection = Connection::open(&db).unwrap();
    let found = |key: &str| -> String {
        let sql = "SELECT response_body FROM idempotency_keys WHERE idempotency_key = ?1";
        connection.query_row(sql, [key], |row| row.get(0)).unwrap()
    };
    assert_eq!(found("create"), r#"{"id":"cue_1","warning":null,"n":12345678901234567890123}"#);
    assert_eq!((found("fire").as_str(), found("damaged").as_str()), (body, "{"));
    for table in ["payloads", "executions"] {
        let sql = format!("SELECT task, agent FROM {table} ORDER BY key LIMIT 1");
        let words: (Option<String>, Option<String>) =
            connection.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(words, (Some(short.clone()), None), "{table}");
    }
}

fn names(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_row_of_every_table_is_kept() {
    let (_folder, db) = version_1();
    let before = contents(&db);
    assert_eq!(before.len(), 26);
    let empty: Vec<_> = before.iter().filter(|(_, rows)| rows.is_empty()).collect();
    assert!(empty.is_empty(), "the fixture has rows in every table: {empty:?}");
    migrate(&db);
    assert_eq!(version_of(&db), SCHEMA_VERSION);
    assert_kept(&contents(&db), &with_new_names(before));
    let file = Connection::open(&db).unwrap();
    assert_sound(&file);
    let held: i64 =
        file.query_row("SELECT value FROM meta WHERE name = 'held_since'", [], |row| row.get(0)).unwrap();
    assert_eq!(held, 1_896_379_622_000);
}

#[test]
fn the_schema_is_that_of_a_new_file() {
    let (folder, db) = version_1();
    let new = folder.path().join("new.db");
    migrate(&db);
    migrate(&new);
    let (migrated, new) = (schema(&db), schema(&new));
    for (name, sql) in &new {
        assert_eq!(migrated.get(name), Some(sql), "{name}");
    }
    assert_eq!(migrated.len(), new.len());
}

/// The statement of each table, index and trigger without what does not matter: comments, quotes and blanks.
fn schema(db: &Path) -> BTreeMap<String, String> {
    let file = Connection::open(db).unwrap();
    let mut parts = file
        .prepare("SELECT concat(type, ' ', name, ' of ', tbl_name), coalesce(sql, '') FROM sqlite_schema")
        .unwrap();
    let parts = parts.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).unwrap();
    parts.map(Result::unwrap).map(|(name, sql)| (name, normalized(&sql))).collect()
}

fn normalized(sql: &str) -> String {
    let code = sql
        .lines()
        .map(|line| line.split("--").next().unwrap().replace('"', ""))
        .collect::<Vec<_>>()
        .join(" ");
    let mut code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    for mark in ["(", ")", ",", ";"] {
        code = code.replace(&format!(" {mark}"), mark).replace(&format!("{mark} "), mark);
    }
    code
}

#[test]
fn deletions_right_after_the_migration_keep_the_counters() {
    let (_folder, db) = version_1();
    migrate(&db);
    let file = Connection::open(&db).unwrap();
    file.pragma_update(None, "foreign_keys", "ON").unwrap();
    let backlog = |name: &str| -> i64 {
        file.query_row("SELECT count FROM backlog WHERE name = ?1", [name], |row| row.get(0)).unwrap()
    };
    assert_eq!([backlog("send"), backlog("claim"), backlog("retry")], [3, 5, 1]);
    let one = "DELETE FROM executions WHERE key = (SELECT min(key) FROM executions WHERE";
    file.execute_batch(&format!("{one} queue_name = 'send'); {one} queue_name = 'claim')")).unwrap();
    file.execute_batch(&format!("{one} queue_name = 'waiting' AND status = 'retrying')")).unwrap();
    assert_eq!([backlog("send"), backlog("claim"), backlog("retry")], [2, 4, 0]);
    // The fixture's waiting execution of a manual fire is in none of them.
    file.execute_batch(&format!("{one} queue_name = 'waiting')")).unwrap();
    assert_eq!([backlog("send"), backlog("claim"), backlog("retry")], [2, 4, 0]);
    let active = "SELECT active_cues FROM users WHERE email = 'ada@example.com'";
    let active = || -> i64 { file.query_row(active, [], |row| row.get(0)).unwrap() };
    let before = active();
    let cue = "(SELECT min(key) FROM cues WHERE status = 'active')";
    for table in ["payloads", "missed_runs"] {
        file.execute_batch(&format!("DELETE FROM {table} WHERE cue_key = {cue}")).unwrap();
    }
    file.execute_batch(&format!(
        "DELETE FROM outcomes; DELETE FROM executions; DELETE FROM cues WHERE key = {cue}"
    ))
    .unwrap();
    assert_eq!(active(), before - 1);
    assert_eq!(counters::discrepancies(&file).unwrap(), Vec::<String>::new());
}

const AFTER_THE_FIXTURE: [&str; 2] = ["--test-clock", "2030-02-03T20:09:00Z"];

#[test]
fn a_server_migrates_the_file_once_and_keeps_a_copy() {
    let (folder, db) = version_1();
    let before = contents(&db);
    let mut server = Server::start_on(&db, &[DEV_UNLIMITED, &AFTER_THE_FIXTURE].concat());
    assert_eq!(server.stop(), Some(0));
    let log = server.log();
    let line = |text: &str| log.lines().find(|line| line.contains(text)).expect(&log).to_owned();
    assert!(line("schema migration started").contains("from_version=1 to_version=5"), "{log}");
    let finished = line("schema migration finished");
    assert!(finished.contains("from_version=1 to_version=5 duration_ms="), "{log}");
    assert!(finished.contains(&format!("copy={}.v1", db.display())), "{log}");
    assert_eq!(names(&folder), ["cued.db", "cued.db.v1"]);

    // The copy holds all of version 1, and is on hold.
    let copy = folder.path().join("cued.db.v1");
    assert_same(&contents(&copy), &before);
    let checked = String::from_utf8(run(&["check", copy.to_str().unwrap()]).stdout).unwrap();
    assert!(checked.contains("schema      version 1") && checked.contains("result      ok"), "{checked}");

    // On hold, the server changed nothing but the delivery that the last kill cut short.
    let changed = |table: &str| table == "executions" || table == "backlog" || table == "meta";
    let (after, expected) = (contents(&db), with_new_names(before));
    for (table, rows) in expected.iter().filter(|(table, _)| !changed(table)) {
        let table = (*table).clone();
        assert_kept(&after, &BTreeMap::from([(table, (*rows).clone())]));
    }
    let is_different = |one: &[Value], other: &[Value]| one != &other[..one.len()];
    let pairs = expected["executions"].iter().zip(&after["executions"]);
    let different = pairs.filter(|(one, other)| is_different(one, other)).count();
    assert_eq!((different, after["executions"].len()), (1, expected["executions"].len()));
    let checked = run(&["check", db.to_str().unwrap()]);
    let printed = String::from_utf8(checked.stdout).unwrap();
    assert!(printed.contains("schema      version 5") && printed.contains("result      ok"), "{printed}");

    server.restart();
    assert_eq!(server.stop(), Some(0));
    assert_eq!(server.log().matches("schema migration").count(), 2, "one start and one end");
    assert_eq!(names(&folder), ["cued.db", "cued.db.v1"]);
    assert_eq!(contents(&db)["executions"], after["executions"]);
}

#[test]
fn a_migrated_file_is_promoted_and_gives_out_its_work() {
    let (_folder, db) = version_1();
    let server = Server::start_on(&db, &[DEV_UNLIMITED, &AFTER_THE_FIXTURE].concat());
    let printed = ok(&db, &["key", "add", "ada@example.com", "--name", "migrated"]);
    let key = printed.split_whitespace().find(|word| word.starts_with("cue_sk_")).expect(&printed);
    let ada = server.client().with_key(key);
    let claim = json!({"worker_id": "w", "task": "import"});
    ada.post("/v1/executions/claim", &claim).expect_error(503, "held");
    ok(&db, &["promote"]);
    server.client().settle();
    let claimed = until("the server notices the promotion", || {
        let answer = ada.post("/v1/executions/claim", &claim);
        (answer.status == 200).then(|| answer.json())
    });
    let id = claimed["execution_id"].as_str().expect("an execution").to_owned();
    let shown = ada.get(&format!("/v1/executions/{id}")).expect(200);
    assert_eq!((&shown["status"], &shown["claimed_by_worker"]), (&json!("delivering"), &json!("w")));
    ada.post(&format!("/v1/executions/{id}/outcome"), &json!({"success": true})).expect(200);
    let usage = ada.get("/v1/usage").expect(200);
    assert!(usage["outcomes"]["succeeded"].as_i64().unwrap() > 1, "{usage}");
}

#[test]
fn a_backup_of_version_1_is_restored_and_migrated() {
    let (folder, db) = version_1();
    let (backup, restored) = (folder.path().join("backup.db"), folder.path().join("restored.db"));
    let before = contents(&db);
    ok(&db, &["backup", backup.to_str().unwrap()]);
    assert_eq!(version_of(&backup), 1);
    ok(&restored, &["restore", backup.to_str().unwrap()]);
    assert_eq!(version_of(&restored), 1);
    migrate(&restored);
    assert_kept(&contents(&restored), &with_new_names(before));
    assert!(folder.path().join("restored.db.v1").exists());
}

#[test]
fn the_other_commands_read_a_file_of_version_1_or_say_that_serve_migrates_it() {
    let (folder, db) = version_1();
    for command in [
        &["user", "list"][..],
        &["user", "add", "zoe@example.com"],
        &["key", "list", "ada@example.com"],
        &["billing", "list"],
        &["promote"],
    ] {
        let stderr = fails(&db, command, 1);
        assert!(stderr.contains("schema version 1") && stderr.contains("`cued serve`"), "{stderr}");
    }
    let checked = run(&["check", db.to_str().unwrap()]);
    let printed = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(0), "{printed}");
    assert!(printed.contains("schema      version 1") && printed.contains("`cued serve`"), "{printed}");
    assert_eq!(fs::read(&db).unwrap(), version_1_bytes());
    assert_eq!(names(&folder), ["cued.db"]);
}
