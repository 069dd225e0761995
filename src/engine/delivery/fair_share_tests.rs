//! Limits of threads and of attempts ahead, for accounts and destinations.

use super::*;

fn acquire_all(slots: &mut FairShare, user_key: i64, destination: i64) -> usize {
    std::iter::repeat_with(|| slots.try_acquire(user_key, destination))
        .take_while(|grant| *grant == Grant::Granted)
        .count()
}

/// The threads that new destinations from `first` on of an account get, one each.
fn acquire_each(slots: &mut FairShare, user_key: i64, first: i64) -> usize {
    (first..).take_while(|it| slots.try_acquire(user_key, *it) == Grant::Granted).count()
}

/// Lets `destination` and its account earn their full limits.
fn trusted(slots: &mut FairShare, user_key: i64, destination: i64) {
    for _ in 0..64 {
        assert_eq!(slots.try_acquire(user_key, destination), Grant::Granted);
        slots.release(user_key, destination, false);
    }
}

fn release_all(slots: &mut FairShare, user_key: i64, destinations: std::ops::Range<i64>, timed_out: bool) {
    destinations.for_each(|destination| slots.release(user_key, destination, timed_out));
}

#[test]
fn a_destination_starts_with_few_threads_and_earns_up_to_its_accounts_share() {
    let mut slots = FairShare::new(64);
    assert_eq!(acquire_all(&mut slots, 1, 1), 4);
    for _ in 0..4 {
        slots.release(1, 1, false);
    }
    assert_eq!(acquire_all(&mut slots, 1, 1), 8);
    for _ in 0..8 {
        slots.release(1, 1, false);
    }
    trusted(&mut slots, 1, 1);
    assert_eq!(acquire_all(&mut slots, 1, 1), 28);
    assert_eq!(acquire_each(&mut slots, 1, 2), 4, "the account's other destinations");
    assert_eq!(slots.try_acquire(1, 99), Grant::AccountBusy);
}

#[test]
fn a_destination_that_timed_out_gets_one_thread_until_an_attempt_ends_in_time() {
    let mut slots = FairShare::new(64);
    assert_eq!(acquire_all(&mut slots, 1, 1), 4);
    for _ in 0..4 {
        slots.release(1, 1, true);
    }
    slots.forget_idle();
    assert_eq!(acquire_all(&mut slots, 1, 1), 1);
    slots.release(1, 1, false);
    slots.forget_idle();
    assert_eq!(acquire_all(&mut slots, 1, 1), 2);
}

#[test]
fn busy_accounts_that_stall_leave_a_quarter_of_the_threads_to_others() {
    let mut slots = FairShare::new(64);
    (1..=4).for_each(|user| trusted(&mut slots, user, 0));
    let held: Vec<_> =
        (1..=4).map(|user| acquire_all(&mut slots, user, 0) + acquire_each(&mut slots, user, 1)).collect();
    assert_eq!(held, [32, 16, 1, 1]);
    let newcomers = (100..).take_while(|user| slots.try_acquire(*user, 0) == Grant::Granted).count();
    assert_eq!(newcomers, 64 - 50);
    assert_eq!(slots.free(), 0);
}

#[test]
fn an_account_whose_hosts_hang_holds_few_threads_whether_it_names_old_or_new_ones() {
    let mut slots = FairShare::new(64);
    assert_eq!(acquire_each(&mut slots, 1, 0), 8, "new hosts of a new account");
    release_all(&mut slots, 1, 0..8, true);
    slots.forget_idle();
    assert_eq!(acquire_each(&mut slots, 1, 0), 4, "hosts that are known to hang");
    assert_eq!(acquire_each(&mut slots, 1, 100), 1, "new ones");
    release_all(&mut slots, 1, 0..4, true);
    slots.release(1, 100, true);
    slots.forget_idle();
    trusted(&mut slots, 1, 200);
    assert_eq!(acquire_all(&mut slots, 1, 200), 28, "a host that answers is not affected");
}

#[test]
fn one_dead_host_among_many_does_not_narrow_its_account() {
    let mut slots = FairShare::new(64);
    trusted(&mut slots, 1, 1);
    for _ in 0..100 {
        assert_eq!(slots.try_acquire(1, 666), Grant::Granted);
        slots.release(1, 666, true);
    }
    slots.forget_idle();
    assert_eq!(acquire_each(&mut slots, 1, 1_000), 32);
}

#[test]
fn an_account_does_not_change_the_limits_of_another_at_the_same_host() {
    let mut slots = FairShare::new(64);
    assert_eq!(acquire_all(&mut slots, 1, 1), 4);
    for _ in 0..4 {
        slots.release(1, 1, true);
    }
    assert_eq!(acquire_all(&mut slots, 2, 1), 4);
}

#[test]
fn two_threads_are_shared() {
    let mut slots = FairShare::new(2);
    assert_eq!(acquire_all(&mut slots, 1, 1), 1);
    assert_eq!(acquire_all(&mut slots, 2, 1), 1);
    assert_eq!(FairShare::new(0).try_acquire(1, 1), Grant::Granted);
}

#[test]
fn idle_accounts_and_destinations_are_kept_up_to_a_bound() {
    let mut slots = FairShare::new(64);
    for user in 0..5_000 {
        for destination in 0..2 {
            assert_eq!(slots.try_acquire(user, destination), Grant::Granted);
            slots.release(user, destination, destination == 0 || user % 2 == 0);
            slots.forget_idle();
        }
    }
    assert!(slots.destinations.len() <= MAX_REMEMBERED + 1, "{}", slots.destinations.len());
    assert!(slots.accounts.len() <= MAX_REMEMBERED + 1, "{}", slots.accounts.len());
    assert_eq!(slots.in_use(), 0);
}

/// An attempt of this duration that ended in time.
fn end(slots: &mut FairShare, user_key: i64, destination: i64, milliseconds: u64) {
    slots.release(user_key, destination, false);
    slots.count_pace(user_key, destination, Duration::from_millis(milliseconds));
}

/// Lets `destination` and its account earn their full limits with quick attempts.
fn quick(slots: &mut FairShare, user_key: i64, destination: i64) {
    for _ in 0..64 {
        assert_eq!(slots.try_acquire(user_key, destination), Grant::Granted);
        end(slots, user_key, destination, 1);
    }
}

/// A pass of the dispatcher in which all these have more executions ready: one of each in turn, a thread or an attempt
/// ahead. Returns the number that each has got.
fn pass(slots: &mut FairShare, all: &[(i64, i64)]) -> Vec<usize> {
    slots.begin_pass();
    let (mut got, mut busy) = (vec![0; all.len()], vec![false; all.len()]);
    while busy.contains(&false) {
        for (number, (user, destination)) in
            all.iter().enumerate().filter(|(number, _)| !busy[*number]).collect::<Vec<_>>()
        {
            let grant = slots.grant(*user, *destination);
            if grant == Grant::Granted {
                slots.acquire(*user, *destination);
            } else if slots.grant_ahead(*user, *destination, grant) == Grant::Granted {
                slots.acquire_ahead(*user, *destination);
            } else {
                busy[number] = true;
                continue;
            }
            got[number] += 1;
        }
    }
    got
}

#[test]
fn a_destination_that_answers_quickly_has_attempts_ahead_that_take_no_thread() {
    let mut slots = FairShare::new(64);
    assert_eq!(pass(&mut slots, &[(1, 1)]), [4], "none before its first result");
    end(&mut slots, 1, 1, 1);
    end(&mut slots, 1, 1, 1);
    assert_eq!(pass(&mut slots, &[(1, 1)]), [6], "four threads of six, and two ahead");
    assert_eq!((slots.in_use(), slots.ahead()), (6, 2));
    (0..8).for_each(|_| end(&mut slots, 1, 1, 1));
    assert_eq!((slots.in_use(), slots.ahead()), (0, 0));
    quick(&mut slots, 1, 1);
    pass(&mut slots, &[(1, 1)]);
    assert_eq!((slots.in_use(), slots.ahead()), (28, 74), "one for each quick attempt");
    assert_eq!(slots.free(), 36, "the threads of others");
}

#[test]
fn an_attempt_ahead_follows_on_the_thread_of_the_one_that_ended() {
    let mut slots = FairShare::new(64);
    quick(&mut slots, 1, 1);
    pass(&mut slots, &[(1, 1)]);
    for left in (0..64).rev() {
        end(&mut slots, 1, 1, 1);
        assert_eq!((slots.threads_of(1, 1), slots.ahead()), (28, left));
    }
    end(&mut slots, 1, 1, 1);
    assert_eq!((slots.threads_of(1, 1), slots.ahead()), (27, 0));
}

#[test]
fn a_destination_that_is_slow_or_hangs_or_gives_back_has_none_ahead() {
    let mut slots = FairShare::new(64);
    for change in [
        (|slots: &mut FairShare| end(slots, 1, 1, 51)) as fn(&mut FairShare),
        |slots| slots.release(1, 1, true),
        |slots| slots.give_back(1, 1),
    ] {
        quick(&mut slots, 1, 1);
        pass(&mut slots, &[(1, 1)]);
        change(&mut slots);
        while slots.ahead() > 0 {
            slots.give_back(1, 1);
        }
        pass(&mut slots, &[(1, 1)]);
        assert_eq!(slots.ahead(), 0);
        (0..slots.in_use()).for_each(|_| slots.give_back(1, 1));
        assert_eq!((slots.in_use(), slots.ahead()), (0, 0));
    }
}

#[test]
fn an_account_keeps_no_thread_by_attempts_ahead_that_another_one_would_get() {
    let mut slots = FairShare::new(64);
    (1..=2).for_each(|user| quick(&mut slots, user, 1));
    pass(&mut slots, &[(1, 1)]);
    assert_eq!(slots.try_acquire(2, 1), Grant::Granted, "at once");
    let both = [(1, 1), (2, 1)];
    for _ in 0..20 {
        pass(&mut slots, &both);
        for (user, destination) in both {
            (0..slots.threads_of(user, destination)).for_each(|_| end(&mut slots, user, destination, 1));
        }
    }
    pass(&mut slots, &both);
    let held = both.map(|(user, destination)| slots.threads_of(user, destination));
    assert!(held[0].abs_diff(held[1]) <= 4 && held[0] >= 16, "{held:?}");
    assert!(slots.ahead() >= 30, "both go ahead again: {}", slots.ahead());
}

#[test]
fn a_destination_keeps_no_thread_by_attempts_ahead_that_another_one_needs() {
    let mut slots = FairShare::new(64);
    quick(&mut slots, 1, 1);
    quick(&mut slots, 1, 2);
    pass(&mut slots, &[(1, 1)]);
    assert_eq!(slots.threads_of(1, 1), 28);
    let both = [(1, 1), (1, 2)];
    for _ in 0..20 {
        pass(&mut slots, &both);
        // The second one has threads for longer.
        (0..slots.threads_of(1, 1)).for_each(|_| end(&mut slots, 1, 1, 1));
        (0..slots.threads_of(1, 2) / 2).for_each(|_| end(&mut slots, 1, 2, 1));
    }
    pass(&mut slots, &both);
    let held = both.map(|(user, destination)| slots.threads_of(user, destination));
    assert!(held[1] >= 12, "{held:?}");
    assert!(slots.ahead() > 0);
}

#[test]
fn all_attempts_ahead_are_no_more_than_twice_the_threads() {
    let mut slots = FairShare::new(64);
    let all: Vec<_> = (1..=8).map(|user| (user, 1)).collect();
    all.iter().for_each(|(user, _)| quick(&mut slots, *user, 1));
    pass(&mut slots, &all);
    assert!(slots.ahead() <= 128, "{}", slots.ahead());
    assert_eq!(slots.claimable(), slots.free(), "nobody goes ahead while the reserved quarter is in use");
}
