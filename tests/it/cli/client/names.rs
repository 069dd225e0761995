//! Cues of one name, names with mistakes, and `cued cue add --or-update`; errors that name flags.

use crate::cli::client::{add, start, stored};
use crate::support::*;

const NIGHTLY: &str =
    "cue add --name nightly --cron '0 2 * * *' --tz Europe/Berlin --url http://127.0.0.1:9/hook";

#[test]
fn a_second_cue_of_a_name_is_added_with_a_warning_that_shows_the_first() {
    let (_server, user, home) = start();
    let first = home.ok(&words(&format!("{NIGHTLY} -q")));
    let first = first.trim();
    let again = "cue add --name nightly --every 5m --worker --task t";
    let run = home.run(&words(again));
    assert_eq!(run.code, 0, "{run:?}");
    assert_contains(
        &run.stderr,
        &[
            "\nwarning: another cue has the name \"nightly\":\n",
            &format!(
                "\n  {first}  http://127.0.0.1:9/hook  0 2 * * * Europe/Berlin  active  created 2030-"
            ),
            &format!(
                "\nTo change that one instead: cued cue set {}, or cued cue add --or-update\n",
                &first["cue_".len()..][..8]
            ),
        ],
    );
    assert!(!run.stderr.contains("worker, task t"), "not the new one: {run:?}");
    assert!(home.run(&words(again)).stderr.contains("warning: other cues have the name"));
    let json = home.run(&words(&format!("{again} --json")));
    assert_eq!((json.code, json.stderr.as_str()), (0, ""));
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 4);
}

#[test]
fn a_choice_between_cues_of_one_name_shows_what_they_call_and_when() {
    let (_server, _user, home) = start();
    let first = home.ok(&words(&format!("{NIGHTLY} -q")));
    let second = home.ok(&words("cue add --name nightly --every 5m --worker --task report -q"));
    let expected = format!(
        "cued: several cues have the name \"nightly\"; use the id:\n  \
         {}  worker, task report      every 5m                 active  created 2030-01-01 00:00:00+00:00\n  \
         {}  http://127.0.0.1:9/hook  0 2 * * * Europe/Berlin  active  created 2030-01-01 00:00:00+00:00\n",
        second.trim(),
        first.trim()
    );
    assert_eq!(home.fails(&["cue", "show", "nightly"], 5), expected);
    let home = home.env("CUED_COLUMNS", "80");
    let shown = home.fails(&["cue", "show", "nightly"], 5);
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert_contains(&shown, &["worker, task report", "0 2 * * * Eur"]);
}

#[test]
fn a_command_has_the_names_that_people_try() {
    let (_server, _user, home) = start();
    home.ok(&words("cue create --name n --cron @daily --url http://127.0.0.1:9/"));
    home.ok(&words("cue update n --retry 1"));
    assert_contains(&home.ok(&words("cue show n")), &["retry         none (one attempt)\n"]);
    assert_contains(&home.ok(&words("cue ls")), &["\tn\t"]);
    home.ok(&words("cue delete n -y"));
    add(&home, "Heartbeat of the house");
    let text = home.fails(&words("cue show hertbeat"), 3);
    assert_contains(&text, &["did you mean \"Heartbeat of the house\"?"]);
    assert!(!home.ok(&words("cue -h")).contains("create"));
    for name in ["list", "fire", "add", "create"] {
        assert_contains(&home.fails(&[name], 2), &[&format!("did you mean `cued cue {name}`?")]);
    }
    assert_contains(&home.fails(&["lst"], 2), &["did you mean `cued cue list`?"]);
    assert!(!home.fails(&["qqqq"], 2).contains("did you mean"), "no command is like it");
    let text = home.fails(&words("cue set n --worker"), 2);
    assert!(!text.contains("as a value"), "{text}");
    home.ok(&words("preview --cron '0 9 * * *'"));
}

#[test]
fn an_argument_too_many_is_answered_with_what_was_meant() {
    let home = ClientHome::new();
    for (line, advice) in [
        (
            "cue add hello2 --cron @daily --url http://x/",
            "the name of a cue is a flag: --name hello2",
        ),
        ("cue add 'my cue' --cron @daily", "--name 'my cue'"),
        ("cue add --name n --cron a.db b.db c.db --url http://x/", "in quotes: --cron '0 9 * * *'"),
        ("cue add --name n --at tomorrow 9:00 --url http://x/", "in quotes: --at 'tomorrow 9:00'"),
        ("cue add --name n --every 5 min --url http://x/", "in quotes: --every '5 min'"),
        ("preview tomorrow 9:00", "in quotes: cued preview 'tomorrow 9:00'"),
        ("preview daily 9:00 -n 3 --tz Berlin", "in quotes: cued preview 'daily 9:00'"),
        ("preview 0 9 a.db b.db", "in quotes: cued preview '0 9 * * *'"),
    ] {
        let error = home.fails(&words(line), 2);
        assert!(error.contains(advice), "{line}: {error}");
    }
    let (_server, _user, home) = start();
    add(&home, "n");
    let error = home.fails(&words("cue set n --cron 0 9 a.db b.db"), 2);
    assert_eq!(error, "cued: put the schedule in quotes: --cron '0 9 * * *'\n");
}

#[test]
fn a_mistyped_command_is_answered_with_the_nearest_ones_that_the_help_shows() {
    let home = ClientHome::new();
    for (line, tip) in [
        ("cue lst", "a similar subcommand exists: 'list'"),
        ("cue delet x", "a similar subcommand exists: 'rm'"),
        ("wrker list", "similar subcommands exist: 'worker', 'work'"),
        ("account kys", "a similar subcommand exists: 'keys'"),
    ] {
        let error = home.fails(&words(line), 2);
        assert!(error.contains(tip), "{line}: {error}");
    }
    let error = home.fails(&["complet"], 2);
    assert!(error.contains("'completions'") && !error.contains("'complete'"), "{error}");
    assert!(!home.fails(&["zzz"], 2).contains("similar"));
}

#[test]
fn a_mistyped_name_is_answered_with_the_nearest_ones() {
    let (_server, user, home) = start();
    for name in ["heartbeat", "heartbeat-2", "report"] {
        add(&home, name);
    }
    for command in
        [&["cue", "show"][..], &["cue", "pause"], &["cue", "fire"], &["run", "list", "--cue"]]
    {
        let expected = "cued: no cue has the id or name \"hertbeat\"; did you mean \"heartbeat\" or \"heartbeat-2\"?\n";
        assert_eq!(home.fails(&[command, &["hertbeat"]].concat(), 3), expected, "{command:?}");
    }
    assert!(home.fails(&["cue", "show", "backup"], 3).ends_with("; `cued cue list` shows all\n"));
    home.ok(&["channel", "add", "ntfy", "--name", "phone", "--url", "https://ntfy.sh/backups"]);
    assert!(home.fails(&["channel", "show", "phne"], 3).contains("did you mean \"phone\"?"));
    home.ok(&["account", "keys", "add", "cued login"]);
    let unknown = home.fails(&["account", "keys", "revoke", "cued logn"], 3);
    assert_eq!(unknown, "cued: there is no key \"cued logn\"; did you mean \"cued login\"?\n");
    user.post("/v1/worker/heartbeat", &json!({"worker_id": "vm-tasks", "handlers": ["a"]}))
        .expect(200);
    let unknown = home.fails(&["worker", "rm", "vm-task"], 3);
    assert_eq!(unknown, "cued: there is no worker \"vm-task\"; did you mean \"vm-tasks\"?\n");
    assert!(home.fails(&["worker", "rm", "x"], 3).ends_with("; `cued worker list` shows all\n"));
    assert_eq!(home.ok(&["worker", "rm", "vm-tasks"]), "removed worker vm-tasks\n");
    home.store(&json!({"current": "home", "profiles": {"home": {"url": "http://x", "api_key": "cue_sk_a"}}}));
    assert!(
        home.fails(&["cue", "list", "--profile", "hom"], 4)
            .contains(", only home; run `cued login")
    );
}

#[test]
fn add_or_update_makes_one_cue_of_a_name_and_changes_what_the_flags_say() {
    let (_server, user, home) = start();
    let line =
        |more: &str| format!("{NIGHTLY} --or-update --header 'X-A: 1' --payload '{{a: 1}}' {more}");
    let result = |line: &str| home.ok(&words(line)).lines().next().unwrap().to_owned();
    assert_eq!(result(&line("")), "result    created");
    let id = user.get("/v1/cues").expect(200)["cues"][0]["id"].as_str().unwrap().to_owned();
    home.ok(&["cue", "set", "nightly", "description=kept"]);
    let before = stored(&user, &id);
    assert_eq!(result(&line("")), "result    unchanged");
    assert_eq!(stored(&user, &id), before);
    let run = home.run(&words(&line("--verbose")));
    assert!(run.stderr.contains("GET ") && !run.stderr.contains("PATCH "), "{run:?}");
    let changed = line("--timeout 5").replace("0 2", "0 3").replace("a: 1", "b: 2");
    let run = home.run(&words(&changed));
    let expected = format!(
        "result    updated: callback.timeout_seconds, payload, schedule.cron\nid        {id}\nname      nightly\n\
         schedule  Every day at 03:00, Europe/Berlin: 0 3 * * *\nnext run  2030-01-01 02:00:00+00:00\n"
    );
    assert_eq!((run.code, run.stdout), (0, expected), "{}", run.stderr);
    let cue = stored(&user, &id);
    assert_has(&cue, json!({"description": "kept", "payload": {"b": 2}}));
    assert_eq!(cue["callback"]["headers"], json!({"X-A": "1"}));
    assert_eq!(home.ok(&words(&format!("{changed} -q"))), format!("{id}\n"));
    assert_eq!(
        result(&changed.replace("--cron '0 3 * * *'", "--every 5m")),
        "result    updated: schedule.every"
    );
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 1);
}

#[test]
fn add_or_update_refuses_twins_and_another_transport() {
    let (_server, user, home) = start();
    home.ok(&words(&format!("{NIGHTLY} -q")));
    let worker = "cue add --name nightly --cron '0 2 * * *' --worker";
    let refused = home.fails(&words(&format!("{worker} --or-update")), 5);
    assert_contains(&refused, &[") calls a URL, which cannot be changed: use another name"]);
    home.ok(&words(&format!("{worker} -q")));
    let refused = home.fails(&words(&format!("{NIGHTLY} --or-update")), 5);
    assert_contains(&refused, &["several cues have the name \"nightly\"; use the id:\n  cue_"]);
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 2);
    home.fails(&["cue", "add", "--or-update", "--edit"], 2);
}

#[test]
fn a_refused_value_is_named_by_its_flag_and_in_words_for_people() {
    let (_server, user, home) = start();
    add(&home, "job");
    let cron = "cue add --name n --cron '0 9 * * *' --url http://127.0.0.1:9/";
    for (line, expected) in [
        (
            "cue add --name n --cron @daily --url example.com",
            "--url must be absolute and begin with http:// or https://; did you mean https://example.com?\n",
        ),
        (
            "cue add --name n --cron @daily --url 127.0.0.1:9000/hook",
            "--url must be absolute and begin with http:// or https://; did you mean http://127.0.0.1:9000/hook?\n",
        ),
        (&format!("{cron} --payload '[1,2]'"), "--payload: must be a JSON object\n"),
        (
            &format!("{cron} --retry 99 --timeout 900"),
            "several things are wrong:\n  --timeout: must be at most 5m\n  --retry: must be at most 10\n",
        ),
        ("cue fire job --payload '[1]'", "--payload: must be a JSON object\n"),
        ("cue set job --timeout 900", "--timeout: must be at most 5m\n"),
        ("cue set job --timeout 10m", "--timeout: must be at most 5m\n"),
        ("cue set job --jitter 2h", "--jitter: must be at most 1h\n"),
        ("cue set job --max-age 1s", "--max-age: must be at least 1m\n"),
        (
            "cue set job --on-failure ftp://x",
            "--on-failure must be absolute and begin with http:// or https://",
        ),
        (&format!("{cron} --outcome-deadline 1s"), "--outcome-deadline: must be at least 10s\n"),
        (
            "cue set job 'cron=0 3 * * *'",
            "there is no field \"cron\"; did you mean \"schedule.cron\"?\n",
        ),
        ("cue set job url=http://x", "there is no field \"url\"; did you mean \"callback.url\"?\n"),
        (
            "cue set job paused=true",
            "there is no field \"paused\"; set status to paused, or run `cued cue pause`\n",
        ),
        ("cue set job transport=webhook", "transport: it cannot be changed; add another cue\n"),
        (
            "cue set job callback.timeout_seconds=900",
            "callback.timeout_seconds: must be at most 300\n",
        ),
        ("cue set job payload=3", "payload: must be a JSON object\n"),
        (
            "run list --outcome no",
            "--outcome: must be 'reported_success', 'reported_failure', 'verified_success'",
        ),
    ] {
        let error = home.fails(&words(line), 5);
        assert!(error.contains(&format!("cued: {expected}")), "{line}: {error}");
    }
    let unknown = home.fails(&words("tail --types bogus"), 5);
    assert!(
        unknown.starts_with(
            "cued: --types: \"bogus\" is no type of event; known are execution.created, "
        ),
        "{unknown}"
    );
    assert_eq!(unknown.lines().count(), 1, "in a pipe: {unknown}");
    // A program gets the answer of the server.
    let error = home.json_error(&words(&format!("{cron} --payload '[1,2]'")), 5);
    assert_contains(error["message"].as_str().unwrap(), &["Input should be a valid dictionary"]);
    assert_eq!(user.get("/v1/cues").expect(200)["total"], 1);
}

#[test]
fn a_key_that_the_server_refuses_is_named_by_its_place() {
    let (server, _user, home) = start();
    let home = home.env("CUED_API_KEY", "cue_sk_00000000000000000000000000000000");
    let expected = format!(
        "cued: {} does not accept the API key in CUED_API_KEY: unset it, or replace it\n",
        server.url()
    );
    assert_eq!(home.fails(&["cue", "list"], 4), expected);
    let stored = ClientHome::new();
    let profile =
        json!({"url": server.url(), "api_key": "cue_sk_00000000000000000000000000000000"});
    stored.store(&json!({"current": "home", "profiles": {"home": profile}}));
    let error = stored.fails(&["cue", "list"], 4);
    assert!(
        error.ends_with("does not accept the API key of profile home: run `cued login`\n"),
        "{error}"
    );
}

#[test]
fn the_success_of_a_worker_has_a_result_in_the_list() {
    let (_server, user, home) = start();
    let cue = add(&home, "job");
    let run = home.ok(&["cue", "fire", &cue, "-q"]);
    user.report(run.trim(), &json!({"success": true, "result": "done"}));
    let listed = home.ok(&["run", "list"]);
    assert!(listed.contains("\tjob\tsuccess\treported success\t"), "{listed}");
}

#[test]
fn a_cue_is_found_and_updated_by_its_slug() {
    let (_server, user, home) = start();
    let add =
        "cue add --name nightly --slug home/nightly --cron @daily --url http://127.0.0.1:9/hook";
    let cue = home.ok(&words(&format!("{add} -q")));
    assert_contains(
        &home.ok(&words("cue show slug:home/nightly")),
        &["slug          home/nightly\n", cue.trim()],
    );
    assert_contains(&home.fails(&words(add), 5), &[cue.trim(), "has the slug home/nightly"]);
    let text = home.fails(&words("cue show slug:home/nighty"), 3);
    assert_eq!(text, "cued: no cue has the slug \"home/nighty\"; did you mean \"home/nightly\"?\n");
    home.ok(&words("cue set slug:home/nightly --name other"));
    home.ok(&words(&format!("{add} --or-update")));
    // The cue is found by its slug.
    assert_eq!(user.get("/v1/cues/slug:home%2Fnightly").expect(200)["name"], "nightly");
    home.ok(&words(&format!("{} --or-update", add.replace("home/nightly", "home/2"))));
    assert_contains(
        &home.ok(&words("cue list --namespace home -o wide")),
        &["home/nightly", "SLUG"],
    );
    home.ok(&words("cue set slug:home/nightly slug=null"));
    home.fails(&words("cue show slug:home/nightly"), 3);
    home.fails(&words("cue set nightly --slug Home"), 5);
    home.ok(&words("cue pause slug:home/2"));
}
