//! Errors of the API in the words of the command line: flags in place of fields, and `cued login` in place of a header.

use serde_json::Value;

use crate::api::cue::{field_paths, flag_of};
use crate::cli::client::words::with_runs;
use crate::cli::error::CliError;
use crate::cli::nearest::{nearest, question};
use crate::cli::output::table::whole_span;
use crate::cli::printable::printable;
use crate::client::credentials::{Target, server_url};
use crate::client::request::{ClientError, RefusedRequest};

/// Phrases of the API, which has them from its first clients, and their meaning for a person.
const PHRASES: [(&str, &str); 8] = [
    ("Value error, ", ""),
    ("Input should be a valid dictionary", "must be a JSON object"),
    ("Input should be less than or equal to", "must be at most"),
    ("Input should be greater than or equal to", "must be at least"),
    ("Input should be", "must be"),
    ("String should have", "must have"),
    ("Field required", "is missing"),
    ("Extra inputs are not permitted", "is no field here"),
];

/// Rewords the refusal of a request. `given` returns the value of a flag of the command line, by the name of the flag
/// or the field of the query that it sets.
pub fn reworded(
    mut error: CliError,
    target: &Target,
    given: &dyn Fn(&str) -> Option<(String, String)>,
) -> CliError {
    if let CliError::Client(ClientError::Refused(refused)) = &mut error {
        if refused.status == 401 && refused.code == "invalid_api_key" && !refused.is_reworded() {
            refused.say(wrong_key(target));
        } else if !refused.is_reworded() {
            refused.reword(|detail| fault(detail, given));
            reword_message(refused, given);
            let text = with_runs(&refused.to_string());
            refused.say(text);
        }
    }
    error
}

fn wrong_key(target: &Target) -> String {
    let source = match (target.key_variable, &target.profile) {
        (Some(name), _) => format!("the API key in {name}"),
        (None, Some(profile)) => format!("the API key of profile {}", printable(profile)),
        (None, None) => "this API key".to_owned(),
    };
    let remedy =
        if target.key_variable.is_some() { "unset it, or replace it" } else { "run `cued login`" };
    format!("{} does not accept {source}: {remedy}", target.url)
}

/// An entry of the `detail` of a refusal, about a field and not a flag.
pub fn field_fault(detail: &Value) -> Option<String> {
    fault(detail, &|_| None)
}

/// An entry of the `detail` of a refusal.
fn fault(detail: &Value, given: &dyn Fn(&str) -> Option<(String, String)>) -> Option<String> {
    let parts = detail["loc"].as_array()?.iter().skip(1);
    let path: Vec<String> =
        parts.map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned)).collect();
    let path = path.join(".");
    let message = detail["msg"].as_str()?;
    if detail["type"] == "extra_forbidden"
        && let Some(text) = unknown_field(&path)
    {
        return Some(text);
    }
    let message = PHRASES
        .iter()
        .fold(message.to_owned(), |text, (phrase, words)| text.replace(phrase, words));
    let message = message.strip_prefix(&format!("{path} ")).unwrap_or(&message);
    match given_flag(&path, given) {
        Some(flag) if path.ends_with("_seconds") => Some(format!("{flag}: {}", with_span(message))),
        Some(flag) => Some(format!("{flag}: {message}")),
        None => Some(format!("{path}: {message}")),
    }
}

/// A bound in seconds as the value of a flag has it: `must be at most 5m`.
fn with_span(message: &str) -> String {
    let bound =
        message.rsplit_once(' ').and_then(|(before, bound)| Some((before, bound.parse().ok()?)));
    bound.map_or_else(
        || message.to_owned(),
        |(before, seconds)| format!("{before} {}", whole_span(seconds)),
    )
}

/// A field that no cue has, with the nearest one. `None` for one that only does not fit the others.
fn unknown_field(path: &str) -> Option<String> {
    let known: Vec<&str> = field_paths().collect();
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let with_name = |name: &str| -> Vec<&str> {
        known.iter().copied().filter(|path| last(path) == name).collect()
    };
    let (name, shown) = (last(path), printable(path));
    match path {
        "transport" => return Some("transport: it cannot be changed; add another cue".to_owned()),
        "paused" => {
            return Some(format!(
                "there is no field {shown:?}; set status to paused, or run `cued cue pause`"
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
    let advice = question(&near).map(|question| format!("; {question}")).unwrap_or_default();
    Some(format!("there is no field {shown:?}{advice}"))
}

/// Fields of the request that runs a cue, and their flags.
const OF_FIRE: [(&str, &str); 2] = [("payload_override", "payload"), ("send_at", "at")];

/// `--url` for `callback.url`, if the command line has it. With advice for a URL without a scheme.
fn given_flag(path: &str, given: &dyn Fn(&str) -> Option<(String, String)>) -> Option<String> {
    // An entry of a field has its flag: a header, a tag.
    let around = path.rmatch_indices('.').map(|(end, _)| &path[..end]);
    let named = std::iter::once(path).chain(around).find_map(|path| {
        let of_fire = OF_FIRE.iter().find(|(field, _)| *field == path).map(|(_, flag)| *flag);
        flag_of(path).or(of_fire)
    });
    let outermost = || path.split('.').next().unwrap_or_default().replace('_', "-");
    let name = named.map_or_else(outermost, str::to_owned);
    given(&name).or_else(|| given(path)).map(|(flag, _)| format!("--{flag}"))
}

/// A message that begins with a field, without `detail`.
fn reword_message(refused: &mut RefusedRequest, given: &dyn Fn(&str) -> Option<(String, String)>) {
    let field = refused.message.split(' ').next().unwrap_or_default();
    let Some(name) = flag_of(field) else { return };
    let Some((flag, value)) = given(name) else { return };
    let mut text = format!("--{flag}{}", &refused.message[field.len()..]);
    if flag == "url" && !value.contains("://") {
        // As for the address of a server: http for this machine and local names.
        let host = value.split(['/', '?', '#']).next().unwrap_or_default();
        let is_http = server_url(host).is_ok_and(|url| url.starts_with("http://"));
        let scheme = if is_http { "http" } else { "https" };
        text.push_str(&format!("; did you mean {scheme}://{}?", printable(&value)));
    }
    refused.say(text);
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
        assert_eq!(field_fault(&detail).unwrap(), "callback: is no field here");
    }

    #[test]
    fn a_bound_of_a_flag_has_its_unit() {
        for (bound, text) in
            [("300", "5m"), ("3600", "1h"), ("2592000", "30d"), ("61", "61s"), ("", "")]
        {
            let [message, expected] = [bound, text].map(|end| format!("must be at most {end}"));
            assert_eq!(with_span(&message), expected);
        }
    }
}
