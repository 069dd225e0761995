//! The text that a sink prints for a delivery.

use serde_json::{Map, Value, json};

use crate::cli::client::commands::sink::delivery::Delivery;
use crate::cli::client::commands::sink::script::Step;
use crate::cli::error::CliError;
use crate::cli::output::Output;
use crate::cli::output::format::Format;
use crate::cli::output::style::Style;
use crate::cli::output::yaml;
use crate::cli::printable::printable;
use crate::domain::text::one_line;
use crate::domain::time::rfc3339;
use crate::domain::webhook::verification::Verification;

/// Bytes of a body that people are shown. A payload has up to 1 MiB.
const MAX_SHOWN: usize = 4 << 10;

/// Characters of a path, or of a header, on their line.
const MAX_LINE: usize = 500;

/// A delivery, and what became of it.
#[derive(Debug)]
pub struct Report<'a> {
    pub delivery: &'a Delivery,
    pub verification: Verification,
    pub step: Step,
    pub has_body: bool,
}

impl Report<'_> {
    /// The text to print, with the end of its line; empty if the form has nothing of this delivery.
    ///
    /// # Errors
    /// If it cannot be written as YAML.
    pub fn text(&self, output: &Output) -> Result<String, CliError> {
        Ok(match output.format {
            Format::Json | Format::Jsonl => format!("{}\n", self.json()),
            Format::Yaml => format!("---\n{}", yaml::document(&self.json().to_string())?),
            Format::Id => {
                self.delivery.execution_id().map(|id| format!("{}\n", line(id))).unwrap_or_default()
            }
            Format::Table | Format::Wide => self.lines(output),
        })
    }

    fn lines(&self, output: &Output) -> String {
        let Delivery { received_at, method, target, headers, body } = self.delivery;
        let styles = &output.styles;
        let mut parts = vec![
            styles.paint(&output.times.time_of_day(*received_at), Style::Faint),
            format!("{} {}", line(method), line(target)),
        ];
        parts.extend(self.delivery.execution_id().map(line));
        parts.extend(self.delivery.attempt().map(|attempt| format!("attempt {attempt}")));
        parts.push(format!("{} B", body.len()));
        let style = match self.verification {
            Verification::Verified => Style::Good,
            Verification::NoSecret => Style::Warning,
            _ => Style::Bad,
        };
        parts.push(styles.paint(&self.verification.to_string(), style));
        parts.push(format!("→ {}", step_text(self.step)));
        let mut text = format!("{}\n", parts.join("  "));
        if output.is_wide() {
            for (name, value) in headers {
                text.push_str(&styles.paint(&format!("  {}: {}", line(name), line(value)), Style::Faint));
                text.push('\n');
            }
        }
        if self.has_body {
            text.push_str(&body_lines(body));
        }
        text
    }

    /// One object, as programs read it.
    fn json(&self) -> Value {
        let Delivery { received_at, method, target, headers, body } = self.delivery;
        let (status, retry_after) = match self.step {
            Step::Answer { status, retry_after } => (Some(status), retry_after),
            Step::Timeout => (None, None),
        };
        let mut all = Map::new();
        for (name, value) in headers {
            match all.get_mut(name) {
                Some(Value::String(values)) => values.push_str(&format!(", {value}")),
                _ => drop(all.insert(name.clone(), json!(value))),
            }
        }
        let mut object = json!({
            "received_at": rfc3339(*received_at),
            "method": method,
            "path": target,
            "execution_id": self.delivery.execution_id(),
            "cue_id": self.delivery.header("x-cueapi-cue-id"),
            "attempt": self.delivery.attempt(),
            "headers": all,
            "size": body.len(),
            "verified": self.verification.is_verified(),
            "reason": self.verification.code(),
            "answer": {"status": status, "retry_after": retry_after},
        });
        if self.has_body {
            let text = || json!(String::from_utf8_lossy(body));
            object["body"] = serde_json::from_slice(body).unwrap_or_else(|_| text());
        }
        object
    }
}

fn step_text(step: Step) -> String {
    match step {
        Step::Answer { status, retry_after: None } => status.to_string(),
        Step::Answer { status, retry_after: Some(seconds) } => format!("{status}, Retry-After {seconds} s"),
        Step::Timeout => "no answer".to_owned(),
    }
}

/// A text from outside as a part of a line.
fn line(text: &str) -> String {
    printable(&one_line(text, MAX_LINE))
}

/// The beginning of a body as it came, indented.
fn body_lines(body: &[u8]) -> String {
    let shown = body.get(..MAX_SHOWN).unwrap_or(body);
    let text = String::from_utf8_lossy(shown);
    let mut lines: String =
        text.lines().map(|line| format!("  {}\n", printable(&line.replace('\t', "    ")))).collect();
    let rest = body.len() - shown.len();
    if rest > 0 {
        lines.push_str(&format!("  … {rest} bytes more\n"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::format::ColorWhen;
    use crate::cli::output::times::Times;

    fn delivery(body: impl Into<Vec<u8>>) -> Delivery {
        Delivery {
            received_at: "2030-01-01T12:00:00.003Z".parse().unwrap(),
            method: "POST".to_owned(),
            target: "/a\u{1b}[2J?b=\u{202e}c".to_owned(),
            headers: vec![
                ("x-cueapi-execution-id".to_owned(), "0190a5c0".to_owned()),
                ("x-cueapi-attempt".to_owned(), "2".to_owned()),
                ("a".to_owned(), "1".to_owned()),
                ("a".to_owned(), "2".to_owned()),
            ],
            body: body.into().into(),
        }
    }

    fn text(delivery: &Delivery, format: Format, has_body: bool) -> String {
        let times = Times::new(true, None).unwrap();
        let output = Output::new(format, ColorWhen::Never, times);
        let step = Step::Answer { status: 429, retry_after: Some(5) };
        Report { delivery, verification: Verification::Verified, step, has_body }.text(&output).unwrap()
    }

    #[test]
    fn a_delivery_is_a_line_and_its_body() {
        let line = "12:00:00.003  POST /a [2J?b=\u{fffd}c  0190a5c0  attempt 2  8 B  verified  \
                    → 429, Retry-After 5 s\n";
        let delivery = delivery("{\"a\":\u{7}\n}");
        assert_eq!(text(&delivery, Format::Table, true), format!("{line}  {{\"a\":\u{fffd}\n  }}\n"));
        assert_eq!(text(&delivery, Format::Table, false), line);
        assert!(text(&delivery, Format::Wide, false).contains("\n  x-cueapi-attempt: 2\n  a: 1\n"));
        assert_eq!(text(&delivery, Format::Id, true), "0190a5c0\n");
    }

    #[test]
    fn the_shown_part_of_a_body_is_bounded() {
        let shown = text(&delivery("é".repeat(5_000)), Format::Table, true);
        assert!(shown.len() < 4_300 && shown.ends_with("\n  … 5904 bytes more\n"), "{shown}");
        assert_eq!(body_lines(b""), "");
    }

    #[test]
    fn the_json_of_a_delivery_is_one_line_with_its_body_as_json_or_text() {
        let of = |body: &str, has_body| -> Value {
            let text = text(&delivery(body), Format::Json, has_body);
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            serde_json::from_str(&text).unwrap()
        };
        let object = of("{\"n\":\n 12345678901234567890123}", true);
        assert_eq!(object["body"].to_string(), "{\"n\":12345678901234567890123}");
        assert_eq!((&object["verified"], &object["reason"]), (&json!(true), &Value::Null));
        assert_eq!(object["headers"]["a"], json!("1, 2"));
        assert_eq!(of("no JSON", true)["body"], json!("no JSON"));
        assert!(of("{}", false).get("body").is_none());
    }
}
