//! The transcripts of the documentation: each file of `transcripts` runs from its top to its end against a new server, and
//! its outputs are compared. `TRYCMD=overwrite cargo test --test it -- cli::transcripts` writes the outputs anew.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trycmd::TestCases;

use crate::support::server::Server;

/// The time of the server, which stands still.
const TIME: &str = "2030-01-01T00:00:00Z";

#[test]
fn the_outputs_of_the_documentation_are_those_of_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli/transcripts");
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there are no transcripts");
    for file in files {
        let server = Server::with_test_clock(TIME);
        let user = server.client().register("me@example.com");
        let home = TempDir::new().unwrap();
        let cases = TestCases::new();
        cases
            .register_bin("cued", Path::new(env!("CARGO_BIN_EXE_cued")))
            .env("CUED_URL", server.url())
            .env("CUED_API_KEY", user.key())
            .env("HOME", home.path().to_str().unwrap())
            .env("XDG_CONFIG_HOME", "")
            .env("TZ", "UTC")
            .env("LC_ALL", "C.UTF-8")
            .case(&file);
        cases.insert_var("[SERVER]", server.url()).unwrap();
        cases.run();
    }
}
