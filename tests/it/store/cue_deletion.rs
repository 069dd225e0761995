//! Deleting a cue with a long history: invisible at once, removed gradually, through crashes and restarts.

use cued::engine::scheduler::reaper::release_expired_claims;
use cued::engine::scheduler::retention_sweeper::{RetentionSweeper, SweepOutcome};
use cued::error::Error;
use cued::service::executions::{claim, claim_next};
use cued::store::db::counters;
use cued::store::executions;
use cued::store::executions::{claims, execution_list};
use cued::store::maintenance::cue_deletion;
use serde_json::json;

use crate::cli::backups::{BEGIN, fire, insert_history, rows, work};
use crate::support::delivery_fixture;
use crate::support::fixture::Fixture;
use crate::support::random::Random;
use crate::support::server::Server;

/// More than one transaction deletes together with the cue.
const MANY: u32 = 5_000;

#[test]
fn the_rows_of_a_deleted_cue_are_invisible_before_their_deletion() {
    let fixture = Fixture::new();
    let user = fixture.user("u");
    let (other, doomed) = (fixture.worker_cue(user, |_| ()), fixture.worker_cue(user, |_| ()));
    let left = fixture.runs(&doomed, (0..500).map(|n| json!({"task": "t", "n": n})));
    let kept = fixture.run(&other, json!({"task": "t"}));
    let id = doomed.id.clone();
    assert!(fixture.app.store.write(move |tx| cue_deletion::delete(tx, user, &id)).wait().unwrap());

    // The row of the deleted cue was the last: a new cue must not reuse its key and inherit the remaining rows.
    let next = fixture.worker_cue(user, |_| ()).key;
    let look = fixture.app.store.read(move |read| {
        assert_eq!(execution_list::list_by_cue(read, next, 100, 0)?.1, 0);
        let count: i64 = read.query_row("SELECT count(*) FROM executions", [], |row| row.get(0))?;
        assert!(count > 200, "{count} rows are left");
        assert!(executions::find(read, user, left[0])?.is_none());
        let (page, total) =
            execution_list::list(read, user, &execution_list::ExecutionFilter::default(), 100, 0)?;
        assert_eq!((page.len(), total), (1, 1));
        assert_eq!(page[0].execution.id, kept);
        let task = claims::ClaimFilter { task: Some("t".to_owned()), agent: None };
        for filter in [claims::ClaimFilter::default(), task] {
            let claimable = claims::list(read, user, &filter, 100)?;
            assert_eq!(claimable.executions.iter().map(|it| it.id).collect::<Vec<_>>(), [kept]);
        }
        assert_eq!(claims::find_next(read, user, Some("t"))?, Some(kept));
        Ok(left[0])
    });
    let gone = look.wait().unwrap();
    let refused = claim(&fixture.app, user, gone, "w".to_owned()).wait();
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    assert_eq!(claim_next(&fixture.app, user, None, "w".to_owned()).wait().unwrap().id, kept);

    let mut sweeper = RetentionSweeper::default();
    while sweeper.run_once(&fixture.app).unwrap() == SweepOutcome::Again {}
    let left: (i64, i64) = fixture
        .app
        .store
        .read(|read| {
            let count =
                |table| read.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0));
            Ok((count("executions")?, count("deleted_cues")?))
        })
        .wait()
        .unwrap();
    assert_eq!(left, (1, 0));
}

#[test]
fn a_lease_of_a_deleted_cue_is_ignored() {
    let fixture = Fixture::new();
    let user = fixture.user("u");
    let doomed = fixture.worker_cue(user, |_| ());
    let held = fixture.run(&doomed, json!({}));
    claim(&fixture.app, user, held, "w".to_owned()).wait().unwrap();
    fixture.runs(&doomed, (0..500).map(|_| json!({})));
    let id = doomed.id.clone();
    fixture.app.store.write(move |tx| cue_deletion::delete(tx, user, &id)).wait().unwrap();
    fixture.advance(900);
    assert_eq!(release_expired_claims(&fixture.app, fixture.now()).unwrap().released, 0);
    assert_eq!(fixture.app.store.read(claims::next_end).wait().unwrap(), None, "it is looked at once");
    let mut sweeper = RetentionSweeper::default();
    while sweeper.run_once(&fixture.app).unwrap() == SweepOutcome::Again {}
}

#[test]
fn a_cue_with_a_long_history_is_deleted_at_once_with_correct_counters() {
    let server = Server::with_test_clock(BEGIN);
    let user = server.user();
    let (doomed, other) = (work(&user), work(&user));
    fire(&user, &other);
    let mut file = server.sqlite();
    insert_history(&mut file, &doomed, MANY, true, BEGIN);
    insert_history(&mut file, &doomed, MANY, false, BEGIN);
    let path = format!("/v1/cues/{doomed}");
    assert_eq!(user.delete(&path).status, 204);
    user.get(&path).expect_error(404, "cue_not_found");
    assert_eq!(user.get("/v1/executions").expect(200)["total"], 1);
    assert_eq!(user.get("/v1/usage").expect(200)["cues"]["active"], 1);
    user.settle();
    assert_eq!((rows(&file, "executions"), rows(&file, "outcomes"), rows(&file, "deleted_cues")), (1, 0, 0));
    assert_eq!(user.get("/health").expect(200)["queue"]["pending_worker_claims"], 1);
    assert_eq!(counters::discrepancies(&file).unwrap(), Vec::<String>::new());
}

#[test]
fn queued_deliveries_of_a_deleted_cue_are_not_sent() {
    let fixture = delivery_fixture::DeliveryFixture::new(8);
    let cue = fixture.webhook_cue("https://example.com/");
    fixture.sql("UPDATE users SET active_cues = 1");
    fixture.due_times(cue, 300);
    assert!(fixture.write(|tx| cue_deletion::delete(tx, 1, "cue_100000000000").unwrap()));
    let webhook_client = delivery_fixture::RecordingClient::default();
    assert!(fixture.deliver(&webhook_client) > 0, "some rows are left");
    assert_eq!(webhook_client.requests(), []);
    let mut sweeper = RetentionSweeper::default();
    while sweeper.run_once(&fixture.app).unwrap() == SweepOutcome::Again {}
    let wrong = fixture.app.store.read(|read| counters::discrepancies(read)).wait().unwrap();
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn an_interrupted_deletion_continues_after_the_restart() {
    let mut random = Random::seeded("removal");
    let mut server = Server::with_test_clock(BEGIN);
    let mut user = server.user();
    let kept = work(&user);
    fire(&user, &kept);
    for _ in 0..4 {
        let doomed = work(&user);
        insert_history(&mut server.sqlite(), &doomed, MANY, true, BEGIN);
        insert_history(&mut server.sqlite(), &doomed, 500, false, BEGIN);
        assert_eq!(user.delete(&format!("/v1/cues/{doomed}")).status, 204);
        let (file, left) = (server.sqlite(), i64::try_from(random.below(5_000)).unwrap());
        crate::support::server::until("some rows are gone", || {
            (rows(&file, "executions") <= left.max(1)).then_some(())
        });
        server.kill();
        server.restart();
        user = user.at(server.addr());
        user.get(&format!("/v1/cues/{doomed}")).expect_error(404, "cue_not_found");
        assert_eq!(user.get("/v1/executions").expect(200)["total"], 1);
    }
    user.settle();
    let file = server.sqlite();
    assert_eq!((rows(&file, "executions"), rows(&file, "outcomes"), rows(&file, "deleted_cues")), (1, 0, 0));
    assert_eq!(user.executions_of(&kept).len(), 1);
}
