//! `cued import crontab`: the files that it writes, and that they do what the crontab did.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use cued::cli::input::yaml;

use crate::cli::client::Desk;
use crate::support::*;

/// Imports a text from standard input as that of the machine `nas`, which must succeed and print nothing. Returns the
/// notes.
#[track_caller]
fn import(home: &ClientHome, crontab: &str, flags: &[&str]) -> String {
    let namespace: &[&str] =
        if flags.contains(&"--namespace") { &[] } else { &["--namespace", "nas"] };
    let run = home.run_with_stdin(&[&["import", "crontab"], namespace, flags].concat(), crontab);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{crontab}: {run:?}");
    run.stderr
}

fn text(home: &ClientHome, file: &str) -> String {
    fs::read_to_string(home.folder().join(file)).unwrap()
}

/// The cues of the file as the API takes them.
fn cues(home: &ClientHome) -> Vec<Value> {
    let file = yaml::read(&text(home, "cues.yaml")).unwrap();
    let cue = |(name, cue): (&String, &Value)| {
        let zone = if cue["timezone"].is_null() {
            &file["defaults"]["timezone"]
        } else {
            &cue["timezone"]
        };
        assert_eq!(cue["worker"], true);
        let mut body = json!({
            "name": name, "transport": "worker", "overlap": file["defaults"]["overlap"],
            "schedule": {"type": "recurring", "cron": cue["schedule"], "timezone": zone},
            "payload": {"task": cue["task"]},
        });
        for field in
            ["description", "on_failure"].into_iter().filter(|field| !cue[*field].is_null())
        {
            body[field] = cue[field].clone();
        }
        body
    };
    file["cues"].as_object().unwrap().iter().map(cue).collect()
}

/// The second machine has a job of the same name.
#[test]
fn a_second_crontab_changes_nothing_of_the_first() {
    let desk = Desk::new();
    import(&desk.home, "0 3 * * * touch first", &[]);
    desk.home.ok(&["apply", "-f", "cues.yaml"]);
    let second = ClientHome::signed_in(&desk.server, &desk.user);
    import(&second, "30 5 * * * touch second", &["--namespace", "pi"]);
    assert_contains(
        &second.ok(&["apply", "-f", "cues.yaml"]),
        &["+ pi/touch\n", "Done: 1 created."],
    );
    let fired = desk.user.fire(&desk.home.json(&["cue", "show", "slug:nas/touch"]));
    second.ok(&["work", "--file", "tasks.yaml", "--drain"]);
    assert_eq!(desk.user.execution(&fired)["status"], "pending", "it waits for its own worker");
    desk.home.ok(&["work", "--file", "tasks.yaml", "--drain"]);
    assert_eq!(desk.user.execution(&fired)["status"], "success");
}

/// The test clock goes past the night and most of the day after it.
#[test]
fn a_night_without_a_worker_fails() {
    let desk = Desk::new();
    import(&desk.home, "0 3 * * * backup", &["--tz", "UTC"]);
    desk.home.ok(&["apply", "-f", "cues.yaml"]);
    for night in ["2030-01-02T02:30:00Z", "2030-01-03T02:30:00Z"] {
        desk.user.advance_to(night);
    }
    let cue = desk.home.json(&["cue", "show", "backup"]);
    let runs = desk.user.executions_of(id(&cue));
    let ends: Vec<&Value> = runs.iter().map(|run| &run["status"]).collect();
    assert_eq!(ends, ["failed", "failed"], "{runs:?}");
}

#[test]
fn each_cue_of_the_file_is_one_that_the_server_takes() {
    let desk = Desk::new();
    let crontab = "# every form\n*/15 0-6,22-23 1-31/2 jan-MAR,dec Mon-fri a\n0 0 1 * 7 b\n@hourly c\n@weekly d\n\
                   @monthly e\n@yearly f\n@annually g\n@midnight h\nMAILTO=\nCRON_TZ=Asia/Tokyo\n0 9 * * * i\n0 9 * * * i";
    import(&desk.home, crontab, &["--tz", "Berlin"]);
    let cues = cues(&desk.home);
    assert_eq!(cues.len(), 10);
    for cue in &cues {
        let made = desk.home.json(&["api", "POST", "/v1/cues", "--data", &cue.to_string()]);
        // Nothing is ignored.
        assert_contains(made["warning"].as_str().unwrap(), &["No worker for task nas/"]);
        assert_eq!(
            made["description"].as_str(),
            (cue["name"] == "a").then_some("every form"),
            "{cue}"
        );
    }
    let next = |name: &str| desk.home.json(&["cue", "show", name])["next_run"].clone();
    assert_eq!(next("h"), "2030-01-01T23:00:00+00:00", "midnight in Berlin");
    // Nine in Tokyo, after the nine of the start.
    assert_eq!(next("i-2"), "2030-01-02T00:00:00+00:00");
    // The first of a month or a Sunday, whichever is earlier.
    assert_eq!(next("b"), "2030-01-05T23:00:00+00:00");
    assert_eq!(desk.home.json(&["cue", "show", "i"])["on_failure"]["email"], false);
}

/// Runs each task of the files by the cue of its name; the outcomes by name.
#[track_caller]
fn outcomes(desk: &Desk, names: &[&str]) -> Vec<Value> {
    let cues: Vec<Value> = cues(&desk.home).iter().map(|cue| desk.user.create(cue)).collect();
    let fired: Vec<String> = names
        .iter()
        .map(|name| desk.user.fire(cues.iter().find(|cue| cue["name"] == *name).expect(name)))
        .collect();
    let run = desk.home.run(&["work", "--file", "tasks.yaml", "--drain"]);
    assert!([0, 8].contains(&run.code), "{run:?}");
    fired.iter().map(|execution| desk.user.execution(execution)["outcome"].clone()).collect()
}

#[test]
fn a_command_runs_as_under_cron() {
    let desk = Desk::new();
    let shell = desk.home.folder().join("odd shell");
    fs::write(&shell, "#!/bin/sh\necho \"$1 <$2> $SHELL\"\n").unwrap();
    fs::set_permissions(&shell, Permissions::from_mode(0o755)).unwrap();
    let crontab = format!(
        "GREETING = 'good  day '\n0 1 * * * printf '[%s] %s' \"$GREETING\" \"$PATH\"\n\
         0 1 * * * cat\n\
         0 1 * * * /bin/cat %Dear all,%50\\% off\n\
         0 1 * * * pwd -P && /usr/bin/basename \"$0\"\n\
         0 1 * * * ls missing; /bin/echo 'it''s' \"$GREETING\" 1>&2; exit 7\n\
         0 1 * * * true %unread\n\
         PATH=/nowhere\n0 1 * * * /usr/bin/printenv PATH\n\
         SHELL={}\n0 1 * * * a \"b\" 'c' ; d\n",
        shell.display()
    )
    .replace("'[%s] %s'", "'[\\%s] \\%s'");
    import(&desk.home, &crontab, &[]);
    let names = ["printf", "cat", "cat-2", "pwd", "ls", "true", "printenv", "a"];
    let outcomes = outcomes(&desk, &names);
    let home = desk.home.folder().canonicalize().unwrap();
    let path = std::env::var("PATH").unwrap();
    for (name, outcome, result) in [
        ("printf", &outcomes[0], json!(format!("[good  day ] {path}"))),
        ("cat", &outcomes[1], Value::Null),
        ("cat-2", &outcomes[2], json!("Dear all,\n50% off\n")),
        ("pwd", &outcomes[3], json!(format!("{}\nsh\n", home.display()))),
        ("true", &outcomes[5], Value::Null),
        ("printenv", &outcomes[6], json!("/nowhere\n")),
        ("a", &outcomes[7], json!(format!("-c <a \"b\" 'c' ; d> {}\n", shell.display()))),
    ] {
        assert_eq!(outcome["success"], true, "{name}: {outcome}");
        assert_eq!(outcome["result"], result, "{name}: {outcome}");
    }
    let failure = &outcomes[4];
    assert_eq!(failure["success"], false);
    let error = failure["error"].as_str().unwrap();
    assert!(error.starts_with("its good  day\n") && error.ends_with("\nexit code 7"), "{error}");
}

#[test]
fn a_command_starts_in_the_home_of_the_crontab() {
    let desk = Desk::new();
    let other = desk.home.folder().join("other");
    fs::create_dir(&other).unwrap();
    import(
        &desk.home,
        &format!("HOME={}\n0 1 * * * pwd\nHOME=/none\n0 1 * * * touch x", other.display()),
        &[],
    );
    let outcomes = outcomes(&desk, &["pwd", "touch"]);
    assert_eq!(outcomes[0]["result"], format!("{}\n", other.display()));
    assert_contains(outcomes[1]["error"].as_str().unwrap(), &["/none"]);
    assert!(!desk.home.folder().join("x").exists(), "a command does not run in another folder");
}

#[test]
fn a_crontab_goes_on_as_cues_and_tasks() {
    let desk = Desk::new();
    let crontab = "NAME='the  world'\n# Greets ${NAME}\n\
                   30 9 * * * printf 'hello \\%s: ' \"$NAME\"; cat%how are%you?\n@daily touch early";
    import(&desk.home, crontab, &["--tz", "Berlin"]);
    desk.home.ok(&["apply", "-f", "cues.yaml"]);
    let cue = desk.home.json(&["cue", "show", "printf"]);
    assert_has(&cue, json!({"slug": "nas/printf", "description": "Greets ${NAME}"}));

    // Half past nine in Berlin.
    desk.user.advance_to("2030-01-01T08:30:00Z");
    desk.home.ok(&["work", "--file", "tasks.yaml", "--drain"]);
    let runs = desk.user.executions_of(id(&cue));
    assert_eq!(runs.len(), 1, "{runs:?}");
    let run = desk.user.execution(id(&runs[0]));
    assert_eq!(run["outcome"]["result"], "hello the  world: how are\nyou?\n");
    assert!(!desk.home.folder().join("early").exists(), "midnight has not come again");

    import(&desk.home, crontab, &["--tz", "Berlin", "--force"]);
    desk.home.ok(&["apply", "-f", "cues.yaml"]);
    let again = desk.home.json(&["cue", "show", "printf"]);
    assert_eq!(again["updated_at"], cue["updated_at"], "the same crontab changes nothing");
}
