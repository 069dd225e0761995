//! Full and failing disks.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Write};

use cued::store::ReadTx;
use cued::store::db::{counters, open};
use rusqlite::Connection;

use crate::cli::administration::{fails, ok, stderr};
use crate::journeys::monitoring::metrics::scrape;
use crate::support::*;

const METRICS: [&str; 2] = ["--metrics-listen", "127.0.0.1:0"];
const DEBUG: [&str; 2] = ["--log-level", "debug"];

fn work() -> Value {
    let daily = json!({"type": "recurring", "cron": "@daily"});
    json!({"name": "work", "transport": "worker", "schedule": daily, "payload": {"text": "x".repeat(1_000)}})
}

/// Creates cues until one is refused; returns the ids of the others.
fn create_until_refused(user: &Client) -> BTreeSet<String> {
    let mut created = BTreeSet::new();
    loop {
        let response = user.post("/v1/cues", &work());
        if response.status != 201 {
            response.refuses_for(5, 503, "storage_unavailable");
            return created;
        }
        created.insert(response.json().text("id").to_owned());
        assert!(created.len() < 10_000, "the disk is never full");
    }
}

/// Uses up the space left by larger writes, so that no write succeeds, however small.
fn beat_until_refused(user: &Client) {
    for number in 0..1_000 {
        let beat = json!({"worker_id": format!("w{number}"), "handlers": []});
        if user.post("/v1/worker/heartbeat", &beat).status == 503 {
            return;
        }
    }
    panic!("the disk is never full");
}

#[track_caller]
pub fn assert_sound(file: &Connection) {
    let integrity: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    let orphans = file
        .prepare("PRAGMA foreign_key_check")
        .unwrap()
        .query([])
        .unwrap()
        .next()
        .unwrap()
        .is_some();
    assert!(!orphans, "a row refers to one that is not there");
    assert_eq!(counters::discrepancies(file).unwrap(), Vec::<String>::new());
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_recovers_with_space() {
    let Some(disk) = Disk::mount("4m") else { return };
    let mut server = Server::start_on(&disk.db(), &[DEV_UNLIMITED, &METRICS, &DEBUG].concat());
    let (user, receiver) = (server.user(), Receiver::start());
    let hook = webhook_cue("hook", "@daily", &receiver.url());
    receiver.react(Reaction::Hang);
    let delivery = user.fire(&user.create(&hook));
    let claimed = user.fire(&user.create(&work()));
    user.post(&format!("/v1/executions/{claimed}/claim"), &json!({"worker_id": "w"})).expect(200);
    receiver.wait_hanging(1);
    let mut stream = EventReader::follow(server.addr(), &user, "?types=server");
    // A reader: while it reads, no checkpoint makes room in the log.
    let reader = Connection::open(server.db()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM users").unwrap();

    disk.fill();
    let mut kept = create_until_refused(&user);
    beat_until_refused(&user);
    let text = fails(&server.db(), &["user", "add", "somebody@example.com"], 1);
    let expected_error = "cued: the database file cannot be used now: database or disk is full";
    assert_eq!(text.lines().last(), Some(expected_error), "{text}");
    // The running delivery ends, and its result cannot be stored.
    receiver.release();
    until_true("the disk refused the result of the delivery", || {
        server.log().contains("delivery paused")
    });
    let outcome = format!("/v1/executions/{claimed}/outcome");
    user.post(&outcome, &json!({"success": true})).expect_error(503, "storage_unavailable");
    user.post("/v1/executions/claim", &json!({})).expect_error(409, "claim_failed");

    assert_eq!(user.read("/v1/cues")["total"], 2 + kept.len());
    assert_eq!(user.execution(&delivery)["status"], "delivering");
    assert_eq!(user.execution(&claimed)["outcome"], json!(null));
    assert_eq!(user.read("/status")["status"], "degraded");
    assert_eq!(user.read("/health")["services"]["database"], "not writable");
    assert_eq!(scrape(&server).value("cued_database_writable", &[]), 0.0);
    assert_eq!(stream.next().1["state"], "unwritable");

    drop(reader);
    disk.free();
    until_true("the result of the delivery is stored", || {
        user.execution(&delivery)["status"] == "success"
    });
    assert_eq!(user.read("/status")["status"], "healthy");
    stream.until(|_, data| data["state"] == "writable");
    user.post(&outcome, &json!({"success": true})).expect(200);
    kept.insert(user.create(&work()).text("id").to_owned());
    assert_eq!((receiver.count(), &user.execution(&delivery)["attempts"]), (1, &json!(1)));
    assert_eq!(server.stop(), Some(0), "{}", server.log());

    let file = server.sqlite();
    assert_sound(&file);
    let mut ids =
        file.prepare("SELECT id FROM cues WHERE transport = 'worker' AND key > 2").unwrap();
    let stored: BTreeSet<String> =
        ids.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(stored, kept, "acknowledged cues are present, refused ones are not");
}

#[test]
fn runs_due_while_the_disk_is_full_run_once_there_is_space() {
    let Some(disk) = Disk::mount("4m") else { return };
    let server = Server::start_on(
        &disk.db(),
        &[DEV_UNLIMITED, &DEBUG, &["--test-clock", "2030-01-01T00:00:00Z"]].concat(),
    );
    let (user, receiver) = (server.user(), Receiver::start());
    let cue = user.create(&webhook_cue("hook", "@hourly", &receiver.url()));
    disk.fill();
    create_until_refused(&user);
    beat_until_refused(&user);
    std::thread::scope(|scope| {
        let mover = user.clone();
        // The response follows once everything due is done.
        let moved = scope.spawn(move || mover.advance("PT3H"));
        until_true("the scheduler cannot fire", || server.log().contains("scheduler pass failed"));
        assert_eq!(receiver.count(), 0);
        disk.free();
        let moved = moved.join().unwrap();
        assert_eq!((&moved["fired"], &moved["delivered"]), (&json!(3), &json!(3)));
    });
    let cue = user.cue(&cue);
    assert_eq!((&cue["run_count"], &cue["missed_count"]), (&json!(3), &json!(0)));
    assert_eq!(receiver.count(), 3);
}

/// Starts a server that must exit with code 1 and leave the file unchanged; returns its error message.
pub fn refused_start(db: &Path) -> String {
    let before = fs::read(db).unwrap();
    let mut server = cued(&["serve", "--listen", "127.0.0.1:0", "--db"]);
    let mut server = server.arg(db).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A server that starts nevertheless prints its address and would not end by itself.
    let mut stdout = Vec::new();
    let first =
        BufReader::new(server.stdout.as_mut().unwrap()).read_until(b'\n', &mut stdout).unwrap();
    if first > 0 {
        server.kill().unwrap();
    }
    let output = server.wait_with_output().unwrap();
    assert_eq!(stdout, b"", "the server has started");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{stderr}");
    assert!(stderr.contains(db.to_str().unwrap()), "the message names the file: {stderr}");
    assert!(fs::read(db).unwrap() == before, "the file was changed");
    stderr
}

fn stopped_server_on(disk: &Disk) {
    let mut server = Server::start_on(&disk.db(), DEV_UNLIMITED);
    server.user().create(&work());
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn recovered_disk_space_is_noticed_without_a_write_request() {
    let Some(disk) = Disk::mount("4m") else { return };
    let server = Server::start_on(&disk.db(), DEV_UNLIMITED);
    let user = server.user();
    disk.fill();
    create_until_refused(&user);
    beat_until_refused(&user);
    let status = || user.read("/status")["status"].clone();
    assert_eq!(status(), "degraded");
    let count = |text: &str| server.log().matches(text).count();
    let begun = count("cannot be written");
    for _ in 0..20 {
        user.post("/v1/cues", &work()).expect_error(503, "storage_unavailable");
    }
    // No line for each refused write.
    assert_eq!((begun > 0, count("cannot be written")), (true, begun));
    disk.free();
    until_true("the server recovers by itself", || status() == "healthy");
    assert_eq!(user.read("/health")["services"]["database"], "ok");
    until_true("the end is logged", || count("can be written again") == begun);
    assert_eq!(count("ERROR"), begun);
}

#[test]
fn the_disk_is_probed_only_while_writes_fail_and_by_a_real_write() {
    let fixture = Fixture::new();
    let store = &fixture.app.store;
    let log = || open::sizes(&fixture.app.config.db).wal.unwrap();
    let before = log();
    assert!(store.probe_disk());
    assert_eq!(log(), before, "nothing is written while writes succeed");

    let is_full = Arc::new(AtomicBool::new(true));
    let hook = Arc::clone(&is_full);
    // No commit gets past this lock.
    drop(
        store
            .write(move |tx| Ok(tx.commit_hook(Some(move || hook.load(Ordering::SeqCst)))?))
            .wait(),
    );
    assert!(!store.is_writable());
    assert!(!store.probe_disk() && !store.is_writable());
    assert_eq!(log(), before);
    is_full.store(false, Ordering::SeqCst);
    assert!(store.probe_disk() && store.is_writable());
    assert!(log() > before, "a page has reached the disk");
    let rows = |read: &ReadTx<'_>| {
        Ok(read.query_row("SELECT count(*) FROM meta WHERE name = 'touch'", [], |row| {
            row.get::<_, i64>(0)
        })?)
    };
    assert_eq!(store.read_blocking(rows).unwrap(), 0, "no file is left");
}

#[test]
fn unconfirmed_accounts_together_store_a_quarter_of_the_free_disk() {
    let Some(disk) = Disk::mount("16m") else { return };
    let server = Server::start_on(&disk.db(), &["--registration", "open"]);
    let (first, bob, cid) = (server.user(), server.user(), server.user());
    disk.fill_but(4 << 20);
    let mut cue = work();
    cue["payload"] = json!({"data": "x".repeat(500_000)});
    bob.create(&cue);
    let refused = cid.post("/v1/cues", &cue).expect_error(403, "storage_limit_exceeded");
    let message = refused.message();
    assert!(message.contains("the disk") && message.contains("confirm the address"), "{message}");
    cid.create(&work());
    first.create(&cue);
    disk.free();
    cid.create(&cue);
}

#[test]
fn a_start_on_a_full_or_read_only_disk_fails_and_changes_nothing() {
    let Some(disk) = Disk::mount("4m") else { return };
    stopped_server_on(&disk);
    disk.fill();
    let stderr = refused_start(&disk.db());
    assert!(stderr.contains("Its disk is full or failing"), "{stderr}");
    disk.free();
    let mut server = Server::start_on(&disk.db(), DEV_UNLIMITED);
    assert_eq!(server.stop(), Some(0), "files of the refused start do no harm");
    disk.make_read_only();
    let stderr = refused_start(&disk.db());
    assert!(stderr.contains("Read-only file system"), "{stderr}");
}

#[test]
fn a_cleanly_closed_file_on_a_read_only_disk_can_be_checked_and_copied() {
    let Some(disk) = Disk::mount("4m") else { return };
    let db = disk.path().join("a?b#c%20d.db");
    let mut server = Server::start_on(&db, DEV_UNLIMITED);
    server.user().create(&work());
    assert_eq!(server.stop(), Some(0));
    disk.make_read_only();
    let checked = run(&["check", db.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    assert!(String::from_utf8_lossy(&checked.stdout).contains("cues        1 active"));
    let folder = tempfile::TempDir::new().unwrap();
    let out = folder.path().join("out");
    ok(&db, &["backup", out.to_str().unwrap()]);
    let checked = run(&["check", out.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&checked.stdout).contains("cues        1 active"));
}

#[test]
fn a_wal_on_a_read_only_disk_is_not_ignored() {
    let Some(disk) = Disk::mount("4m") else { return };
    stopped_server_on(&disk);
    // Without its log the file is sound, but lacks the latest acknowledged writes.
    let mut server = Server::start_on(&disk.db(), DEV_UNLIMITED);
    server.client().register("ann@example.com");
    server.kill();
    fs::remove_file(format!("{}-shm", disk.db().display())).unwrap();
    disk.make_read_only();
    let checked = run(&["check", disk.db().to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn a_write_without_changes_does_not_end_the_disk_full_state() {
    let (api, user) = Api::with_user("ann");
    // SQLite then reports a full disk.
    let grow_by = |pages: i64| {
        let limit = api.fixture.app.store.write(move |tx| {
            let count: i64 = tx.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            let limit = format!("PRAGMA max_page_count = {}", count + pages);
            Ok(tx.query_row(&limit, [], |row| row.get::<_, i64>(0))?)
        });
        limit.wait().unwrap();
    };
    let is_writable = || api.fixture.app.store.is_writable();
    grow_by(0);
    until_true("the disk is full", || user.post("/v1/cues", &work()).status == 503);
    assert!(!is_writable());
    assert_eq!(user.post("/v1/cues", &json!({})).status, 422);
    assert_eq!(user.post("/v1/executions/claim", &json!({})).status, 409);
    api.fixture.app.store.write(|_| Ok(())).wait().unwrap();
    assert!(!is_writable());
    grow_by(1_000);
    assert!(!is_writable(), "nothing has been stored yet");
    assert_eq!(user.post("/v1/cues", &work()).status, 201);
    assert!(is_writable());
}

#[test]
fn a_lock_of_another_program_is_awaited_and_then_reported() {
    let (server, user) = Server::with_user(DEV_UNLIMITED);
    let other = server.sqlite();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    user.post("/v1/cues", &work()).expect_error(503, "storage_unavailable");
    assert_eq!(user.read("/v1/cues")["total"], 0);
    std::thread::scope(|scope| {
        let (waiter, user) = (user.clone(), user.clone());
        let waits = scope.spawn(move || waiter.create(&work()));
        user.read("/v1/cues");
        other.execute_batch("ROLLBACK").unwrap();
        waits.join().unwrap();
    });
    assert_eq!(user.read("/v1/cues")["total"], 1);
}

/// A file system in memory, unmounted on drop.
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// A disk of this size, or `None` if this process may not mount one.
    #[track_caller]
    pub fn mount(size: &str) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let options = format!("size={size},mode=700");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "cued-test"])
            .arg(folder.path())
            .output();
        let reason = match mounted {
            Ok(output) if output.status.success() => return Some(Self { folder }),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => format!("mount: {error}"),
        };
        skip(&format!("no disk can be mounted: {reason}"));
        None
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn db(&self) -> PathBuf {
        self.path().join("cued.db")
    }

    /// Fills the disk to the last byte.
    pub fn fill(&self) {
        self.fill_but(0);
    }

    /// Leaves so many bytes free, rounded to the pages of memory.
    pub fn fill_but(&self, free: u64) {
        let mut filler = File::options().create(true).append(true).open(self.filler()).unwrap();
        for size in [65_536, 4_096, 1] {
            loop {
                match filler.write(&vec![0; size]) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        let filled = filler.metadata().unwrap().len();
        filler.set_len(filled.saturating_sub(free)).unwrap();
    }

    /// Frees the space used by [`Disk::fill`].
    pub fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    /// Makes the disk read-only. No file on it may be open for writing.
    pub fn make_read_only(&self) {
        let status =
            Command::new("mount").args(["-o", "remount,ro"]).arg(self.path()).status().unwrap();
        assert!(status.success());
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, because a failing test may leave a file open.
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
