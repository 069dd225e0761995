//! `cued cue`: create, list, show and change.

use crate::cli::client::{add, start, stored};
use crate::support::*;

fn worker_cue(name: &str) -> Value {
    json!({"name": name, "schedule": {"type": "recurring", "cron": "0 9 * * *"}, "transport": "worker"})
}

#[test]
fn a_cue_is_added_with_all_its_fields() {
    let (_server, user, home) = start();
    fs::write(home.folder().join("token"), "Bearer t\n").unwrap();
    let run = home.run(&words(
        "cue add --name nightly --cron '0 2 * * *' --tz Europe/Berlin --catch-up none --url http://127.0.0.1:9/hook \
         --method put --header 'X-A: a: b' --header 'Authorization: @token' \
         --payload '{a: 1, big: 123456789012345678901234567890}' --retry 3:1,2 \
         --on-failure pause,http://127.0.0.1:9/f --description d",
    ));
    assert_eq!(run.code, 0, "{run:?}");
    let cue = &user.get("/v1/cues").expect(200)["cues"][0];
    let id = id(cue);
    let expected = format!(
        "id        {id}\nname      nightly\nschedule  Every day at 02:00, Europe/Berlin: 0 2 * * *\n\
         next run  2030-01-01 01:00:00+00:00\n"
    );
    assert_eq!((run.stdout, run.stderr.as_str()), (expected, ""));
    let cue = stored(&user, id);
    assert_has(&cue["schedule"], json!({"timezone": "Europe/Berlin", "catch_up": "none"}));
    assert_has(
        &cue,
        json!({
            "description": "d", "retry": {"max_attempts": 3, "backoff_minutes": [1, 2]},
            "on_failure": {"email": false, "pause": true, "webhook": "http://127.0.0.1:9/f"},
        }),
    );
    assert_eq!(cue["payload"]["big"].to_string(), "123456789012345678901234567890");
    let headers = json!({"Authorization": "Bearer t", "X-A": "a: b"});
    assert_has(
        &cue["callback"],
        json!({"headers": headers, "url": "http://127.0.0.1:9/hook", "method": "PUT"}),
    );
    let shown = home.ok(&["cue", "show", "nightly"]);
    assert_contains(
        &shown,
        &["Authorization: …\n", "X-A: a: b\n", "retry         3 attempts, pauses 1m, 2m\n"],
    );
    assert!(!shown.contains("Bearer"), "{shown}");
    let headers = &home.json(&["cue", "show", "nightly"])["callback"]["headers"];
    assert_eq!(headers["Authorization"], "Bearer t", "a program reads it");
}

#[test]
fn a_worker_cue_has_its_task_and_the_warning_is_on_standard_error() {
    let (_server, user, home) = start();
    let run = home.run(&words("cue add --name w --every 15m --task t --claim-within 30"));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.starts_with("warning: No worker for task t was seen"), "{run:?}");
    assert!(run.stdout.contains("schedule  Every 15 minutes, UTC\n"), "{run:?}");
    let list = user.get("/v1/cues").expect(200);
    let cue = stored(&user, list["cues"][0]["id"].as_str().unwrap());
    assert_has(
        &cue,
        json!({"payload": {"task": "t"}, "claim_within_minutes": 30, "transport": "worker"}),
    );
    assert_has(&cue["schedule"], json!({"every": "15m", "cron": null}));
    assert!(!run.stderr.contains("by their task"), "{run:?}");
    let run = home.run(&words("cue add --name none --every 15m --worker --payload '{a: 1}' -q"));
    let short = run.stdout.trim().strip_prefix("cue_").unwrap().get(..8).unwrap();
    let note = format!(
        "`cued work` takes runs by their task; set one: cued cue set {short} --task TASK\n"
    );
    assert!(run.code == 0 && run.stderr.ends_with(&note), "{run:?}");
    let updated = home.ok(&words("cue add --name w --every 15m --task u --or-update"));
    assert!(updated.contains("updated: payload"), "{updated}");
}

#[test]
fn times_in_flags_are_durations_or_seconds() {
    let (_server, user, home) = start();
    let cue = |line: &str| {
        home.ok(&words(line));
        user.get("/v1/cues").expect(200)["cues"][0].clone()
    };
    let added =
        cue("cue add --name n --every 1h --url http://127.0.0.1:9/ --jitter 10m --timeout 2m");
    assert_eq!(added["schedule"]["jitter_seconds"], 600);
    assert_eq!(added["callback"]["timeout_seconds"], 120);
    let changed = cue("cue set n --jitter 90 --timeout 5");
    assert_eq!(changed["schedule"]["jitter_seconds"], 90);
    assert_eq!(changed["callback"]["timeout_seconds"], 5);
    let error = home.fails(&words("cue set n --timeout soon"), 2);
    assert!(error.contains("examples are 90s, 10m"), "{error}");
}

#[test]
fn a_cue_that_is_not_active_has_no_next_runs_but_a_reason() {
    let (_server, _user, home) = start();
    let id = add(&home, "a1");
    home.ok(&["cue", "pause", "a1"]);
    let run = home.run(&["cue", "next", "a1"]);
    let note = format!("a1 is paused: cued cue resume {}\n", &id[4..12]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr), (0, "", note));
    assert_eq!(home.json(&["cue", "next", "a1"])["upcoming"], json!([]));
}

#[test]
fn the_payload_comes_from_an_argument_a_file_or_standard_input() {
    let (_server, user, home) = start();
    fs::write(home.folder().join("p.yaml"), "from: file\n").unwrap();
    let add =
        ["cue", "add", "--name", "x", "--at", "2030-02-01T10:00", "--worker", "-q", "--payload"];
    let payload = |id: &str| stored(&user, id.trim())["payload"].clone();
    assert_eq!(payload(&home.ok(&[&add[..], &["@p.yaml"]].concat())), json!({"from": "file"}));
    let run = home.run_with_stdin(&[&add[..], &["-"]].concat(), "{\"from\": \"stdin\"}");
    assert_eq!(payload(&run.stdout), json!({"from": "stdin"}));
    let error = home.fails(&[&add[..], &["{a: 1, a: 2}"]].concat(), 2);
    assert_eq!(error, "cued: --payload: 1:8: the key \"a\" is repeated\n");
    assert!(home.fails(&[&add[..], &["@none"]].concat(), 2).contains("cannot read none"));
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 2);
}

#[test]
fn wrong_flags_of_a_new_cue_are_explained() {
    let (_server, user, home) = start();
    for (flags, reason) in [
        ("--worker", "--cron, --at or --every"),
        ("--every 5m", "--url URL or --task TASK"),
        ("--every 5m --cron '* * * * *' --worker", "cannot be used with"),
        ("--every 5m --url http://x/ --worker", "cannot be used with"),
        ("--every 5m --url http://x/ --task resize", "cannot be used with"),
        ("--every 5m --worker --retry x", "4:30s,5m,15m"),
        ("--every 5m --url http://x/ --header x", "has no colon"),
    ] {
        let error = home.fails(&[&["cue", "add", "--name", "x"], &words(flags)[..]].concat(), 2);
        assert!(error.contains(reason), "{flags}: {error}");
    }
    let error = home.fails(&["cue", "add", "--name", "x", "--worker", "--cron", "0 25 * * *"], 5);
    assert!(error.ends_with("\n  0 25 * * *\n    ^^\n"), "{error}");
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
}

#[test]
fn the_server_of_a_new_cue_is_named_by_a_flag_of_its_own() {
    let (server, user, _home) = start();
    let home = ClientHome::new().env("CUED_API_KEY", user.key());
    let url = server.url();
    home.ok(&words(&format!(
        "cue add --name x --every 1h --url http://127.0.0.1:9/ --server {url} -q"
    )));
    assert_eq!(home.json(&["cue", "list", "--url", &url])["total"], 1);
    assert_eq!(home.json(&["cue", "list", "--server", &url])["total"], 1);
    home.fails(&["cue", "list"], 1);
}

#[test]
fn cues_are_listed_by_filters_and_in_every_form() {
    let (_server, user, home) = start();
    let ids: Vec<String> = ["b", "a", "c"].map(|name| add(&home, name)).to_vec();
    home.ok(&["cue", "pause", "c"]);
    let table = home.ok(&["cue", "list", "--sort", "name"]);
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ID\tNAME\tSTATUS\tSCHEDULE\tNEXT RUN"), "{table}");
    assert!(
        lines[1].starts_with(&format!(
            "{}\ta\tactive\t0 9 * * *\t2030-01-01 09:00:00+00:00\t0",
            ids[1]
        )),
        "{table}"
    );
    assert!(lines[3].contains("paused"), "{table}");
    assert_eq!(
        home.ok(&["cue", "list", "--sort", "-name", "-q"]),
        format!("{}\n{}\n{}\n", ids[2], ids[0], ids[1])
    );
    assert_eq!(home.ok(&["cue", "list", "--status", "paused", "-q"]), format!("{}\n", ids[2]));
    assert_eq!(home.ok(&["cue", "list", "--search", "A", "-o", "id"]), format!("{}\n", ids[1]));
    assert_eq!(home.ok(&["cue", "list", "--transport", "webhook", "-q"]), "");
    assert_eq!(home.ok(&["cue", "list", "--failing", "-q"]), "");
    assert_eq!(home.json(&["cue", "list"]), user.get("/v1/cues?limit=100").expect(200));
    assert!(home.ok(&["cue", "list", "-o", "wide"]).contains("RECENT"));
    assert_eq!(home.ok(&["cue", "list", "-o", "jsonl"]).lines().count(), 3);
    assert!(home.ok(&["cue", "list", "-o", "yaml"]).starts_with("cues:\n"));
    let run = home.run(&["cue", "list", "--limit", "2"]);
    assert_eq!(run.stderr, "2 of 3; --all shows the rest\n");
    assert!(home.fails(&["cue", "list", "--status", "x"], 2).contains("[possible values: active"));
}

#[test]
fn tags_are_added_shown_changed_and_selected_by() {
    let (_server, user, home) = start();
    let add = |line: &str| {
        let line = format!("cue add --cron '0 9 * * *' --worker -q --name {line}");
        home.ok(&words(&line)).trim().to_owned()
    };
    let (one, both, none) = (add("one --tag a"), add("both --tag a --tag b"), add("none"));
    assert_eq!(stored(&user, &both)["tags"], json!(["a", "b"]));
    let list = |line: &str| home.ok(&[&["cue", "list", "-q"], &words(line)[..]].concat());
    assert_eq!(list("--tag a --tag b"), format!("{both}\n"));
    assert_eq!(list("--tag a --sort created"), format!("{one}\n{both}\n"));
    let wide = home.ok(&["cue", "list", "-o", "wide"]);
    assert!(wide.contains("TAGS") && wide.contains("\ta, b\t"), "{wide}");
    assert!(home.ok(&["cue", "show", "both"]).contains("\ntags          a, b\n"));
    assert!(!home.ok(&["cue", "show", "none"]).contains("tags"));
    home.ok(&["cue", "set", &none, "tags=x, 2030"]);
    assert_eq!(stored(&user, &none)["tags"], json!(["x", "2030"]));
    home.ok(&["cue", "set", &none, "tags=[\"y\"]"]);
    assert_eq!(stored(&user, &none)["tags"], json!(["y"]));
    home.ok(&["cue", "set", &none, "tags=null"]);
    assert_eq!(stored(&user, &none)["tags"], json!([]));
    let error = home.fails(&["cue", "pause", "--all", "--tag", "a", "--tag", "b"], 2);
    assert!(error.contains("Pause all 1 active cue with a, b?"), "{error}");
    assert_eq!(
        home.ok(&["cue", "pause", "--all", "--tag", "a", "--tag", "b", "-y"]),
        "paused 1 cue\n"
    );
    assert_eq!(list("--status paused"), format!("{both}\n"));
    assert_eq!(home.ok(&["cue", "resume", "--all", "--tag", "a", "-y"]), "resumed 1 cue\n");
    home.fails(&["cue", "pause", "one", "--tag", "a"], 2);
    let error = home.fails(&["cue", "set", &none, "tags=A"], 5);
    assert!(error.contains("tags.0") && error.contains("a-z"), "{error}");
}

#[test]
fn all_cues_are_listed_over_pages() {
    let (_server, user, home) = start();
    for number in 0..105 {
        user.create(&worker_cue(&format!("n{number}")));
    }
    assert_eq!(home.ok(&["cue", "list", "--all", "-q"]).lines().count(), 105);
    assert_eq!(home.json(&["cue", "list", "--all"])["cues"].as_array().unwrap().len(), 105);
    // The exact name is on a later page of the search for it.
    assert!(home.ok(&["cue", "show", "n0"]).contains("name          n0\n"));
}

#[test]
fn a_cue_is_named_by_its_id_or_its_only_name() {
    let (_server, user, home) = start();
    let id = add(&home, "Nightly");
    assert_eq!(home.json(&["cue", "show", "Nightly"])["id"], json!(id));
    assert_eq!(home.json(&["cue", "show", &id])["id"], json!(id));
    assert!(
        home.fails(&["cue", "show", "nightly"], 3)
            .contains("no cue has the id or name \"nightly\"")
    );
    assert_eq!(home.json_error(&["cue", "show", "cue_000000000000"], 3)["code"], "cue_not_found");
    let second = user.create(&worker_cue("Nightly"))["id"].as_str().unwrap().to_owned();
    let error = home.fails(&["cue", "show", "Nightly"], 5);
    assert!(error.contains(&id) && error.contains(&second), "{error}");
    assert_eq!(home.json_error(&["cue", "rm", "Nightly", "-y"], 5)["code"], "refused");
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 2);
}

#[test]
fn a_cue_is_shown_with_its_latest_runs() {
    let (_server, _user, home) = start();
    let id = add(&home, "n");
    let execution = home.ok(&["cue", "fire", "n", "-q"]);
    let shown = home.ok(&["cue", "show", "n"]);
    assert!(
        shown.starts_with(&format!("id            {id}\nname          n\nstatus        active\n")),
        "{shown}"
    );
    assert_contains(
        &shown,
        &[&format!("latest runs   {}  2030-01-01 00:00:00+00:00  pending\n", execution.trim())],
    );
    assert!(home.ok(&["cue", "show", "n", "-o", "yaml"]).contains("\n  \"n\":\n"), "as a file");
}

#[test]
fn missed_runs_are_listed_by_gaps() {
    let (mut server, _user, _home) = start();
    let user = server.user();
    let cue = json!({"name": "m", "schedule": {"type": "recurring", "cron": "0 * * * *", "catch_up": "none"}, "transport": "worker"});
    user.create(&cue);
    server.stop();
    server.restart_at("2030-01-01T05:30:00Z");
    let user = user.at(server.addr());
    user.settle();
    let home = ClientHome::signed_in(&server, &user);
    let expected = "FIRST\tLAST\tCOUNT\tREASON\n\
                    2030-01-01 01:00:00+00:00\t2030-01-01 05:00:00+00:00\t5\tdowntime\n";
    assert_eq!(home.ok(&["cue", "missed", "m"]), expected);
    assert_eq!(home.json(&["cue", "missed", "m"])["missed"][0]["count"], 5);
}

#[test]
fn cues_are_paused_and_resumed_one_by_one_and_together() {
    let (_server, user, home) = start();
    let (a, b) = (add(&home, "a"), add(&home, "b"));
    assert_eq!(home.ok(&["cue", "pause", "a"]), format!("paused a ({a})\n"));
    assert_eq!(home.ok(&["cue", "pause", "a"]), format!("a ({a}) is paused already\n"));
    assert_eq!(
        home.ok(&["cue", "resume", "a"]),
        format!("resumed a ({a}); next run 2030-01-01 09:00:00+00:00\n")
    );
    assert_eq!(
        home.ok(&["cue", "pause", "a", "b", "a"]),
        format!("paused a ({a})\npaused b ({b})\n")
    );
    assert_eq!(
        home.json(&["cue", "resume", "a", "b"]),
        json!({"matched": 2, "done": 2, "failed": []})
    );
    assert!(
        home.fails(&["cue", "pause", "--all"], 2)
            .contains("Pause all 2 active cues? Not a terminal")
    );
    assert_eq!(stored(&user, &a)["status"], "active");
    assert_eq!(home.ok(&["cue", "pause", "--all", "-y"]), "paused 2 cues\n");
    assert_eq!(home.ok(&["cue", "pause", "--all"]), "paused 0 cues\n");
    assert_eq!(stored(&user, &b)["status"], "paused");
    let run = home.run(&["cue", "resume", "a", "cue_000000000000"]);
    assert_eq!((run.code, run.stderr.as_str()), (3, "cued: 1 of 2 cues was refused\n"));
    assert!(
        run.stdout.starts_with(&format!("resumed a ({a})\nrefused cue_000000000000: ")),
        "{run:?}"
    );
}

#[test]
fn a_refused_cue_among_several_is_told_in_json_too() {
    let (_server, _user, home) = start();
    add(&home, "a");
    let run = home.run(&["cue", "pause", "a", "cue_000000000000", "--json"]);
    let (out, error): (Value, Value) =
        (serde_json::from_str(&run.stdout).unwrap(), serde_json::from_str(&run.stderr).unwrap());
    assert_eq!(run.code, 3);
    assert_eq!(out["done"], 1);
    assert_eq!(error["error"]["code"], "not_found");
}

#[test]
fn cues_are_deleted_only_when_it_is_confirmed() {
    let (_server, user, home) = start();
    let ids = ["a", "b", "c"].map(|name| add(&home, name));
    let error = home.fails(&["cue", "rm", "a"], 2);
    assert!(error.contains(&format!("Delete a ({}), active, with 0 runs?", ids[0])), "{error}");
    // Several cues are listed.
    assert!(home.fails(&["cue", "rm", "a", "b"], 2).contains("These 2 cues are deleted:\n  a ("));
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 3);
    assert_eq!(home.ok(&["cue", "rm", "a", "-y"]), format!("deleted a ({})\n", ids[0]));
    let run = home.run(&["cue", "rm", "b", &ids[2], &ids[0], "-y"]);
    let expected = format!(
        "deleted b ({})\ndeleted {}\nrefused {}: no cue has this id\n",
        ids[1], ids[2], ids[0]
    );
    assert_eq!((run.code, run.stdout), (3, expected));
    assert_eq!(run.stderr, "cued: 1 of 3 cues was refused\n");
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 0);
}

#[test]
fn a_cue_is_fired_with_a_payload_and_at_an_instant() {
    let (_server, user, home) = start();
    let id = add(&home, "n");
    user.patch(&format!("/v1/cues/{id}"), &json!({"payload": {"a": 1, "b": 2}})).expect(200);
    let shown =
        home.ok(&["cue", "fire", "n", "--payload", "{\"b\": 3}", "--at", "2030-01-05T08:00"]);
    assert_contains(
        &shown,
        &[&format!("cue            n ({id})\nscheduled for  2030-01-05 08:00:00+00:00\n")],
    );
    let payloads = || {
        let list = user.get("/v1/executions/claimable").expect(200);
        let items = list["executions"].as_array().unwrap().clone();
        items.iter().map(|execution| execution["payload"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(payloads(), Vec::<Value>::new(), "the run is later");
    home.ok(&["cue", "fire", "n", "--payload", "{\"b\": 3}"]);
    assert_eq!(payloads(), [json!({"a": 1, "b": 3})]);
    home.ok(&["cue", "fire", &id, "--payload", "{}", "--replace"]);
    assert!(payloads().contains(&json!({})));
    assert_eq!(
        home.json_error(&["cue", "fire", "n", "--at", "soon"], 5)["code"],
        "invalid_schedule"
    );
    home.fails(&["cue", "fire", "none"], 3);
}

#[test]
fn fields_are_set_one_by_one() {
    let (_server, user, home) = start();
    let id = home.ok(&words(
        "cue add --name n --cron '0 9 * * *' --url http://127.0.0.1:9/ --header 'X-A: 1' --payload '{a: 1, b: 2}' \
         --description d -q",
    ));
    let id = id.trim();
    fs::write(home.folder().join("text"), "from a file\n").unwrap();
    let changed = home.ok(&words(
        "cue set n name=123 'schedule.cron=0 3 * * *' retry.max_attempts=3 payload.b=null 'payload.c={\"d\": [1]}' \
         callback.headers.X-B=2 description=@text",
    ));
    let expected = format!(
        "changed 123 ({id}): callback, description, name, payload, retry, schedule; next run 2030-01-01 03:00:00+00:00\n"
    );
    assert_eq!(changed, expected);
    let cue = stored(&user, id);
    let payload = json!({"a": 1, "c": {"d": [1]}});
    assert_has(&cue, json!({"name": "123", "description": "from a file", "payload": payload}));
    assert_eq!(cue["callback"]["headers"], json!({"X-A": "1", "X-B": "2"}));
    assert_eq!(cue["retry"]["max_attempts"], 3);
    home.ok(&["cue", "set", id, "description=null", "payload={x: 1}"]);
    assert_has(&stored(&user, id), json!({"description": null, "payload": {"x": 1}}));
    // `@` names no file where a name or a cron expression is expected.
    fs::write(home.folder().join("size"), "12").unwrap();
    home.ok(&["cue", "set", id, "schedule.cron=@hourly", "name=@home", "payload.size=@size"]);
    let cue = stored(&user, id);
    assert_has(&cue, json!({"name": "@home", "payload": {"x": 1, "size": 12}}));
    assert_eq!(cue["schedule"]["cron"], "@hourly");
    for (field, code, reason) in [
        ("schedule.cron=61 * * * *", 5, "\n  61 * * * *\n  ^^\n"),
        ("retry.max_attempts=x", 5, "retry.max_attempts"),
        ("colour=red", 5, "colour"),
        ("name", 2, "name=nightly"),
    ] {
        let error = home.fails(&["cue", "set", id, field], code);
        assert!(error.contains(reason), "{field}: {error}");
    }
}

#[test]
fn fields_are_set_by_the_flags_of_a_new_cue() {
    let (_server, user, home) = start();
    let id = home.ok(&words(
        "cue add --name n --cron '0 9 * * *' --url http://127.0.0.1:9/ --header 'X-A: 1' --header 'X-B: 1' \
         --payload '{a: 1}' --parallelism 2 --tag x -q",
    ));
    let id = id.trim();
    let changed = home.ok(&words(
        "cue set n --cron '0 3 * * *' --tz Europe/Berlin --header 'x-b: 2' --per-minute 9 --task t --retry 3:30s,1m \
         --on-failure none --url http://127.0.0.1:9/new --max-age 10m --tag y description=text callback.headers.X-C=3",
    ));
    assert!(
        changed.starts_with(&format!("changed n ({id}): callback, description, max_age_seconds,")),
        "{changed}"
    );
    let cue = stored(&user, id);
    assert_has(&cue["schedule"], json!({"cron": "0 3 * * *", "timezone": "Europe/Berlin"}));
    assert_has(
        &cue,
        json!({"payload": {"a": 1, "task": "t"}, "tags": ["y"], "description": "text", "max_age_seconds": 600}),
    );
    let callback = &cue["callback"];
    assert_eq!(callback["headers"], json!({"X-A": "1", "x-b": "2", "X-C": "3"}));
    assert_has(&callback["flow"], json!({"parallelism": 2, "per_minute": 9}));
    assert_eq!(callback["url"], "http://127.0.0.1:9/new");
    home.ok(&words("cue set n --every 90m"));
    assert_has(&stored(&user, id)["schedule"], json!({"every": "90m", "cron": null}));
    let error = home.fails(&words("cue set n"), 2);
    assert_eq!(error, "cued: nothing to change: add a flag such as --cron, or FIELD=VALUE\n");
    home.fails(&words("cue set n --name a name=b"), 2);
    home.fails(&words("cue set n --worker"), 2);
}

#[test]
fn a_request_can_be_shown_instead_of_made() {
    let (_server, user, home) = start();
    let id = add(&home, "n");
    let shown = home.ok(&["cue", "pause", "n", "--curl"]);
    assert!(
        shown.starts_with("curl -X PATCH ") && shown.contains(&id) && !shown.contains(user.key()),
        "{shown}"
    );
    home.ok(&["cue", "rm", "n", "--curl"]);
    assert_eq!(stored(&user, &id)["status"], "active");
}
