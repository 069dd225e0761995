//! The commands of the README, run unchanged except for ports and folders.

use std::process::Output;

use crate::support::*;

const README: &str = include_str!("../../../README.md");

/// The most lines of the README: what is longer belongs to a page that the program serves.
const MAX_LINES: usize = 120;

/// The shell blocks below this heading.
fn blocks(heading: &str) -> Vec<&'static str> {
    let chapter = README.split("\n## ").find(|chapter| chapter.starts_with(heading));
    let blocks = chapter.expect(heading).split("```sh\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The commands of the first terminal and of the second one.
fn quick_start() -> [&'static str; 2] {
    blocks("Quick start").try_into().unwrap()
}

/// Runs a script that must succeed.
#[track_caller]
fn run_at(home: &ClientHome, script: &str) {
    let bin = Path::new(env!("CARGO_BIN_EXE_cued")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut bash = home.shell(script);
    let Output { status, stdout, stderr } = bash.env("PATH", path).output().unwrap();
    let (text, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{text}{stderr}");
}

#[test]
fn the_readme_is_short_and_shows_the_test_clock_on_its_first_screen() {
    let lines: Vec<&str> = README.lines().collect();
    assert!(lines.len() <= MAX_LINES, "{} lines", lines.len());
    assert!(lines[..40].iter().any(|line| line.contains("test-clock.md")));
}

#[test]
fn the_quick_start_of_the_readme_delivers_its_payload() {
    let [start, client] = quick_start();
    assert_eq!(start.trim(), "cued serve --dev --limits off &\ncued sink");
    // It runs until it is interrupted.
    let (client, _) = client.split_once("cued tail --since 1m").expect(client);
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
}

#[test]
fn a_clone_is_built_and_tested_by_two_commands() {
    let [_, clone] = blocks("Install").try_into().unwrap();
    let commands: Vec<&str> =
        clone.lines().map(|line| line.split("    #").next().unwrap()).collect();
    assert_eq!(commands, ["cargo run --release -- serve --dev --limits off", "cargo test"]);
    let needed = concat!("Rust ", env!("CARGO_PKG_RUST_VERSION"), " or later and a C compiler");
    assert!(README.contains(needed), "{needed}");
}
