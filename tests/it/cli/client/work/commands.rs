//! The command line of `cued work`: its errors, and the forms of its output.

use std::fs;

use serde_json::json;

use crate::cli::client::work::{Workshop, exits, lines};
use crate::support::client_command::ClientHome;

#[test]
fn wrong_usage_is_refused_before_any_request() {
    let home = ClientHome::without_server();
    fs::write(home.folder().join("plain"), "").unwrap();
    fs::write(home.folder().join("work.json"), r#"{"tasks": {"a": {"run": []}}}"#).unwrap();
    for (arguments, part) in [
        (&["--", "true"][..], "--task"),
        (&["--task", "t"], "COMMAND"),
        (&["--task", "", "--", "true"], "1 to 255 bytes"),
        (&["--task", "t", "--", "/no/such/program"], "cannot run /no/such/program: No such file"),
        (&["--task", "t", "--", "no-such-program"], "no program no-such-program in PATH"),
        (&["--task", "t", "--", "plain"], "write ./plain"),
        (&["--task", "t", "--", "./plain"], "chmod +x"),
        (&["--task", "t", "--", "./"], "it is not a file"),
        (&["--task", "t", "--timeout", "5", "--", "true"], "no duration"),
        (&["--task", "t", "--jobs", "0", "--", "true"], "1..=256"),
        (&["--task", "t", "--once", "--drain", "--", "true"], "cannot be used with"),
        (&["--file", "work.json", "--", "true"], "cannot be used with"),
        (&["--file", "work.json"], "work.json: tasks.a.run should be"),
        (&["--file", "none.yaml"], "cannot read none.yaml: No such file"),
        (&["--task", "t", "--curl", "--", "true"], "--curl"),
    ] {
        let error = home.fails(&[&["work"], arguments].concat(), 2);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn a_temporary_folder_that_cannot_be_used_is_refused_at_the_start() {
    let shop = Workshop::new();
    let execution = shop.execution("t");
    let home = ClientHome::signed_in(&shop.server, &shop.user).env("TMPDIR", "/nonexistent");
    let error = home.fails(&["work", "--task", "t", "--drain", "--", "true"], 1);
    for part in ["cannot use the temporary folder", "/nonexistent", "TMPDIR"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(shop.look(&execution)["status"], "pending");
}

#[test]
fn a_missing_working_directory_is_named_at_the_start_and_in_the_failure() {
    let shop = Workshop::new();
    let (folder, file) = (shop.path("none"), shop.path("work.json"));
    let tasks = json!({"tasks": {"t": {"run": ["sh", "-c", "true"], "cwd": folder}}});
    fs::write(&file, tasks.to_string()).unwrap();
    let execution = shop.execution("t");
    let run = shop.home.run(&["work", "--file", file.to_str().unwrap(), "--once"]);
    exits(&run, 8);
    let fault = format!("cannot use the working directory {}: No such file", folder.display());
    let warning = run.stderr.lines().find(|line| line.contains("runs of a task will fail")).unwrap();
    assert!(warning.contains(&fault) && warning.contains("task=\"t\""), "{warning}");
    let error = shop.reported(&execution)["outcome"]["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with(&fault), "{error}");
}

#[test]
fn each_failure_has_its_exit_code() {
    let shop = Workshop::new();
    let drain = ["work", "--task", "t", "--drain", "--", "true"];
    let without_key = ClientHome::new().env("CUED_URL", shop.server.url());
    exits(&without_key.run(&drain), 4);
    let wrong_key =
        ClientHome::new().env("CUED_URL", shop.server.url()).env("CUED_API_KEY", "cue_sk_unknown");
    exits(&wrong_key.run(&drain), 4);
    exits(&wrong_key.run(&["work", "--task", "t", "--", "true"]), 4);
    let alone = ClientHome::without_server().run(&drain);
    exits(&alone, 1);
    assert!(alone.stderr.contains("is `cued serve` running there?"), "{}", alone.stderr);
}

#[test]
fn the_log_is_on_standard_error_as_text_or_json_and_results_for_programs_on_standard_output() {
    let shop = Workshop::new();
    let cue = shop.cue("t", &json!({}));
    let execution = shop.fire(&cue);
    let text = shop.home.run(&["work", "--task", "t", "--once", "--", "true"]);
    exits(&text, 0);
    assert_eq!(text.stdout, "");
    for part in ["INFO run started", "INFO run succeeded", &execution, "cue=\"cue of t\""] {
        assert!(text.stderr.contains(part), "{part}: {}", text.stderr);
    }
    assert!(!text.stderr.contains(shop.user.key()));
    let execution = shop.fire(&cue);
    let json =
        shop.home.run(&["work", "--task", "t", "--once", "--json", "--log-format", "json", "--", "false"]);
    exits(&json, 8);
    let log = lines(&json.stderr);
    let failed = log.iter().find(|line| line["message"] == "run failed").unwrap();
    assert_eq!((&failed["execution_id"], &failed["reason"]), (&json!(execution), &json!("exit code 1")));
    assert_eq!(log.last().unwrap()["error"]["code"], "failed_run");
    let printed = lines(&json.stdout);
    assert_eq!((printed.len(), &printed[0]["execution_id"]), (1, &json!(execution)));
}
