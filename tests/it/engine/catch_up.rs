//! The start after an outage: the size of the transactions, the order of runs, and the alert.

use cued::clock::Clock;
use cued::domain::row_keys::{CueKey, UserKey};
use cued::domain::schedule::catch_up::{MissReason, Outage};
use cued::domain::schedule::{CatchUp, Schedule};
use cued::engine::scheduler::Scheduler;
use cued::service::fire::{CueFirer, FireSummary};
use cued::store::ReadTx;
use cued::store::executions::claims::{self, ClaimFilter};
use cued::store::outbox;

use crate::support::*;

/// A fixture whose clock can jump, with `count` minutely cues of the user "u".
fn minutely(count: usize, catch_up: CatchUp) -> (Fixture, UserKey) {
    let fixture = Fixture::with_clock(Clock::manual(BEGIN.parse().unwrap()));
    let user = fixture.user("u");
    add(&fixture, user, count, catch_up);
    (fixture, user)
}

fn add(fixture: &Fixture, user: UserKey, count: usize, catch_up: CatchUp) {
    for _ in 0..count {
        fixture.worker_cue(user, |new| {
            new.schedule = (&Schedule::recurring("* * * * *", "UTC", catch_up).unwrap()).into();
        });
    }
}

/// One transaction of the scheduler after an outage that ended at `until`.
fn fire_batch(fixture: &Fixture, outage: Outage, limit: usize) -> FireSummary {
    let firer = CueFirer::new(&fixture.app, fixture.now());
    fixture.write(move |tx| firer.fire_due(tx, outage, &[], limit).unwrap())
}

fn number(fixture: &Fixture, sql: &'static str) -> i64 {
    fixture.write(move |tx| tx.query_row(sql, [], |row| row.get(0)).unwrap())
}

fn alerts_of(fixture: &Fixture, user: UserKey) -> Vec<Value> {
    fixture.alerts(user).iter().map(|alert| alert.json()).collect()
}

#[test]
fn a_transaction_creates_at_most_500_executions_and_the_next_one_continues() {
    let (fixture, _) = minutely(23, CatchUp::All);
    fixture.advance(3 * 3_600 + 30);
    let outage = Outage::before(fixture.now(), MissReason::Downtime);
    let mut sizes = Vec::new();
    loop {
        let fired = fire_batch(&fixture, outage, 500);
        if fired.cues == 0 {
            break;
        }
        sizes.push(fired.executions);
    }
    assert_eq!(sizes, [500, 500, 500, 500, 300]);
    let doubled = "SELECT count(*) FROM (SELECT cue_key, scheduled_for FROM executions GROUP BY 1, 2 HAVING count(*) > 1)";
    assert_eq!(
        (number(&fixture, "SELECT count(*) FROM executions"), number(&fixture, doubled)),
        (2_300, 0)
    );
    assert_eq!(number(&fixture, "SELECT sum(count) FROM missed_runs"), 23 * 80);
    assert_eq!(number(&fixture, "SELECT sum(is_catch_up) FROM executions"), 2_300);
}

#[test]
fn a_cue_that_falls_due_during_the_catch_up_is_in_the_next_transaction() {
    let (fixture, user) = minutely(30, CatchUp::Latest);
    fixture.advance(3_600 + 30);
    let outage = Outage::before(fixture.now(), MissReason::Downtime);
    assert_eq!(fire_batch(&fixture, outage, 10).executions, 10);
    add(&fixture, user, 1, CatchUp::Latest);
    fixture.advance(30);
    fire_batch(&fixture, outage, 15);
    let row = "SELECT count(*) FROM executions WHERE cue_key = 31 AND is_catch_up = 0";
    assert_eq!(number(&fixture, row), 1);
    let left = "SELECT count(*) FROM cues WHERE next_run <= 1767265200000";
    assert_eq!(number(&fixture, left), 16, "of the backlog");
}

#[test]
fn a_transaction_creates_the_oldest_runs_of_its_cues_first() {
    let (fixture, _) = minutely(3, CatchUp::All);
    fixture.advance(20 * 60 + 30);
    let outage = Outage::before(fixture.now(), MissReason::Downtime);
    assert_eq!(fire_batch(&fixture, outage, 100).executions, 60);
    let later_first = "SELECT count(*) FROM executions a JOIN executions b ON b.key = a.key + 1
                        WHERE b.scheduled_for < a.scheduled_for";
    assert_eq!(number(&fixture, later_first), 0);
}

#[test]
fn a_cue_that_was_chosen_before_its_outage_fires_once() {
    let (fixture, _) = minutely(3, CatchUp::All);
    fixture.advance(2 * 60 + 30);
    let outage = Outage::before(fixture.now(), MissReason::Clock);
    let firer = CueFirer::new(&fixture.app, fixture.now());
    let fired =
        fixture.write(move |tx| firer.fire_due(tx, outage, &[1, 2].map(CueKey::new), 500).unwrap());
    assert_eq!((fired.cues, fired.executions), (3, 6));
    let runs = "SELECT count(*) FROM (SELECT DISTINCT cue_key, scheduled_for FROM executions)";
    assert_eq!(
        (number(&fixture, runs), number(&fixture, "SELECT count(*) FROM executions")),
        (6, 6)
    );
}

#[test]
fn workers_get_a_run_that_falls_due_now_before_those_of_an_outage() {
    let (fixture, user) = minutely(2, CatchUp::All);
    fixture.advance(5 * 60 + 30);
    let outage = Outage::before(fixture.now(), MissReason::Downtime);
    fire_batch(&fixture, outage, 500);
    fixture.advance(30);
    fire_batch(&fixture, outage, 500);
    let list = move |read: &ReadTx<'_>| claims::list(read, user, &ClaimFilter::default(), 100);
    let list = fixture.read(list);
    let minutes: Vec<String> =
        list.executions.iter().map(|it| it.scheduled_for.to_string()[14..16].to_owned()).collect();
    let expected = ["06", "06", "01", "01", "02", "02", "03", "03", "04", "04", "05", "05"];
    assert_eq!(minutes, expected);
    let next = fixture.read(move |read| claims::find_next(read, user, None));
    assert_eq!(next, Some(list.executions[0].id));
}

#[test]
fn the_alert_about_an_outage_is_sent_although_the_process_ends_amid_the_catch_up() {
    let (fixture, user) = minutely(30, CatchUp::Latest);
    fixture.sql("UPDATE users SET alert_webhook_url = 'https://alerts.example/' WHERE email = 'u'");
    fixture.advance(3_600 + 30);
    let outage = Outage::before(fixture.now(), MissReason::Downtime);
    let waiting = "SELECT count(*) FROM outbox WHERE kind = 'catch_up' AND due_at > created_at";
    for _ in 0..2 {
        fire_batch(&fixture, outage, 10);
        assert_eq!(number(&fixture, waiting), 1, "it waits for the other runs");
    }
    fixture.advance(1);
    let fixture = fixture.restart();
    Scheduler::start(&fixture.app).unwrap().run_once(&fixture.app).unwrap();
    let runs = alerts_of(&fixture, user)
        .iter()
        .map(|alert| alert["metadata"]["runs"].clone())
        .collect::<Vec<_>>();
    assert_eq!(runs, [json!(10), json!(20)]);
    assert_eq!(number(&fixture, "SELECT count(*) FROM outbox WHERE due_at IS NULL"), 1);
    fixture.advance(60);
    let now = fixture.now();
    fixture.write(move |tx| outbox::promote_due(tx, now, 100).unwrap());
    assert_eq!(number(&fixture, "SELECT count(*) FROM outbox WHERE due_at IS NULL"), 2);
}

#[test]
fn an_account_gets_one_alert_about_the_runs_of_an_outage() {
    let (fixture, user) = minutely(3, CatchUp::All);
    let (other, idle) = (fixture.user("v"), fixture.user("w"));
    add(&fixture, other, 600, CatchUp::Latest);
    add(&fixture, idle, 2, CatchUp::None);
    fixture.sql("UPDATE users SET alert_webhook_url = 'https://alerts.example/' WHERE email = 'u'");
    fixture.advance(3 * 60 + 30);
    let mut scheduler = Scheduler::start(&fixture.app).unwrap();
    scheduler.run_once(&fixture.app).unwrap();
    let [alert] = &alerts_of(&fixture, user)[..] else { panic!("{:?}", alerts_of(&fixture, user)) };
    let expected = BTreeMap::from([
        ("alert_type", json!("catch_up")),
        ("cue_id", Value::Null),
        ("execution_id", Value::Null),
        ("severity", json!("warning")),
        (
            "metadata",
            json!({"runs": 9, "from": "2026-01-01T10:01:00Z", "to": "2026-01-01T10:03:00Z"}),
        ),
    ]);
    expected.iter().for_each(|(field, value)| assert_eq!(&alert[*field], value, "{field}"));
    let others = alerts_of(&fixture, other);
    assert_eq!((others.len(), &others[0]["metadata"]["runs"]), (1, &json!(600)));
    assert_eq!(alerts_of(&fixture, idle), [Value::Null; 0]);
    let posts = "SELECT count(*) FROM outbox
                  WHERE kind = 'catch_up' AND body LIKE '%\"runs\": 9%' AND due_at IS NULL";
    assert_eq!((number(&fixture, posts), number(&fixture, "SELECT count(*) FROM outbox")), (1, 1));
    fixture.advance(60);
    scheduler.run_once(&fixture.app).unwrap();
    assert_eq!(alerts_of(&fixture, user).len(), 1, "later runs are not of the outage");
}
