//! Finds the cue that a command names, by its id or its name.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, segment};
use crate::domain::cue::filter::MAX_SEARCH;
use crate::domain::ids::CueId;

/// Cues of one name that an error shows.
const MAX_SHOWN: usize = 10;

/// The most cues that a command names. The server takes as many ids in a request (contract §4.15).
pub const MAX_AT_ONCE: usize = 500;

/// A cue that a command names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCue {
    pub id: String,
    /// `None` if the command names the id.
    pub name: Option<String>,
}

impl FoundCue {
    /// The path of the cue in the API.
    pub fn path(&self) -> String {
        format!("/v1/cues/{}", segment(&self.id))
    }

    pub fn label(&self) -> String {
        label(&self.id, self.name.as_deref().unwrap_or_default())
    }
}

/// A cue in a sentence: `nightly (cue_1)`.
pub fn label(id: &str, name: &str) -> String {
    if name.is_empty() { id.to_owned() } else { format!("{} ({id})", printable(name)) }
}

/// The label of a cue of the API.
pub fn label_of(cue: &Value) -> String {
    label(&text_of(cue, "id"), &text_of(cue, "name"))
}

/// The id of the cue of a flag that may be absent.
pub fn find_maybe_id(context: &Context, text: Option<&str>) -> Result<Option<String>, CliError> {
    text.map(|text| Ok(find(context, text)?.id)).transpose()
}

/// Finds a cue. A text in the form of an id is one, without a request.
/// Errors: if no cue has the name, or several have.
pub fn find(context: &Context, text: &str) -> Result<FoundCue, CliError> {
    if CueId::parse(text).is_some() {
        return Ok(FoundCue { id: text.to_owned(), name: None });
    }
    if text.is_empty() {
        return Err(CliError::Usage("the name of a cue is empty".to_owned()));
    }
    let found = with_name(context, text)?;
    match found.as_slice() {
        [] => Err(CliError::NotFound(format!(
            "no cue has the id or name {:?}; `cued cue list` shows all",
            printable(text)
        ))),
        [cue] => Ok(FoundCue { id: text_of(cue, "id"), name: Some(text.to_owned()) }),
        several => {
            let line = |cue: &Value| {
                format!("\n  {}  {}  created {}", text_of(cue, "id"), text_of(cue, "status"), {
                    context.output.times.instant(&text_of(cue, "created_at"))
                })
            };
            let lines: String = several.iter().map(line).collect();
            let name = printable(text);
            Err(CliError::Refused(format!("several cues have the name {name:?}; use the id:{lines}")))
        }
    }
}

/// Finds cues, each once, in the order in which they are named.
pub fn find_all(context: &Context, texts: &[String]) -> Result<Vec<FoundCue>, CliError> {
    let mut seen = BTreeSet::new();
    let mut cues = Vec::new();
    for text in texts {
        let cue = find(context, text)?;
        if seen.insert(cue.id.clone()) {
            cues.push(cue);
        }
    }
    Ok(cues)
}

/// The cues of exactly this name, at most [`MAX_SHOWN`]. The search of the server is wider: it finds parts of names, and
/// of other fields.
fn with_name(context: &Context, name: &str) -> Result<Vec<Value>, CliError> {
    let search: String = name.chars().take(MAX_SEARCH).collect();
    let request = ApiRequest::get("/v1/cues").query("q", search).query("limit", "100");
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = context.look_up(&request.clone().maybe_query("cursor", cursor.as_deref()))?.value()?;
        let cues = page["cues"].as_array().into_iter().flatten();
        found.extend(cues.filter(|cue| cue["name"] == name).cloned());
        found.truncate(MAX_SHOWN);
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() || found.len() == MAX_SHOWN {
            return Ok(found);
        }
    }
}
