//! Tags of cues (contract §4.1), and the lists, actions and events that they select.

use cued::store::db::counters;

use crate::http::cues::START;
use crate::support::*;

fn tagged(name: &str, tags: &[&str]) -> Value {
    with(hourly_cue(name), json!({ "tags": tags }))
}

fn names(user: &Client, query: &str) -> Vec<String> {
    let list = user.read(&format!("/v1/cues?sort=created&{query}"));
    let cues = list.list("cues");
    assert_eq!(list["total"], json!(cues.len()), "{query}");
    cues.iter().map(|cue| cue.text("name").to_owned()).collect()
}

#[test]
fn a_run_leaves_the_tags_of_its_cue() {
    let (_server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&tagged("a", &["x", "prod"]));
    user.advance("PT1H");
    assert_has(&user.cue(&cue), json!({"run_count": 1, "tags": ["x", "prod"]}));
}

#[test]
fn a_row_of_a_tag_that_differs_from_its_cue_is_found() {
    let (server, user) = Server::with_clock_and_user(START);
    user.create(&tagged("a", &["x"]));
    let insert =
        "INSERT INTO cue_tags SELECT user_key, column1, key FROM cues, (VALUES ('x'), ('z'))";
    for change in ["DELETE FROM cue_tags", insert] {
        server.sql(change);
        assert_eq!(counters::discrepancies(&server.sqlite()).unwrap().len(), 1, "{change}");
    }
    server.sql("DELETE FROM cue_tags WHERE tag = 'z'");
}

/// A cue for each list of tags, and the ids of its two executions: one that failed, and one that waits.
fn with_runs(user: &Client, tags: &[&[&str]]) -> Vec<(Value, [String; 2])> {
    let with_runs = |tags: &&[&str]| {
        let cue = user.create(&tagged(&format!("cue {}", tags.join("+")), tags));
        let failed = user.fire(&cue);
        user.report(&failed, &json!({"success": false}));
        let waiting = user.fire(&cue);
        (cue, [failed, waiting])
    };
    tags.iter().map(with_runs).collect()
}

#[test]
fn executions_are_filtered_by_the_tags_of_their_cues() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let cues = with_runs(&user, &[&["a"], &["a", "b"], &["b"], &[]]);
    with_runs(&other, &[&["a", "b"]]);
    let runs = |query: &str| {
        let list = user.read(&format!("/v1/executions?{query}"));
        let found = list.column("executions", "id");
        assert_eq!(list["total"], json!(found.len()), "{query}");
        found
    };
    let run = |cue: usize, number: usize| json!(cues[cue].1[number]);
    assert_eq!(runs("tag=a"), [run(1, 1), run(1, 0), run(0, 1), run(0, 0)], "newest first");
    assert_eq!(runs("tag=b&tag=a"), [run(1, 1), run(1, 0)]);
    assert_eq!(runs("tag=a&status=failed"), [run(1, 0), run(0, 0)]);
    assert_eq!(runs("tag=a&status=pending"), [run(1, 1), run(0, 1)]);
    assert_eq!(
        runs("tag=b&status__in=pending,failed"),
        [run(2, 1), run(2, 0), run(1, 1), run(1, 0)]
    );
    let failures = "triggered_by=manual_fire&failing_cues=true&outcome_state=reported_failure";
    assert_eq!(runs(&format!("tag=b&{failures}")), [run(2, 0), run(1, 0)]);
    assert_eq!(runs(&format!("tag=a&cue_id={}", id(&cues[1].0))), [run(1, 1), run(1, 0)]);
    assert_eq!(runs(&format!("tag=a&cue_id={}", id(&cues[2].0))), [""; 0]);
    assert_eq!(runs(&format!("tag=a&since={START}")).len(), 4);
    assert_eq!(runs(&format!("tag=a&until={START}")).len(), 0);
    assert_eq!(runs("tag=c"), [""; 0]);
    let page = user.read("/v1/executions?tag=a&limit=1&offset=2");
    assert_eq!((page.column("executions", "id"), &page["total"]), (vec![run(0, 1)], &json!(4)));
    user.delete(&cue_path(&cues[1].0));
    assert_eq!(runs("tag=a"), [run(0, 1), run(0, 0)]);
    user.change(&cues[0].0, &json!({"tags": ["c"]}));
    // The tags are those that the cue has now.
    assert_eq!((runs("tag=a"), runs("tag=c")), (Vec::new(), vec![run(0, 1), run(0, 0)]));
}

#[test]
fn actions_on_many_select_by_tags() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let cues = with_runs(&user, &[&["a"], &["a", "b"], &["b"]]);
    let foreign = with_runs(&other, &[&["a", "b"]]).remove(0).0;
    let filter = json!({"tags": ["b", "a"]});
    let replay = json!({"filter": filter, "expected": 1});
    let replayed = user.post("/v1/executions/replay", &replay).expect(200);
    assert_eq!(replayed["replayed"], 1);
    let replay = user.execution(replayed["execution_ids"][0].as_str().unwrap());
    assert_eq!(replay["replayed_from"], json!(cues[1].1[0]));
    let bulk = |filter: &Value, action: &str, expected: usize| {
        let body = json!({"action": action, "filter": filter, "expected": expected});
        user.post("/v1/cues/bulk", &body).expect(200)
    };
    assert_eq!(bulk(&filter, "pause", 1), json!({"matched": 1, "done": 1, "failed": []}));
    assert_eq!(names(&user, "status=paused"), ["cue a+b"]);
    let active = json!({"tags": ["a"], "status": "active", "q": "a"});
    assert_eq!(bulk(&active, "delete", 1)["done"], 1);
    assert_eq!(names(&user, ""), ["cue a+b", "cue b"]);
    assert_eq!(bulk(&json!({"tags": []}), "pause", 2)["done"], 2, "no tags are no condition");
    assert_eq!(other.cue(&foreign)["status"], "active");
}

#[test]
fn a_stream_of_tags_has_the_events_of_cues_with_all_of_them() {
    let (server, user) = Server::with_clock_and_user(START);
    let [one, both] =
        [&["a"][..], &["a", "b"]].map(|tags| user.create(&tagged(&tags.join("+"), tags)));
    let types = "types=execution.created,cue,server,alert,missed";
    let mut stream = EventReader::follow(server.addr(), &user, &format!("?{types}&tag=b&tag=a"));
    let mut next = |expected: &str| {
        let (event, data) = stream.next();
        assert_eq!(event, expected, "{data}");
        data
    };
    for cue in [&one, &both] {
        user.fire(cue);
    }
    assert_eq!(next("execution.created")["cue_id"], both["id"]);
    user.create(&tagged("none", &[]));
    let created = user.create(&tagged("new", &["b", "c", "a"]));
    assert_eq!(next("cue.created")["cue_id"], created["id"]);
    // The tags at the time of the event count.
    user.change(&both, &json!({"tags": ["a"]}));
    user.change(&one, &json!({"tags": ["a", "b"]}));
    assert_eq!(next("cue.updated")["cue_id"], one["id"]);
    for (cue, runs) in [(&both, 3), (&one, 3)] {
        for _ in 0..runs {
            let run = user.fire(cue);
            user.report(&run, &json!({"success": false}));
        }
    }
    (0..3).for_each(|_| assert_eq!(next("execution.created")["cue_id"], one["id"]));
    assert_eq!(next("alert.created")["cue_id"], one["id"]);
    for cue in [&both, &created] {
        user.delete(&cue_path(cue));
    }
    assert_eq!(next("cue.deleted")["cue_id"], created["id"]);
    // Those of the server belong to all cues.
    user.advance("PT1S");
    next("server.state");
}
