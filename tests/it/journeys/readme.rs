//! The commands of the README, run unchanged except for ports and folders.

use std::process::Output;

use crate::support::*;

const README: &str = include_str!("../../../README.md");

/// The shell blocks of a document below this heading.
fn blocks(document: &str, heading: &str) -> Vec<String> {
    let mut chapters = document.split("\n## ").flat_map(|chapter| chapter.split("\n### "));
    let chapter = chapters.find(|chapter| chapter.starts_with(heading)).expect(heading);
    let blocks = chapter.split("```sh\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The output of a script that must succeed.
#[track_caller]
fn run(script: &str) -> String {
    run_at(&ClientHome::new(), script)
}

/// As [`run`], by a person.
#[track_caller]
fn run_at(home: &ClientHome, script: &str) -> String {
    let bin = Path::new(env!("CARGO_BIN_EXE_cued")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut bash = home.shell(script);
    let Output { status, stdout, stderr } = bash.env("PATH", path).output().unwrap();
    let (text, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{text}{stderr}");
    text.into_owned()
}

/// The commands of the quick start: those of the client, and those of curl.
fn quick_start() -> [String; 2] {
    let blocks = blocks(README, "A cue that fires");
    let [start, client, curl] = &blocks[..] else { panic!("{blocks:#?}") };
    assert_eq!(start.trim(), "cued serve --dev --limits off &\ncued sink");
    let [start_over] = &self::blocks(README, "To start over")[..] else { panic!("{README}") };
    assert_eq!(start_over.trim(), "cued logout --keep-key\nkill %1\nrm -f cued.db*");
    // It runs until it is interrupted.
    let client = client.strip_suffix("cued tail --since 1m\n").expect(client);
    [client.to_owned(), curl.to_owned()]
}

#[test]
fn the_quick_start_of_the_readme_delivers_its_payload() {
    let [client, _] = quick_start();
    let server = Server::start(DEV_UNLIMITED);
    let home = ClientHome::new().env("CUED_URL", server.url());
    let mut sink = Sink::start(&home, &[]);
    run_at(&home, &client.replace("127.0.0.1:9000", &sink.addr.to_string()));
    let line = sink.line();
    assert!(
        line.contains("  POST /  ") && line.ends_with("  attempt 1  18 B  verified  → 200"),
        "{line}"
    );
    assert_eq!(sink.line(), r#"  {"hello": "world"}"#);
    let mut tail = LiveCommand::following(&home, &["tail", "--since", "1m"]);
    assert!(tail.line().contains("  hello  "), "{}", tail.stderr);
    let stored = home.stored();
    assert_eq!(stored["profiles"]["default"]["email"], "me@example.com");
}

#[test]
fn the_quick_start_of_the_readme_also_works_with_curl() {
    let [_, curl] = quick_start();
    let server = Server::start(DEV_UNLIMITED);
    let mut sink = Sink::start(&ClientHome::new(), &[]);
    let script = curl
        .replace("localhost:8000", &server.addr().to_string())
        .replace("127.0.0.1:9000", &sink.addr.to_string());
    assert!(!script.contains(":8000") && !script.contains(":9000"), "{script}");

    let text = run(&script);
    assert!(sink.line().contains("  POST /  "));
    assert_eq!(sink.line(), r#"  {"hello": "world"}"#);
    let responses: Vec<Value> =
        serde_json::Deserializer::from_str(&text).into_iter().map(Result::unwrap).collect();
    let [fired, cue] = &responses[..] else { panic!("{text}") };
    assert_eq!(fired["triggered_by"], "manual_fire");
    assert_eq!(cue["name"], "hello");
    assert_eq!(cue["executions"][0]["id"], fired["execution_id"]);
}

#[test]
fn a_clone_is_built_and_tested_by_two_commands() {
    let [commands] = &blocks(README, "# cued")[..] else { panic!("{README}") };
    let commands: Vec<&str> =
        commands.lines().map(|line| line.split("    #").next().unwrap()).collect();
    assert_eq!(commands, ["cargo run --release -- serve --dev --limits off", "cargo test"]);
    let needed = concat!("Rust ", env!("CARGO_PKG_RUST_VERSION"), " or later and a C compiler");
    assert!(README.contains(needed), "{needed}");
}

#[test]
fn the_worker_of_the_readme_runs_at_once() {
    let [commands] = &blocks(README, "A first worker")[..] else { panic!("{README}") };
    let server = Server::start(DEV_UNLIMITED);
    let user = server.user();
    let home = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", user.key());
    run_at(&home, &commands.replace("cued work", "cued work --drain"));
    assert_eq!(user.read("/v1/executions")["executions"][0]["status"], "success");
}

#[test]
fn the_commands_of_the_client_in_the_readme_work() {
    let [commands] = &blocks(README, "The client")[..] else { panic!("{README}") };
    let (server, receiver) = (Server::start(DEV_UNLIMITED), Receiver::start());
    let user = server.user();
    user.create(&webhook_cue("hello", "@daily", &receiver.url()));
    let home = ClientHome::new().env("CUED_URL", server.url()).env("CUED_API_KEY", user.key());
    let cues = "cues: {report: {schedule: '@daily', url: 'http://nas.lan/'}}\n";
    fs::write(home.folder().join("cues.yaml"), cues).unwrap();
    let (login, others) = commands.split_once('\n').unwrap();
    assert!(login.starts_with("cued login https://"), "{login}");
    let said = run_at(&home, &format!("set -e\n{others}"));
    for word in ["At 09:00, Monday to Friday", "hello", "+ report", "_cued"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(receiver.deliveries().len(), 1, "fired, and waited for");
}

#[test]
fn the_backup_chapter_of_the_readme_works() {
    let blocks = blocks(README, "Backups");
    let [commands] = &blocks[..] else { panic!("{blocks:#?}") };
    let server = Server::start(DEV_UNLIMITED);
    server.user();
    let folder = server.db().parent().unwrap().display().to_string();
    let commands = commands.replace("/mnt/backup", &folder);
    // A server would not end by itself.
    let (serve, others): (Vec<&str>, Vec<&str>) =
        commands.lines().partition(|line| line.starts_with("cued serve"));
    assert_eq!((serve.len(), others.len()), (1, 5), "{commands}");
    let said = run(&format!("cd {folder}\n{}", others.join("\n")));
    for word in ["backed up cued.db to", "result      ok", "restored trial.db", "promoted trial.db"]
    {
        assert!(said.contains(word), "{said}");
    }
}
