//! The writer and the readers: the guarantees of a result, alone, in a batch, and after a failed commit.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use cued::domain::api_error::ErrorCode;
use cued::error::{Error, Result};
use cued::store::{ReadTx, Store, WakeSet, WriteTx};

/// A store on a new file, and the count of its notifications.
struct Opened {
    store: Store,
    notified: Arc<AtomicUsize>,
    folder: tempfile::TempDir,
}

fn open() -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let notified = Arc::new(AtomicUsize::new(0));
    let store = open_at(&folder.path().join("cued.db"), &notified);
    Opened { store, notified, folder }
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
        let mut statement = read.prepare("SELECT name FROM meta WHERE name <> 'instance' ORDER BY name")?;
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
    let Opened { store, notified, folder: _folder } = open();
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
    assert!(matches!(failing.wait(), Err(Error::Refused(refusal)) if refusal.code == ErrorCode::CueNotFound));
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
    let Opened { store, notified, folder: _folder } = open();
    let go_on = hold_the_writer(&store);
    let first = store.write(|tx| {
        tx.commit_hook(Some(|| true))?;
        note(tx, "first")
    });
    // Refused because of an earlier write of the failed commit, which was never stored.
    let refused = store.write(|_| Err::<(), _>(Error::refused(ErrorCode::OutcomeAlreadyReported, "twice")));
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
    let Opened { store, folder: _folder, .. } = open();
    drop(store.write(|tx| note(tx, "dropped")));
    store.write(|_| Ok(())).wait().unwrap();
    assert_eq!(noted(&store), ["dropped"]);
}

#[test]
fn a_read_sees_one_snapshot() {
    let Opened { store, folder: _folder, .. } = open();
    let (looked, written) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (here, there) = (Arc::clone(&looked), Arc::clone(&written));
    let reading = store.read(move |read| {
        let count = || read.query_row("SELECT count(*) - 1 FROM meta", [], |row| row.get::<_, i64>(0));
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
    let Opened { store, folder: _folder, .. } = open();
    let delete = |read: &ReadTx<'_>| Ok(read.execute("DELETE FROM meta", [])?);
    assert!(matches!(store.read(delete).wait(), Err(Error::Storage(_))));
    assert!(matches!(store.read_blocking(delete), Err(Error::Storage(_))));
}

#[test]
fn a_short_read_does_not_wait_for_long_lists() {
    let Opened { store, folder: _folder, .. } = open();
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
    let Opened { store, notified, folder } = open();
    store.write(|tx| note(tx, "kept")).wait().unwrap();
    drop(store);
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(files, ["cued.db"]);
    assert_eq!(noted(&open_at(&folder.path().join("cued.db"), &notified)), ["kept"]);
}

#[test]
fn an_action_runs_after_the_commit_of_its_write_and_never_after_a_failure() {
    let Opened { store, folder, .. } = open();
    let db = folder.path().join("cued.db");
    let seen = Arc::new(AtomicUsize::new(0));
    let write = |fails: bool| {
        let (db, count) = (db.clone(), Arc::clone(&seen));
        let written = store.write(move |tx| {
            note(tx, "a")?;
            tx.on_commit(move || {
                let other = rusqlite::Connection::open(&db).unwrap();
                let rows =
                    other.query_row("SELECT count(*) FROM meta WHERE name = 'a'", [], |row| row.get(0));
                count.fetch_add(usize::from(rows.unwrap_or(0_u16)), Ordering::SeqCst);
            });
            if fails { Err(Error::refused(ErrorCode::CueNotFound, "no")) } else { Ok(()) }
        });
        (written.wait().is_ok(), seen.load(Ordering::SeqCst))
    };
    assert_eq!(write(true), (false, 0));
    assert_eq!(write(false), (true, 1), "another connection sees the row before the caller is answered");
}

#[test]
fn an_action_after_a_commit_that_panics_harms_nobody() {
    let Opened { store, folder: _folder, .. } = open();
    let written = store.write(|tx| {
        tx.on_commit(|| panic!("on purpose"));
        note(tx, "a")
    });
    written.wait().unwrap();
    store.write(|tx| note(tx, "b")).wait().unwrap();
    assert_eq!(noted(&store), ["a", "b"]);
}
