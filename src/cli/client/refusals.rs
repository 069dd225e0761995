//! What the API refuses, as a person reads it: before each message stands what its field is called where the person has
//! written it. This is a flag, a key of a file or an argument of a tool.

use serde_json::Value;

use crate::api::cue_names::{field_paths, flag_of, parts_of};
use crate::api::refusal::place_of;
use crate::cli::error::CliError;
use crate::cli::nearest::{nearest, question};
use crate::cli::output::table::whole_span;
use crate::client::credentials::Target;
use crate::client::request::RefusedRequest;
use crate::domain::api_error::ErrorCode;

/// Phrases of the API, which has them from its first clients, and their meaning for a person. A run is an execution in
/// the API alone.
const PHRASES: [(&str, &str); 20] = [
    ("Value error, ", ""),
    ("Input should be a valid dictionary or object to extract fields from", "must be an object"),
    ("Input should be a valid dictionary", "must be a JSON object"),
    ("Input should be less than or equal to", "must be at most"),
    ("Input should be greater than or equal to", "must be at least"),
    ("Input should be", "must be"),
    ("String should have", "must have"),
    ("Field required", "is missing"),
    (UNKNOWN, "is no field here"),
    ("Cue not found", "no cue has this id"),
    ("Execution not found", "no run has this id"),
    ("Session not found", "no session has this id; `cued account sessions` lists them"),
    ("use another slug, or adopt it", "use another key or namespace, or add --adopt"),
    ("with its on_failure", "with --on-failure"),
    (
        "send a phrase as `text` to the preview, and store the schedule that it returns",
        "`cued preview` shows what a phrase means",
    ),
    ("the execution itself has its payload", "`cued run show` has its payload"),
    ("the account's alert_webhook_url", SET_ALERT_WEBHOOK),
    ("an execution", "a run"),
    ("execution ", "run "),
    ("Execution ", "Run "),
];

/// The kind of problem of a field that is unknown.
const EXTRA: &str = "extra_forbidden";

const UNKNOWN: &str = "Extra inputs are not permitted";

/// No other command sets it.
pub const SET_ALERT_WEBHOOK: &str = "it with `cued api PATCH auth/me -f alert_webhook_url=URL`";

/// What is wrong with a field, or with the whole request.
#[derive(Debug)]
pub struct Fault {
    /// The place in the body or in the query; empty for the whole request.
    pub place: Vec<Value>,
    message: String,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unknown,
    /// The message says what it is about.
    Whole,
    Other,
}

impl Fault {
    /// The faults that the body of an error names. `message` is that of the error, which a command may have extended.
    pub fn all(body: &Value, message: &str) -> Vec<Self> {
        match body["detail"].as_array() {
            Some(details) if !details.is_empty() => details.iter().map(Self::of_detail).collect(),
            _ => vec![Self::of_message(&body["error"], message)],
        }
    }

    fn of_detail(detail: &Value) -> Self {
        let is_unknown = detail["type"] == EXTRA;
        let kind = if is_unknown { Kind::Unknown } else { Kind::Other };
        let place = detail["loc"].as_array().into_iter().flatten().skip(1).cloned().collect();
        let message = detail["msg"].as_str().unwrap_or_default().to_owned();
        Self { place, message, kind }
    }

    /// An error of `POST /v1/apply`. The first parts of its place are those of the object that it is about.
    pub fn of_apply(error: &Value, around: usize) -> Self {
        let code = error["code"].as_str().unwrap_or_default();
        let place: Vec<Value> =
            error["loc"].as_array().into_iter().flatten().skip(around).cloned().collect();
        let message = error["msg"].as_str().unwrap_or_default().to_owned();
        let mut fault = Self { place, message, kind: Kind::Other };
        let says_it = matches!(fault.path().as_str(), "schedule" | "schedule.cron" | "payload");
        fault.kind = match ErrorCode::parse(code) {
            _ if code == EXTRA => Kind::Unknown,
            Some(_) if says_it => Kind::Whole,
            _ if fault.place.is_empty() => Kind::Whole,
            _ => Kind::Other,
        };
        fault
    }

    fn of_message(error: &Value, message: &str) -> Self {
        let code = error["code"].as_str().unwrap_or_default();
        let (path, message, is_whole) = place_of(code, error["field"].as_str(), message);
        Self {
            place: path.split('.').filter(|part| !part.is_empty()).map(Value::from).collect(),
            message: message.to_owned(),
            kind: if is_whole { Kind::Whole } else { Kind::Other },
        }
    }

    /// `callback.url`
    pub fn path(&self) -> String {
        let part = |part: &Value| part.as_str().map_or_else(|| part.to_string(), str::to_owned);
        self.place.iter().map(part).collect::<Vec<_>>().join(".")
    }

    pub fn is_unknown(&self) -> bool {
        self.kind == Kind::Unknown
    }

    /// The message after the name that the field has for the person, or else its path.
    pub fn text(&self, name: Option<String>) -> String {
        let (path, is_named) = (self.path(), name.is_some());
        if self.message == UNKNOWN
            && let Some(text) = unknown_field(&path)
        {
            return text;
        }
        let replace = |text: String, (phrase, words): &(&str, &str)| text.replace(phrase, words);
        let message = PHRASES.iter().fold(self.message.clone(), replace);
        match name.unwrap_or_else(|| path.clone()) {
            name if name.is_empty() || self.kind == Kind::Whole => message,
            // The bounds of a list are counts.
            name if is_named && path.ends_with("_seconds") && !message.starts_with("List") => {
                format!("{name}: {}", with_spans(&message))
            }
            name => format!("{name}: {message}"),
        }
    }

    /// The path, and then those around it: an entry of a field has its flag, as a header or a tag.
    pub fn paths(&self) -> Vec<String> {
        let path = self.path();
        let path = path.strip_prefix("filter.").unwrap_or(&path);
        let around = path.rmatch_indices('.').map(|(end, _)| path[..end].to_owned());
        std::iter::once(path.to_owned()).chain(around).collect()
    }
}

/// The flags that may set a field, or remove it.
pub fn flags_of(path: &str) -> impl Iterator<Item = String> + use<> {
    let same = (!path.contains('.')).then(|| path.replace('_', "-"));
    let names = flag_of(path).map(str::to_owned).into_iter().chain(same);
    names.flat_map(|name| [name.clone(), format!("no-{name}")])
}

/// The faults of a refusal, each on a line. `name` returns what the field of one is called.
pub fn texts(refused: &RefusedRequest, name: impl Fn(&Fault) -> Option<String>) -> String {
    let faults = Fault::all(&refused.body, &refused.message);
    let texts: Vec<String> = faults.iter().map(|fault| fault.text(name(fault))).collect();
    match &texts[..] {
        [text] => text.clone(),
        _ => format!("several things are wrong:\n  {}", texts.join("\n  ")),
    }
}

/// Says a refusal in the words of a person, unless the command has done so.
pub fn reworded(
    mut error: CliError,
    target: &Target,
    name: &dyn Fn(&Fault) -> Option<String>,
) -> CliError {
    if let Some(refused) = error.refused()
        && !refused.is_reworded()
    {
        let is_wrong_key = refused.status == 401 && refused.code == "invalid_api_key";
        refused.say(if is_wrong_key { wrong_key(target) } else { texts(refused, name) });
    }
    error
}

fn wrong_key(target: &Target) -> String {
    let source = match (target.key_variable, &target.profile) {
        (Some(name), _) => format!("the API key in {name}"),
        (None, Some(profile)) => format!("the API key of profile {}", profile),
        (None, None) => "this API key".to_owned(),
    };
    let remedy =
        if target.key_variable.is_some() { "unset it, or replace it" } else { "run `cued login`" };
    format!("{} does not accept {source}: {remedy}", target.url)
}

/// Numbers of seconds as the value of a flag has them: `must be at most 5m`.
fn with_spans(message: &str) -> String {
    let span = |word: &str| match word.parse() {
        Ok(seconds @ 1..) => whole_span(seconds),
        _ => word.to_owned(),
    };
    message.split(' ').map(span).collect::<Vec<_>>().join(" ")
}

/// A field that no cue has, with the nearest one. `None` for one that only does not fit the others.
fn unknown_field(path: &str) -> Option<String> {
    let known: Vec<&str> = field_paths().collect();
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let with_name = |name: &str| -> Vec<&str> {
        known.iter().copied().filter(|path| last(path) == name).collect()
    };
    let name = last(path);
    match path {
        "transport" => return Some("transport: it cannot be changed; add another cue".to_owned()),
        "paused" => {
            return Some(format!(
                "there is no field {path:?}; set status to paused, or run `cued cue pause`"
            ));
        }
        path if known.contains(&path) => return None,
        _ => {}
    }
    let mut near = with_name(&name);
    if near.is_empty() {
        let names: Vec<String> = known.iter().map(|path| last(path)).collect();
        let names = nearest(&name, names.iter().map(String::as_str));
        near = names.into_iter().flat_map(with_name).collect();
    }
    let around = path.rsplit_once('.').map_or("", |(around, _)| around);
    let parts: Vec<&str> = parts_of(around).collect();
    let parts = (!parts.is_empty()).then(|| format!("{around} has {}", parts.join(", ")));
    let advice = question(&near).or(parts).map(|text| format!("; {text}")).unwrap_or_default();
    Some(format!("there is no field {path:?}{advice}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_field_is_answered_with_the_path_of_the_nearest() {
        for (path, text) in [
            ("cron", r#"there is no field "cron"; did you mean "schedule.cron"?"#),
            ("schedule.url", r#"there is no field "schedule.url"; did you mean "callback.url"?"#),
            (
                "timeout",
                r#"there is no field "timeout"; did you mean "callback.timeout_seconds" or "schedule.timezone"?"#,
            ),
            (
                "callback.flow.paralelism",
                r#"there is no field "callback.flow.paralelism"; did you mean "callback.flow.parallelism"?"#,
            ),
            ("nmae", r#"there is no field "nmae"; did you mean "name"?"#),
            ("xyz", r#"there is no field "xyz""#),
            (
                "paused",
                r#"there is no field "paused"; set status to paused, or run `cued cue pause`"#,
            ),
            ("transport", "transport: it cannot be changed; add another cue"),
        ] {
            assert_eq!(unknown_field(path).as_deref(), Some(text));
        }
        let detail = json!({"loc": ["body", "callback"], "type": "extra_forbidden", "msg": "Extra inputs are not permitted"});
        assert_eq!(Fault::of_detail(&detail).text(None), "callback: is no field here");
    }

    #[test]
    fn a_bound_of_a_flag_has_its_unit() {
        let fault = |field: &str| {
            let msg = "Value error, must be 0 for none, or 900 to 604800";
            Fault::of_detail(&json!({"loc": ["body", field], "type": "value_error", "msg": msg}))
        };
        let name = || Some("--remind-after".to_owned());
        let seconds = fault("remind_after_seconds");
        assert_eq!(seconds.text(name()), "--remind-after: must be 0 for none, or 15m to 7d");
        assert_eq!(
            seconds.text(None),
            "remind_after_seconds: must be 0 for none, or 900 to 604800"
        );
        let text = fault("priority").text(Some("--priority".to_owned()));
        assert_eq!(text, "--priority: must be 0 for none, or 900 to 604800");
    }
}
