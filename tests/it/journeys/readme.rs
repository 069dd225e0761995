//! The commands of the README, run unchanged except for ports and folders.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::examples::Example;
use crate::support::server::{DEV_UNLIMITED, Server};

/// The shell blocks below this heading.
fn blocks(heading: &str) -> Vec<String> {
    let readme = include_str!("../../../README.md");
    let chapter = readme.split("\n## ").find(|chapter| chapter.starts_with(heading)).expect(heading);
    let blocks = chapter.split("```sh\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The output of a script that must succeed.
#[track_caller]
fn run(script: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_cued")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let bash = Command::new("bash").env("PATH", path).args(["-euo", "pipefail", "-c", script]).output();
    let Output { status, stdout, stderr } = bash.unwrap();
    let (text, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{text}{stderr}");
    text.into_owned()
}

#[test]
fn the_quick_start_of_the_readme_delivers_its_payload() {
    let blocks = blocks("A cue that fires");
    let [serve, receive, create, show, start_over] = &blocks[..] else { panic!("{blocks:#?}") };
    assert_eq!(serve.trim(), "cargo run --release -- serve --dev");
    assert_eq!(receive.trim(), "python3 examples/receiver.py 9000");
    assert_eq!(start_over.trim(), "rm -f cued.db*");
    let server = Server::start(&["--dev"]);
    let mut receiver = Example::start("receiver.py", &["0"], &[]);
    assert!(receiver.line().contains("NOT verified"));
    let script = format!("{create}\n{show}")
        .replace("localhost:8000", &server.addr().to_string())
        .replace("127.0.0.1:9000", &receiver.addr().to_string());
    assert!(!script.contains(":8000") && !script.contains(":9000"), "{script}");

    let text = run(&script);
    assert!(receiver.line().ends_with(r#" {"hello": "world"}"#));
    let responses: Vec<Value> =
        serde_json::Deserializer::from_str(&text).into_iter().map(Result::unwrap).collect();
    let [fired, cue] = &responses[..] else { panic!("{text}") };
    assert_eq!(fired["triggered_by"], "manual_fire");
    assert_eq!((&cue["name"], &cue["executions"][0]["id"]), (&"hello".into(), &fired["execution_id"]));
}

#[test]
fn the_backup_chapter_of_the_readme_works() {
    let blocks = blocks("Backups and history");
    let [commands] = &blocks[..] else { panic!("{blocks:#?}") };
    let server = Server::start(DEV_UNLIMITED);
    server.user();
    let folder = server.db().parent().unwrap().display().to_string();
    let commands = commands.replace("/mnt/backup", &folder);
    // A server would not end by itself.
    let (serve, others): (Vec<&str>, Vec<&str>) =
        commands.lines().partition(|line| line.starts_with("cued serve"));
    assert_eq!((serve.len(), others.len()), (1, 4), "{commands}");
    let said = run(&format!("cd {folder}\n{}", others.join("\n")));
    for word in ["backed up cued.db to", "result      ok", "restored trial.db", "promoted trial.db"] {
        assert!(said.contains(word), "{said}");
    }
}
