//! `POST /v1/apply` (contract §4.18): limits, and that what is not done leaves no trace.

use cued::domain::apply::Apply;
use cued::domain::cue::CueRequest;
use cued::domain::cue::slug::Slug;
use cued::service::apply::{Attempt, apply, look};
use cued::store::ReadTx;

use crate::http::apply::{PATH, actions, applied, cues_at, daily, errors, numbered, owned, stored};
use crate::http::cues::START;
use crate::support::*;

fn limited(cues: usize, storage: usize) -> (Server, Client) {
    let plan = json!({"cues": cues, "executions": null, "requests_per_minute": null, "storage_mb": storage});
    Plans::free(&plan).with_user(&["--dev", "--test-clock", START])
}

#[test]
fn what_is_paused_makes_room_and_the_last_by_key_have_none() {
    let (_server, user) = limited(3, 10);
    applied(&user, &json!({"cues": cues_at(&["c1", "c3", "c5"], "@daily")}));
    let mut cues = cues_at(&["c0", "c5", "c9"], "@daily");
    cues["c5"]["status"] = "paused".into();
    let full = [("body.cues.c9", "cue_limit_exceeded")];
    assert_eq!(errors(&user, &json!({"cues": cues})), owned(&full));
    // What the others leave is not known.
    let body = json!({"namespace": "n", "cues": numbered(0..5), "prune": true, "keep": ["n/a"]});
    assert_eq!(errors(&user, &body), owned(&[("body.keep.0", "value_error")]));
    let body = json!({"namespace": "N N", "cues": {"a": daily("a"), "b": 5}});
    let wrong = [("body.namespace", "value_error"), ("body.cues.b", "model_attributes_type")];
    assert_eq!(errors(&user, &body), owned(&wrong));
}

#[test]
fn cues_in_all_states_and_channels_have_their_limits() {
    let (_server, user) = limited(3, 10);
    let mut cues = numbered(0..101);
    cues.as_object_mut().unwrap().values_mut().for_each(|it| it["status"] = "paused".into());
    let full = [("body.cues.c0100", "cue_limit_exceeded")];
    assert_eq!(errors(&user, &json!({"cues": cues})), owned(&full));
    let hook = json!({"type": "webhook", "url": "http://127.0.0.1:9/"});
    let channels: Value = (10..40).map(|it| (format!("h{it}"), hook.clone())).collect();
    let refused = errors(&user, &json!({"channels": channels}));
    assert!(refused.len() >= 10, "{refused:?}");
    assert_eq!(refused.last().unwrap().0, "body.channels.h39");
    assert!(refused.iter().all(|(_, code)| code == "channel_limit_exceeded"));
    assert_eq!((user.total("/v1/cues"), user.total("/v1/channels")), (json!(0), json!(1)));
}

#[test]
fn what_is_pruned_makes_room_in_storage() {
    let (server, user) = limited(100, 1);
    let large = |name: &str| with(daily(name), json!({"payload": {"a": "x".repeat(700_000)}}));
    applied(&user, &json!({"namespace": "n", "cues": {"a": large("a")}}));
    user.post("/v1/cues/slug:n%2Fa/fire", &json!({})).expect(200);
    let mut body = json!({"namespace": "n", "cues": {"b": large("b")}});
    assert_eq!(errors(&user, &body), owned(&[("body", "storage_limit_exceeded")]));
    body["prune"] = true.into();
    assert_eq!(applied(&user, &body), ["cue b create", "cue a delete"]);
    server.assert_counters();
}

#[test]
fn a_cue_made_by_hand_is_pruned() {
    let (_server, user) = Server::with_clock_and_user(START);
    user.create(&with(daily("hand"), json!({"slug": "n/hand"})));
    user.create(&with(daily("other"), json!({"slug": "hand"})));
    assert_eq!(applied(&user, &json!({"namespace": "n", "prune": true})), ["cue hand delete"]);
    assert_eq!(stored(&user).len(), 1);
}

#[test]
fn requests_at_once_with_one_key_do_it_once() {
    let (server, user) = Server::with_clock_and_user(START);
    let body = json!({"namespace": "n", "prune": true, "cues": numbered(0..20)});
    let answers: Vec<Value> = thread::scope(|scope| {
        let sent = (0..6).map(|_| {
            let (user, body) = (user.clone(), &body);
            scope.spawn(move || user.keyed(PATH, "k", body).expect(200))
        });
        let sent: Vec<_> = sent.collect();
        sent.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert!(actions(&answers[0]).iter().all(|line| line.ends_with(" create")));
    server.assert_counters();
}

#[test]
fn an_answer_to_a_repetition_has_no_fields() {
    let (_server, user) = Server::with_clock_and_user(START);
    applied(&user, &json!({"cues": {"a": daily("a")}}));
    let body = json!({"cues": {"a": daily("b")}});
    let mut first = user.keyed(PATH, "k", &body).expect(200);
    let fields = first["changes"][0]["fields"].take();
    assert_eq!(fields, json!([{"field": "name", "old": "a", "new": "b"}]));
    first["changes"][0]["fields"] = json!([]);
    assert_eq!(user.keyed(PATH, "k", &body).expect(200), first);
}

/// Neither the log of the database, nor live events, nor metrics know of it.
#[test]
fn a_dry_run_and_a_refused_request_leave_no_trace() {
    let (api, user) = Api::with_user("ann");
    applied(&user, &json!({"namespace": "n", "cues": numbered(0..8)}));
    let mut events = EventReader::open(api.addr(), &user, "");
    assert_eq!(events.next().0, "hello");
    let log = || fs::read(api.fixture.app.config.db.with_extension("db-wal")).unwrap();
    let before = log();
    let mut cues = numbered(4..9);
    cues["c0000"] = worker_cue("c", YEARLY);
    let mut body = json!({"namespace": "n", "prune": true, "cues": cues, "dry_run": true});
    assert_eq!(applied(&user, &body).len(), 9);
    body["dry_run"] = false.into();
    body["cues"]["wrong"] = worker_cue("c", "61 * * * *");
    assert_eq!(errors(&user, &body).len(), 1);
    body["cues"]["wrong"] =
        with(daily("x"), json!({"schedule": {"type": "once", "at": "2020-01-01T00:00:00Z"}}));
    assert_eq!(errors(&user, &body).len(), 1);
    assert!(before == log(), "{} bytes, then {}", before.len(), log().len());
    user.create(&with(daily("mark"), json!({"slug": "mark"})));
    let (name, event) = events.next();
    assert_eq!(
        (name.as_str(), event["cue_name"].as_str()),
        ("cue.created", Some("mark")),
        "{event}"
    );
}

#[test]
fn more_than_500_due_runs_are_refused() {
    let (api, user) = Api::with_user("ann");
    applied(&user, &json!({"cues": {"a": hourly_cue("a"), "b": hourly_cue("b")}}));
    api.fixture.advance(300 * 3_600);
    let (a, b) = (worker_cue("a", YEARLY), worker_cue("b", YEARLY));
    let both = json!({"cues": {"a": a, "b": b}});
    assert_eq!(errors(&user, &both), owned(&[("body", "invalid_state")]));
    user.post(PATH, &both).refuses(422, "validation_error", "in a minute");
    assert_eq!(user.total("/v1/executions"), 0);
    applied(&user, &json!({"cues": {"a": a}}));
    assert_eq!(user.total("/v1/executions"), 300);
}

#[test]
fn too_many_fields_leave_the_changes() {
    let (_server, user) = Server::with_clock_and_user(START);
    let body = |value: u32| {
        let keys: Value =
            (0..99).map(|it| (format!("{it}-{}", "k".repeat(100)), json!(value))).collect();
        let cue = with(daily("c"), json!({"payload": keys}));
        let cues: Value = (0..150).map(|it| (format!("c{it}"), cue.clone())).collect();
        json!({"cues": cues})
    };
    applied(&user, &body(1));
    let answer = user.post(PATH, &body(2)).expect(200);
    let changes = answer.list("changes");
    assert_eq!(changes.len(), 150);
    assert!(changes.iter().all(|change| change["action"] == "change"));
    assert_eq!(changes[0].list("fields").len(), 99);
    let last = json!([{"field": "payload", "old": "***", "new": "***"}]);
    assert!(changes[149]["fields"] == last || changes[149]["fields"] == json!([]));
}

#[test]
fn a_cue_that_changes_after_it_was_compared_is_compared_again() {
    let fixture = Fixture::new().without_counter_check();
    let user_key = fixture.user("u");
    let slug = Slug::parse("a").unwrap();
    let cue = fixture.worker_cue(user_key, |fields| fields.slug = Some(slug.clone()));
    let request =
        CueRequest { fields: cue.fields.clone(), is_whole: true, ..CueRequest::default() };
    let caller = fixture.caller(user_key);
    let wanted = Arc::new(Apply { cues: vec![request], ..Apply::default() });
    let attempt = |change: &str| {
        let (of_read, now) = (Arc::clone(&wanted), fixture.now());
        let seen = move |read: &ReadTx<'_>| look(read, user_key, &of_read, now, 1_000);
        let seen = fixture.read(seen);
        fixture.sql(change);
        let (done, undone) =
            apply(&fixture.app, &caller, Arc::clone(&wanted), seen, None, |_| unreachable!())
                .unwrap();
        done.wait().ok().or(undone.try_recv().ok()).unwrap()
    };
    let is_done = |attempt| matches!(attempt, Attempt::Done(applied) if applied.refused.is_empty());
    assert!(is_done(attempt("SELECT 1 WHERE 0")));
    for change in ["payload_key = 7", "updated_at = updated_at + 1", "slug = 'b'"] {
        let done = attempt(&format!("UPDATE cues SET {change}"));
        assert!(matches!(done, Attempt::Stale), "{change}: {done:?}");
    }
}
