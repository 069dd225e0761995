//! `cued apply`, `cued diff` and `cued export`: cues in a file, from the first apply to an exported file.

use std::io::Write as _;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::cli::client::sign_in::at_terminal;
use crate::cli::client::start;
use crate::support::*;

pub const FILE: &str = "cues.yaml";

const GUIDE: &str = include_str!("../../../../src/docs/files.md");

/// Three cues in the namespace `home`.
const HOME: &str = "\
namespace: home
defaults: {timezone: Berlin, on_failure: {email: true}, retry: {max_attempts: 2}}
cues:
  backup:
    schedule: '0 3 * * *'
    url: http://nas.lan/backup
    headers: {X-Volume: '1'}
    payload: {volume: 1}
  report: {schedule: every monday at 9, worker: true, task: report}
  beat: {schedule: every 5m, url: 'http://nas.lan/beat', retry: {max_attempts: 1}}
";

pub fn write(home: &ClientHome, name: &str, text: &str) {
    fs::write(home.folder().join(name), text).unwrap();
}

/// Applies a file that must be accepted; returns what is printed.
#[track_caller]
pub fn apply(home: &ClientHome, text: &str) -> String {
    write(home, FILE, text);
    home.ok(&["apply", "-f", FILE])
}

pub fn slugs(user: &Client) -> Vec<String> {
    let listed = user.read("/v1/cues?limit=100").column("cues", "slug");
    let mut slugs: Vec<String> =
        listed.iter().map(|slug| slug.as_str().unwrap_or("").to_owned()).collect();
    slugs.sort();
    slugs
}

#[test]
fn prune_asks_at_a_terminal() {
    let (_server, user, home) = start();
    apply(&home, HOME);
    write(&home, FILE, "namespace: home\ncues: {}\n");
    for (answer, left) in [("n\n", 3), ("y\n", 0)] {
        let Some((mut command, mut keyboard)) = at_terminal(&home, "apply -f cues.yaml --prune")
        else {
            return;
        };
        command.until("- home/report");
        command.until("Delete 3 cues and their runs? [y/N] ");
        keyboard.write_all(answer.as_bytes()).unwrap();
        assert_eq!(command.code(), if left == 0 { 0 } else { 2 }, "{}", command.output());
        assert_eq!(slugs(&user).len(), left);
    }
}

/// Pipes an export into an apply, which must change nothing.
#[track_caller]
pub fn assert_exported(home: &ClientHome, flags: &[&str], unchanged: usize) -> String {
    let exported = home.ok(&[&["export"], flags].concat());
    let run = home.run_with_stdin(&["apply", "-f", "-"], &exported);
    let expected = format!("= {unchanged} unchanged\n");
    assert_eq!((run.code, run.stdout.as_str()), (0, expected.as_str()), "{exported}\n{run:?}");
    exported
}

/// A number after the longest proposal still makes a slug.
#[test]
fn many_cues_of_one_long_name_are_adopted() {
    let (_server, user, home) = start();
    let name = "n".repeat(80);
    for _ in 0..11 {
        user.create(&json!({"name": name, "transport": "worker", "schedule": {"type": "recurring", "cron": "@daily"}}));
    }
    home.ok(&["export", "--adopt"]);
    let slugs = slugs(&user);
    assert!(slugs.contains(&format!("{}-11", "n".repeat(56))), "{slugs:?}");
    assert!(slugs.iter().all(|slug| slug.len() + 4 <= 63), "{slugs:?}");
}

#[test]
fn the_file_of_the_examples_and_that_of_the_guide_are_applied() {
    let (_server, _user, home) = start();
    let home = home
        .env("NAS_TOKEN", "x")
        .env("NTFY_URL", "https://ntfy.sh/a")
        .env("TOPIC", "a")
        .env("SLACK_URL", "https://hooks.slack.com/services/T0/B0/x7QzMc21");
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cues.yaml");
    assert!(home.ok(&["apply", "-f", examples]).ends_with("Done: 5 created.\n"));
    assert_eq!(home.ok(&["apply", "-f", examples]), "= 5 unchanged\n");
    let files: Vec<&str> =
        GUIDE.split("```yaml\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    assert_eq!(files.len(), 1, "the test of the documentation runs the others");
    for file in files {
        apply(&home, file);
        assert!(apply(&home, file).ends_with(" unchanged\n"), "{file}");
    }
}

/// The fields of a random cue of a file, without its transport.
fn any_cue() -> impl Strategy<Value = Value> {
    let schedules = prop_oneof![
        Just(json!("@daily")),
        Just(json!("every 90s")),
        Just(json!("every weekday at 9")),
        Just(json!({"cron": "0 3 * * *", "jitter_seconds": 30})),
        Just(json!({"at": "2040-01-01T09:00:00"})),
    ];
    let payload = btree_map("[a-s${}#: ]{0,4}", "[ -~äß\n\t\u{85}\u{feff}]{0,8}", 0..3);
    let others = prop_oneof![
        Just(json!({})),
        Just(json!({"paused": true, "timezone": "Asia/Tokyo"})),
        Just(json!({"tags": ["b", "a"], "description": "a\nb"})),
        Just(json!({"retry": {"max_attempts": 2, "backoff_seconds": [7]}, "overlap": "skip"})),
        Just(json!({"on_failure": {"email": false}, "max_age_seconds": 600})),
    ];
    (schedules, payload, others).prop_map(|(schedule, payload, others)| {
        with(json!({"schedule": schedule, "payload": payload}), others)
    })
}

/// The cue with a transport that only its key decides: a cue keeps the one that it has.
fn with_transport(key: &str, cue: Value) -> Value {
    let is_worker = key.as_bytes()[0].is_multiple_of(2);
    let worker = json!({"worker": true, "task": "t"});
    let webhook =
        json!({"url": "http://nas.lan/a", "headers": {"X-B": "1", "X-A": "${x"}, "timeout": "1m"});
    with(cue, if is_worker { worker } else { webhook })
}

/// Texts as a file has them.
fn escaped(value: &Value) -> Value {
    serde_json::from_str(&value.to_string().replace("${", "$${")).unwrap()
}

#[test]
fn any_cues_are_applied_once_exported_alike_and_pruned_in_their_namespace() {
    let (_server, user, home) = start();
    apply(&home, "namespace: other\ncues:\n  kept: {schedule: '@daily', worker: true}\n");
    // Each case starts ten processes, which take longer than any number of cues.
    let cases = if is_full_run() { 15 } else { 4 };
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let number = std::cell::Cell::new(0);
    let sets = vec(btree_map("[a-z0-9][a-z0-9._-]{0,5}", any_cue(), 0..13), 2);
    let result = runner.run(&sets, |sets| {
        number.set(number.get() + 1);
        let namespace = format!("n{}", number.get());
        for cues in sets {
            let cues: Value = cues
                .into_iter()
                .map(|(key, cue)| (key.clone(), with_transport(&key, cue)))
                .collect();
            let count = cues.as_object().unwrap().len();
            let file = escaped(&json!({"namespace": namespace, "cues": cues}));
            write(&home, FILE, &file.to_string());
            home.ok(&["apply", "-f", FILE, "--prune", "-y"]);
            assert_eq!(home.ok(&["apply", "-f", FILE]), format!("= {count} unchanged\n"));
            let exported = assert_exported(&home, &["--namespace", &namespace], count);
            assert_eq!(exported, home.ok(&["export", "--namespace", &namespace]), "the same bytes");
        }
        Ok(())
    });
    result.unwrap();
    user.read("/v1/cues/slug:other%2Fkept");
}
