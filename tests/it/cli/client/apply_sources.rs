//! What `cued apply` reads and whose cues it changes: folders, files of others, what `cued cue show` and `cued export`
//! print; and what it does not print.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::cli::client::apply::{FILE, apply, assert_exported, write};
use crate::cli::client::start;
use crate::support::*;

/// A file of the namespace `home` with one cue.
fn backup_at(hour: u8) -> String {
    format!("namespace: home\ncues:\n  backup: {{schedule: '0 {hour} * * *', worker: true}}\n")
}

/// The client of the API that knows no files is not asked for one.
#[test]
fn a_put_without_a_source_changes_any_cue() {
    let (_server, user, home) = start();
    apply(&home, &backup_at(3));
    let body = json!({"name": "b", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 4 * * *"}});
    assert_eq!(user.put("/v1/cues/by-slug/home/backup", &body).expect(200)["action"], "updated");
    let path = "/v1/cues/by-slug/home/backup?source=nas";
    let other = json!({"name": "c", "transport": "worker", "schedule": {"type": "recurring", "cron": "0 4 * * *"}});
    for query in ["", "&dry_run=true"] {
        user.put(&format!("{path}{query}"), &other).expect_error(409, "slug_taken");
    }
    assert_eq!(
        user.put(&format!("{path}&adopt=true&dry_run=true"), &other).expect(200)["action"],
        "updated"
    );
    user.put(path, &other).expect_error(409, "slug_taken");
    assert_eq!(user.put(path, &body).expect(200)["action"], "unchanged");
}

#[test]
fn errors_for_programs_hide_what_their_text_hides() {
    let (_server, _user, home) = start();
    let home = home.env("LONG", "s3cr3t".repeat(4_000)).env("SHORT", "s3cr3t");
    let cue = "cues:\n  a: {schedule: '@daily', ";
    for fields in [
        "url: 'http://a', headers: {X-Pin: 4711}}",
        "url: 'http://a', description: '${LONG}'}",
        "url: 'http://a', tags: ['${SHORT} x']}",
        "url: 'http://a', retry: {backoff_minutes: '${SHORT}'}}",
        "callback: {url: 'http://a', flow: {key: '${SHORT}ü', parallelism: 1}}}",
        "callback: {url: 'http://a', flow: {key: '${SHORT}'}}}",
    ] {
        write(&home, FILE, &format!("{cue}{fields}"));
        // With --keep-going the server finds the fault, and its answer is printed.
        for (command, code) in [("diff", 2), ("apply", 2), ("apply --keep-going", 5)] {
            for form in ["json", "table"] {
                let arguments: Vec<&str> = command.split(' ').chain(["-f", FILE]).collect();
                let run = home.run(&[&arguments[..], &["-o", form]].concat());
                assert_eq!(run.code, code, "{fields}: {run:?}");
                let printed = format!("{}{}", run.stdout, run.stderr);
                assert!(
                    !printed.contains("s3cr3t") && !printed.contains("4711"),
                    "{fields}: {printed}"
                );
            }
        }
    }
    write(&home, FILE, &format!("{cue}url: 'http://a', overlap: never, payload: {{x: 1}}}}"));
    let run = home.run(&["apply", "--keep-going", "-f", FILE, "--json"]);
    assert!(
        run.stderr.contains("overlap: must be 'allow', 'skip' or 'buffer_one'"),
        "the fault is named: {run:?}"
    );
}

/// A text with all that files and terminals may take for something else.
fn any_text() -> impl Strategy<Value = String> {
    let odd = "[\u{feff}\u{2028}\u{85}\u{7f}\u{202e}\u{fffe}\u{10ffff}\n\t\r #:${}\"'\\\\-]{1,4}";
    prop_oneof![
        odd,
        "\\PC{1,12}",
        any::<String>().prop_map(|text| text.chars().take(12).collect()),
        "[a-z]{1,5}"
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let plain = prop_oneof![
        any_text().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
    ];
    plain.prop_recursive(4, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(any_text(), inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// The body of a request that creates a cue.
fn any_body() -> impl Strategy<Value = Value> {
    let key = prop_oneof![4 => any_text(), 1 => "[a#: ]".prop_map(|text| text.repeat(1_100))];
    let payload =
        btree_map(key, any_json(), 0..3).prop_map(|map| map.into_iter().collect::<Value>());
    let schedule = prop_oneof![
        Just(json!({"type": "recurring", "cron": " 0  3 * * mon-FRI "})),
        Just(
            json!({"type": "recurring", "every": "PT90S", "jitter_seconds": 30, "catch_up": "none"})
        ),
        Just(
            json!({"type": "recurring", "cron": "@daily", "timezone": "Asia/Tokyo", "end": "2031-01-01T00:00:00.123Z"})
        ),
        Just(json!({"type": "once", "at": "2040-01-01T09:00:00+02:00"})),
    ];
    let target = prop_oneof![
        Just(json!({"transport": "worker", "claim_within_minutes": 7})),
        any_text().prop_map(|text| json!({"transport": "worker", "payload": {"task": text}})),
        any_text().prop_map(
            |text| json!({"callback": {"url": format!("http://nas.lan/{text}"), "headers": {"X-A": text}}})
        ),
        any_text().prop_map(|text| json!({"callback": {"url": "http://nas.lan/?a=${b}", "method": "DELETE",
            "flow": {"key": text, "per_minute": 3}, "outcome_from_response": true}})),
    ];
    let others = prop_oneof![
        Just(json!({})),
        Just(json!({"tags": ["b", "a"], "overlap": "buffer_one", "max_age_seconds": 600})),
        Just(
            json!({"retry": {"max_attempts": 3, "backoff_seconds": [61, 1]}, "verification": {"mode": "manual"}})
        ),
        Just(json!({"on_failure": {"email": false, "webhook": "http://a/${b}", "pause": true}})),
    ];
    (any_text(), proptest::option::of(any_text()), payload, schedule, target, others).prop_map(
        |(name, description, payload, schedule, target, others)| {
            let mut body =
                json!({"name": name, "description": description, "payload": payload, "schedule": schedule});
            for part in [target, others] {
                body.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
            }
            body
        },
    )
}

#[test]
fn whatever_the_api_accepts_is_exported_and_applied_without_a_change() {
    let (_server, user, home) = start();
    // Each case starts six processes, which take longer than any number of cues.
    let cases = if is_full_run() { 25 } else { 4 };
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let deep = (0..60).fold(json!(1), |inner, _| json!([inner]));
    let accepted = std::cell::Cell::new(0);
    let result = runner.run(&vec((any_body(), any::<bool>()), 24), |bodies| {
        let (mut ids, mut with_slug) = (Vec::new(), 0);
        for (number, (mut body, has_slug)) in bodies.into_iter().enumerate() {
            if has_slug {
                body["slug"] = format!("n/c{number}").into();
            }
            if number == 0 {
                body["payload"]["deep"] = deep.clone();
            }
            let response = user.post("/v1/cues", &body);
            if response.status == 201 {
                with_slug += usize::from(has_slug);
                ids.push(id(&response.json()).to_owned());
            }
        }
        accepted.set(accepted.get() + ids.len());
        assert_exported(&home, &["--all"], with_slug);
        let whole = assert_exported(&home, &["--adopt"], ids.len());
        let json = home.ok(&["export", "--json"]);
        let run = home.run_with_stdin(&["diff", "-f", "-", "--exit-code"], &json);
        prop_assert_eq!(run.code, 0, "{}\n{:?}\n{}", json, run, whole);
        for id in ids {
            user.delete(&format!("/v1/cues/{id}"));
        }
        Ok(())
    });
    result.unwrap();
    assert!(accepted.get() > usize::try_from(cases).unwrap() * 8, "{}", accepted.get());
}
