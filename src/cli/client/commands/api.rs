//! `cued api`: a request of one's own to the API.

use std::io::{self, IsTerminal as _};

use clap::Args;
use hyper::header::HeaderName;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::{Result, usage};
use crate::cli::input;
use crate::cli::output::{Format, print_bytes, print_line};
use crate::client::request::{ApiRequest, ApiResponse, METHODS, segment};
use crate::domain::text::escaped;

/// Endpoints outside of `/v1`.
const OUTSIDE: [&str; 3] = ["health", "status", "openapi.json"];

/// Endpoints below a cue.
const BELOW_CUES: [&str; 3] = ["fire", "upcoming", "missed"];

/// An answer without an end.
const STREAM: &str = "/v1/events";

/// Headers that the client sets: another value would send the key in plain sight, or break the request.
const OWN_HEADERS: [&str; 6] =
    ["authorization", "connection", "content-length", "host", "transfer-encoding", "upgrade"];

/// Make a request to the API and print the response
///
/// The response is printed unchanged, whatever its status; exit codes are those of the other commands. `/v1` may be
/// left out of the path, except for health, status and openapi.json, which are not below it. The key is sent to the
/// server of the profile or of --url only.
#[derive(Debug, Args)]
#[command(allow_missing_positional = true)]
pub struct Api {
    /// GET, POST, PUT, PATCH, DELETE, HEAD or OPTIONS
    #[arg(value_name = "METHOD", value_parser = method, default_value = "GET")]
    method: &'static str,
    /// Path of the server, with or without `/v1`: cues, /v1/cues?limit=5, health
    #[arg(value_name = "PATH")]
    path: String,
    /// Field of the JSON body, or of the query of a GET; repeatable
    #[arg(short, long = "field", value_name = "KEY=VALUE", value_parser = field)]
    field: Vec<(String, String)>,
    /// Body: JSON, @FILE, or - for standard input
    #[arg(short, long, value_name = "JSON", allow_hyphen_values = true, conflicts_with = "field")]
    data: Option<String>,
    /// Header; repeatable
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Print the status and the headers before the body
    #[arg(short, long)]
    include: bool,
}

impl ClientAction for Api {
    fn run(self, context: &Context) -> Result {
        if matches!(context.output.format, Format::Wide | Format::Yaml | Format::Id) {
            return Err(usage("the answer is printed unchanged: leave out -q and -o"));
        }
        let request = self.request()?;
        let request = if context.target.key.is_none() { request.anonymous() } else { request };
        let answer = context.call(&request)?;
        let mut printed = if self.include { head(&answer) } else { Vec::new() };
        match std::str::from_utf8(&answer.body) {
            Ok(text) if serde_json::from_str::<IgnoredAny>(text).is_ok() => {
                printed.extend_from_slice(escaped(text, &[]).as_bytes());
            }
            _ => printed.extend_from_slice(&answer.body),
        }
        if io::stdout().is_terminal() && !printed.is_empty() {
            let text = String::from_utf8_lossy(&printed);
            // Without an end of the line the prompt of the shell would follow on it.
            print_line(text.strip_suffix('\n').unwrap_or(&text))?;
        } else {
            print_bytes(&printed)?;
        }
        match context.client.refusal(&answer) {
            // The answer is printed, but the exit code says that it is an error.
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

impl Api {
    fn request(&self) -> Result<ApiRequest> {
        let mut request = ApiRequest::new(self.method, target(&self.path)?);
        let takes_query = matches!(self.method, "GET" | "HEAD");
        for (name, value) in self.field.iter().filter(|_| takes_query) {
            request = request.query(name.clone(), value);
        }
        for (name, value) in &self.header {
            request = request.header(name.clone(), value.as_str());
        }
        match (&self.data, takes_query) {
            (Some(_), true) => {
                Err(usage(format!("{} has no body: use -f for fields of the query", self.method)))
            }
            (Some(data), false) => Ok(request.json(input::text("--data", data)?)),
            (None, false) if !self.field.is_empty() => Ok(request.json(object(&self.field))),
            _ => Ok(request),
        }
    }
}

/// The path and query to request, from the root of the server.
fn target(path: &str) -> Result<String> {
    let lower = path.to_ascii_lowercase();
    if ["http://", "https://", "//"].iter().any(|begin| lower.starts_with(begin)) {
        return Err(usage(
            "give a path and no URL, such as /v1/cues: the key goes to the server of --url or of the profile and to no \
             other",
        ));
    }
    let path = path.split('#').next().unwrap_or_default();
    let path: String = path.strip_prefix('/').unwrap_or(path).chars().map(encoded).collect();
    let first = path.split(['/', '?']).next().unwrap_or_default();
    let target = if first == "v1" || OUTSIDE.contains(&first) {
        format!("/{path}")
    } else {
        format!("/v1/{path}")
    };
    if path_of(&target) == STREAM {
        return Err(usage("the stream of events has no end: use `cued tail`"));
    }
    Ok(with_slug_in_one_segment(target))
}

/// A character as it was written, unless no path and query has it.
fn encoded(char: char) -> String {
    let is_plain = char.is_ascii_graphic() && !"\"<>\\^`{|}".contains(char);
    if is_plain { char.to_string() } else { segment(&char.to_string()) }
}

/// Encodes the slash of a slug: in `cues/slug:home/one/fire` the first one. `cues/slug:one/fire` fires the cue `one`.
fn with_slug_in_one_segment(target: String) -> String {
    let slug = target.strip_prefix("/v1/cues/slug:").and_then(|rest| rest.split_once('/'));
    match slug {
        Some((namespace, rest))
            if !namespace.contains('?') && !BELOW_CUES.contains(&path_of(rest)) =>
        {
            format!("/v1/cues/slug:{namespace}%2F{rest}")
        }
        _ => target,
    }
}

/// A target without its query.
fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
}

fn method(text: &str) -> Result<&'static str, String> {
    let known = METHODS.iter().find(|method| method.eq_ignore_ascii_case(text));
    known.copied().ok_or_else(|| format!("expected one of {}", METHODS.join(", ")))
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("expected KEY=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected 'Name: value'")?;
    let (name, value) = (name.trim(), value.trim());
    if OWN_HEADERS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return Err(format!(
            "{name} is set by cued: the key comes from the profile or CUED_API_KEY"
        ));
    }
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(_) if !value.contains(char::is_control) => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected 'Name: value'".to_owned()),
    }
}

/// The fields as a JSON object. A value that is JSON counts as such, else as text.
fn object(fields: &[(String, String)]) -> Value {
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    Value::Object(
        fields.iter().map(|(name, text)| (name.clone(), value(text))).collect::<Map<_, _>>(),
    )
}

/// The status and the headers, as HTTP has them.
fn head(answer: &ApiResponse) -> Vec<u8> {
    let headers = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let headers: String = headers.collect();
    format!("HTTP/1.1 {} {}\r\n{headers}\r\n", answer.status, answer.reason).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slash_of_a_slug_is_no_separator() {
        for (path, expected) in [
            ("cues/slug:home/one", "/v1/cues/slug:home%2Fone"),
            ("/v1/cues/slug:home/one?payload=text", "/v1/cues/slug:home%2Fone?payload=text"),
            ("cues/slug:home/one/fire", "/v1/cues/slug:home%2Fone/fire"),
            ("cues/slug:home/fire/fire", "/v1/cues/slug:home%2Ffire/fire"),
            (
                "cues/slug:home%2Fone/upcoming?detail=true",
                "/v1/cues/slug:home%2Fone/upcoming?detail=true",
            ),
            ("cues/slug:one/fire", "/v1/cues/slug:one/fire"),
            ("cues/slug:one?from=a/b", "/v1/cues/slug:one?from=a/b"),
            ("cues/by-slug/home/one", "/v1/cues/by-slug/home/one"),
        ] {
            assert_eq!(target(path).unwrap(), expected);
        }
        let api: Value = serde_json::from_str(include_str!("../../../http/openapi.json")).unwrap();
        let paths = api["paths"].as_object().unwrap().keys();
        let mut below: Vec<&str> =
            paths.filter_map(|path| path.strip_prefix("/v1/cues/{cue_id}/")).collect();
        below.sort_unstable_by_key(|path| BELOW_CUES.iter().position(|known| known == path));
        assert_eq!(below, BELOW_CUES);
    }

    #[test]
    fn headers_of_the_client_are_refused() {
        assert_eq!(header("X-A: b: c"), Ok(("X-A".to_owned(), "b: c".to_owned())));
        for bad in ["authorization: Bearer x", "Host: x", "x", ": y", "a b: c", "a: b\r\nc: d"] {
            assert!(header(bad).is_err(), "{bad}");
        }
    }
}
