//! The page of the error codes, `src/docs/reference/errors.md`: a heading for each code, which is its anchor, then the
//! status, what it means, and what to do.

use cued::domain::api_error::ErrorCode;

use crate::openapi::DOCUMENT;
use crate::support::*;

const PAGE: &str = include_str!("../../../src/docs/reference/errors.md");

fn codes() -> Vec<(&'static str, u16)> {
    ErrorCode::ALL.iter().map(|code| code.text_and_status()).collect()
}

#[test]
fn each_code_has_a_section_with_its_status_in_alphabetical_order() {
    let sections = PAGE.split("\n## ").skip(1).map(|section| {
        let (code, text) = section.split_once("\n\n").expect(section);
        let (_, rest) = text.split_once('`').expect(code);
        let (status, meaning) = rest.split_once("` ").expect(code);
        assert!(
            text.starts_with('`') && meaning.len() > 40,
            "{code} has a status and says what to do"
        );
        (code, status.parse().expect(code))
    });
    let mut expected = codes();
    expected.sort_unstable();
    assert_eq!(sections.collect::<Vec<(&str, u16)>>(), expected);
}

#[test]
fn the_example_of_a_code_has_its_code_and_status() {
    for section in PAGE.split("\n## ").skip(1) {
        let code = section.lines().next().unwrap();
        for block in section.split("```json\n").skip(1) {
            let example: Value =
                serde_json::from_str(block.split("```").next().unwrap()).expect(code);
            let (_, status) = *codes().iter().find(|(known, _)| *known == code).unwrap();
            assert_eq!(example["error"]["code"], code);
            assert_eq!(example["error"]["status"], status, "{code}");
        }
    }
}

#[test]
fn the_description_of_the_api_has_the_same_codes() {
    let described = DOCUMENT["components"]["schemas"]["ErrorCode"].list("enum");
    let described: Vec<&str> = described.iter().map(|code| code.as_str().unwrap()).collect();
    assert_eq!(described, codes().iter().map(|(code, _)| *code).collect::<Vec<_>>());
}
