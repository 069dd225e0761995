//! Tags of cues (contract §4.1), and the lists, actions and events that they select.

use cued::store::db::counters;

use crate::http::cues::{START, worker_cue};
use crate::support::*;

fn tagged(name: &str, tags: &[&str]) -> Value {
    let mut cue = worker_cue(name);
    cue["tags"] = json!(tags);
    cue
}

fn ids(list: &Value, key: &str) -> Vec<String> {
    list[key].as_array().unwrap().iter().map(|it| id(it).to_owned()).collect()
}

fn names(user: &Client, query: &str) -> Vec<String> {
    let list = user.get(&format!("/v1/cues?sort=created&{query}")).expect(200);
    let cues = list.list("cues");
    assert_eq!(list["total"], json!(cues.len()), "{query}");
    cues.iter().map(|cue| cue.text("name").to_owned()).collect()
}

#[track_caller]
fn check_rows(server: &Server) {
    server.assert_counters();
}

#[test]
fn a_cue_has_the_tags_that_it_was_given() {
    let (server, user) = Server::with_clock_and_user(START);
    let cue = user.create(&tagged("a", &["prod", "db.main", "2026_q1-x", "prod"]));
    assert_eq!(cue["tags"], json!(["prod", "db.main", "2026_q1-x"]), "in their order, each once");
    assert_eq!(user.create(&worker_cue("b"))["tags"], json!([]));
    let mut none = worker_cue("c");
    none["tags"] = Value::Null;
    let none = user.create(&none);
    assert_eq!(none["tags"], json!([]));
    assert!(!none.text("warning").contains("tags"));
    let shown = || {
        let listed = user.get("/v1/cues?sort=created").expect(200)["cues"][0]["tags"].clone();
        assert_eq!(user.cue(&cue)["tags"], listed);
        check_rows(&server);
        listed
    };
    assert_eq!(shown(), cue["tags"]);
    for (patch, expected) in [
        (json!({"name": "other"}), json!(["prod", "db.main", "2026_q1-x"])),
        (json!({"tags": ["x", "prod"]}), json!(["x", "prod"])),
        (json!({"tags": []}), json!([])),
        (json!({"tags": ["y"]}), json!(["y"])),
        (json!({"tags": null}), json!([])),
        (json!({"tags": ["z", "z"]}), json!(["z"])),
    ] {
        assert_eq!(user.change(&cue, &patch)["tags"], expected, "{patch}");
        assert_eq!(shown(), expected, "{patch}");
    }
    let ten: Vec<String> = (0..10).map(|number| format!("{number}{}", "x".repeat(31))).collect();
    assert_eq!(user.change(&cue, &json!({"tags": ten}))["tags"], json!(ten));
    user.advance("PT1H");
    assert_eq!(shown(), json!(ten), "a run leaves them");
    user.delete(&cue_path(&cue));
    check_rows(&server);
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

#[test]
fn a_list_has_the_cues_with_all_of_the_tags() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let words = ["a", "b", "c.d", "e_f"];
    let mut random = Random::new(21);
    for number in 0..40 {
        let tags: Vec<&str> = words.into_iter().filter(|_| random.below(2) == 0).collect();
        let cue = user
            .create(&tagged(&format!("{} {number}", random.pick(&["Abc", "abd", "Zz"])), &tags));
        if number % 3 == 0 {
            user.change(&cue, &json!({"status": "paused"}));
        }
        other.create(&tagged("foreign", &["a", "b"]));
    }
    let all = user.get("/v1/cues?limit=100").expect(200).list("cues").clone();
    let has =
        |cue: &Value, tags: &[&str]| tags.iter().all(|tag| cue.list("tags").contains(&json!(tag)));
    type Filter<'a> = (&'a str, &'a dyn Fn(&Value) -> bool);
    let filters: [Filter<'_>; 6] = [
        ("tag=a", &|cue| has(cue, &["a"])),
        ("tag=c.d&tag=a&tag=c.d", &|cue| has(cue, &["a", "c.d"])),
        ("tag=a&tag=b&tag=c.d&tag=e_f", &|cue| has(cue, &words)),
        ("tag=b&status=paused", &|cue| has(cue, &["b"]) && cue["status"] == "paused"),
        ("tag=b&tag=e_f&transport=worker&status=active", &|cue| {
            has(cue, &["b", "e_f"]) && cue["status"] == "active"
        }),
        ("tag=a&q=ab&failing=false", &|cue| {
            has(cue, &["a"]) && cue.text("name").to_lowercase().contains("ab")
        }),
    ];
    for sort in ["created", "-created", "name", "-name", "next_run", "-last_run"] {
        let sorted = user.get(&format!("/v1/cues?limit=100&sort={sort}")).expect(200);
        for (filter, matches) in filters {
            let sorted = sorted.list("cues").iter().filter(|cue| matches(cue));
            let expected: Vec<String> = sorted.map(|cue| id(cue).to_owned()).collect();
            assert!((1..all.len()).contains(&expected.len()), "{filter}");
            let query = format!("/v1/cues?sort={sort}&{filter}");
            let whole = user.get(&format!("{query}&limit=100")).expect(200);
            assert_eq!(
                (ids(&whole, "cues"), &whole["total"]),
                (expected.clone(), &json!(expected.len()))
            );
            let (mut paged, mut next) = (Vec::new(), String::new());
            loop {
                let page = user.get(&format!("{query}&limit=3{next}")).expect(200);
                assert_eq!(page["total"], json!(expected.len()), "{query}");
                paged.extend(ids(&page, "cues"));
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                next = format!("&cursor={cursor}");
            }
            assert_eq!(paged, expected, "{query} by cursor");
            for offset in [1, expected.len() - 1, expected.len(), 100] {
                let page = user.get(&format!("{query}&limit=2&offset={offset}")).expect(200);
                let end = (offset + 2).min(expected.len());
                assert_eq!(
                    ids(&page, "cues"),
                    expected[offset.min(end)..end],
                    "{query} from {offset}"
                );
                assert_eq!(page["has_more"], json!(end < expected.len()), "{query} from {offset}");
            }
        }
    }
    assert_eq!(user.get("/v1/cues?tag=none").expect(200)["total"], 0);
}

#[test]
fn a_cursor_belongs_to_the_tags_of_its_list_in_any_order() {
    let (_server, user) = Server::with_clock_and_user(START);
    for name in ["1", "2", "3"] {
        user.create(&tagged(name, &["a", "b"]));
    }
    let first = user.get("/v1/cues?tag=a&tag=b&limit=1").expect(200);
    let cursor = first.text("next_cursor");
    let second = user.get(&format!("/v1/cues?tag=b&tag=a&limit=1&cursor={cursor}")).expect(200);
    assert_eq!(second["cues"][0]["name"], "2");
    for other in ["", "tag=a&", "tag=a&tag=b&tag=c&"] {
        user.get(&format!("/v1/cues?{other}cursor={cursor}")).expect_error(422, "validation_error");
    }
}

#[test]
fn lists_follow_the_changes_of_tags_and_the_deletion_of_cues() {
    let (server, user) = Server::with_clock_and_user(START);
    let [one, two] = ["one", "two"].map(|name| user.create(&tagged(name, &["a", "b"])));
    let patch = |cue: &Value, tags: &[&str]| drop(user.change(cue, &json!({"tags": tags})));
    assert_eq!(names(&user, "tag=a"), ["one", "two"]);
    patch(&one, &["b", "c"]);
    for (query, expected) in [
        ("tag=a", &["two"][..]),
        ("tag=b", &["one", "two"]),
        ("tag=c", &["one"]),
        ("tag=a&tag=c", &[]),
    ] {
        assert_eq!(names(&user, query), expected, "{query}");
    }
    patch(&one, &[]);
    assert_eq!(names(&user, "tag=b"), ["two"]);
    user.delete(&cue_path(&two));
    assert_eq!(names(&user, "tag=b"), Vec::<String>::new());
    let three = user.create(&tagged("three", &["a"]));
    user.post("/v1/cues/bulk-delete", &json!({"ids": [id(&three)]})).expect(200);
    assert_eq!(names(&user, "tag=a"), Vec::<String>::new());
    check_rows(&server);
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
        let list = user.get(&format!("/v1/executions?{query}")).expect(200);
        let found = ids(&list, "executions");
        assert_eq!(list["total"], json!(found.len()), "{query}");
        found
    };
    let run = |cue: usize, number: usize| cues[cue].1[number].clone();
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
    let page = user.get("/v1/executions?tag=a&limit=1&offset=2").expect(200);
    assert_eq!((ids(&page, "executions"), &page["total"]), (vec![run(0, 1)], &json!(4)));
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
    let mut stream = EventReader::open(server.addr(), &user, &format!("?{types}&tag=b&tag=a"));
    assert_eq!(stream.next().0, "hello");
    let mut next = |expected: &str| {
        let (event, data) = stream.next();
        assert_eq!(event, expected, "{data}");
        data
    };
    for cue in [&one, &both] {
        user.fire(cue);
    }
    assert_eq!(next("execution.created")["cue_id"], both["id"]);
    user.create(&worker_cue("none"));
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
    for _ in 0..3 {
        assert_eq!(next("execution.created")["cue_id"], one["id"]);
    }
    assert_eq!(next("alert.created")["cue_id"], one["id"]);
    for cue in [&both, &created] {
        user.delete(&cue_path(cue));
    }
    assert_eq!(next("cue.deleted")["cue_id"], created["id"]);
    // Those of the server belong to all cues.
    user.advance("PT1S");
    next("server.state");
}
