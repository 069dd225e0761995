//! YAML that the program writes is read as the same JSON.

use cued::cli::input::yaml;
use cued::cli::input::yaml::YamlErrorKind;
use cued::cli::output::yaml::document;
use cued::domain::json;

use crate::support::json_documents;
use crate::support::random::Random;

#[test]
fn any_json_is_the_same_after_it_was_written_and_read_as_yaml() {
    let mut random = Random::new(12);
    for _ in 0..3_000 {
        let text = json_documents::document(&mut random, 5);
        let expected = json::read(text.as_bytes()).unwrap();
        let written = document(&text).unwrap();
        let read = yaml::to_json(&written).unwrap_or_else(|error| panic!("{error} in {written:?} of {text}"));
        assert_eq!(json::read(read.as_bytes()).unwrap(), expected, "{written:?}");
        match yaml::read(&text) {
            Ok(read) => assert_eq!(read, expected, "{text}"),
            Err(error) => assert!(matches!(error.kind, YamlErrorKind::RepeatedKey(_)), "{error} in {text}"),
        }
    }
}
