//! `cued cue`: create, list, show and change.

use crate::cli::client::{start, stored};
use crate::support::*;

fn worker_cue(name: &str) -> Value {
    json!({"name": name, "schedule": {"type": "recurring", "cron": "0 9 * * *"}, "transport": "worker"})
}

#[test]
fn values_come_from_an_argument_a_file_or_standard_input() {
    let (_server, user, home) = start();
    for (name, text) in [("p.yaml", "from: file\n"), ("token", "Bearer t\n"), ("size", "12")] {
        fs::write(home.folder().join(name), text).unwrap();
    }
    let add = words("cue add --name x --cron @daily --url http://127.0.0.1:9/ -q --payload");
    let payload = |id: &str| stored(&user, id.trim())["payload"].clone();
    let run = home.run_with_stdin(&[&add[..], &["-"]].concat(), "{\"from\": \"stdin\"}");
    assert_eq!(payload(&run.stdout), json!({"from": "stdin"}));
    let id = home.ok(&[&add[..], &words("@p.yaml --header 'Authorization: @token'")].concat());
    assert_eq!(payload(&id), json!({"from": "file"}));
    assert_eq!(stored(&user, id.trim())["callback"]["headers"]["Authorization"], "Bearer t");
    // `@` names no file where a name or a cron expression is expected.
    let line = "cue set ID name=@size schedule.cron=@hourly description=@token payload.size=@size";
    home.ok(&words(&line.replace("ID", id.trim())));
    let cue = stored(&user, id.trim());
    assert_has(&cue, json!({"name": "@size", "description": "Bearer t"}));
    assert_eq!(cue["payload"], json!({"from": "file", "size": 12}));
    assert_eq!(cue["schedule"]["cron"], "@hourly");
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
