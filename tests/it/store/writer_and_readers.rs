//! The writer, the readers, the order of writes, and checkpoints.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use cued::domain::account::credentials::Email;
use cued::domain::api_error::ErrorCode;
use cued::domain::row_keys::UserKey;
use cued::error::{Error, Result};
use cued::service::accounts;
use cued::store::{Pending, ReadTx, Store, WakeSet, WriteTx};
use jiff::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;

/// A store on a new file, and the count of its notifications.
struct OpenStore {
    store: Store,
    notified: Arc<AtomicUsize>,
    folder: tempfile::TempDir,
}

fn open() -> OpenStore {
    let folder = tempfile::tempdir().unwrap();
    let notified = Arc::new(AtomicUsize::new(0));
    let store = open_at(&folder.path().join("cued.db"), &notified);
    OpenStore { store, notified, folder }
}

fn open_at(path: &Path, notified: &Arc<AtomicUsize>) -> Store {
    let notified = Arc::clone(notified);
    let wake = move |targets: WakeSet| {
        if targets.send {
            notified.fetch_add(1, Ordering::SeqCst);
        }
    };
    Store::open(path, Arc::new(wake)).unwrap()
}

fn note(tx: &WriteTx<'_>, name: &str) -> Result<()> {
    tx.execute("INSERT INTO meta (name, value) VALUES (?1, 1)", [name])?;
    tx.wake(WakeSet { send: true, ..WakeSet::default() });
    Ok(())
}

fn noted(store: &Store) -> Vec<String> {
    let read = store.read(|read| {
        let mut statement =
            read.prepare("SELECT name FROM meta WHERE name <> 'instance' ORDER BY name")?;
        let names = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        Ok(names)
    });
    read.wait().unwrap()
}

/// Keeps the writer busy until the returned value is dropped, so that further writes share one commit.
fn hold_the_writer(store: &Store) -> Arc<Barrier> {
    let (begun, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (here, there) = (Arc::clone(&begun), Arc::clone(&go_on));
    drop(store.write(move |_| {
        here.wait();
        there.wait();
        Ok(())
    }));
    begun.wait();
    go_on
}

#[test]
fn a_failed_write_in_a_batch_rolls_back_alone() {
    let OpenStore { store, notified, folder: _folder } = open();
    let go_on = hold_the_writer(&store);
    let before = store.write(|tx| note(tx, "before"));
    let failing = store.write(|tx| {
        note(tx, "failing")?;
        Err::<(), _>(Error::refused(ErrorCode::CueNotFound, "no"))
    });
    let after = store.write(|tx| note(tx, "after"));
    // The last one, because a panic that prints a backtrace takes longer than a batch.
    let panicking = store.write(|tx| {
        note(tx, "panicking")?;
        let empty: [i32; 0] = [];
        Ok(empty[tx.changes() as usize])
    });
    go_on.wait();
    before.wait().unwrap();
    assert!(
        matches!(failing.wait(), Err(Error::Refused(refusal)) if refusal.code == ErrorCode::CueNotFound)
    );
    assert!(
        matches!(panicking.wait(), Err(Error::Fault(what)) if what.to_string().contains("index out of bounds"))
    );
    after.wait().unwrap();
    assert_eq!(noted(&store), ["after", "before"]);
    // One commit for the four; the notification follows it, so another write must pass in between.
    store.write(|_| Ok(())).wait().unwrap();
    assert_eq!(notified.load(Ordering::SeqCst), 1);
}

#[test]
fn a_failed_commit_fails_all_its_writes_and_the_next_one_succeeds() {
    let OpenStore { store, notified, folder: _folder } = open();
    let go_on = hold_the_writer(&store);
    let first = store.write(|tx| {
        tx.commit_hook(Some(|| true))?;
        note(tx, "first")
    });
    // Refused because of an earlier write of the failed commit, which was never stored.
    let refused =
        store.write(|_| Err::<(), _>(Error::refused(ErrorCode::OutcomeAlreadyReported, "twice")));
    let faulty = store.write(|_| Err::<(), _>(Error::fault("broken")));
    let second = store.write(|tx| note(tx, "second"));
    go_on.wait();
    assert!(matches!(first.wait(), Err(Error::Storage(_))));
    assert!(matches!(refused.wait(), Err(Error::Storage(_))));
    assert!(matches!(faulty.wait(), Err(Error::Fault(_))));
    assert!(matches!(second.wait(), Err(Error::Storage(_))));
    assert!(!store.is_writable());
    let mended = store.write(|tx| {
        tx.commit_hook(None::<fn() -> bool>)?;
        note(tx, "mended")
    });
    mended.wait().unwrap();
    assert!(store.is_writable());
    assert_eq!(noted(&store), ["mended"]);
    store.write(|_| Ok(())).wait().unwrap();
    assert_eq!(notified.load(Ordering::SeqCst), 1);
}

#[test]
fn a_write_completes_when_nothing_waits_for_it() {
    let OpenStore { store, folder: _folder, .. } = open();
    drop(store.write(|tx| note(tx, "dropped")));
    store.write(|_| Ok(())).wait().unwrap();
    assert_eq!(noted(&store), ["dropped"]);
}

#[test]
fn a_read_sees_one_snapshot() {
    let OpenStore { store, folder: _folder, .. } = open();
    let (looked, written) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (here, there) = (Arc::clone(&looked), Arc::clone(&written));
    let reading = store.read(move |read| {
        let count =
            || read.query_row("SELECT count(*) - 1 FROM meta", [], |row| row.get::<_, i64>(0));
        let before = count()?;
        here.wait();
        there.wait();
        Ok((before, count()?))
    });
    looked.wait();
    store.write(|tx| note(tx, "meanwhile")).wait().unwrap();
    written.wait();
    assert_eq!(reading.wait().unwrap(), (0, 0));
    assert_eq!(noted(&store), ["meanwhile"]);
}

#[test]
fn a_reader_cannot_write() {
    let OpenStore { store, folder: _folder, .. } = open();
    let delete = |read: &ReadTx<'_>| Ok(read.execute("DELETE FROM meta", [])?);
    assert!(matches!(store.read(delete).wait(), Err(Error::Storage(_))));
    assert!(matches!(store.read_blocking(delete), Err(Error::Storage(_))));
}

#[test]
fn a_short_read_does_not_wait_for_long_lists() {
    let OpenStore { store, folder: _folder, .. } = open();
    let go_on = Arc::new(Barrier::new(3));
    let lists = [Arc::clone(&go_on), Arc::clone(&go_on)].map(|go_on| {
        store.read(move |_| {
            go_on.wait();
            Ok(())
        })
    });
    // Both would wait for ever: the lists continue after these reads have ended.
    store.read_blocking(|_| Ok(())).unwrap();
    store.read_inline(|_| Ok(())).wait().unwrap();
    go_on.wait();
    for list in lists {
        list.wait().unwrap();
    }
}

#[test]
fn a_closed_store_leaves_one_complete_file() {
    let OpenStore { store, notified, folder } = open();
    store.write(|tx| note(tx, "kept")).wait().unwrap();
    drop(store);
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(files, ["cued.db"]);
    assert_eq!(noted(&open_at(&folder.path().join("cued.db"), &notified)), ["kept"]);
}

#[test]
fn an_action_runs_after_the_commit_of_its_write_and_never_after_a_failure() {
    let OpenStore { store, folder, .. } = open();
    let db = folder.path().join("cued.db");
    let seen = Arc::new(AtomicUsize::new(0));
    let write = |fails: bool| {
        let (db, count) = (db.clone(), Arc::clone(&seen));
        let written = store.write(move |tx| {
            note(tx, "a")?;
            tx.on_commit(move || {
                let other = rusqlite::Connection::open(&db).unwrap();
                let rows =
                    other.query_row("SELECT count(*) FROM meta WHERE name = 'a'", [], |row| {
                        row.get(0)
                    });
                count.fetch_add(usize::from(rows.unwrap_or(0_u16)), Ordering::SeqCst);
            });
            if fails { Err(Error::refused(ErrorCode::CueNotFound, "no")) } else { Ok(()) }
        });
        (written.wait().is_ok(), seen.load(Ordering::SeqCst))
    };
    assert_eq!(write(true), (false, 0));
    // Another connection sees the row before the caller is answered.
    assert_eq!(write(false), (true, 1));
}

#[test]
fn an_action_after_a_commit_that_panics_harms_nobody() {
    let OpenStore { store, folder: _folder, .. } = open();
    let written = store.write(|tx| {
        tx.on_commit(|| panic!("on purpose"));
        note(tx, "a")
    });
    written.wait().unwrap();
    store.write(|tx| note(tx, "b")).wait().unwrap();
    assert_eq!(noted(&store), ["a", "b"]);
}

fn open_store() -> (Store, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("cued.db"), Arc::new(|_| ())).unwrap();
    (store, folder)
}

/// A write that begins, meets the first barrier, and ends after the second.
fn holding(store: &Store) -> (Arc<Barrier>, Arc<Barrier>) {
    let barriers = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (begun, go_on) = (Arc::clone(&barriers.0), Arc::clone(&barriers.1));
    drop(store.write(move |_| {
        begun.wait();
        go_on.wait();
        Ok(())
    }));
    barriers
}

/// Keeps the writer busy until the returned barrier is passed.
/// A job that counts itself and returns how many have run before it.
fn counted(
    count: &Arc<AtomicUsize>,
) -> impl FnOnce(&cued::store::WriteTx<'_>) -> Result<usize> + Send + use<> {
    let count = Arc::clone(count);
    move |_| Ok(count.fetch_add(1, Ordering::SeqCst))
}

fn wait_all<T>(writes: Vec<Pending<T>>) -> Vec<T> {
    writes.into_iter().map(|write| write.wait().unwrap()).collect()
}

#[test]
fn the_engine_writes_before_all_waiting_callers() {
    let (store, _folder) = open_store();
    let count = Arc::default();
    let go_on = hold_the_writer(&store);
    let callers: Vec<_> = (0..2_000).map(|_| store.write(counted(&count))).collect();
    let engine = store.write_with_priority(counted(&count));
    go_on.wait();
    assert_eq!(engine.wait().unwrap(), 0, "writes of callers before it");
    assert_eq!(wait_all(callers), (1..=2_000).collect::<Vec<_>>(), "in the order of their arrival");
}

#[test]
fn a_write_of_the_engine_joins_the_batch_that_runs() {
    let (store, _folder) = open_store();
    let count = Arc::default();
    let go_on = hold_the_writer(&store);
    // The first of a batch, and the others behind it.
    let (begun, finish) = holding(&store);
    let callers: Vec<_> = (0..600).map(|_| store.write(counted(&count))).collect();
    go_on.wait();
    begun.wait();
    let engine = store.write_with_priority(counted(&count));
    finish.wait();
    assert_eq!(engine.wait().unwrap(), 0, "writes of callers before it");
    wait_all(callers);
}

#[test]
fn callers_get_a_turn_in_every_batch_of_the_engine() {
    let (store, _folder) = open_store();
    let count = Arc::default();
    let go_on = hold_the_writer(&store);
    let engine: Vec<_> = (0..2_000).map(|_| store.write_with_priority(counted(&count))).collect();
    let callers: Vec<_> = (0..2).map(|_| store.write(counted(&count))).collect();
    go_on.wait();
    let callers = wait_all(callers);
    assert!(callers[0] < 512 && callers[1] < 1_024, "{callers:?}");
    wait_all(engine);
}

/// The number of writes, each of at least `duration`, that have run when the first of `writes` is committed.
fn first_batch(writes: usize, duration: Duration) -> usize {
    let (store, _folder) = open_store();
    let (count, at_commit) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
    let go_on = hold_the_writer(&store);
    let jobs: Vec<_> = (0..writes)
        .map(|_| {
            let (count, at_commit) = (Arc::clone(&count), Arc::clone(&at_commit));
            store.write(move |tx| {
                std::thread::sleep(duration);
                let counted = Arc::clone(&count);
                count.fetch_add(1, Ordering::SeqCst);
                tx.on_commit(move || {
                    at_commit.lock().unwrap().get_or_insert(counted.load(Ordering::SeqCst));
                });
                Ok(())
            })
        })
        .collect();
    go_on.wait();
    wait_all(jobs);
    let first = *at_commit.lock().unwrap();
    first.unwrap()
}

#[test]
fn a_batch_ends_after_512_writes_or_20_ms() {
    let few = first_batch(100, Duration::from_millis(2));
    assert!((1..=11).contains(&few), "{few} writes of 2 ms");
    let many = first_batch(2_000, Duration::ZERO);
    assert!((2..=512).contains(&many), "{many} writes");
}

#[test]
fn users_take_turns_and_the_writes_of_each_stay_in_order() {
    let (store, _folder) = open_store();
    let count = Arc::default();
    let go_on = hold_the_writer(&store);
    let busy: Vec<_> =
        (0..500).map(|_| store.write_for(UserKey::new(1), counted(&count))).collect();
    let other = store.write_for(UserKey::new(2), counted(&count));
    let nobody = store.write(counted(&count));
    go_on.wait();
    assert_eq!(other.wait().unwrap(), 1, "after one write of the busy user");
    assert_eq!(nobody.wait().unwrap(), 2, "after one write of the busy user");
    let busy = wait_all(busy);
    assert!(busy.is_sorted(), "{busy:?}");
}

#[test]
fn users_take_turns_when_they_change_their_keys() {
    let (store, _folder) = open_store();
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for name in ["ann", "bob"] {
        let email = Email::parse(&format!("{name}@example.com")).unwrap();
        accounts::add_user(&store, email, "free", now).unwrap().wait().unwrap();
    }
    let go_on = hold_the_writer(&store);
    let create = |user| accounts::create_key(&store, user, "key".to_owned(), None, now).unwrap();
    let mut writes: Vec<_> = (0..50).map(|_| create(UserKey::new(1))).collect();
    writes.push(create(UserKey::new(2)));
    go_on.wait();
    wait_all(writes);
    let before = "SELECT count(*) FROM api_keys WHERE user_key = 1 AND name = 'key'
                     AND key < (SELECT key FROM api_keys WHERE user_key = 2 AND name = 'key')";
    let before: i64 = store
        .read(move |read| Ok(read.prepare_cached(before)?.query_row([], |row| row.get(0))?))
        .wait()
        .unwrap();
    assert_eq!(before, 1);
}

const MEBIBYTE: usize = 1 << 20;

struct LogFixture {
    store: Store,
    path: PathBuf,
    written: usize,
    _folder: TempDir,
}

impl LogFixture {
    fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cued.db");
        let store = Store::open(&path, Arc::new(|_| ())).unwrap();
        LogFixture { store, path, written: 0, _folder: folder }
    }

    /// Commits rows of 100 KB, a mebibyte in all.
    fn write_mebibyte(&mut self) {
        for _ in 0..10 {
            self.written += 1;
            let name = format!("{:06}{}", self.written, "x".repeat(MEBIBYTE / 10));
            let insert = "INSERT INTO meta (name, value) VALUES (?1, 1)";
            self.store.write(move |tx| Ok(tx.execute(insert, [name])?)).wait().unwrap();
        }
    }

    fn log(&self) -> PathBuf {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        log.into()
    }

    fn log_bytes(&self) -> usize {
        usize::try_from(fs::metadata(self.log()).unwrap().len()).unwrap()
    }

    /// How many times the log has started from its beginning: bytes 12 to 15 of its header.
    fn restarts(&self) -> u32 {
        let mut bytes = [0; 4];
        File::open(self.log()).unwrap().read_exact_at(&mut bytes, 12).unwrap();
        u32::from_be_bytes(bytes)
    }

    fn rows(&self) -> usize {
        rows(&Connection::open(&self.path).unwrap())
    }
}

fn rows(file: &Connection) -> usize {
    let count = "SELECT count(*) FROM meta WHERE name GLOB '0*'";
    usize::try_from(file.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap()).unwrap()
}

#[test]
fn the_log_starts_again_while_writes_go_on_without_a_pause() {
    let mut opened = LogFixture::open();
    opened.write_mebibyte();
    let first = opened.restarts();
    // Twice as much as the limit of the log: one that never starts again would exceed it.
    while opened.written < 1_500 {
        opened.write_mebibyte();
    }
    assert!(opened.restarts() > first + 1, "{} restarts", opened.restarts() - first);
    assert!(opened.log_bytes() < 80 * MEBIBYTE, "{} bytes", opened.log_bytes());
    assert_eq!(opened.rows(), opened.written);
}

#[test]
fn a_long_read_stops_neither_writes_nor_later_checkpoints() {
    let mut opened = LogFixture::open();
    opened.write_mebibyte();
    let reader = Connection::open(&opened.path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let seen = rows(&reader);
    (0..90).for_each(|_| opened.write_mebibyte());
    let during = opened.restarts();
    // The reader still needs pages: the log keeps all later ones.
    assert!(opened.log_bytes() > 80 * MEBIBYTE);
    assert_eq!(rows(&reader), seen, "the read sees its own snapshot");
    reader.execute_batch("COMMIT").unwrap();
    // The next checkpoint copies all, and one of the next commits starts the log again.
    while opened.restarts() == during {
        assert!(opened.written < 4_000, "the log never starts again");
        opened.write_mebibyte();
    }
    assert_eq!(opened.rows(), opened.written);
}

/// The file and its log are copied amid checkpoints, page by page, as a crash would leave them: the file may have pages
/// of any age, and the log has them all.
#[test]
fn a_crash_amid_a_checkpoint_loses_nothing() {
    let mut opened = LogFixture::open();
    let folder = TempDir::new().unwrap();
    let mut tried = 0;
    while tried < 12 {
        (0..4).for_each(|_| opened.write_mebibyte());
        let (restarts, written) = (opened.restarts(), opened.written);
        let copy = folder.path().join(format!("{tried}.db"));
        fs::copy(&opened.path, &copy).unwrap();
        opened.write_mebibyte();
        let log = folder.path().join(format!("{tried}.db-wal"));
        fs::copy(opened.log(), &log).unwrap();
        // A log that has started again since belongs to a newer file.
        if opened.restarts() != restarts {
            continue;
        }
        assert_complete(&copy, written);
        tried += 1;
    }
}

fn assert_complete(path: &Path, written: usize) {
    let file = Connection::open(path).unwrap();
    assert!(rows(&file) >= written, "{} of {written} rows", rows(&file));
    let sound: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}
