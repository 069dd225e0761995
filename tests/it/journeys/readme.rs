//! The README's first journey, run as it stands: only the ports are other ones.

use std::process::Command;

use serde_json::Value;

use super::examples::Example;
use crate::server::Server;

/// The shell blocks of the chapter that begins with this heading.
fn blocks(heading: &str) -> Vec<String> {
    let readme = include_str!("../../../README.md");
    let chapter = readme.split("\n## ").find(|chapter| chapter.starts_with(heading)).expect(heading);
    let blocks = chapter.split("```sh\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_first_journey_of_the_readme_delivers_its_payload() {
    let blocks = blocks("A cue that fires");
    let [serve, receive, create, look, _tests] = &blocks[..] else { panic!("{blocks:#?}") };
    assert_eq!(serve.trim(), "cargo run --release -- serve --dev");
    assert_eq!(receive.trim(), "python3 examples/receiver.py 9000");
    let server = Server::start(&["--dev"]);
    let mut receiver = Example::start("receiver.py", &["0"], &[]);
    assert!(receiver.line().contains("NOT verified"));
    let script = format!("{create}\n{look}")
        .replace("localhost:8000", &server.addr().to_string())
        .replace("127.0.0.1:9000", &receiver.addr().to_string());
    assert!(!script.contains(":8000") && !script.contains(":9000"), "{script}");

    let output = Command::new("bash").args(["-euo", "pipefail", "-c", &script]).output().unwrap();
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{complaint}");
    assert!(receiver.line().ends_with(r#" {"hello": "world"}"#));
    let answers: Vec<Value> =
        serde_json::Deserializer::from_str(&said).into_iter().map(Result::unwrap).collect();
    let [fired, cue] = &answers[..] else { panic!("{said}") };
    assert_eq!(fired["triggered_by"], "manual_fire");
    assert_eq!((&cue["name"], &cue["executions"][0]["id"]), (&"hello".into(), &fired["execution_id"]));
}
