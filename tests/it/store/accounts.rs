//! Accounts on a real file without HTTP: registration, keys, monthly usage.

use std::thread;

use cued::domain::account::credentials::{ApiKey, Email};
use cued::domain::account::plan::Plans;
use cued::domain::account::user::{Caller, Credential, RegistrationPolicy};
use cued::domain::api_error::ErrorCode;
use cued::error::{Error, Result};
use cued::service::accounts::{self as actions, NewAccount};
use cued::store::accounts::api_keys;
use cued::store::accounts::api_keys::Owner;
use cued::store::accounts::{usage, users};

use crate::support::fixture::Fixture;

fn register(fixture: &Fixture, email: &str, registration: RegistrationPolicy) -> Result<NewAccount> {
    let email = Email::parse(email).unwrap();
    actions::register(&fixture.app.store, email, "free", registration, fixture.now())?.wait()
}

/// The owner of `key`, as the middleware finds it.
fn caller(fixture: &Fixture, key: &ApiKey) -> Option<Caller> {
    let (key_hash, now) = (key.hash(), fixture.now());
    let found =
        fixture.app.store.read(move |read| api_keys::find_owner(read, &key_hash, now)).wait().unwrap();
    found.map(|Owner { key, user_key, user_id, plan, executions }| {
        let limits = Plans::default().limits(&plan);
        let credential = Credential::ApiKey { key, hash: key_hash };
        Caller { user_key, user_id, credential, plan, limits, executions }
    })
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, code: ErrorCode) {
    match result {
        Err(Error::Refused(refusal)) => assert_eq!(refusal.code, code),
        other => panic!("{other:?} is no {code:?}"),
    }
}

#[test]
fn of_many_concurrent_first_users_exactly_one_registers() {
    let fixture = Fixture::new();
    let results: Vec<Result<NewAccount>> = thread::scope(|scope| {
        let racers: Vec<_> = (0..32)
            .map(|number| {
                let fixture = &fixture;
                scope.spawn(move || {
                    register(fixture, &format!("u{number}@x.com"), RegistrationPolicy::FirstUser)
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    let (inside, outside): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!(inside.len(), 1);
    outside.into_iter().for_each(|result| refused(result, ErrorCode::RegistrationDisabled));
    let users = fixture.app.store.read(users::list).wait().unwrap();
    assert_eq!(users.len(), 1, "no other user is left");
}

#[test]
fn an_address_is_registered_once_in_any_spelling() {
    let fixture = Fixture::new();
    let first = register(&fixture, "Ann@Example.com ", RegistrationPolicy::Open).unwrap();
    assert_eq!(first.email, "ann@example.com");
    refused(register(&fixture, "ann@EXAMPLE.com", RegistrationPolicy::Open), ErrorCode::DuplicateEmail);
    refused(
        register(&fixture, "bob@example.com", RegistrationPolicy::Closed),
        ErrorCode::RegistrationDisabled,
    );
    let listed = fixture.app.store.read(|read| api_keys::list(read, 1)).wait().unwrap();
    assert_eq!(listed.len(), 1, "refused registrations leave no key");
}

#[test]
fn a_replaced_key_is_unknown_and_the_new_one_is_known() {
    let fixture = Fixture::new();
    let old = register(&fixture, "ann@example.com", RegistrationPolicy::Open).unwrap().api_key;
    let calling = caller(&fixture, &old).unwrap();
    let before = fixture.app.store.read(|read| api_keys::list(read, 1)).wait().unwrap().remove(0);
    fixture.advance(60);
    let new = actions::regenerate_key(&fixture.app, &calling).unwrap().wait().unwrap();
    assert_eq!(caller(&fixture, &old), None);
    assert_eq!(caller(&fixture, &new).unwrap().user_key, calling.user_key);
    let after = fixture.app.store.read(|read| api_keys::list(read, 1)).wait().unwrap();
    assert_eq!(after.len(), 1);
    assert_eq!(after[0].name, before.name);
    assert_eq!((after[0].prefix.as_str(), after[0].created_at), (new.prefix(), fixture.now()));
    assert_ne!(after[0].id, before.id);
}

#[test]
fn concurrent_regenerations_replace_a_key_once() {
    let fixture = Fixture::new();
    let old = register(&fixture, "ann@example.com", RegistrationPolicy::Open).unwrap().api_key;
    let calling = caller(&fixture, &old).unwrap();
    let first = actions::regenerate_key(&fixture.app, &calling).unwrap().wait().unwrap();
    refused(actions::regenerate_key(&fixture.app, &calling).unwrap().wait(), ErrorCode::InvalidApiKey);
    assert!(caller(&fixture, &first).is_some(), "the returned key is the valid one");
}

#[test]
fn regenerating_with_a_just_revoked_key_replaces_no_other_key() {
    let fixture = Fixture::new();
    let (ann, bob) = (
        register(&fixture, "ann@example.com", RegistrationPolicy::Open).unwrap(),
        register(&fixture, "bob@example.com", RegistrationPolicy::Open).unwrap(),
    );
    let (ann, bob) = (caller(&fixture, &ann.api_key).unwrap(), caller(&fixture, &bob.api_key).unwrap());
    let make = |user_key, name: &str| {
        let made = actions::create_key(&fixture.app.store, user_key, name.to_owned(), None, fixture.now());
        made.unwrap().wait().unwrap()
    };
    let lost = make(ann.user_key, "laptop");
    let calling = caller(&fixture, &lost.api_key).unwrap();
    actions::revoke_key(&fixture.app.store, ann.user_key, lost.id).wait().unwrap();
    let bobs = make(bob.user_key, "server");
    let row = caller(&fixture, &bobs.api_key).unwrap().credential.api_key();
    assert_eq!(row, calling.credential.api_key(), "the row is used again");
    refused(actions::regenerate_key(&fixture.app, &calling).unwrap().wait(), ErrorCode::InvalidApiKey);
    assert!(caller(&fixture, &bobs.api_key).is_some());
}

#[test]
fn a_user_revokes_only_own_keys_and_never_the_last_one() {
    let fixture = Fixture::new();
    register(&fixture, "ann@example.com", RegistrationPolicy::Open).unwrap();
    register(&fixture, "bob@example.com", RegistrationPolicy::Open).unwrap();
    let keys_of = |user: i64| fixture.app.store.read(move |read| api_keys::list(read, user)).wait().unwrap();
    let revoke = |user, id: &str| actions::revoke_key(&fixture.app.store, user, id.to_owned()).wait();
    let bobs = keys_of(2).remove(0).id;
    refused(revoke(1, &bobs), ErrorCode::KeyNotFound);
    refused(revoke(1, "none"), ErrorCode::KeyNotFound);
    refused(revoke(2, &bobs), ErrorCode::LastKey);
    assert_eq!(keys_of(2).len(), 1, "the last key is still there");
}

#[test]
fn a_disabled_users_keys_are_unknown_and_its_cues_pause() {
    let fixture = Fixture::new();
    let ann = register(&fixture, "ann@example.com", RegistrationPolicy::Open).unwrap();
    let (cue, others) = (fixture.worker_cue(1, |_| ()), fixture.worker_cue(fixture.user("bob"), |_| ()));
    let now = fixture.now();
    fixture.app.store.write(move |tx| actions::disable(tx, 1, now)).wait().unwrap();
    assert_eq!(caller(&fixture, &ann.api_key), None);
    let (cue, others) = (fixture.cue(cue.key), fixture.cue(others.key));
    assert_eq!((cue.status.as_str(), cue.next_run), ("paused", None));
    assert_eq!(others.status.as_str(), "active");
    let user = fixture.app.store.read(|read| users::find(read, 1)).wait().unwrap().unwrap();
    assert_eq!((user.disabled_at, user.active_cues), (Some(now), 0));
}

#[test]
fn executions_are_counted_by_utc_month_and_user() {
    let fixture = Fixture::new();
    let (ann, bob) = (fixture.user("ann"), fixture.user("bob"));
    let count = |user, executions| {
        let now = fixture.now();
        let counted = fixture.app.store.write(move |tx| {
            let mut quota = usage::quota(tx, &Plans::default(), user, now)?.unwrap();
            (0..executions).for_each(|_| assert!(quota.try_use(now)));
            usage::save_quota(tx, user, &quota, now)
        });
        counted.wait().unwrap();
    };
    let counted = |user| {
        let now = fixture.now();
        fixture.app.store.read(move |read| usage::find(read, user, now)).wait().unwrap().executions
    };
    count(ann, 2);
    count(ann, 3);
    count(bob, 7);
    assert_eq!((counted(ann), counted(bob)), (5, 7));
    fixture.app.clock.set("2026-01-31T23:59:59.999Z".parse().unwrap());
    assert_eq!(counted(ann), 5);
    fixture.app.clock.set("2026-02-01T00:00:00Z".parse().unwrap());
    assert_eq!(counted(ann), 0);
    count(ann, 1);
    assert_eq!(counted(ann), 1);
}
