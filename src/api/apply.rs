//! Many cues and channels in one request: its body, the errors with their places, and what changes (contract §4.18).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::api::channel::{name_problem, new_channel};
use crate::api::cue::put_cue;
use crate::api::cue_view::CueView;
use crate::api::fields::{JsonFields, truncated};
use crate::api::refusal::place_of;
use crate::domain::api_error::{FieldError, Refusal};
use crate::domain::apply::{Apply, ChangedKey, Difference, FieldChange, MAX_CUES};
use crate::domain::channel::ChannelFields;
use crate::domain::channel::secrets::without_paths_of_urls;
use crate::domain::channel::services::{Setting, service};
use crate::domain::cue::slug::{NAMESPACE_RULE, SLUG_RULE, Slug, is_namespace};
use crate::domain::cue::{Cue, CueRequest, FileOrigin};
use crate::domain::cue_fields::PlainField;
use crate::domain::json::JsonStr;
use crate::domain::secret::MASK;
use crate::domain::webhook::address_policy::AddressPolicy;

/// Names of cues that stay.
const MAX_KEPT: usize = 10_000;

const MAX_CHANNELS: usize = 500;

/// Errors of an answer, and entries of its `detail`.
const MAX_ERRORS: usize = 500;
const MAX_DETAIL: usize = 100;

const KEEP_RULE: &str = "must be the name of a cue in the namespace, without the namespace and its slash: 1 to 63 of \
    a-z, 0-9, '.', '_' and '-', with a letter or a digit first";

/// What to do about a request that is too large.
pub const MORE_CUES: &str =
    ": send the cues in several requests, and name the others in `keep` of the one with `prune`";

/// Fields of cues and channels, beside the schedule and the plain fields, whose values are shown. Any other may be a secret.
const SHOWN: &str = "name status tags callback.method callback.outcome_from_response callback.timeout_seconds \
    retry.max_attempts retry.backoff_minutes retry.backoff_seconds on_failure.email on_failure.pause verification.mode \
    events quiet repeat remind_after_seconds priority";

/// URLs are shown without their path and query.
const URLS: [&str; 4] = ["callback.url", "on_failure.webhook", "url", "api_url"];

/// The errors of a request: the first of them, and the number of all.
#[derive(Debug, Default)]
pub struct ApplyErrors {
    first: Vec<FieldError>,
    count: usize,
}

impl ApplyErrors {
    /// Adds those of a refusal of the object at `around`.
    pub fn add(&mut self, around: &[&str], refusal: &Refusal) {
        let mut problems = refusal.problems.clone();
        if problems.is_empty() {
            let kind = refusal.code.text_and_status().0;
            let field = refusal.schedule_part.as_ref().map(|part| part.field);
            let (path, msg, _) = place_of(kind, field, &refusal.message);
            let path = path.split('.').filter(|part| !part.is_empty());
            let path = path.map(|part| part.to_owned().into());
            let loc = std::iter::once("body".into()).chain(path).collect();
            problems.push(FieldError { kind, loc, msg: msg.to_owned(), input: Value::Null });
        }
        self.count += problems.len();
        problems.truncate(MAX_ERRORS - self.first.len());
        for mut problem in problems {
            let root = problem.loc.len().min(1);
            problem.loc.splice(..root, around.iter().map(|part| truncated(part).into()));
            // It may be a secret.
            problem.input = Value::Null;
            self.first.push(problem);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The body of the answer.
    pub fn to_json(&self) -> Value {
        let first = self.first.iter().take(1);
        let mut message: String =
            first.map(|it| Refusal::invalid(vec![it.clone()]).message).collect();
        message += "; nothing was done";
        if self.count > 1 {
            let cut = if self.count > MAX_ERRORS {
                format!("the first {MAX_ERRORS} of ")
            } else {
                String::new()
            };
            message = format!("{message}; {cut}{} errors", self.count);
        }
        let error = json!({"code": "validation_error", "message": message, "status": 422});
        let detail = &self.first[..self.first.len().min(MAX_DETAIL)];
        let errors =
            self.first.iter().map(|it| json!({"loc": it.loc, "code": it.kind, "msg": it.msg}));
        json!({"error": error, "detail": detail, "changes": [], "errors": errors.collect::<Value>()})
    }
}

/// Reads a body. Errors: all that is wrong with it.
pub fn read_apply(fields: JsonFields<'_>, policy: &AddressPolicy) -> Result<Apply, ApplyErrors> {
    let (read, errors) = read_all(fields, policy);
    if errors.is_empty() { Ok(read) } else { Err(errors) }
}

/// Reads of a body what can be read, and what is wrong with the rest. With an error it is a dry run.
pub fn read_all(mut fields: JsonFields<'_>, policy: &AddressPolicy) -> (Apply, ApplyErrors) {
    let (mut read, mut errors) = (Apply::default(), ApplyErrors::default());
    read.prunes = fields.boolean("prune").unwrap_or_default();
    read.adopts = fields.boolean("adopt").unwrap_or_default();
    read.is_dry_run = fields.boolean("dry_run").unwrap_or_default();
    read.namespace = fields.string("namespace", 0..=usize::MAX).unwrap_or_default();
    let has_names = read.namespace.is_empty() || is_namespace(&read.namespace);
    if !has_names {
        fields.reject("namespace", NAMESPACE_RULE);
        // Another one, so that the cues are read for their errors.
        read.namespace = "n".to_owned();
    }
    if read.prunes && read.namespace.is_empty() {
        fields.reject("prune", "needs a namespace, whose other cues it deletes");
    }
    let kept = fields.words("keep", 0..=MAX_KEPT, (is_namespace, KEEP_RULE));
    if kept.is_some() && !read.prunes {
        fields.reject("keep", "counts only with prune: set prune to true, or leave keep out");
    }
    read.kept = kept.iter().flatten().map(|name| read.slug(name)).collect();
    let cues = fields.entries("cues", MAX_CUES, MORE_CUES);
    let channels = fields.entries("channels", MAX_CHANNELS, "");
    // With an error so far it is not known what is deleted.
    read.ignores_limits = fields.count_errors() > 0;
    read.prunes &= !read.ignores_limits;
    fields.forbid_unknown();
    if let Err(refusal) = fields.finish() {
        errors.add(&["body"], &refusal);
    }
    for (key, body) in cues.into_iter().flatten() {
        match read_cue(&read, &key, body, policy) {
            Ok(cue) if has_names => read.cues.push(cue),
            Ok(_) => {}
            Err(refusals) => {
                refusals.iter().for_each(|it| errors.add(&["body", "cues", &key], it));
                read.kept.insert(read.slug(&key));
            }
        }
    }
    for (name, body) in channels.into_iter().flatten() {
        match read_channel(&name, body, policy) {
            Ok(channel) => read.channels.push(channel),
            Err(refusal) => errors.add(&["body", "channels", &name], &refusal),
        }
    }
    read.is_dry_run |= !errors.is_empty();
    (read, errors)
}

fn read_cue(
    read: &Apply,
    key: &str,
    body: JsonStr<'_>,
    policy: &AddressPolicy,
) -> Result<CueRequest, Vec<Refusal>> {
    let is_whole = read.namespace.is_empty();
    let slug = Slug::parse(&read.slug(key)).filter(|_| is_whole || is_namespace(key));
    let rule = if is_whole { SLUG_RULE } else { NAMESPACE_RULE };
    let slug = slug.ok_or_else(|| vec![bad_key(rule)])?;
    let fields = JsonFields::of_body(body).map_err(|refusal| vec![refusal])?;
    let (mut cue, refusals) = put_cue(fields, slug, policy);
    cue.origin = Some(FileOrigin { namespace: read.namespace.clone(), adopts: read.adopts });
    if refusals.is_empty() { Ok(cue) } else { Err(refusals) }
}

fn read_channel(
    name: &str,
    body: JsonStr<'_>,
    policy: &AddressPolicy,
) -> Result<ChannelFields, Refusal> {
    if let Some(problem) = name_problem(name) {
        return Err(bad_key(problem));
    }
    let mut fields = JsonFields::of_body(body)?;
    fields.forbid("name", "leave it out: the key is the name");
    Ok(ChannelFields { name: name.to_owned(), ..new_channel(fields, policy)? })
}

fn bad_key(rule: &str) -> Refusal {
    let mut refusal = Refusal::invalid_value(["body", ""], rule, Value::Null);
    refusal.problems.iter_mut().for_each(|problem| problem.loc.truncate(1));
    refusal
}

/// The changed fields of a cue or a channel, without values that may be secrets.
pub fn changed_fields(difference: &Difference) -> Vec<FieldChange> {
    match difference {
        Difference::Cue { before, after, fields, payload } => {
            let view =
                |cue: &Cue| serde_json::to_value(CueView::new(cue, None)).unwrap_or_default();
            let (before, after) = (view(before), view(after));
            fields.iter().flat_map(|field| cue_field(field, &before, &after, payload)).collect()
        }
        Difference::Channel { before, after } => {
            let (before, after) = (channel_view(before), channel_view(after));
            let names = before.as_object().into_iter().flat_map(Map::keys);
            let changed = names.filter(|name| before[*name] != after[*name]);
            changed.map(|name| field_change(name, &before[name], &after[name])).collect()
        }
    }
}

fn cue_field(
    name: &str,
    before: &Value,
    after: &Value,
    payload: &[ChangedKey],
) -> Vec<FieldChange> {
    let at = |cue| name.split('.').fold(cue, |value: &Value, part| &value[part]);
    let (old, new) = (at(before), at(after));
    let part = |part: &str, old: &Value, new: &Value| {
        let (field, old, new) = (format!("{name}.{part}"), hidden(old), hidden(new));
        FieldChange { field, old, new }
    };
    match (name, old.as_object(), new.as_object()) {
        ("payload", ..) => {
            let value = |is_there: bool| is_there.then_some(MASK).into();
            let view = |key: &ChangedKey| FieldChange {
                field: key.name.iter().fold(name.to_owned(), |path, key| format!("{path}.{key}")),
                old: value(key.was_there),
                new: value(key.is_there),
            };
            payload.iter().map(view).collect()
        }
        ("callback.headers", Some(headers), Some(others)) => {
            let names: BTreeSet<&String> = headers.keys().chain(others.keys()).collect();
            let changed = names.into_iter().filter(|name| old[*name] != new[*name]);
            changed.map(|name| part(name, &old[name], &new[name])).collect()
        }
        _ => vec![field_change(name, old, new)],
    }
}

/// All fields of a channel, with its secrets.
fn channel_view(it: &ChannelFields) -> Value {
    let mut view = json!({
        "events": it.events, "tags": it.tags, "quiet": it.quiet, "repeat": it.repeat.as_str(),
        "remind_after_seconds": it.remind_after_seconds,
    });
    for Setting { name, .. } in service(it.channel_type).settings {
        let text = it.settings.get(name);
        let number = text.and_then(|text| text.parse::<i64>().ok());
        view[*name] = number.map_or(text.into(), Value::from);
    }
    view
}

fn field_change(name: &str, old: &Value, new: &Value) -> FieldChange {
    let is_shown = SHOWN.split(' ').any(|shown| shown == name)
        || name.starts_with("schedule.")
        || PlainField::named(name).is_some();
    let shown = |value: &Value| match value.as_str() {
        _ if is_shown => value.clone(),
        // The path and the query of a URL often have a secret.
        Some(url) if URLS.contains(&name) => without_paths_of_urls(url).replace('…', MASK).into(),
        _ => hidden(value),
    };
    FieldChange { field: name.to_owned(), old: shown(old), new: shown(new) }
}

/// Whether there is a value is no secret.
pub fn hidden(value: &Value) -> Value {
    if value.is_null() { Value::Null } else { MASK.into() }
}
