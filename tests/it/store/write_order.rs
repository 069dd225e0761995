//! The order of waiting writes and the size of a batch: the engine first, callers in turns, and nobody for ever last.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use cued::domain::account::credentials::Email;
use cued::error::Result;
use cued::service::accounts;
use cued::store::{Pending, Store};
use jiff::Timestamp;

fn open() -> (Store, tempfile::TempDir) {
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
fn hold_the_writer(store: &Store) -> Arc<Barrier> {
    let (begun, go_on) = holding(store);
    begun.wait();
    go_on
}

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
    let (store, _folder) = open();
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
    let (store, _folder) = open();
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
    let (store, _folder) = open();
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
    let (store, _folder) = open();
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
    let (store, _folder) = open();
    let count = Arc::default();
    let go_on = hold_the_writer(&store);
    let busy: Vec<_> = (0..500).map(|_| store.write_for(1, counted(&count))).collect();
    let other = store.write_for(2, counted(&count));
    let nobody = store.write(counted(&count));
    go_on.wait();
    assert_eq!((other.wait().unwrap(), nobody.wait().unwrap()), (1, 2), "after one write of the busy user");
    let busy = wait_all(busy);
    assert!(busy.is_sorted(), "{busy:?}");
}

#[test]
fn users_take_turns_when_they_change_their_keys() {
    let (store, _folder) = open();
    let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    for name in ["ann", "bob"] {
        let email = Email::parse(&format!("{name}@example.com")).unwrap();
        accounts::add_user(&store, email, "free", now).unwrap().wait().unwrap();
    }
    let go_on = hold_the_writer(&store);
    let create = |user| accounts::create_key(&store, user, "key".to_owned(), None, now).unwrap();
    let mut writes: Vec<_> = (0..50).map(|_| create(1)).collect();
    writes.push(create(2));
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
