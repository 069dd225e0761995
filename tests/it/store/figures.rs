//! The table of hours: its clean-up, and its place in the commit of a result.

use cued::domain::account::figures::{KEPT_FOR, hour_of};
use cued::engine::scheduler::reaper::Cleanup;
use jiff::SignedDuration;

use crate::support::fixture::Fixture;

fn count(fixture: &Fixture, filter: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM hours WHERE {filter}");
    fixture.write(move |tx| tx.query_row(&sql, [], |row| row.get(0)).unwrap())
}

#[test]
fn hours_are_deleted_in_batches_when_they_are_older_than_400_days() {
    let fixture = Fixture::new();
    let users = [fixture.user("ada"), fixture.user("bob")];
    let first_kept = hour_of(fixture.now() - KEPT_FOR);
    for user in users {
        fixture.sql(&format!(
            "INSERT INTO hours SELECT {user}, {first_kept} + 10 - value, 1, 0, 0, 0, 0, 0, 0, 0
               FROM (WITH RECURSIVE n (value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 710) SELECT value FROM n)"
        ));
    }
    let mut cleanup = Cleanup::default();
    let mut run = || cleanup.delete_hours(&fixture.app.store, fixture.now()).unwrap();
    assert!(run() && run());
    assert_eq!(count(&fixture, &format!("hour < {first_kept}")), 1_400 - 2 * 500, "two batches");
    while run() {}
    assert_eq!(count(&fixture, "true"), 20);
    assert_eq!(count(&fixture, &format!("hour < {first_kept}")), 0);
    // The next round begins a day later.
    fixture.advance(23 * 3_600);
    assert!(!cleanup.delete_hours(&fixture.app.store, fixture.now()).unwrap());
    let day = SignedDuration::from_hours(1);
    while cleanup.delete_hours(&fixture.app.store, fixture.now() + day).unwrap() {}
    assert_eq!(count(&fixture, "true"), 0, "ten hours have grown too old since");
}
