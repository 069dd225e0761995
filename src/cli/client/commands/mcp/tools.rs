//! The tools: operations of the API, with the names, descriptions and fields that its description has for them.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use crate::cli::client::context::Context;
use crate::cli::client::refusals::reworded;
use crate::cli::docs::help_of_error;
use crate::cli::error::{CliError, Result, usage};
use crate::cli::nearest::did_you_mean;
use crate::client::request::{ApiRequest, ClientError, segment};
use crate::http::api::operations;

/// The operations that are tools, and their hints: changes nothing, may destroy, has no further effect when repeated,
/// reaches other servers. A change replaces what a field had; an outcome is reported once.
const OPERATIONS: [(&str, [bool; 4]); 16] = [
    ("createCue", [false, false, false, true]),
    ("listCues", [true, false, true, false]),
    ("getCue", [true, false, true, false]),
    ("updateCue", [false, true, true, true]),
    ("deleteCue", [false, true, true, false]),
    ("fireCue", [false, false, false, true]),
    ("previewSchedule", [true, false, true, false]),
    ("listUpcomingOfAllCues", [true, false, true, false]),
    ("listExecutions", [true, false, true, false]),
    ("getExecution", [true, false, true, false]),
    ("listAttempts", [true, false, true, false]),
    ("retryExecution", [false, false, false, true]),
    ("cancelExecution", [false, true, true, false]),
    ("claimNext", [false, false, false, false]),
    ("extendLease", [false, false, true, false]),
    ("reportOutcome", [false, false, true, false]),
];

const HINTS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

const METHODS: [&str; 4] = ["GET", "POST", "PATCH", "DELETE"];

/// In place of the values of headers, which may be keys.
const HIDDEN: &str = "(hidden)";

/// Bytes of a result that a conversation takes.
const MAX_RESULT: usize = 100_000;

/// The code of an empty queue, which is the usual result of a claim.
const NOTHING_TO_CLAIM: &str = "claim_failed";

/// Commands in the documentation of errors, and the tools that do the same.
const WORDS: [(&str, &str); 5] = [
    ("`cued cue list` and `cued whoami`", "listCues"),
    ("`cued run wait`", "getExecution"),
    ("`cued preview`", "previewSchedule"),
    ("Send `POST /v1/executions/{execution_id}/heartbeat`", "Call extendLease"),
    ("`PUT /v1/cues/by-slug/{slug}`", "updateCue"),
];

/// Parts of sentences that an agent without a shell and a browser cannot follow.
const NO_TOOL: [&str; 7] =
    ["`cued ", "/v1/", "API reference", "See ", "`detail`", "--url", "--profile"];

/// Whom an error of the connection or of the key concerns.
const ASK: &str = "; ask the user, who has set this MCP server up";

#[derive(Debug)]
pub struct Tool {
    /// As `tools/list` has it.
    pub definition: Value,
    method: &'static str,
    path: String,
    /// The names of arguments in the query and in headers; all others that are not in the path are the body.
    query: Vec<String>,
    headers: Vec<String>,
    has_body: bool,
}

/// All tools, or those that change nothing; `None` if the description of the API is damaged.
pub fn tools(is_read_only: bool) -> Option<Vec<Tool>> {
    let document: Value = serde_json::from_slice(&operations::document()?).ok()?;
    let is_wanted = |hints: &[bool; 4]| hints[0] || !is_read_only;
    let wanted = OPERATIONS.iter().filter(|(_, hints)| is_wanted(hints));
    wanted.map(|(name, hints)| Tool::new(&document, name, hints)).collect()
}

/// The method, the path and the description of an operation.
fn find<'a>(document: &'a Value, name: &str) -> Option<(&'static str, &'a str, &'a Value)> {
    document["paths"].as_object()?.iter().find_map(|(path, operations)| {
        let (method, operation) = METHODS.iter().find_map(|method| {
            let operation = operations.get(method.to_ascii_lowercase())?;
            (operation["operationId"] == name).then_some((*method, operation))
        })?;
        Some((method, path.as_str(), operation))
    })
}

/// A part of the document, where references are replaced by their targets.
fn resolved(document: &Value, part: &Value) -> Value {
    match part {
        Value::Object(fields) => {
            if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                let target = document.pointer(target.trim_start_matches('#'));
                return target.map_or(Value::Null, |target| resolved(document, target));
            }
            let fields =
                fields.iter().map(|(name, value)| (name.clone(), resolved(document, value)));
            joined(fields.collect()).into()
        }
        Value::Array(parts) => parts.iter().map(|part| resolved(document, part)).collect(),
        other => other.clone(),
    }
}

/// A schema without `allOf`, which not all clients read: it has the fields of its parts, as far as it does not state them.
fn joined(mut schema: Map<String, Value>) -> Map<String, Value> {
    let Some(Value::Array(parts)) = schema.remove("allOf") else { return schema };
    if schema.remove("unevaluatedProperties").is_some() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    for (name, value) in parts.into_iter().filter_map(|part| part.as_object().cloned()).flatten() {
        match (schema.entry(name).or_insert(Value::Null), value) {
            (Value::Object(own), Value::Object(more)) => {
                more.into_iter().for_each(|(name, value)| {
                    own.entry(name).or_insert(value);
                });
            }
            (Value::Array(own), Value::Array(more)) => own.extend(more),
            (own, value) if own.is_null() => *own = value,
            _ => {}
        }
    }
    schema
}

impl Tool {
    fn new(document: &Value, name: &str, hints: &[bool; 4]) -> Option<Self> {
        let (method, path, operation) = find(document, name)?;
        let (mut properties, mut required) = (Map::new(), Vec::new());
        let (mut query, mut headers) = (Vec::new(), Vec::new());
        for parameter in
            resolved(document, &operation["parameters"]).as_array().into_iter().flatten()
        {
            let name = parameter["name"].as_str()?;
            match parameter["in"].as_str()? {
                // A tool sends a request once.
                "header" if name == "Idempotency-Key" => continue,
                "header" => headers.push(name.to_owned()),
                "query" => query.push(name.to_owned()),
                _ => {}
            }
            if parameter["required"] == true {
                required.push(Value::from(name));
            }
            let mut schema = parameter["schema"].clone();
            schema["description"] = parameter["description"].clone();
            properties.insert(name.to_owned(), schema);
        }
        let body =
            resolved(document, &operation["requestBody"]["content"]["application/json"]["schema"]);
        properties.extend(body["properties"].as_object().cloned().unwrap_or_default());
        required.extend(body["required"].as_array().cloned().unwrap_or_default());
        let (title, text) = (operation["summary"].as_str()?, operation["description"].as_str()?);
        let mut annotations = json!({"title": title});
        for (hint, is_set) in HINTS.into_iter().zip(hints) {
            annotations[hint] = (*is_set).into();
        }
        let definition = json!({
            "name": name, "title": title, "description": format!("{title}. {text}"), "annotations": annotations,
            "inputSchema": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            },
        });
        Some(Self {
            definition,
            method,
            path: path.to_owned(),
            query,
            headers,
            has_body: body.is_object(),
        })
    }

    /// The result of a call. What goes wrong is a result too, so that the model reads it.
    pub fn call(&self, context: &Context, arguments: &Value, tools: &[Self]) -> Value {
        let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
        match self.fetch(context, arguments) {
            Ok(content) if content.is_null() => text("Done."),
            Ok(content) => {
                let mut text = content.to_string();
                if text.len() <= MAX_RESULT {
                    return json!({"content": [{"type": "text", "text": text}], "structuredContent": content});
                }
                let whole = text.len();
                let end = (0..=MAX_RESULT).rev().find(|end| text.is_char_boundary(*end));
                text.truncate(end.unwrap_or_default());
                let note = format!(
                    "The result has {whole} bytes. It begins as follows; ask for less to read all."
                );
                json!({"content": [{"type": "text", "text": note}, {"type": "text", "text": text}]})
            }
            Err(CliError::Client(error)) if error.code() == NOTHING_TO_CLAIM => {
                text("No run that fits is waiting.")
            }
            Err(error) => {
                let name = self.definition["name"].as_str().unwrap_or_default();
                let text = format!("{name}: {}", sentence(&error, tools));
                json!({"content": [{"type": "text", "text": text}], "isError": true})
            }
        }
    }

    fn fetch(&self, context: &Context, arguments: &Value) -> Result<Value> {
        let request = self.request(arguments)?;
        // A login or logout counts from the next call on.
        let context = context.reload()?;
        context.check_key()?;
        // The client of MCP gives up a call that waits: the agent decides about a repetition.
        let response = context.client.send_once(&request);
        let response =
            response.map_err(|error| reworded(error.into(), &context.target, &|_| None))?;
        let mut content = if response.body.is_empty() { Value::Null } else { response.value()? };
        hide(&mut content);
        Ok(content)
    }

    fn request(&self, arguments: &Value) -> Result<ApiRequest> {
        let known = &self.definition["inputSchema"]["properties"];
        let known = || known.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let (mut request, mut body) = (ApiRequest::new(self.method, &*self.path), Map::new());
        for (name, value) in arguments.as_object().into_iter().flatten() {
            if !known().any(|known| known == name) {
                let all = || known().collect::<Vec<_>>().join(", ");
                let advice = did_you_mean(name, known(), format!("the arguments are {}", all()));
                return Err(usage(format!("there is no argument {name:?}; {advice}")));
            }
            if self.query.contains(name) {
                let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                for value in values.iter().filter(|value| !value.is_null()) {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    request = request.query(name.clone(), text);
                }
            } else if self.headers.contains(name) {
                request = request.header(name.clone(), text(arguments, name)?);
            } else if let Some((before, after)) = request.path.split_once(&format!("{{{name}}}")) {
                // The slash of a slug may be escaped, as in a URL.
                let value = percent_decode_str(text(arguments, name)?).decode_utf8_lossy();
                request.path = format!("{before}{}{after}", segment(&value));
            } else {
                body.insert(name.clone(), value.clone());
            }
        }
        if let Some(missing) = request.path.split(['{', '}']).nth(1) {
            text(arguments, missing)?;
        }
        let callback_headers = arguments["callback"]["headers"].as_object();
        if callback_headers.into_iter().flatten().any(|(_, value)| value == HIDDEN) {
            return Err(usage(format!(
                "callback.headers: {HIDDEN} is no value; leave headers out to keep them, or give each in full"
            )));
        }
        Ok(if self.has_body { request.json(Value::Object(body)) } else { request })
    }
}

/// An argument that must be a text.
fn text<'a>(arguments: &'a Value, name: &str) -> Result<&'a str> {
    let value = arguments[name].as_str().filter(|value| !value.is_empty());
    value.ok_or_else(|| usage(format!("{name} is missing: it must be a text")))
}

/// Hides the values of headers of a cue's callback, in a list of cues too. Payloads may look alike, but are shown as
/// they are.
fn hide(content: &mut Value) {
    content.get_mut("cues").and_then(Value::as_array_mut).into_iter().flatten().for_each(hide);
    let headers = content.pointer_mut("/callback/headers").and_then(Value::as_object_mut);
    for (_, value) in headers.into_iter().flatten() {
        *value = HIDDEN.into();
    }
}

/// An error with what to do about it.
fn sentence(error: &CliError, tools: &[Tool]) -> String {
    let text = in_tools(&error.to_string(), tools, &["; ", ": "]);
    let text = text.trim_end_matches([' ', ';', ':']);
    let refused = match error {
        CliError::Client(ClientError::Refused(refused)) if refused.status != 401 => refused,
        CliError::Client(_) => return format!("{text}{ASK}"),
        _ => return text.to_owned(),
    };
    if let (429, Some(pause)) = (refused.status, refused.retry_after) {
        return format!("too many requests; ask again in {} s", pause.as_secs());
    }
    let help = help_of_error(&refused.code).unwrap_or_default();
    // After the status.
    let help = help.split_once("` ").map_or(help.as_str(), |(_, help)| help);
    match in_tools(help, tools, &[". "]).trim_end() {
        "" => format!("{text} ({})", refused.code),
        help => format!("{text}\n\n{}: {help}", refused.code),
    }
}

/// A text with tools in place of commands and endpoints, without the parts that no tool can follow.
fn in_tools(text: &str, tools: &[Tool], ends: &[&str]) -> String {
    let text = WORDS.iter().fold(text.to_owned(), |text, (words, tool)| text.replace(words, tool));
    let text = tools.iter().fold(text, |text, tool| {
        let name = tool.definition["name"].as_str().unwrap_or_default();
        text.replace(&format!("`{} {}`", tool.method, tool.path), name)
    });
    let parts = ends.iter().fold(vec![text.as_str()], |parts, end| {
        parts.into_iter().flat_map(|part| part.split_inclusive(end)).collect()
    });
    let is_usable = |part: &&str| !NO_TOOL.iter().any(|no| part.contains(no));
    parts.into_iter().filter(is_usable).collect()
}
