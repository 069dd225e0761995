//! Words of the API as a person reads them, in tables and details. JSON has those of the API, and flags take both.

use serde_json::Value;

use crate::cli::output::table::text_of;
use crate::domain::account::plan::LIMIT_EXCEEDED;
use crate::domain::account::user::RegistrationPolicy;

/// A cause, a trigger, a state of an outcome, a type of an alert or a setting of the server; a word without a text of its own without underscores.
pub fn in_words(word: &str) -> String {
    let known = WORDS.iter().find(|(api, _)| *api == word);
    known.map_or_else(|| word.replace('_', " "), |(_, words)| (*words).to_owned())
}

/// The word of the API for one that a person reads in a table, or any other text as it is.
pub fn of_words(text: &str) -> String {
    let known = WORDS.iter().find(|(_, words)| *words == text);
    known.map_or_else(|| text.replace(' ', "_"), |(api, _)| (*api).to_owned())
}

const WORDS: [(&str, &str); 13] = [
    (LIMIT_EXCEEDED, "limit reached"),
    ("unknown_name", "no usable address"),
    ("blocked_address", "address not allowed"),
    ("status_3xx", "redirect (3xx)"),
    ("status_4xx", "client error (4xx)"),
    ("status_5xx", "server error (5xx)"),
    ("status_other", "other status"),
    ("manual_fire", "fired by hand"),
    ("reported_failure", "reported a failure"),
    ("consecutive_failures", "failures in a row"),
    ("missing", "no result in time"),
    (RegistrationPolicy::FirstUser.as_str(), "open for the first user only"),
    ("log", "none (written to the server's log)"),
];

/// A type of events as a person reads it.
pub fn event_in_words(event: &str) -> &str {
    EVENTS.iter().find(|(api, _)| *api == event).map_or(event, |(_, words)| words)
}

/// The type of events of the API for one that a person reads, or any other text as it is.
pub fn event_of_words(text: &str) -> &str {
    EVENTS.iter().find(|(_, words)| *words == text).map_or(text, |(api, _)| api)
}

const EVENTS: [(&str, &str); 9] = [
    ("execution.failed", "failed"),
    ("execution.succeeded", "succeeded"),
    ("execution.succeeded", "success"),
    ("execution.retrying", "retrying"),
    ("execution.cancelled", "cancelled"),
    ("execution.claim_lost", "claim lost"),
    ("cue.recovered", "recovered"),
    ("cue.paused", "paused"),
    ("alert.*", "alerts"),
];

/// The `error_message` of a run, an attempt or a test call as a person reads it.
pub fn message_of(object: &Value) -> String {
    let message = text_of(object, "error_message");
    if message == LIMIT_EXCEEDED { in_words(&message) } else { message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_of_the_api_are_those_of_a_person() {
        assert_eq!(
            message_of(&json!({"error_message": LIMIT_EXCEEDED, "cause": null})),
            "limit reached"
        );
        for (word, text) in [
            ("status_5xx", "server error (5xx)"),
            ("manual_fire", "fired by hand"),
            ("verification_pending", "verification pending"),
            ("timeout", "timeout"),
        ] {
            assert_eq!(in_words(word), text);
            assert_eq!((of_words(text).as_str(), of_words(word).as_str()), (word, word));
        }
    }

    #[test]
    fn a_cause_and_a_trigger_have_the_words_of_the_web_interface() {
        let page = include_str!("../../http/page/app/words.js");
        let (_, causes) = page.split_once("const CAUSES = ").unwrap();
        let (causes, _) = causes.split_once("};").unwrap();
        let shared = |word: &str| {
            let begin = format!("  {word}: [");
            causes.lines().find(|line| line.starts_with(&begin))?.rsplit('"').nth(1)
        };
        let causes = WORDS.iter().filter_map(|(word, own)| Some((*own, shared(word)?)));
        let causes: Vec<_> = causes.collect();
        assert!(causes.len() >= 6, "{causes:?}");
        for (own, shared) in causes {
            assert_eq!(own, shared);
        }
        assert!(page.contains(&format!("manual_fire: \"{}\"", in_words("manual_fire"))));
    }
}
