//! The list of cues (contract §4.8): filters, sorts, pages and recent runs.

use crate::http::cues::START;
use crate::support::*;

const SORTS: [&str; 8] =
    ["created", "-created", "name", "-name", "next_run", "-next_run", "last_run", "-last_run"];

const TAGS: [&str; 4] = ["a", "b", "c.d", "e_f"];

fn ids(list: &Value) -> Vec<String> {
    list.list("cues").iter().map(|cue| id(cue).to_owned()).collect()
}

fn names(list: &Value) -> Vec<&str> {
    list.list("cues").iter().map(|cue| cue.text("name")).collect()
}

fn list(user: &Client, query: &str) -> Value {
    user.read(&format!("/v1/cues?{query}"))
}

/// A cue that calls `url` every hour and does not retry.
fn hook(name: &str, url: &str) -> Value {
    with(webhook_cue(name, "0 * * * *", url), json!({"retry": {"max_attempts": 1}}))
}

/// All pages of the list, by cursor.
fn pages(user: &Client, query: &str, limit: usize) -> Vec<String> {
    let (mut all, mut next) = (Vec::new(), String::new());
    loop {
        let page = list(user, &format!("{query}&limit={limit}{next}"));
        all.extend(ids(&page));
        assert_eq!(page["has_more"], json!(!page["next_cursor"].is_null()), "{page}");
        match page["next_cursor"].as_str() {
            Some(cursor) => {
                assert_eq!(ids(&page).len(), limit, "a page before the last is full");
                next = format!("&cursor={cursor}");
            }
            None => return all,
        }
    }
}

/// A user with 40 cues of many names, states and times.
fn forty() -> (Server, Client, Vec<Value>) {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let mut random = Random::new(7);
    let words = ["alpha", "Beta", "beta", "Ärger", "ärger", "Zeta", "straße", "STRASSE"];
    let make = |user: &Client, random: &mut Random, hour: u64| {
        let name = words[random.index(words.len())];
        let mut cue =
            if random.below(2) == 0 { hourly_cue(name) } else { hook(name, "http://127.0.0.1:9/") };
        cue["schedule"] = json!({"type": "recurring", "cron": format!("0 {hour} * * *")});
        if random.below(3) == 0 {
            cue["description"] = json!("The Nightly Copy");
        }
        let tags: Vec<&str> = TAGS.into_iter().filter(|_| random.below(2) == 0).collect();
        cue["tags"] = json!(tags);
        user.create(&cue)
    };
    for number in 0..40 {
        let hour = 10 + random.below(4);
        let cue = make(&user, &mut random, hour);
        if number % 5 == 0 {
            user.change(&cue, &json!({"status": "paused"}));
        }
        if number % 10 == 0 {
            make(&other, &mut random, 10);
        }
    }
    // Some cues have run, and the calls of some have failed.
    user.advance("PT2H30M");
    let all = list(&user, "limit=100").list("cues").clone();
    assert_eq!(all.len(), 40, "its own only");
    (server, user, all)
}

/// The ids in the order of `sort`. `newest_first` is the whole list in its usual order.
fn sorted(newest_first: &[Value], sort: &str) -> Vec<String> {
    let field = sort.trim_start_matches('-');
    let value = |cue: &Value| match field {
        "created" => Some(String::new()),
        "name" => Some(cue.text("name").to_uppercase().to_lowercase()),
        _ => cue[field].as_str().map(|at| at.replace("+00:00", "Z")),
    };
    let mut cues: Vec<&Value> = newest_first.iter().rev().collect();
    cues.sort_by_key(|cue| value(cue));
    if sort.starts_with('-') {
        cues.reverse();
    }
    let (with, without): (Vec<&Value>, Vec<&Value>) =
        cues.into_iter().partition(|cue| value(cue).is_some());
    with.into_iter().chain(without).map(|cue| id(cue).to_owned()).collect()
}

#[test]
fn every_sort_and_filter_pages_by_cursor_and_by_offset_alike() {
    let (_server, user, all) = forty();
    let is_failing = |cue: &Value| cue["failing"].as_i64().unwrap() > 0;
    let has = |cue: &Value, text: &str| {
        let text_of = |name: &str| cue[name].as_str().unwrap_or_default().to_uppercase();
        text_of("name").contains(text) || text_of("description").contains(text)
    };
    type Filter<'a> = (&'a str, &'a dyn Fn(&Value) -> bool);
    let has_tags =
        |cue: &Value, tags: &[&str]| tags.iter().all(|tag| cue.list("tags").contains(&json!(tag)));
    let filters: [Filter<'_>; 14] = [
        ("", &|_| true),
        ("status=paused", &|cue| cue["status"] == "paused"),
        ("status=active&transport=webhook", &|cue| {
            cue["status"] == "active" && cue["transport"] == "webhook"
        }),
        ("transport=worker", &|cue| cue["transport"] == "worker"),
        ("failing=true", &is_failing),
        ("failing=false", &|cue| !is_failing(cue)),
        ("q=nightly", &|cue| has(cue, "NIGHTLY")),
        ("q=strasse&status=active", &|cue| has(cue, "STRASSE") && cue["status"] == "active"),
        ("tag=a", &|cue| has_tags(cue, &["a"])),
        ("tag=c.d&tag=a&tag=c.d", &|cue| has_tags(cue, &["a", "c.d"])),
        ("tag=a&tag=b&tag=c.d&tag=e_f", &|cue| has_tags(cue, &TAGS)),
        ("tag=b&status=paused", &|cue| has_tags(cue, &["b"]) && cue["status"] == "paused"),
        ("tag=b&tag=e_f&transport=worker&status=active", &|cue| {
            has_tags(cue, &["b", "e_f"])
                && cue["status"] == "active"
                && cue["transport"] == "worker"
        }),
        ("tag=a&q=nightly&failing=false", &|cue| {
            has_tags(cue, &["a"]) && has(cue, "NIGHTLY") && !is_failing(cue)
        }),
    ];
    for (filter, matches) in filters {
        let matching: Vec<Value> = all.iter().filter(|cue| matches(cue)).cloned().collect();
        assert!(!matching.is_empty() && (filter.is_empty() || matching.len() < 40), "{filter}");
        for sort in SORTS {
            let (query, expected) = (format!("{filter}&sort={sort}"), sorted(&matching, sort));
            let whole = list(&user, &format!("{query}&limit=100"));
            assert_eq!(
                (ids(&whole), &whole["total"]),
                (expected.clone(), &json!(expected.len())),
                "{query}"
            );
            assert_eq!((&whole["has_more"], &whole["next_cursor"]), (&json!(false), &Value::Null));
            for limit in [1, 7] {
                assert_eq!(pages(&user, &query, limit), expected, "{query} by cursor");
            }
            for offset in [1, 5, expected.len() - 1, expected.len(), 100] {
                let page = list(&user, &format!("{query}&limit=3&offset={offset}"));
                let end = (offset + 3).min(expected.len());
                assert_eq!(ids(&page), expected[offset.min(end)..end], "{query} from {offset}");
                assert_eq!(page["has_more"], json!(end < expected.len()), "{query} from {offset}");
                assert_has(&page, json!({"offset": offset, "total": expected.len()}));
            }
        }
    }
    let default = user.read("/v1/cues");
    assert_has(&default, json!({"limit": 20, "offset": 0, "total": 40, "has_more": true}));
    assert_eq!(ids(&default), sorted(&all, "-created")[..20]);
    assert_eq!(list(&user, "tag=none")["total"], 0);
}

#[test]
fn a_cursor_goes_on_after_the_page_before_it_while_cues_come_and_go() {
    let (_server, user, all) = forty();
    let mut random = Random::new(11);
    for sort in SORTS {
        let begin = list(&user, "limit=100");
        let (mut seen, mut gone, mut next) = (Vec::new(), Vec::new(), String::new());
        let mut made = Vec::new();
        loop {
            let page = list(&user, &format!("sort={sort}&limit=6{next}"));
            seen.extend(ids(&page));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            next = format!("&cursor={cursor}");
            // The last one of the page, which the cursor stands for, and any other one are deleted.
            let left = ids(&list(&user, "limit=100"));
            let any = &left[random.index(left.len())];
            for id in [seen.last().unwrap(), any] {
                if !gone.contains(id) {
                    assert_eq!(user.delete(&format!("/v1/cues/{id}")).status, 204);
                    gone.push(id.clone());
                }
            }
            made.push(user.create(&hourly_cue(random.pick(&["Aaa", "Mmm", "Zzz"]))));
        }
        let mut once = seen.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), seen.len(), "{sort}: nothing twice");
        for id in ids(&begin).iter().filter(|id| !gone.contains(id)) {
            assert!(seen.contains(id), "{sort}: {id} is lost");
        }
        for cue in made.iter().filter(|cue| !gone.contains(&id(cue).to_owned())) {
            user.delete(&cue_path(cue)).expect(204);
        }
        while list(&user, "limit=1")["total"].as_u64().unwrap() < all.len() as u64 {
            user.create(&hourly_cue("again"));
        }
    }
}

#[test]
fn the_cursor_of_one_user_shows_another_one_only_cues_of_its_own() {
    let (server, user, _) = forty();
    let newest = list(&user, "limit=2").text("next_cursor").to_owned();
    let other = server.user();
    let own = other.create(&hourly_cue("own"));
    let page = list(&other, &format!("cursor={newest}"));
    assert!(ids(&page).iter().all(|shown| shown == id(&own)), "{page}");
}

#[test]
fn a_text_is_searched_in_name_slug_tags_description_host_and_the_beginning_of_the_id() {
    let server = Server::with_test_clock(START);
    let (user, other) = (server.user(), server.user());
    let mut cue = hook("Invoice Mailer", "http://127.0.0.1:9/secret");
    cue["description"] = json!("Sends what the Buchhaltung needs");
    cue["slug"] = json!("home/mails");
    cue["tags"] = json!(["prod", "billing.eu"]);
    let cue = user.create(&cue);
    user.create(&hourly_cue("other"));
    other.create(&hourly_cue("invoice of another user"));
    let found = |q: &str| names(&list(&user, &format!("q={q}"))) == ["Invoice Mailer"];
    let parts = [
        "invoice",
        "E%20MAIL",
        "invoice%20",
        "E/MAILS",
        "PROD",
        "ling.e",
        "BUCHHALTUNG",
        "127.0.0.1",
    ];
    for q in parts.into_iter().chain([&id(&cue)[..8], id(&cue)]) {
        assert!(found(q), "{q}");
    }
    for q in ["secret", "%25", "_", "invoices", &id(&cue)[4..], "http:", ":9", "%22", "prod,", "["]
    {
        assert!(!found(q), "{q}");
    }
    assert_eq!(
        list(&user, "q=zzz"),
        json!({
            "cues": [], "total": 0, "limit": 20, "offset": 0, "has_more": false, "next_cursor": null,
        })
    );
}

#[test]
fn a_text_is_searched_character_by_character_in_every_script() {
    let (_server, user) = Server::with_clock_and_user(START);
    for name in ["100%_a\\b*c", "Äpfel der STRASSE", "ΟΔΟΣ", "plain"] {
        user.create(&hourly_cue(name));
    }
    for (q, expected) in [
        ("%25", "100%_a\\b*c"),
        ("0%25_A", "100%_a\\b*c"),
        ("_", "100%_a\\b*c"),
        ("a%5Cb", "100%_a\\b*c"),
        ("*", "100%_a\\b*c"),
        ("%C3%A4PFEL", "Äpfel der STRASSE"),
        ("stra%C3%9Fe", "Äpfel der STRASSE"),
        ("%CE%BF%CE%B4%CE%BF%CF%82", "ΟΔΟΣ"),
    ] {
        assert_eq!(names(&list(&user, &format!("q={q}"))), [expected], "{q}");
    }
    for q in ["p%25n", "pl_in", "p.*n", "a%5C%5Cb", "apfel"] {
        assert_eq!(names(&list(&user, &format!("q={q}"))), [""; 0], "{q}");
    }
}

#[test]
fn a_cue_shows_how_many_runs_in_a_row_have_failed() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user(START), Receiver::with(Reaction::Status(500)));
    let cue = user.create(&hook("failing", &receiver.url()));
    user.create(&hourly_cue("work"));
    assert_eq!(cue["failing"], 0);
    for failing in [1, 2] {
        user.advance("PT1H");
        assert_eq!(user.cue(&cue)["failing"], failing);
        assert_eq!(user.change(&cue, &json!({"name": "fails"}))["failing"], failing);
        let listed = list(&user, "failing=true");
        assert_eq!((&listed["total"], &listed["cues"][0]["failing"]), (&json!(1), &json!(failing)));
        assert_eq!(names(&list(&user, "failing=false")), ["work"]);
    }
    receiver.react(Reaction::Status(200));
    user.advance("PT1H");
    assert_eq!(user.cue(&cue)["failing"], 0);
    assert_eq!(list(&user, "failing=true")["total"], 0);
}

#[test]
fn recent_runs_are_letters_newest_last() {
    let ((mut server, mut user), receiver) =
        (Server::with_clock_and_user(START), Receiver::with(Reaction::Status(500)));
    let mut retrying = hook("hook", &receiver.url());
    retrying["retry"] = json!({"max_attempts": 2, "backoff_minutes": [90]});
    retrying["schedule"]["catch_up"] = json!("none");
    let cue = user.create(&retrying);
    let recent = |user: &Client, runs: u32| {
        let shown = list(user, &format!("runs={runs}"));
        assert_eq!(shown.list("cues").len(), 1);
        shown["cues"][0]["recent"].clone()
    };
    assert_eq!(recent(&user, 60), json!({"statuses": "", "last": null}));
    assert_eq!(list(&user, "")["cues"][0].get("recent"), None);
    let words = list(&user, "runs=1")["cues"][0]["schedule_words"].take();
    assert!(words.as_str().unwrap().starts_with("Every hour"), "{words}");
    user.advance("PT1H");
    receiver.react(Reaction::Status(200));
    user.advance("PT1H");
    assert_eq!(recent(&user, 60)["statuses"], "rs");
    receiver.react(Reaction::Status(500));
    user.advance("PT1H");
    assert_eq!(recent(&user, 60)["statuses"], "fsr", "the first one was sent again");
    // A run by request that waits, and an outage of five hours.
    user.try_fire(&cue, &json!({"send_at": "2026-01-06T00:00:00Z"})).expect(200);
    assert_eq!(recent(&user, 60)["statuses"], "fsrp");
    server.stop();
    user = user.at(server.restart_at("2026-01-05T17:30:00Z"));
    user.settle();
    let shown = recent(&user, 60);
    let statuses = shown.text("statuses");
    assert_eq!(statuses, "fsfmp", "one letter for the outage, before the run that waits");
    let newest = &user.executions_of(id(&cue))[0];
    let last = &shown["last"];
    assert_eq!((&last["execution_id"], &last["status"]), (&newest["id"], &newest["status"]));
    assert_eq!(last["at"], newest["scheduled_for"], "there was no attempt");
    for runs in 0..=5 {
        let some = recent(&user, runs);
        assert_eq!(some["statuses"], statuses[statuses.len() - runs as usize..], "{runs}");
        assert_eq!(&some["last"], last);
    }
}

#[test]
fn the_last_run_has_its_latest_attempt() {
    let ((_server, user), receiver) =
        (Server::with_clock_and_user(START), Receiver::with(Reaction::Status(200)));
    let cue = user.create(&hook("hook", &receiver.url()));
    user.advance("PT1H");
    let last = &list(&user, "runs=1")["cues"][0]["recent"]["last"];
    let newest = &user.executions_of(id(&cue))[0];
    assert_eq!((&last["execution_id"], &last["status"]), (&newest["id"], &json!("success")));
    assert_eq!(last["at"], newest["last_attempt_at"]);
}

#[test]
fn a_list_of_long_texts_is_complete() {
    let (_server, user) = Server::with_clock_and_user(START);
    let long = "ä".repeat(10_000);
    let make = |number: i32| {
        let mut cue = hourly_cue(&format!("{number}"));
        cue["description"] = json!(long);
        id(&user.create(&cue)).to_owned()
    };
    let mut made: Vec<String> = (0..12).map(make).collect();
    made.reverse();
    let whole = list(&user, "limit=12");
    assert_eq!((ids(&whole), &whole["has_more"]), (made.clone(), &json!(false)));
    assert_eq!(whole["cues"][3]["description"], json!(long));
    assert_eq!(pages(&user, "", 5), made);
}
