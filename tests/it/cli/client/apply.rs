//! `cued apply`, `cued diff` and `cued export`: cues in a file, from the first apply to an exported file.

use std::io::Write as _;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::cli::client::sign_in::at_terminal;
use crate::cli::client::{START, start};
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

fn of_slug(user: &Client, slug: &str) -> Value {
    let listed = user.get(&format!("/v1/cues?slug={slug}")).expect(200);
    assert_eq!(listed["cues"].as_array().unwrap().len(), 1, "{slug}: {listed}");
    user.get(&format!("/v1/cues/{}", id(&listed["cues"][0]))).expect(200)
}

pub fn slugs(user: &Client) -> Vec<String> {
    let listed = user.get("/v1/cues?limit=100").expect(200);
    let slugs = listed["cues"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cue| cue["slug"].as_str().unwrap_or("").to_owned());
    let mut slugs: Vec<String> = slugs.collect();
    slugs.sort();
    slugs
}

#[test]
fn a_file_creates_its_cues_once_and_then_changes_nothing() {
    let (_server, user, home) = start();
    let first = apply(&home, HOME);
    assert_eq!(
        first,
        "+ home/backup\n    next run 2030-01-01 02:00:00+00:00\n\
         + home/report\n    next run 2030-01-07 08:00:00+00:00\n\
         + home/beat\n    next run 2030-01-01 00:05:00+00:00\n\
         Done: 3 created.\n"
    );
    let backup = of_slug(&user, "home/backup");
    assert_has(
        &backup,
        json!({"name": "backup", "status": "active", "transport": "webhook", "payload": {"volume": 1}}),
    );
    assert_has(&backup["schedule"], json!({"cron": "0 3 * * *", "timezone": "Europe/Berlin"}));
    assert_has(
        &backup["callback"],
        json!({"url": "http://nas.lan/backup", "headers": {"X-Volume": "1"}}),
    );
    assert_eq!(backup["retry"]["max_attempts"], 2);
    assert_eq!(of_slug(&user, "home/beat")["retry"]["max_attempts"], 1);
    let report = of_slug(&user, "home/report");
    assert_has(&report, json!({"transport": "worker", "payload": {"task": "report"}}));
    let before = user.get("/v1/cues").expect(200);
    assert_eq!(apply(&home, HOME), "= 3 unchanged\n");
    assert_eq!(home.ok(&["diff", "-f", FILE, "--exit-code"]), "= 3 unchanged\n");
    assert_eq!(user.get("/v1/cues").expect(200), before);
}

#[test]
fn defaults_are_below_each_cue_as_far_as_they_fit() {
    let (_server, user, home) = start();
    let file = "\
        defaults:\n  schedule: '@daily'\n  worker: true\n  headers: {X-A: d, X-B: d}\n  timeout: 10\n  tags: [d]\n  \
        payload: {a: {b: 1, c: 2}, l: [1]}\n  retry: {max_attempts: 2, backoff_minutes: [1]}\n  claim_within_minutes: 5\n\
        cues:\n  w: {task: t}\n  h:\n    url: http://a\n    headers: {x-a: own}\n    tags: []\n    \
        payload: {a: {c: 3}, l: []}\n    retry: {backoff_seconds: [5]}\n    schedule: {at: '2040-01-01T00:00:00Z'}\n";
    apply(&home, file);
    let payload = json!({"a": {"b": 1, "c": 2}, "l": [1], "task": "t"});
    assert_has(
        &of_slug(&user, "w"),
        json!({"transport": "worker", "claim_within_minutes": 5, "tags": ["d"], "payload": payload}),
    );
    let call = of_slug(&user, "h");
    assert_has(
        &call,
        json!({"transport": "webhook", "tags": [], "payload": {"a": {"b": 1, "c": 3}, "l": []}}),
    );
    assert_has(
        &call["callback"],
        json!({"headers": {"X-B": "d", "x-a": "own"}, "timeout_seconds": 10}),
    );
    assert_has(&call["retry"], json!({"max_attempts": 2, "backoff_seconds": [5]}));
    assert_has(&call["schedule"], json!({"cron": null, "at": "2040-01-01T00:00:00Z"}));
    assert_eq!(apply(&home, file), "= 2 unchanged\n");
}

#[test]
fn a_difference_is_shown_field_by_field_and_written_by_apply_alone() {
    let (_server, user, home) = start();
    apply(&home, HOME);
    let changed = HOME
        .replace("0 3 * * *", "0 4 * * *")
        .replace("{volume: 1}", "{volume: 2, full: true}")
        .replace("X-Volume: '1'", "X-Volume: 'secret-2', X-New: 'secret-3'");
    write(&home, FILE, &changed);
    let shown = "~ home/backup\n\
        \x20   schedule.cron: 0 3 * * * → 0 4 * * *\n\
        \x20   callback.headers.X-New: none → ***\n\
        \x20   callback.headers.X-Volume: *** → ***\n\
        \x20   payload.full: none → true\n\
        \x20   payload.volume: 1 → 2\n\
        \x20   next run 2030-01-01 02:00:00+00:00 → 2030-01-01 03:00:00+00:00\n\
        = 2 unchanged\n";
    let run = home.run(&["diff", "-f", FILE, "--exit-code"]);
    assert_eq!(run.code, 8);
    assert_eq!(run.stdout.as_str(), shown);
    assert_eq!(run.stderr.as_str(), "cued: 1 difference\n");
    // A diff writes nothing.
    assert_eq!(of_slug(&user, "home/backup")["schedule"]["cron"], "0 3 * * *");
    assert_eq!(home.ok(&["apply", "-f", FILE]), format!("{shown}Done: 1 updated, 2 unchanged.\n"));
    assert_has(&of_slug(&user, "home/backup"), json!({"payload": {"full": true, "volume": 2}}));
    let removed = HOME.replace("    headers: {X-Volume: '1'}\n", "");
    assert!(apply(&home, &removed).contains("callback.headers.X-New: *** → none\n"));
    // A removed field is removed.
    assert_eq!(of_slug(&user, "home/backup")["callback"]["headers"], json!({}));
}

#[test]
fn a_pause_of_somebody_else_survives_unless_the_file_has_paused() {
    let (_server, user, home) = start();
    apply(&home, HOME);
    let beat = format!("/v1/cues/{}", id(&of_slug(&user, "home/beat")));
    user.patch(&beat, &json!({"status": "paused"})).expect(200);
    assert_eq!(apply(&home, HOME), "= 3 unchanged\n");
    assert_eq!(user.get(&beat).expect(200)["status"], "paused");
    let active = HOME.replace("every 5m,", "every 5m, paused: false,");
    assert!(apply(&home, &active).contains("    status: paused → active\n"));
    let paused = HOME.replace("every 5m,", "every 5m, paused: true,");
    assert!(apply(&home, &paused).contains("    status: active → paused\n"));
    assert_eq!(user.get(&beat).expect(200)["status"], "paused");
}

#[test]
fn prune_deletes_only_what_left_its_namespace() {
    let (_server, user, home) = start();
    apply(&home, &format!("{HOME}  old: {{schedule: '@daily', worker: true}}\n"));
    apply(&home, "namespace: home-2\ncues:\n  x: {schedule: '@daily', worker: true}\n");
    apply(&home, "cues:\n  home: {schedule: '@daily', worker: true}\n");
    home.ok(&["cue", "add", "--name", "plain", "--cron", "@daily", "--worker"]);
    write(&home, FILE, HOME);
    assert_eq!(home.ok(&["diff", "-f", FILE]), "= 3 unchanged\n");
    assert_eq!(home.ok(&["diff", "-f", FILE, "--prune"]), "- home/old\n= 3 unchanged\n");
    let refused = home.run(&["apply", "-f", FILE, "--prune"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, "- home/old\n= 3 unchanged\n"));
    assert_contains(&refused.stderr, &["Delete 1 cue and its runs? Not a terminal: add -y"]);
    assert_eq!(slugs(&user).len(), 7, "nothing was deleted");
    let done = home.ok(&["apply", "-f", FILE, "--prune", "-y"]);
    assert_eq!(done, "- home/old\n= 3 unchanged\nDone: 1 deleted, 3 unchanged.\n");
    assert_eq!(slugs(&user), ["", "home", "home-2/x", "home/backup", "home/beat", "home/report"]);
    write(&home, "other.yaml", "cues: {}\n");
    let text = home.fails(&["apply", "-f", FILE, "-f", "other.yaml", "--prune", "-y"], 2);
    assert!(text.contains("--prune: other.yaml has no namespace"), "{text}");
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

#[test]
fn variables_come_from_the_environment_and_are_never_printed() {
    let (_server, user, home) = start();
    let home = home.env("TOKEN", "t0k3n").env("NAME", "nas");
    let file = "cues:\n  a:\n    schedule: '@daily'\n    url: http://${NAME}/x?key=${TOKEN}\n    \
        headers: {Authorization: 'Bearer ${TOKEN}'}\n    payload: {text: 'costs $${5} $5', secret: '${TOKEN}'}\n";
    let mut printed = apply(&home, file);
    let cue = of_slug(&user, "a");
    assert_has(
        &cue["callback"],
        json!({"url": "http://nas/x?key=t0k3n", "headers": {"Authorization": "Bearer t0k3n"}}),
    );
    assert_eq!(cue["payload"], json!({"text": "costs ${5} $5", "secret": "t0k3n"}));
    let home = home.env("TOKEN", "t0k3n-2");
    for form in ["table", "json", "yaml"] {
        printed += &home.ok(&["diff", "-f", FILE, "-o", form]);
    }
    printed += &home.ok(&["apply", "-f", FILE]);
    assert!(
        printed.contains("    callback.url: *** → ***\n")
            && printed.contains("    payload.secret: *** → ***\n")
    );
    assert!(!printed.contains("t0k3n"), "{printed}");
    assert_eq!(of_slug(&user, "a")["payload"]["secret"], "t0k3n-2");
}

/// Nothing says that a stored value came from a variable.
#[test]
fn an_old_secret_is_not_printed_when_its_field_leaves_the_file_or_becomes_a_literal() {
    let (_server, _user, home) = start();
    let home = home.env("TOKEN", "t0k3n");
    let file = "cues:\n  a:\n    schedule: '0 3 * * *'\n    url: 'https://a.example:8443/${TOKEN}?k=${TOKEN}'\n    \
        payload: {token: '${TOKEN}', deep: {a: ['${TOKEN}']}}\n    description: 'd ${TOKEN}'\n    \
        on_failure: {webhook: 'https://hooks.example.com/${TOKEN}'}\n    callback: {flow: {key: '${TOKEN}', parallelism: 1}}\n\
        channels:\n  c: {type: ntfy, url: 'https://ntfy.sh/${TOKEN}'}\n";
    apply(&home, file);
    let removed = "cues:\n  a: {name: b, schedule: '0 4 * * *', url: 'https://a.example/new'}\n\
        channels:\n  c: {type: ntfy, url: 'https://ntfy.sh/new'}\n";
    write(&home, FILE, removed);
    let shown = home.ok(&["diff", "-f", FILE]);
    assert_contains(
        &shown,
        &[
            "callback.url: https://a.example:8443/*** → https://a.example/new\n",
            "payload: *** → none\n",
            "description: *** → none\n",
            "on_failure.webhook: https://hooks.example.com/*** → none\n",
            "name: a → b\n",
            "schedule.cron: 0 3 * * * → 0 4 * * *\n",
            "url: https://ntfy.sh/*** → https://ntfy.sh/new\n",
        ],
    );
    let literal = "cues:\n  a: {schedule: '0 3 * * *', url: 'https://a.example/', description: d, \
        payload: {token: t, deep: {}}}\n";
    let mut printed = shown + &home.ok(&["diff", "-f", FILE, "--json"]);
    write(&home, FILE, literal);
    printed += &home.ok(&["diff", "-f", FILE]);
    printed += &home.ok(&["apply", "-f", FILE, "-o", "yaml"]);
    assert!(!printed.contains("t0k3n"), "{printed}");
    assert!(printed.contains("payload.token: *** → t\n"), "{printed}");
}

#[test]
fn several_files_and_standard_input_are_one_plan() {
    let (_server, user, home) = start();
    write(&home, "a.yaml", HOME);
    write(
        &home,
        "b.json",
        "{\n\t\"namespace\": \"work\",\n\t\"cues\": {\"x\": {\"schedule\": \"@daily\", \"worker\": true}}\n}",
    );
    let stdin = "cues:\n  y: {schedule: '@daily', worker: true}\n";
    let run = home.run_with_stdin(&["apply", "-f", "a.yaml", "-f", "b.json", "-f", "-"], stdin);
    assert!(run.code == 0 && run.stdout.ends_with("Done: 5 created.\n"), "{run:?}");
    assert_eq!(slugs(&user), ["home/backup", "home/beat", "home/report", "work/x", "y"]);
    // A file without cues still has its namespace.
    write(&home, "b.json", "{\"namespace\": \"work\"}");
    let shown = home.ok(&["diff", "-f", "a.yaml", "-f", "b.json", "--prune"]);
    assert_eq!(shown, "- work/x\n= 3 unchanged\n");
}

#[test]
fn programs_read_the_changes_as_json_and_ids() {
    let (_server, user, home) = start();
    write(&home, FILE, HOME);
    let planned = home.json(&["diff", "-f", FILE]);
    let first = json!({
        "kind": "cue", "slug": "home/backup", "id": null, "action": "created", "changes": [],
        "next_run": "2030-01-01T02:00:00+00:00", "next_run_before": null,
    });
    assert_eq!(planned["changes"][0], first);
    assert_eq!(
        home.ok(&["diff", "-f", FILE, "-q"]),
        "slug:home/backup\nslug:home/report\nslug:home/beat\n"
    );
    let ids = home.ok(&["apply", "-f", FILE, "-q"]);
    assert_eq!(ids.lines().next(), Some(id(&of_slug(&user, "home/backup"))));
    assert_eq!(home.ok(&["apply", "-f", FILE, "-q"]), "");
    write(&home, FILE, &HOME.replace("0 3", "0 4"));
    let done = home.json(&["apply", "-f", FILE]);
    let change = json!([{"field": "schedule.cron", "old": "0 3 * * *", "new": "0 4 * * *"}]);
    assert_has(&done["changes"][0], json!({"action": "updated", "changes": change}));
    let actions: Vec<&Value> =
        done["changes"].as_array().unwrap().iter().map(|it| &it["action"]).collect();
    assert_eq!(actions, ["updated", "unchanged", "unchanged"]);
    let lines = home.ok(&["diff", "-f", FILE, "-o", "jsonl"]);
    assert_eq!(lines.lines().count(), 3);
    let curl = home.ok(&["apply", "-f", FILE, "--curl"]);
    assert!(
        curl.starts_with("curl -X PUT ") && curl.contains("/v1/cues/by-slug/home/backup"),
        "{curl}"
    );
    assert!(home.ok(&["diff", "-f", FILE, "--curl"]).contains("by-slug/home/beat?dry_run=true"));
}

#[test]
fn after_a_refusal_nothing_is_written_unless_apply_keeps_going() {
    let (_server, user, home) = start();
    let bad = format!("{HOME}  bad: {{schedule: '@daily', url: 'ftp://a'}}\n");
    write(&home, FILE, &bad);
    let refused = home.fails(&["apply", "-f", FILE], 2);
    assert!(refused.starts_with("cued: cues.yaml:11:34: url: must "), "{refused}");
    assert!(refused.ends_with(" (nothing was sent)\n"), "{refused}");
    assert!(slugs(&user).is_empty());
    let run = home.run(&["apply", "-f", FILE, "--keep-going"]);
    assert!(run.code == 5 && run.stdout.ends_with("Done: 3 created.\n"), "{run:?}");
    assert!(run.stderr.starts_with("cued: cues.yaml:11:34: url: must "), "{run:?}");
    // A cue keeps its transport.
    write(&home, FILE, &HOME.replace("worker: true, task: report", "url: 'http://nas.lan/'"));
    let refused = home.fails(&["apply", "-f", FILE], 5);
    assert!(
        refused.starts_with("cued: cues.yaml:9:")
            && refused.contains("transport: should be worker"),
        "{refused}"
    );
}

#[test]
fn a_plan_fits_80_columns() {
    let (_server, _user, home) = start();
    let long = "x".repeat(60);
    let file = |text: &str| {
        format!(
            "namespace: {long}\ncues:\n  {long}: {{schedule: '@daily', worker: true, payload: {{text: '{text}'}}}}\n"
        )
    };
    apply(&home, &file(&"old ".repeat(20)));
    write(&home, FILE, &file(&"new ".repeat(20)));
    let home = home.env("CUED_COLUMNS", "80");
    let shown = home.ok(&["diff", "-f", FILE]);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert_contains(&shown, &["\n    payload.text: ***\n      → new new"]);
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

#[test]
fn an_exported_file_is_short_and_applies_without_a_change() {
    let (_server, user, home) = start();
    apply(&home, HOME);
    let exported = assert_exported(&home, &["--namespace", "home"], 3);
    assert_eq!(
        exported,
        "namespace: home\ncues:\n  backup:\n    schedule: \"0 3 * * *\"\n    timezone: Europe/Berlin\n    \
         url: \"http://nas.lan/backup\"\n    headers:\n      X-Volume: \"1\"\n    payload:\n      volume: 1\n    \
         retry:\n      max_attempts: 2\n  beat:\n    schedule:\n      every: \"5m\"\n    timezone: Europe/Berlin\n    \
         url: \"http://nas.lan/beat\"\n    retry:\n      max_attempts: 1\n  report:\n    schedule: \"0 9 * * 1\"\n    \
         timezone: Europe/Berlin\n    worker: true\n    task: report\n    retry:\n      max_attempts: 2\n"
    );
    for change in [
        json!({"name": "ünïcode \u{1F600}: # \"x\" \u{202e}", "description": "a\nb ${X} $${Y}", "tags": ["a", "b"]}),
        json!({"schedule": {"start": "2030-02-01T00:00:00Z", "jitter_seconds": 60, "catch_up": "all"}}),
        json!({"callback": {"method": "PUT", "timeout_seconds": 5, "flow": {"key": "k", "parallelism": 2}}}),
        json!({"retry": {"max_attempts": 3, "backoff_seconds": [1, 2]}, "overlap": "skip", "status": "paused"}),
        json!({"on_failure": {"email": false, "webhook": "http://a/b", "pause": true}, "max_age_seconds": 600}),
        json!({"payload": {"null": null, "yes": "yes", "n": 1.50, "list": [[], {}, "0x1F"], "~": "~", "": ""}}),
    ] {
        user.patch("/v1/cues/slug:home%2Fbackup", &change).expect(200);
        assert_exported(&home, &[], 3);
    }
    let json = home.json(&["export", "--namespace", "home"]);
    assert_eq!(json["namespace"], "home");
    assert_eq!(json["cues"]["beat"]["schedule"]["every"], "5m");
    assert_eq!(home.ok(&["export", "--namespace", "home", "-q"]), "backup\nbeat\nreport\n");
    assert_eq!(home.ok(&["export", "--namespace", "none"]), "namespace: none\ncues: {}\n");
    home.fails(&["export", "--namespace", "No"], 2);
}

#[test]
fn a_cue_whose_time_has_passed_is_exported_as_a_comment() {
    let (_server, user, home) = start();
    let once = "cues:\n  once: {schedule: '2030-01-01T00:01:00Z', worker: true}\n  b: {schedule: '@daily', worker: true}\n";
    apply(&home, once);
    user.advance("PT2M");
    let runs = user.executions_of(id(&of_slug(&user, "once")));
    user.report(id(&runs[0]), &json!({"success": true}));
    assert_eq!(of_slug(&user, "once")["status"], "completed");
    assert_eq!(apply(&home, once), "= 2 unchanged\n");
    let exported = assert_exported(&home, &["--all"], 1);
    assert_contains(
        &exported,
        &[
            "\n# The time of these cues has passed: they",
            "\n#   once:\n#     schedule:\n#       at: \"2030-",
        ],
    );
    assert_eq!(home.ok(&["export", "-q"]), "b\n");
    let run = home.run(&["export", "--json"]);
    assert!(
        !run.stdout.contains("once") && run.stderr == "1 cue left out, whose time has passed\n",
        "{run:?}"
    );
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
fn cues_without_a_slug_are_proposed_and_adopted() {
    let (_server, user, home) = start();
    let add = |name: &str| {
        id(&user.create(&json!({"name": name, "transport": "worker",
        "schedule": {"type": "recurring", "cron": "@daily"}})))
        .to_owned()
    };
    let (first, _second, third) =
        (add("Nightly backup (NAS)"), add("Nightly backup, NAS"), add("日本"));
    assert_eq!(home.ok(&["export"]), "cues: {}\n");
    let proposed = home.ok(&["export", "--all"]);
    assert_contains(
        &proposed,
        &[
            "cues: {}\n# These cues have no slug",
            &format!("# nightly-backup-nas: {first} Nightly"),
            "# nightly-backup-nas-2: ",
            &format!("# cue: {third} 日本\n"),
        ],
    );
    let run = home.run(&["export", "--adopt", "--namespace", "home"]);
    assert!(
        run.code == 0
            && run.stdout.starts_with("namespace: home\ncues:\n  cue:\n    name: \"日本\"\n"),
        "{run:?}"
    );
    assert!(run.stderr.contains(&format!(
        "Nightly backup (NAS) ({first}) has the slug home/nightly-backup-nas now"
    )));
    assert_eq!(slugs(&user), ["home/cue", "home/nightly-backup-nas", "home/nightly-backup-nas-2"]);
    assert_exported(&home, &["--namespace", "home", "--adopt"], 3);
}

#[test]
fn channels_are_created_and_changed_by_their_names_and_never_deleted() {
    let (_server, user, home) = start();
    let hook = "https://hooks.slack.com/services/T0/B0/x7QzMc21";
    let home = home.env("CHAT_URL", hook).env("PHONE_TOKEN", "tk_AgQdq7mVBoFD37zQVN29");
    let file = "channels:\n  phone: {type: ntfy, url: 'https://ntfy.sh/backups', token: '${PHONE_TOKEN}'}\n  \
        chat: {type: slack, url: '${CHAT_URL}', tags: [nas], quiet: {from: '22:00', to: '07:00'}}\n";
    let first = apply(&home, file);
    assert_eq!(first, "+ channel phone\n+ channel chat\nDone: 2 created.\n");
    assert_eq!(apply(&home, file), "= 2 unchanged\n");
    let home = home.env("CHAT_URL", format!("{hook}-new"));
    assert_eq!(apply(&home, file), "= 2 unchanged\n", "a secret is not compared");
    let changed = apply(&home, &file.replace("[nas]", "[nas, db]"));
    assert_eq!(
        changed,
        "~ channel chat\n    tags: [\"nas\"] → [\"nas\",\"db\"]\n= 1 unchanged\nDone: 1 updated, 1 unchanged.\n"
    );
    let stored = user.get("/v1/channels").expect(200)["channels"].clone();
    let chat = stored
        .as_array()
        .unwrap()
        .iter()
        .find(|channel| channel["name"] == "chat")
        .unwrap()
        .clone();
    assert!(
        chat["url"].as_str().unwrap().ends_with("-new"),
        "the secret is sent with another field: {chat}"
    );
    assert!(
        apply(&home, &file.replace(", token: '${PHONE_TOKEN}'", ""))
            .contains("    token: *** → none\n")
    );
    let exported = assert_exported(&home, &["--all"], 2);
    assert_contains(
        &exported,
        &["channels:\n  chat:\n    tags:\n      - nas\n", "url: \"${CHAT_URL}\""],
    );
    assert!(!exported.contains("x7QzMc21"), "{exported}");
    let pruned = "namespace: home\ncues: {}\n";
    write(&home, FILE, pruned);
    assert_eq!(home.ok(&["apply", "-f", FILE, "--prune", "-y"]), "= 0 unchanged\n");
    assert_eq!(user.get("/v1/channels").expect(200)["total"], 3);
    write(&home, FILE, "channels:\n  chat: {type: webhook, url: 'http://a'}\n");
    assert!(
        home.fails(&["apply", "-f", FILE], 5)
            .contains("cues.yaml:2:16: the type of a channel cannot be changed")
    );
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

/// The fields of a random cue of a file.
fn any_cue() -> impl Strategy<Value = Value> {
    let schedules = prop_oneof![
        Just(json!("@daily")),
        Just(json!("every 90s")),
        Just(json!("every weekday at 9")),
        Just(json!({"cron": "0 3 * * *", "jitter_seconds": 30})),
        Just(json!({"at": "2040-01-01T09:00:00"})),
    ];
    let targets = prop_oneof![
        Just(json!({"worker": true, "task": "t"})),
        Just(
            json!({"url": "http://nas.lan/a", "headers": {"X-B": "1", "X-A": "${x"}, "timeout": "1m"})
        ),
    ];
    let payload = btree_map("[a-s${}#: ]{0,4}", "[ -~äß\n\t\u{85}\u{feff}]{0,8}", 0..3);
    let others = prop_oneof![
        Just(json!({})),
        Just(json!({"paused": true, "timezone": "Asia/Tokyo"})),
        Just(json!({"tags": ["b", "a"], "description": "a\nb"})),
        Just(json!({"retry": {"max_attempts": 2, "backoff_seconds": [7]}, "overlap": "skip"})),
        Just(json!({"on_failure": {"email": false}, "max_age_seconds": 600})),
    ];
    (schedules, targets, payload, others).prop_map(|(schedule, target, payload, others)| {
        let mut cue = json!({"schedule": schedule, "payload": payload});
        for part in [target, others] {
            cue.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        }
        cue
    })
}

/// Texts as a file has them.
fn escaped(value: &Value) -> Value {
    serde_json::from_str(&value.to_string().replace("${", "$${")).unwrap()
}

#[test]
fn any_cues_are_applied_once_exported_alike_and_pruned_in_their_namespace() {
    let (_server, user, home) = start();
    apply(&home, "namespace: other\ncues:\n  kept: {schedule: '@daily', worker: true}\n");
    let cases = if is_full_run() { 60 } else { 12 };
    let mut runner =
        TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let number = std::cell::Cell::new(0);
    let sets = vec(btree_map("[a-z0-9][a-z0-9._-]{0,5}", any_cue(), 0..4), 2);
    let result = runner.run(&sets, |sets| {
        number.set(number.get() + 1);
        let namespace = format!("n{}", number.get());
        for cues in sets {
            // A cue of the set before may have the other transport, which it keeps.
            write(&home, FILE, &json!({"namespace": namespace, "cues": {}}).to_string());
            home.ok(&["apply", "-f", FILE, "--prune", "-y", "-q"]);
            let count = cues.len();
            write(
                &home,
                FILE,
                &escaped(&json!({"namespace": namespace, "cues": cues})).to_string(),
            );
            home.ok(&["apply", "-f", FILE, "--prune", "-y"]);
            assert_eq!(home.ok(&["apply", "-f", FILE]), format!("= {count} unchanged\n"));
            let exported = assert_exported(&home, &["--namespace", &namespace], count);
            assert_eq!(exported, home.ok(&["export", "--namespace", &namespace]), "the same bytes");
        }
        Ok(())
    });
    result.unwrap();
    of_slug(&user, "other/kept");
}

#[test]
fn times_of_a_plan_are_in_the_zone_of_the_person() {
    let (_server, _user, home) = start();
    assert_eq!(START, "2030-01-01T00:00:00Z");
    write(&home, FILE, HOME);
    let shown = home.ok(&["diff", "-f", FILE, "--tz", "Berlin"]);
    assert!(shown.contains("+ home/backup\n    next run 2030-01-01 03:00:00+01:00\n"), "{shown}");
}
