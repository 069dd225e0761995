//! `cued cue edit` at a terminal, and YAML.

use std::io::Write as _;

use cued::cli::input::yaml;
use cued::cli::output::yaml::document;
use cued::domain::json;

use crate::cli::client::sign_in::at_terminal;
use crate::cli::client::{add, start};
use crate::support::*;

#[test]
fn a_terminal_shows_a_fault_once_and_offers_to_edit_again() {
    let (_server, _user, home) = start();
    add(&home, "n");
    let folder = home.folder();
    let home = home.env("EDITOR", "echo 'nmae: y' >>").env("TMPDIR", folder);
    let Some((mut edit, mut keyboard)) = at_terminal(&home, "cue edit n") else { return };
    edit.until("Edit again? [Y/n] ");
    keyboard.write_all(b"n\n").unwrap();
    assert_eq!(edit.code(), 5);
    let output = edit.output();
    let fault = "there is no field \"nmae\"; did you mean \"name\"?";
    assert_eq!(output.matches(fault).count(), 1, "{output}");
    assert!(output.contains("cued: nothing was changed; the text is kept in /"), "{output}");
}

#[test]
fn any_json_is_the_same_after_it_was_written_and_read_as_yaml() {
    let mut random = Random::new(12);
    for _ in 0..3_000 {
        let text = random_document(&mut random, 5);
        let expected = json::read(text.as_bytes()).unwrap().get().to_value();
        let written = document(&text).unwrap();
        let read =
            yaml::read(&written).unwrap_or_else(|error| panic!("{error} in {written:?} of {text}"));
        assert_eq!(read, expected, "{written:?}");
        match yaml::read(&text) {
            Ok(read) => assert_eq!(canonical(&read), canonical(&expected), "{text}"),
            Err(error) => assert!(error.ends_with("is repeated"), "{error} in {text}"),
        }
    }
}

/// Numbers in the form that the server stores.
fn canonical(value: &Value) -> String {
    json::read(value.to_string().as_bytes()).unwrap().into_string()
}
