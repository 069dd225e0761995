//! What all accounts together may hold: threads at receivers that hang, and memory of large payloads.

use cued::engine::delivery::dispatcher::{Dispatcher, DispatcherMode, FinishedAttempt};
use cued::engine::delivery::fair_share::FairShare;
use cued::engine::delivery::memory_budget::MAX_BYTES;
use cued::store::executions::delivery_queue::ClaimedDelivery;
use cued::store::fair_queue::Grant;

use crate::support::delivery_fixture::{DeliveryFixture, RecordingClient};

const THREADS: usize = 64;

/// Passes until nothing more is claimed. No attempt ends.
fn claim_all(fixture: &DeliveryFixture, dispatcher: &mut Dispatcher) -> Vec<ClaimedDelivery> {
    let mut claimed = Vec::new();
    loop {
        let batch = fixture.claim_deliveries(dispatcher);
        if batch.is_empty() {
            return claimed;
        }
        claimed.extend(batch);
    }
}

/// Each of these accounts has ten executions ready, at ten hosts.
fn due_at_ten_hosts(fixture: &DeliveryFixture, users: std::ops::Range<i64>) {
    for user in users {
        for host in 0..10 {
            fixture.due(fixture.webhook_cue_of(user, &format!("https://hang{host}.example/")));
        }
    }
}

fn timed_out(claimed: &[ClaimedDelivery], fixture: &DeliveryFixture) -> Vec<FinishedAttempt> {
    let end = |claimed| FinishedAttempt {
        timed_out: true,
        ..fixture.attempt(&RecordingClient::default(), claimed)
    };
    claimed.iter().map(end).collect()
}

#[test]
fn accounts_whose_hosts_hang_in_waves_leave_threads_for_a_new_one() {
    let fixture = DeliveryFixture::new(THREADS);
    let mut dispatcher = Dispatcher::new(THREADS);
    due_at_ten_hosts(&fixture, 10..16);
    let mut claimed = claim_all(&fixture, &mut dispatcher);
    due_at_ten_hosts(&fixture, 16..32);
    claimed.append(&mut claim_all(&fixture, &mut dispatcher));
    let victim = fixture.due(fixture.webhook_cue("https://quick.example/"));
    let of_victim = fixture.claim_deliveries(&mut dispatcher);
    assert_eq!(of_victim.iter().map(|it| it.attempt_ref.id).collect::<Vec<_>>(), [victim]);

    // After their time-outs the same accounts have less.
    let mut finished = timed_out(&claimed, &fixture);
    finished.push(fixture.attempt(&RecordingClient::default(), &of_victim[0]));
    let mut again = dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap();
    again.append(&mut claim_all(&fixture, &mut dispatcher));
    assert!(again.len() <= THREADS / 4, "{}", again.len());
}

#[test]
fn any_number_of_accounts_whose_hosts_hang_leaves_a_quarter_to_those_with_a_good_record() {
    let mut slots = FairShare::new(THREADS);
    assert_eq!(slots.try_acquire(1, 1), Grant::Granted);
    slots.release(1, 1, false);
    slots.forget_idle();
    let hang = |slots: &mut FairShare, users: std::ops::Range<i64>| {
        let mut held = Vec::new();
        for user in users {
            let new = (0..10).filter(|it| slots.try_acquire(user, *it) == Grant::Granted);
            held.extend(new.map(|destination| (user, destination)));
        }
        held
    };
    let held = hang(&mut slots, 100..300);
    assert_eq!(held.len(), 48, "a new account for each thread but a few");
    assert_eq!(slots.try_acquire(2, 1), Grant::AccountBusy, "one without a record");
    assert_eq!(slots.try_acquire(1, 2), Grant::Granted, "a new host of one with a good record");
    slots.release(1, 2, false);

    for (user, destination) in held {
        slots.release(user, destination, true);
    }
    slots.forget_idle();
    let held = hang(&mut slots, 100..140);
    assert_eq!(held.len(), 16, "accounts whose hosts have hung before");
    assert_eq!(slots.try_acquire(2, 1), Grant::Granted, "one without a record");
    for (user, destination) in held {
        slots.release(user, destination, false);
        slots.forget_idle();
    }
    slots.release(2, 1, false);
    assert_eq!((slots.in_use(), hang(&mut slots, 500..501).len()), (0, 8), "nothing is left behind");
}

#[test]
fn an_account_whose_host_timed_out_once_gets_a_thread_beside_those_that_hold_several() {
    let mut slots = FairShare::new(THREADS);
    assert_eq!(slots.try_acquire(1, 1), Grant::Granted);
    slots.release(1, 1, true);
    let held = (2..4).flat_map(|user| (0..10).map(move |destination| (user, destination)));
    assert_eq!(held.filter(|(user, it)| slots.try_acquire(*user, *it) == Grant::Granted).count(), 10);
    assert_eq!(slots.try_acquire(1, 1), Grant::Granted);
}

/// A webhook cue with a payload of 3 MB, as it is stored and sent.
fn large_cue(fixture: &DeliveryFixture, user_key: i64, url: &str) -> i64 {
    let cue = fixture.webhook_cue_of(user_key, url);
    fixture.sql(&format!(
        "INSERT INTO payloads (cue_key, is_single_use, body) VALUES ({cue}, 0, hex(zeroblob(1500000)));
         UPDATE cues SET payload_key = last_insert_rowid() WHERE key = {cue}"
    ));
    cue
}

#[test]
fn large_payloads_under_way_are_bounded_and_hold_up_no_small_one() {
    let fixture = DeliveryFixture::new(THREADS);
    for user in 2..10 {
        let cue = large_cue(&fixture, user, &format!("https://{user}.example/"));
        fixture.due_times(cue, 4);
    }
    let mut dispatcher = Dispatcher::new(THREADS);
    let claimed = claim_all(&fixture, &mut dispatcher);
    assert_eq!(claimed.len(), 2, "the half of the memory that accounts without a record share");
    let small = fixture.due(fixture.webhook_cue("https://small.example/"));
    let mut finished: Vec<_> = claim_all(&fixture, &mut dispatcher)
        .iter()
        .map(|claimed| fixture.attempt(&RecordingClient::default(), claimed))
        .collect();
    assert_eq!(finished.iter().map(|it| it.claimed.attempt_ref.id).collect::<Vec<_>>(), [small]);

    let webhook_client = RecordingClient::default();
    finished.extend(claimed.iter().map(|claimed| fixture.attempt(&webhook_client, claimed)));
    while !finished.is_empty() {
        let claimed = dispatcher.run_once(&fixture.app, finished, DispatcherMode::Running).unwrap();
        assert!(claimed.iter().map(|it| it.bytes).sum::<usize>() <= MAX_BYTES);
        finished = claimed.iter().map(|claimed| fixture.attempt(&webhook_client, claimed)).collect();
    }
    let bodies: Vec<_> = webhook_client.requests().into_iter().map(|it| it.body.unwrap().len()).collect();
    assert_eq!(bodies, [3_000_000; 32]);
    assert_eq!(dispatcher.unfinished(), 0);
}

#[test]
fn an_account_that_is_forgotten_is_forgotten_with_its_hosts() {
    let mut slots = FairShare::new(THREADS);
    let attempt = |slots: &mut FairShare, user: i64, destination: i64, timed_out: bool| {
        assert_eq!(slots.try_acquire(user, destination), Grant::Granted);
        slots.release(user, destination, timed_out);
        slots.forget_idle();
    };
    attempt(&mut slots, 1, 1, true);
    attempt(&mut slots, 1, 1, false);
    (0..3).for_each(|_| attempt(&mut slots, 1, 2, false));
    (2..600).for_each(|user| attempt(&mut slots, user, 1, false));
    // Its good record at this host is gone as well: it does not count as lost now.
    attempt(&mut slots, 1, 1, true);
    assert_eq!(slots.in_use(), 0);
}
