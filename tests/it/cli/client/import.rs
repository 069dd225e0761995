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

/// As [`import()`], of a text that must be refused: nothing is written.
#[track_caller]
fn refused(crontab: &str, flags: &[&str]) -> String {
    let home = ClientHome::without_server();
    let run = home.run_with_stdin(&[&["import", "crontab"], flags].concat(), crontab);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{crontab}: {run:?}");
    assert_eq!(files(&home), [""; 0], "{crontab}");
    run.stderr
}

fn text(home: &ClientHome, file: &str) -> String {
    fs::read_to_string(home.folder().join(file)).unwrap()
}

fn files(home: &ClientHome) -> Vec<String> {
    let files = fs::read_dir(home.folder()).unwrap();
    let mut files: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    files
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

const CRONTAB: &str = "# m h  dom mon dow   command
PATH=/usr/local/bin:/usr/bin:/bin

# Nightly backup
# of ${HOME}
0 3 * * * /usr/local/bin/backup.sh --full
@reboot /usr/local/bin/once
MAILTO=\"\"
CRON_TZ=America/New_York
*/5 * * * mon-fri\tfetch
0 9 1 * 7 SHOUT=1 mail root%Dear all,%bye";

#[test]
fn a_crontab_becomes_a_file_of_cues_and_one_of_tasks() {
    let home = ClientHome::without_server();
    let said = import(&home, CRONTAB, &["-", "--tz", "Berlin"]);
    assert_eq!(
        said,
        "crontab:7: @reboot: a cue has no time for it; keep the line, or use a systemd unit\n\
         1 line was not imported\n\
         wrote cues.yaml: 3 cues in the namespace nas, in Europe/Berlin\n\
         wrote tasks.yaml: 3 tasks\n\
         next:\n  cued apply -f cues.yaml\n  cued work --file tasks.yaml --jobs 3\n"
    );
    let (_, after_comments) = text(&home, "cues.yaml")
        .split_once("defaults:")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .unwrap();
    assert_eq!(
        after_comments,
        r#"
  timezone: Europe/Berlin
  overlap: skip
  claim_within_minutes: 1380
cues:
  backup:
    description: "Nightly backup\nof $${HOME}"
    schedule: "0 3 * * *"
    worker: true
    task: nas/backup
  fetch:
    schedule: "*/5 * * * mon-fri"
    timezone: America/New_York
    worker: true
    task: nas/fetch
    on_failure:
      email: false
  mail:
    schedule: "0 9 1 * 7"
    timezone: America/New_York
    worker: true
    task: nas/mail
    on_failure:
      email: false
"#
    );
    let tasks = yaml::read(&text(&home, "tasks.yaml")).unwrap();
    let path = json!("/usr/local/bin:/usr/bin:/bin");
    let run = [
        "/bin/sh",
        "-c",
        "cd && exec /bin/sh -c \"$0\" < /dev/null",
        "/usr/local/bin/backup.sh --full",
    ];
    assert_eq!(
        tasks["tasks"]["nas/backup"],
        json!({"run": run, "env": {"PATH": path}, "timeout": "1d"})
    );
    let run = [
        "/bin/sh",
        "-c",
        "cd && printf %s \"$1\" | /bin/sh -c \"$0\"",
        "SHOUT=1 mail root",
        "Dear all,\nbye\n",
    ];
    let env = json!({"PATH": path, "MAILTO": "", "CRON_TZ": "America/New_York"});
    assert_eq!(tasks["tasks"]["nas/mail"], json!({"run": run, "env": env, "timeout": "1d"}));
    let mode = fs::metadata(home.folder().join("tasks.yaml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a crontab may have passwords");
}

#[test]
fn the_same_crontab_always_gives_the_same_files() {
    let home = ClientHome::without_server();
    let said = import(&home, CRONTAB, &[]);
    assert_contains(&said, &["3 cues in the namespace nas, in UTC"]);
    let first = (text(&home, "cues.yaml"), text(&home, "tasks.yaml"));
    import(&home, &CRONTAB.replace('\n', "\r\n"), &["--force"]);
    assert_eq!((text(&home, "cues.yaml"), text(&home, "tasks.yaml")), first);
}

#[test]
fn the_namespace_is_the_name_of_the_machine() {
    let home = ClientHome::without_server();
    let run = home.run_with_stdin(&["import", "crontab"], "@daily x");
    assert_eq!(run.code, 0, "{run:?}");
    let machine = std::process::Command::new("uname").arg("-n").output().unwrap().stdout;
    let machine = String::from_utf8(machine).unwrap().trim().to_ascii_lowercase();
    let machine = machine.split('.').next().unwrap();
    let (cues, tasks) = (text(&home, "cues.yaml"), yaml::read(&text(&home, "tasks.yaml")).unwrap());
    let cues = yaml::read(&cues).unwrap();
    assert_eq!(cues["namespace"], machine);
    let task = format!("{machine}/x");
    assert_eq!(
        (&cues["cues"]["x"]["task"], tasks["tasks"][&task].is_object()),
        (&json!(task), true)
    );
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
fn files_of_the_system_give_the_tasks_of_each_user() {
    let home = ClientHome::without_server();
    let folder = home.folder();
    fs::write(folder.join("crontab"), "A=1\n17 * * * * root\tbackup\n-0 4 * * * www-data backup\n")
        .unwrap();
    fs::write(folder.join("extra"), "@daily www-data cd / && run-parts /etc/cron.daily\n").unwrap();
    let said = home.run(&[
        "import",
        "crontab",
        "--system",
        "--namespace",
        "nas",
        "--to",
        "n w",
        "crontab",
        "extra",
    ]);
    assert_eq!(
        said.stderr,
        "wrote n w/cues.yaml: 3 cues in the namespace nas, in UTC\n\
         wrote n w/tasks-root.yaml: 1 task\n\
         wrote n w/tasks-www-data.yaml: 2 tasks\n\
         next:\n  cued apply -f 'n w/cues.yaml'\n\
         \x20 cued work --file 'n w/tasks-root.yaml'  # as root\n\
         \x20 cued work --file 'n w/tasks-www-data.yaml' --jobs 2  # as www-data\n"
    );
    for file in ["tasks-root.yaml", "tasks-www-data.yaml"] {
        let mode = fs::metadata(folder.join("n w").join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let read = |file: &str| yaml::read(&text(&home, &format!("n w/{file}"))).unwrap();
    let cues = read("cues.yaml");
    assert_eq!(cues["namespace"], "nas");
    let task = |name: &str| cues["cues"][name]["task"].clone();
    assert_eq!([task("backup"), task("backup-2")], ["nas/backup", "nas/backup-2"]);
    let (root, www) = (read("tasks-root.yaml"), read("tasks-www-data.yaml"));
    assert_eq!(root["tasks"]["nas/backup"]["env"], json!({"A": "1"}));
    assert_eq!(www["tasks"]["nas/backup-2"]["env"], json!({"A": "1"}));
    assert_eq!(www["tasks"]["nas/cron.daily"]["env"], Value::Null, "variables end with their file");
    assert_eq!(www["tasks"].as_object().unwrap().len(), 2);
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
fn a_file_that_exists_is_replaced_by_force_only() {
    let home = ClientHome::without_server();
    fs::write(home.folder().join("cues.yaml"), "mine").unwrap();
    let run = home.run_with_stdin(&["import", "crontab"], "@daily x");
    assert_eq!(run.code, 2, "{run:?}");
    assert_eq!(
        run.stderr,
        "cued: cues.yaml exists: --force replaces it, --to writes to another folder\n"
    );
    assert_eq!(
        (files(&home), text(&home, "cues.yaml").as_str()),
        (vec!["cues.yaml".to_owned()], "mine")
    );
    import(&home, "@daily x", &["--to", "new/folder"]);
    import(&home, "@daily x", &["--force"]);
    assert_eq!(text(&home, "cues.yaml"), text(&home, "new/folder/cues.yaml"));
    let run = home.run_with_stdin(&["import", "crontab", "--to", "cues.yaml"], "@daily x");
    assert_eq!(run.code, 1, "{run:?}");
    assert_contains(&run.stderr, &["cued: cannot write cues.yaml"]);
}

#[test]
fn all_faults_are_named_and_nothing_is_written() {
    assert_eq!(
        refused("# x\n61 * * * * a\n0 3 * * * b\nwhat\n", &[]),
        "cued: nothing was written:\n\
         crontab:2: minute: 61 is out of range 0-59\n\
         crontab:4: expected five fields and a command, NAME=VALUE, or a comment after #\n"
    );
    for (crontab, flags, part) in [
        ("", &[][..], "nothing was written: there is no line to import"),
        ("# 0 3 * * * x\n", &[], "there is no line to import"),
        (
            "@reboot x\n",
            &[],
            "there is no line to import\ncrontab:1: @reboot: a cue has no time for it",
        ),
        (
            "CRON_TZ=Berlin\n0 3 * * * x",
            &[],
            "crontab:1: CRON_TZ: `Berlin` is not a time zone; did you mean Europe/Berlin?",
        ),
        ("0 3 * * * root x", &[], "crontab:1: `root` is no command; add --system"),
        ("0 3 * * * /bin/x y", &["--system"], "leave out --system for `crontab -l`"),
        ("0 3 * * * ../../etc/x y", &["--system"], "crontab:1: expected a user after the fields"),
        ("0 3 * * * x", &["--tz", "Mars"], "--tz: there is no time zone \"Mars\""),
        ("0 3 * * * x", &["--namespace", "a/b"], "should have 1 to 63 of a-z"),
        ("0 3 * * * x", &["none"], "crontab: cannot read none: No such file"),
    ] {
        assert_contains(&refused(crontab, flags), &[part]);
    }
}

#[test]
fn a_fault_of_a_file_has_its_path() {
    let home = ClientHome::without_server();
    fs::write(home.folder().join("c"), "0 3 * * *\n").unwrap();
    let said = home.fails(&["import", "crontab", "c"], 2);
    assert_eq!(
        said,
        "cued: nothing was written:\nc:1: the command is missing; comment the line out if it has none\n"
    );
    fs::write(home.folder().join("latin"), b"0 3 * * * caf\xe9\n").unwrap();
    assert_contains(
        &home.fails(&["import", "crontab", "latin"], 2),
        &["latin is no text in UTF-8"],
    );
}

#[test]
fn what_differs_from_cron_is_said() {
    let home = ClientHome::without_server();
    let said = import(
        &home,
        "MAILTO=me@example.com\nRANDOM_DELAY=5\n0 0 30 2 * never\n@daily -n x\n@daily [ -x /bin/x ] && /bin/x",
        &[],
    );
    assert_contains(
        &said,
        &[
            "crontab:4: -n, -q and -s are left out: ",
            "crontab:5: the run fails if the part before && does; ",
            "crontab:1: failures are mailed to your account, not to MAILTO\n",
            "crontab:2: RANDOM_DELAY is not used; set schedule.jitter_seconds\n",
            "crontab:3: no date has this day and month, so that it never runs\n",
            "\n1 line was not imported\n",
        ],
    );
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
}

#[test]
fn more_tasks_than_a_worker_can_have_become_several_files() {
    let home = ClientHome::without_server();
    let said = import(&home, &"* * * * * x\n".repeat(101), &[]);
    assert_contains(
        &said,
        &["101 cues", "wrote tasks.yaml: 100 tasks\nwrote tasks-2.yaml: 1 task\n"],
    );
    assert_contains(&said, &["tasks.yaml --jobs 8\n  cued work --file tasks-2.yaml\n"]);
    let second = yaml::read(&text(&home, "tasks-2.yaml")).unwrap();
    assert_eq!(second["tasks"].as_object().unwrap().keys().collect::<Vec<_>>(), ["nas/x-101"]);
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

#[test]
fn a_time_zone_that_is_none_is_said_before_its_crontab_is_in_utc() {
    for (zone, arguments, notes) in
        [("Nowhere/Bad", "", 1), ("Nowhere/Bad", " --tz Berlin", 0), ("Europe/Berlin", "", 0)]
    {
        let home = ClientHome::without_server().env("TZ", zone);
        let run =
            home.run_with_stdin(&words(&format!("import crontab -{arguments}")), "0 3 * * * x\n");
        assert_eq!(run.code, 0, "{run:?}");
        let warning = "TZ is \"Nowhere/Bad\", which is no time zone: UTC is used\n";
        assert_eq!(run.stderr.matches(warning).count(), notes, "{run:?}");
    }
}
