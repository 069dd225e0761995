//! Flags of `cued cue add` with a form of their own.

use std::str::FromStr;

use serde_json::{Number, Value, json};

use crate::cli::error::CliError;
use crate::cli::input::values;

/// `--retry 4:1,5,15`: attempts, and minutes before each further one.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    attempts: u32,
    minutes: Vec<Number>,
}

impl Retry {
    pub fn to_json(&self) -> Value {
        let mut retry = json!({ "max_attempts": self.attempts });
        if !self.minutes.is_empty() {
            retry["backoff_minutes"] = json!(self.minutes);
        }
        retry
    }
}

impl FromStr for Retry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let error = || "an example is 4:1,5,15, four attempts after 1, 5 and 15 minutes".to_owned();
        let (attempts, minutes) = text.split_once(':').unwrap_or((text, ""));
        let minutes = minutes.split(',').map(str::trim).filter(|_| text.contains(':'));
        let minutes = minutes.map(|minutes| minutes.parse().map_err(|_| error()));
        Ok(Self {
            attempts: attempts.trim().parse().map_err(|_| error())?,
            minutes: minutes.collect::<Result<_, _>>()?,
        })
    }
}

/// `--on-failure email,pause,URL`: exactly these actions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OnFailure {
    email: bool,
    pause: bool,
    webhook: Option<String>,
}

impl OnFailure {
    pub fn to_json(&self) -> Value {
        json!({ "email": self.email, "pause": self.pause, "webhook": self.webhook })
    }
}

impl FromStr for OnFailure {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut actions = Self::default();
        if text.trim() == "none" {
            return Ok(actions);
        }
        for word in text.split(',').map(str::trim) {
            match word {
                "email" => actions.email = true,
                "pause" => actions.pause = true,
                url if url.contains("://") && actions.webhook.is_none() => {
                    actions.webhook = Some(url.to_owned())
                }
                url if url.contains("://") => return Err("there is one URL at most".to_owned()),
                other => return Err(format!("{other:?} is none of email, pause, a URL and none")),
            }
        }
        Ok(actions)
    }
}

/// The name and the value of a header field; `@FILE` has the value in a file, so that it is not in the list of processes.
pub fn header(text: &str) -> Result<(String, String), CliError> {
    let Some((name, value)) = text.split_once(':') else {
        return Err(CliError::Usage(format!(
            "--header: {text:?} has no colon; an example is 'X-Source: cued'"
        )));
    };
    let value = match value.trim() {
        file if file.starts_with('@') => values::text("--header", file)?.trim().to_owned(),
        value => value.to_owned(),
    };
    Ok((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_has_attempts_and_minutes() {
        let read = |text: &str| text.parse::<Retry>().map(|retry| retry.to_json().to_string());
        assert_eq!(read("4:1,5.5, 15").unwrap(), r#"{"backoff_minutes":[1,5.5,15],"max_attempts":4}"#);
        assert_eq!(read("1").unwrap(), r#"{"max_attempts":1}"#);
        for bad in ["", "x", "4:", "4:1,,2", "4:a", ":1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn on_failure_has_exactly_the_named_actions() {
        let read = |text: &str| text.parse::<OnFailure>().map(|actions| actions.to_json().to_string());
        assert_eq!(read("none").unwrap(), r#"{"email":false,"pause":false,"webhook":null}"#);
        assert_eq!(
            read("pause, https://x.test/a").unwrap(),
            r#"{"email":false,"pause":true,"webhook":"https://x.test/a"}"#
        );
        assert!(read("mail").is_err() && read("http://a,http://b").is_err());
    }

    #[test]
    fn a_header_has_a_name_and_a_value() {
        assert_eq!(header("X-A: b: c").unwrap(), ("X-A".to_owned(), "b: c".to_owned()));
        assert!(header("X-A").is_err());
    }
}
