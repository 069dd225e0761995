//! What deliveries survive: crashes, disks that fail, rows that cannot be read, cues that go away meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use cued::engine::delivery::delivery_service::requeue_interrupted;
use cued::engine::delivery::dispatcher::{Dispatcher, DispatcherMode};
use cued::error::Error;
use cued::store::cues::cue_deletion;

use crate::support::delivery_fixture::{Recorder, World, answer};

const URL: &str = "https://example.com/hook";

#[test]
fn an_interrupted_delivery_repeats_with_the_same_attempt_number() {
    let world = World::new(8);
    let cue = world.cue(URL);
    let (first, second) = (world.run(cue), world.run(cue));
    let key: i64 = world.field(second, "key");
    world.sql(&format!("UPDATE executions SET attempts = 2, started_at = 5 WHERE key = {key}"));
    let taken = world.take(&mut Dispatcher::new(64));
    assert_eq!(taken.len(), 2);
    assert_eq!(world.state(first), ("delivering".to_owned(), 1));
    assert!(world.take(&mut Dispatcher::new(64)).is_empty(), "never two attempts at once");

    let world = world.restart();
    assert_eq!(requeue_interrupted(&world.app).unwrap(), 2);
    assert_eq!(world.state(first), ("pending".to_owned(), 0));
    assert_eq!(world.field::<Option<i64>>(first, "started_at"), None);
    assert_eq!(world.state(second), ("retrying".to_owned(), 2));
    assert_eq!(world.field::<Option<i64>>(second, "started_at"), Some(5));
    let webhook_client = Recorder::default();
    assert_eq!(world.deliver(&webhook_client), 2);
    let numbers = [0, 1].map(|parcel| webhook_client.header(parcel, "X-CueAPI-Attempt").unwrap());
    assert_eq!(numbers, ["1", "3"]);
    assert_eq!(world.state(second), ("success".to_owned(), 3));
}

#[test]
fn recovery_keeps_claims_of_workers() {
    let world = World::new(8);
    let cue = world.cue(URL);
    world.sql("UPDATE cues SET transport = 'worker', lane = NULL, callback_url = NULL");
    let id = world.run(cue);
    world.sql("UPDATE executions SET status = 'delivering', queue = NULL, attempts = 1, last_attempt_at = 1");
    assert_eq!(requeue_interrupted(&world.app).unwrap(), 0);
    assert_eq!(world.state(id), ("delivering".to_owned(), 1));
}

#[test]
fn the_result_of_a_deleted_cue_is_dropped_even_if_its_row_id_is_reused() {
    let world = World::new(8);
    world.run(world.cue(URL));
    let mut dispatcher = Dispatcher::new(64);
    let webhook_client = Recorder::told([answer(500)]);
    let returned = world.carry(&webhook_client, &world.take(&mut dispatcher)[0]);
    assert!(world.write(|tx| cue_deletion::remove(tx, 1, "cue_100000000000").unwrap()));
    let other = world.run(world.cue("https://example.org/"));
    assert_eq!(world.field::<i64>(other, "key"), returned.ended.ticket.key, "SQLite gives the key again");
    let mut elsewhere = Dispatcher::new(64);
    assert_eq!(world.take(&mut elsewhere).len(), 1);

    dispatcher.run_once(&world.app, vec![returned], DispatcherMode::Draining).unwrap();
    assert_eq!(world.state(other), ("delivering".to_owned(), 1));
    assert_eq!(world.app.engine_stats.delivered(), 1, "counted all the same: it has ended");
    assert_eq!(dispatcher.unfinished(), 0);
}

#[test]
fn an_unstored_result_is_kept_and_nothing_is_claimed_meanwhile() {
    let world = World::new(8);
    let cue = world.cue(URL);
    let id = world.run(cue);
    let mut dispatcher = Dispatcher::new(64);
    let returned = world.carry(&Recorder::default(), &world.take(&mut dispatcher)[0]);
    let later = world.run(cue);

    let fails = world.refuse_commits();
    let refused = dispatcher.run_once(&world.app, vec![returned], DispatcherMode::Running);
    assert!(matches!(refused, Err(Error::Storage(_))));
    assert!(dispatcher.run_once(&world.app, Vec::new(), DispatcherMode::Running).is_err());
    assert_eq!((dispatcher.unfinished(), world.app.engine_stats.delivered()), (1, 0));

    fails.store(false, Ordering::SeqCst);
    assert_eq!(world.state(later), ("pending".to_owned(), 0), "nothing was taken");
    let taken = dispatcher.run_once(&world.app, Vec::new(), DispatcherMode::Running).unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(world.state(id), ("success".to_owned(), 1));
    assert_eq!(world.app.engine_stats.delivered(), 1);
}

#[test]
fn an_unrecordable_result_does_not_block_the_others() {
    let world = World::new(8);
    let cue = world.cue(URL);
    let ids = [world.run(cue), world.run(cue), world.run(cue)];
    let poisoned: i64 = world.field(ids[1], "key");
    world.sql(&format!(
        "CREATE TRIGGER poison BEFORE UPDATE ON executions WHEN new.key = {poisoned} AND new.status = 'success'
         BEGIN SELECT raise(ABORT, 'poison'); END"
    ));
    let mut dispatcher = Dispatcher::new(64);
    let taken = world.take(&mut dispatcher);
    let returned = taken.iter().map(|taken| world.carry(&Recorder::default(), taken)).collect();
    assert!(matches!(
        dispatcher.run_once(&world.app, returned, DispatcherMode::Running),
        Err(Error::Fault(_))
    ));
    assert_eq!(dispatcher.unfinished(), 0);
    assert_eq!(ids.map(|id| world.state(id).0), ["success", "delivering", "success"]);
}

#[test]
fn an_unreadable_row_fails_alone() {
    let world = World::new(8);
    let (broken, sound) = (world.cue(URL), world.cue(URL));
    world.sql("UPDATE cues SET callback_headers = 'nonsense' WHERE key = 1");
    let (broken, sound) = (world.run(broken), world.run(sound));
    assert_eq!(world.deliver(&Recorder::default()), 2);
    assert_eq!(world.state(broken).0, "failed");
    assert!(world.field::<String>(broken, "error_message").starts_with("The delivery cannot be made"));
    assert_eq!(world.state(sound).0, "success");
}

#[test]
fn a_pass_without_work_waits_for_no_write() {
    let world = World::new(8);
    let (release, hold) = channel::<()>();
    let held = world.app.store.write(move |_| Ok(hold.recv().is_ok()));
    let (done, ended) = channel();
    let app = Arc::clone(&world.app);
    std::thread::spawn(move || {
        done.send(Dispatcher::new(8).run_once(&app, Vec::new(), DispatcherMode::Running).unwrap().len())
    });
    let taken = ended.recv_timeout(Duration::from_secs(10));
    release.send(()).unwrap();
    assert!(held.wait().unwrap());
    assert_eq!(taken, Ok(0));
}
