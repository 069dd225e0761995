//! Files damaged by a disk or a power cut.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rusqlite::Connection;

use crate::cli::administration::{fails, ok, on};
use crate::faults::disk::{assert_sound, refused_start};
use crate::journeys::monitoring::metrics::scrape;
use crate::support::*;

/// The page size as recorded in the file.
fn page_size(file: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([file[16], file[17]]))
}

fn beside(db: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", db.display()))
}

/// The bytes of a file that a server has written and closed.
fn whole_file() -> Vec<u8> {
    let mut server = Server::start(DEV_UNLIMITED);
    server.user();
    assert_eq!(server.stop(), Some(0));
    fs::read(server.db()).unwrap()
}

fn spoil(bytes: &mut [u8], random: &mut Random) {
    bytes.fill_with(|| u8::try_from(random.below(256)).unwrap());
}

#[test]
fn a_file_with_any_damaged_page_is_refused_and_left_unchanged() {
    let (folder, sound) = (TempDir::new().unwrap(), whole_file());
    let (db, mut random) = (folder.path().join("cued.db"), Random::seeded("damage"));
    let size = page_size(&sound);
    for page in 0..sound.len() / size {
        let mut bytes = sound.clone();
        // The first hundred bytes identify the file.
        let begin = if page == 0 { 100 } else { page * size };
        spoil(&mut bytes[begin..(page + 1) * size], &mut random);
        fs::write(&db, &bytes).unwrap();
        let stderr = refused_start(&db);
        assert!(stderr.contains("is damaged") && stderr.contains("backup"), "{page}: {stderr}");
    }
}

#[test]
fn a_truncated_file_is_refused_and_left_unchanged() {
    let (folder, sound) = (TempDir::new().unwrap(), whole_file());
    let db = folder.path().join("cued.db");
    let page = page_size(&sound);
    for length in [50, 100, page, 2 * page, sound.len() / 2, sound.len() - page] {
        fs::write(&db, &sound[..length]).unwrap();
        let stderr = refused_start(&db);
        assert!(stderr.contains("is damaged") && stderr.contains("backup"), "{length}: {stderr}");
    }
}

#[test]
fn a_file_with_another_schema_is_refused_whatever_its_version() {
    let (folder, sound) = (TempDir::new().unwrap(), whole_file());
    let db = folder.path().join("cued.db");
    for (change, difference) in [
        ("ALTER TABLE users DROP COLUMN alert_webhook_url", "missing column users.alert_webhook_url TEXT"),
        ("ALTER TABLE users RENAME COLUMN plan TO tariff", "missing column users.plan TEXT NOT NULL"),
        ("DROP INDEX executions_by_cue", "missing column 1 of index executions_by_cue"),
        (
            "DROP TABLE meta; CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL, why TEXT NOT NULL)
                              STRICT, WITHOUT ROWID",
            "unexpected column meta.why TEXT NOT NULL",
        ),
    ] {
        fs::write(&db, &sound).unwrap();
        Connection::open(&db).unwrap().execute_batch(&format!("{change}; VACUUM")).unwrap();
        let stderr = refused_start(&db);
        assert!(stderr.contains(difference) && stderr.contains("another build"), "{stderr}");
        let checked = run(&["check", db.to_str().unwrap()]);
        let printed = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.code() == Some(1) && printed.contains(difference), "{printed}");
    }
    // Reads by other programs, such as a backup tool that copies the file all the time, do no harm.
    fs::write(&db, &sound).unwrap();
    let more = "CREATE TABLE _notes (x NOT NULL); CREATE INDEX more ON cues (name);
                ALTER TABLE users ADD COLUMN remark TEXT";
    Connection::open(&db).unwrap().execute_batch(more).unwrap();
    Server::start_on(&db, DEV_UNLIMITED).user();
}

#[test]
fn a_hard_linked_file_is_refused_and_a_symbolic_link_is_accepted() {
    let (folder, mut server) = (TempDir::new().unwrap(), Server::start(DEV_UNLIMITED));
    server.user();
    let second = server.db().with_file_name("second.db");
    fs::hard_link(server.db(), &second).unwrap();
    let stderr = refused_start(&second);
    assert!(stderr.contains("hard link") && stderr.contains("find / -xdev -samefile"), "{stderr}");
    let output = on(&second, &["user", "list"]);
    assert_eq!(output.status.code(), Some(1), "next to the log of the other name");
    assert!(!beside(&second, "-wal").exists());
    fs::remove_file(&second).unwrap();
    assert_eq!(server.stop(), Some(0));
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(server.db(), &link).unwrap();
    Server::start_on(&link, DEV_UNLIMITED).user();
}

#[test]
fn a_lock_file_that_is_a_link_is_refused_and_its_target_left_unchanged() {
    let (folder, mut server) = (TempDir::new().unwrap(), Server::start(DEV_UNLIMITED));
    assert_eq!(server.stop(), Some(0));
    let (lock, target) = (beside(&server.db(), ".lock"), folder.path().join("precious"));
    fs::write(&target, "kept").unwrap();
    std::os::unix::fs::symlink(&target, &lock).unwrap();
    let stderr = refused_start(&server.db());
    assert!(stderr.contains("symbolic link") && stderr.contains("remove it"), "{stderr}");
    fs::remove_file(&lock).unwrap();
    fs::hard_link(&target, &lock).unwrap();
    assert!(refused_start(&server.db()).contains("hard links"));
    assert_eq!(fs::read(&target).unwrap(), b"kept");
    fs::remove_file(&lock).unwrap();
    server.restart();
    server.user();
}

#[test]
fn a_second_server_is_refused_although_the_lock_file_was_deleted() {
    let (mut server, user) = Server::with_user(DEV_UNLIMITED);
    let lock = beside(&server.db(), ".lock");
    let folder = TempDir::new().unwrap();
    let (link, backup) = (folder.path().join("link.db"), folder.path().join("backup.db"));
    std::os::unix::fs::symlink(server.db(), &link).unwrap();
    ok(&server.db(), &["backup", backup.to_str().unwrap()]);
    fs::remove_file(&lock).unwrap();
    for db in [server.db(), link] {
        let stderr = refused_start(&db);
        assert!(stderr.contains("is in use by another cued: stop it first"), "{stderr}");
    }
    let restore = ["restore", backup.to_str().unwrap(), "--replace"];
    assert!(fails(&server.db(), &restore, 1).contains("in use by another cued"));
    ok(&server.db(), &["user", "list"]);
    assert_eq!(run(&["check", server.db().to_str().unwrap()]).status.code(), Some(0));
    user.read("/v1/cues");
    assert_eq!(server.stop(), Some(0));
    ok(&server.db(), &restore);
    server.restart();
    assert!(lock.exists());
    assert!(!server.log().contains("not locked"), "{}", server.log());
}

#[test]
fn damage_found_at_run_time_is_reported_until_the_next_start() {
    let (mut server, user) =
        Server::with_user(&[DEV_UNLIMITED, &["--metrics-listen", "127.0.0.1:0"]].concat());
    // Moves everything from the log into the file.
    assert_eq!(server.stop(), Some(0));
    let sound = fs::read(server.db()).unwrap();
    let pages: Vec<u32> = {
        let file = server.sqlite();
        let mut roots =
            file.prepare("SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'alerts'").unwrap();
        roots.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let user = user.at(server.restart());
    let size = page_size(&sound);
    let file = File::options().write(true).open(server.db()).unwrap();
    let mut stream = EventReader::follow(server.addr(), &user, "?types=server");
    for page in pages {
        file.write_all_at(&vec![0xff; size], u64::from(page - 1) * size as u64).unwrap();
    }
    let status = || user.read("/status");
    assert_eq!(status(), json!({"status": "healthy"}), "the damage is not known yet");
    assert_eq!(scrape(&server).value("cued_database_corrupt", &[]), 0.0);
    user.get("/v1/alerts").expect_error(500, "internal_error");
    let reason = "the database file is damaged: stop cued, then run `cued check`";
    assert_eq!(status(), json!({"status": "degraded", "reason": reason}));
    let health = user.read("/health");
    assert_eq!((&health["status"], &health["reason"]), (&json!("degraded"), &json!(reason)));
    assert_eq!(health["services"]["database"], "damaged");
    let (event, data) = stream.next();
    assert_eq!((event.as_str(), &data["state"]), ("server.state", &json!("damaged")));
    assert_eq!(scrape(&server).value("cued_database_corrupt", &[]), 1.0);
    user.read("/v1/cues");
    assert_eq!(status()["status"], "degraded", "a correct response does not prove the rest sound");

    server.kill();
    fs::write(server.db(), &sound).unwrap();
    server.restart();
    assert_eq!(user.at(server.addr()).read("/status"), json!({"status": "healthy"}));
}

/// The state after a power cut: the file and the write-ahead log, without anything that only memory held.
struct Remains {
    file: Vec<u8>,
    log: Vec<u8>,
}

impl Remains {
    /// Writes both files, with the given log.
    fn put(&self, folder: &TempDir, log: &[u8]) -> PathBuf {
        let db = folder.path().join("cued.db");
        fs::write(&db, &self.file).unwrap();
        fs::write(beside(&db, "-wal"), log).unwrap();
        drop(fs::remove_file(beside(&db, "-shm"))); // absent at first
        db
    }
}

/// A server killed after it had acknowledged these cues, each with the length of the log at that point.
fn killed_server() -> (Remains, String, Vec<(usize, String)>) {
    let (mut server, user) = Server::with_user(DEV_UNLIMITED);
    let daily = json!({"type": "recurring", "cron": "@daily"});
    let acknowledged = (0..30)
        .map(|number| {
            let payload = json!({"text": "x".repeat(number * 50)});
            let cue =
                json!({"name": "n", "transport": "worker", "schedule": daily, "payload": payload});
            let id = user.create(&cue).text("id").to_owned();
            (
                usize::try_from(fs::metadata(beside(&server.db(), "-wal")).unwrap().len()).unwrap(),
                id,
            )
        })
        .collect();
    server.kill();
    let remains = Remains {
        file: fs::read(server.db()).unwrap(),
        log: fs::read(beside(&server.db(), "-wal")).unwrap(),
    };
    (remains, user.key().to_owned(), acknowledged)
}

/// A power cut can tear only unacknowledged writes: a response follows the sync of the log. This test tears more than
/// that. Writes acknowledged before the tear are present, later ones are not, and no write is present in part.
#[test]
fn a_wal_torn_by_a_power_cut_keeps_every_whole_commit() {
    let (remains, key, acknowledged) = killed_server();
    let (folder, mut random) = (TempDir::new().unwrap(), Random::seeded("tear"));
    let length = remains.log.len();
    assert_eq!(acknowledged.last().unwrap().0, length, "no other write in between");
    let first = acknowledged[0].0;
    let mut tears = vec![first, first + 1, length - 1, length];
    tears.extend(
        (0..8).map(|_| first + usize::try_from(random.below((length - first) as u64)).unwrap()),
    );
    for tear in tears {
        let cut = remains.log[..tear].to_vec();
        let mut garbled = remains.log.clone();
        spoil(&mut garbled[tear..], &mut random);
        for log in [cut, garbled] {
            let db = remains.put(&folder, &log);
            let mut server = Server::start_on(&db, DEV_UNLIMITED);
            let listed = server.client().with_key(&key).read("/v1/cues?limit=100");
            let mut there: Vec<&str> = listed.list("cues").iter().map(id).collect();
            let mut expected: Vec<&str> = acknowledged
                .iter()
                .filter(|(end, _)| *end <= tear)
                .map(|(_, id)| id.as_str())
                .collect();
            there.sort_unstable();
            expected.sort_unstable();
            assert_eq!(there, expected, "torn at {tear} of {length}");
            assert_eq!(server.stop(), Some(0));
            assert_sound(&server.sqlite());
        }
    }
}

/// A checkpoint writes the log into the file page by page, and resets the log only after a sync of the file. Until then
/// the pages of the log may have any content in the file.
#[test]
fn a_checkpoint_torn_by_a_power_cut_is_repeated() {
    let (remains, key, acknowledged) = killed_server();
    let (folder, mut random) = (TempDir::new().unwrap(), Random::seeded("checkpoint"));
    let db = remains.put(&folder, &remains.log);
    let page = page_size(&remains.file);
    let mut torn = remains.file.clone();
    torn.resize(torn.len() + 20 * page, 0);
    // A frame of the log is a page after its number and 20 more bytes, which have the salt of the log.
    let frames = remains.log[32..].chunks_exact(24 + page);
    for frame in frames.filter(|frame| frame[8..16] == remains.log[16..24]) {
        let number = usize::try_from(u32::from_be_bytes(frame[..4].try_into().unwrap())).unwrap();
        torn.resize(torn.len().max(number * page), 0);
        if number > 1 {
            spoil(&mut torn[(number - 1) * page..number * page], &mut random);
        }
    }
    fs::write(&db, &torn).unwrap();
    let mut server = Server::start_on(&db, DEV_UNLIMITED);
    let listed = server.client().with_key(&key).read("/v1/cues?limit=100");
    assert_eq!(listed["total"], acknowledged.len());
    assert_eq!(server.stop(), Some(0));
    assert_sound(&server.sqlite());
}

/// The log of a young file has all that was written since its first start.
#[test]
fn a_young_file_keeps_its_tables_and_its_first_user_without_its_log() {
    let (mut server, user) = Server::with_user(&["--registration", "first-user"]);
    server.kill();
    let log = beside(&server.db(), "-wal");
    let length = fs::read(&log).unwrap().len();
    for lost in [Some(vec![0; length]), Some(Vec::new()), None] {
        match lost {
            Some(bytes) => fs::write(&log, bytes).unwrap(),
            None => fs::remove_file(&log).unwrap(),
        }
        server.restart();
        user.at(server.addr()).me();
        let stranger =
            server.client().post("/v1/auth/register", &json!({"email": "eve@example.com"}));
        stranger.expect_error(403, "registration_disabled");
        server.kill();
    }
}

/// A read that began earlier keeps a checkpoint from copying the user.
#[test]
fn the_first_user_is_in_the_file_also_while_others_read() {
    let mut server = Server::start(&["--registration", "first-user"]);
    let log = beside(&server.db(), "-wal");
    let length = || fs::metadata(&log).map_or(0, |log| log.len());
    let reader = Connection::open(server.db()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM users").unwrap();
    let before = length();
    let user = thread::scope(|scope| {
        let registered = scope.spawn(|| server.user());
        until("the user is written", || (length() > before).then_some(()));
        drop(reader);
        registered.join().unwrap()
    });
    server.kill();
    fs::remove_file(&log).unwrap();
    server.restart();
    user.at(server.addr()).me();
}

/// Earlier versions left such files: all but the first page was in the log.
#[test]
fn a_file_without_tables_beside_a_log_is_refused_with_its_log_unchanged() {
    let folder = TempDir::new().unwrap();
    let db = folder.path().join("cued.db");
    Connection::open(&db)
        .unwrap()
        .execute_batch("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL")
        .unwrap();
    assert_eq!(fs::metadata(&db).unwrap().len(), 1_024);
    let (log, zeros) = (beside(&db, "-wal"), vec![0; 300_000]);
    fs::write(&log, &zeros).unwrap();
    let stderr = refused_start(&db);
    assert!(stderr.contains("move the log away"), "{stderr}");
    for arguments in [&["user", "add", "ann@example.com"][..], &["user", "list"]] {
        let stderr = fails(&db, arguments, 1);
        assert!(stderr.contains("move the log away"), "{stderr}");
    }
    assert!(fs::read(&log).unwrap() == zeros, "the log was changed");
    fs::remove_file(&log).unwrap();
    Server::start_on(&db, DEV_UNLIMITED).user();
}
