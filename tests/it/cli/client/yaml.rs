//! YAML that the program writes is read as the same JSON.

use cued::cli::input::yaml;
use cued::cli::output::yaml::document;
use cued::domain::json;

use serde_json::Value;

use crate::support::json_documents;
use crate::support::random::Random;

#[test]
fn any_json_is_the_same_after_it_was_written_and_read_as_yaml() {
    let mut random = Random::new(12);
    for _ in 0..3_000 {
        let text = json_documents::document(&mut random, 5);
        let expected = json::read(text.as_bytes()).unwrap().get().to_value();
        let written = document(&text).unwrap();
        let read = yaml::read(&written).unwrap_or_else(|error| panic!("{error} in {written:?} of {text}"));
        assert_eq!(read, expected, "{written:?}");
        match yaml::read(&text) {
            Ok(read) => assert_eq!(canonical(&read), canonical(&expected), "{text}"),
            Err(error) => assert!(error.reason.ends_with("is repeated"), "{error} in {text}"),
        }
    }
}

/// Numbers in the form in which the server stores them.
fn canonical(value: &Value) -> String {
    json::read(value.to_string().as_bytes()).unwrap().into_string()
}

#[test]
fn texts_that_yaml_would_read_as_something_else_are_quoted() {
    for json in [
        r#"{"a":[],"b":{},"c":[[1,[2]],[{"x":1,"y":[{}]}]],"d":"","null":null,"~":"~"}"#,
        r##"["yes","no","1","1.5","- a","a: b","#c","é","\u0007","\u0085\u2028","\ufeff","a\nb","'","\"","\\"]"##,
        r#"[-0.5,1e-7,true,false,"0x1F",".inf","2030-01-01","<<","=","%a","@a","`a`","!a","&a","*a","|",">"]"#,
        "3",
        "\"\u{10ffff}\u{7f}\u{80}\u{9b}\u{202e}\u{fffe}\"",
    ] {
        let expected = json::read(json.as_bytes()).unwrap().get().to_value();
        let written = document(json).unwrap();
        assert_eq!(yaml::read(&written), Ok(expected), "{written}");
    }
    assert_eq!(
        document(r#"{"b":[{"x":1,"z":[2]},[3]],"a":{}}"#).unwrap(),
        "a: {}\nb:\n  - x: 1\n    z:\n      - 2\n  -\n    - 3\n"
    );
}
