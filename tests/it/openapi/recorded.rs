//! The responses that tests have received, in a file that the test of the coverage reads in a run of its own: nothing
//! runs after the last test of a process.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::{LazyLock, Mutex};

use crate::openapi::document::Operation;
use crate::support::client::Response;

/// One line for each operation, documented response and error code. It grows over runs; `.ci/run` deletes it before.
const FILE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/openapi-responses.txt");

/// The lines that this process has written already.
static SEEN: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(Mutex::default);

/// Remembers a response.
pub fn record(operation: &Operation, response: &Response) {
    let Some((key, _)) = operation.response(response.status) else { return };
    let line = line(operation.id, &key, &code(response));
    if SEEN.lock().unwrap().insert(line.clone()) {
        // One write per line, so that lines of parallel runs do not mix.
        let mut file = OpenOptions::new().create(true).append(true).open(FILE).unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// All responses that were recorded.
pub fn lines() -> BTreeSet<String> {
    let text = fs::read_to_string(FILE).unwrap_or_else(|error| {
        panic!("{FILE}: {error}; run all tests first: they record the responses that they receive")
    });
    text.lines().map(str::to_owned).collect()
}

pub fn line(operation: &str, key: &str, code: &str) -> String {
    format!("{operation} {key} {code}").trim_end().to_owned()
}

fn code(response: &Response) -> String {
    if response.status < 400 || response.header("content-type") != Some("application/json") {
        return String::new();
    }
    let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap_or_default();
    body["error"]["code"].as_str().unwrap_or_default().to_owned()
}
