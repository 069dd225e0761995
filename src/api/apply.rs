//! Many cues and channels in one request: its body, the errors with their places, and what changes (contract §4.18).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::api::channel::{name_problem, new_channel};
use crate::api::cue::put_cue;
use crate::api::cue_view::CueView;
use crate::api::fields::{JsonFields, echoed, truncated};
use crate::api::refusal::place_of;
use crate::domain::api_error::{LocSegment, Refusal};
use crate::domain::channel::ChannelFields;
use crate::domain::channel::secrets::without_paths_of_urls;
use crate::domain::channel::services::{SettingKind, service};
use crate::domain::cue::slug::{NAMESPACE_RULE, SLUG_RULE, Slug, is_namespace};
use crate::domain::cue::{Cue, CueRequest};
use crate::domain::json::{self, JsonStr, JsonText};
use crate::domain::time::instant_with_offset;
use crate::domain::webhook::address_policy::AddressPolicy;

/// What stands for a value that must not be shown.
pub const HIDDEN: &str = "***";

/// Names of cues that stay, and their characters.
const MAX_KEPT: usize = 10_000;
const MAX_SLUG: usize = 127;

/// Errors of an answer.
const MAX_ERRORS: usize = 500;

/// Keys of a payload whose values are shown one by one.
const MAX_KEYS: usize = 100;

/// Fields whose stored value a person may have kept secret: nothing says whether it came from a variable of a file.
const PRIVATE: [&str; 2] = ["description", "callback.flow"];

/// URLs: only the scheme and the host of the stored value are shown.
const URLS: [&str; 2] = ["callback.url", "on_failure.webhook"];

/// The body of a request.
#[derive(Debug, Default)]
pub struct ReadApply {
    /// Empty if the slugs of the cues are whole.
    pub namespace: String,
    /// With the keys of the body.
    pub cues: Vec<(String, CueRequest)>,
    pub channels: Vec<ChannelFields>,
    pub prunes: bool,
    /// Slugs of cues that are not deleted.
    pub kept: Vec<String>,
    pub adopts: bool,
    pub is_dry_run: bool,
}

/// What is wrong with a part of the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApplyError {
    pub loc: Vec<LocSegment>,
    /// A code of errors, or the type of an entry of `detail`.
    pub code: &'static str,
    pub msg: String,
}

/// All errors of a request.
#[derive(Debug, Default)]
pub struct ApplyErrors(Vec<ApplyError>);

impl ApplyErrors {
    /// Adds those of a refusal of the object at `around`.
    pub fn add(&mut self, around: &[&str], refusal: &Refusal) {
        let place = |parts: &[LocSegment]| {
            let around = around.iter().map(|part| truncated(part).into());
            around.chain(parts.iter().cloned()).collect()
        };
        for problem in &refusal.problems {
            let loc = place(problem.loc.get(1..).unwrap_or_default());
            self.0.push(ApplyError { loc, code: problem.kind, msg: problem.msg.clone() });
        }
        if refusal.problems.is_empty() {
            let code = refusal.code.text_and_status().0;
            let field = refusal.schedule_part.as_ref().map(|part| part.field);
            let (path, msg, _) = place_of(code, field, &refusal.message);
            let path: Vec<LocSegment> = path
                .split('.')
                .filter(|part| !part.is_empty())
                .map(|it| it.to_owned().into())
                .collect();
            self.0.push(ApplyError { loc: place(&path), code, msg: msg.to_owned() });
        }
        self.0.truncate(MAX_ERRORS);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The body of the answer.
    pub fn to_json(&self) -> Value {
        let of_first = |first: &ApplyError| {
            let path: Vec<String> = first.loc.iter().map(ToString::to_string).collect();
            format!("{}: {}", path.join("."), first.msg)
        };
        let first = self.0.first().map(of_first).unwrap_or_default();
        let message = match self.0.len() {
            0 | 1 => format!("{first}; nothing was done"),
            count => format!("{count} errors, and nothing was done; the first: {first}"),
        };
        let error = json!({"code": "validation_error", "message": message, "status": 422});
        json!({"error": error, "changes": [], "errors": self.0})
    }
}

/// Reads a body. The first error does not end it.
pub fn read_apply(
    mut fields: JsonFields<'_>,
    policy: &AddressPolicy,
) -> Result<ReadApply, ApplyErrors> {
    let mut read = ReadApply {
        prunes: fields.boolean("prune").unwrap_or_default(),
        adopts: fields.boolean("adopt").unwrap_or_default(),
        is_dry_run: fields.boolean("dry_run").unwrap_or_default(),
        ..ReadApply::default()
    };
    let given = fields.string("namespace", 0..=MAX_SLUG).filter(|name| !name.is_empty());
    if given.as_ref().is_some_and(|name| !is_namespace(name)) {
        fields.reject("namespace", NAMESPACE_RULE);
    }
    if read.prunes && given.is_none() {
        fields.reject("prune", "needs a namespace, whose other cues it deletes");
    }
    read.namespace = given.filter(|name| is_namespace(name)).unwrap_or_default();
    let kept = fields.strings("keep", 0..=MAX_KEPT, 1..=MAX_SLUG);
    if kept.is_some() && !read.prunes {
        fields.reject("keep", "goes with prune");
    }
    read.kept = kept.iter().flatten().map(|name| read.slug(name)).collect();
    let (cues, channels) = (fields.entries("cues"), fields.entries("channels"));
    fields.forbid_unknown();
    let mut errors = ApplyErrors::default();
    if let Err(refusal) = fields.finish() {
        errors.add(&["body"], &refusal);
    }
    for (key, body) in cues.into_iter().flatten() {
        match read.cue(&key, body, policy) {
            Ok(request) => read.cues.push((key, request)),
            Err(refusal) => errors.add(&["body", "cues", &key], &refusal),
        }
    }
    for (name, body) in channels.into_iter().flatten() {
        match read_channel(&name, body, policy) {
            Ok(channel) => read.channels.push(channel),
            Err(refusal) => errors.add(&["body", "channels", &name], &refusal),
        }
    }
    if errors.is_empty() { Ok(read) } else { Err(errors) }
}

impl ReadApply {
    fn slug(&self, key: &str) -> String {
        if self.namespace.is_empty() { key.to_owned() } else { format!("{}/{key}", self.namespace) }
    }

    fn cue(
        &self,
        key: &str,
        body: JsonStr<'_>,
        policy: &AddressPolicy,
    ) -> Result<CueRequest, Refusal> {
        let (is_whole, rule) = (self.namespace.is_empty(), NAMESPACE_RULE);
        let slug = Slug::parse(&self.slug(key)).filter(|_| is_whole || is_namespace(key));
        let slug = slug.ok_or_else(|| bad_key(if is_whole { SLUG_RULE } else { rule }))?;
        put_cue(JsonFields::of_body(body)?, slug, policy)
    }
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
    fields.forbid("name", "is the key of the channel");
    Ok(ChannelFields { name: name.to_owned(), ..new_channel(fields, policy)? })
}

fn bad_key(rule: &str) -> Refusal {
    let mut refusal = Refusal::invalid_value(["body", ""], rule, Value::Null);
    refusal.problems.iter_mut().for_each(|problem| problem.loc.truncate(1));
    refusal
}

/// What happens to a cue or a channel.
#[derive(Debug, Serialize)]
pub struct ChangeView<'a> {
    pub kind: &'static str,
    /// As in the request.
    pub key: &'a str,
    pub action: &'static str,
    /// Null for what a dry run would create.
    pub id: Option<&'a str>,
    pub fields: Vec<FieldView>,
    /// Of a cue.
    #[serde(serialize_with = "maybe_instant")]
    pub next_run: Option<Timestamp>,
    #[serde(serialize_with = "maybe_instant")]
    pub next_run_before: Option<Timestamp>,
}

fn maybe_instant<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(instant_with_offset).serialize(serializer)
}

/// A field that differs. A value that must not be shown is [`HIDDEN`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldView {
    /// With dots before parts.
    pub field: String,
    pub old: Value,
    pub new: Value,
}

impl FieldView {
    fn new(field: impl Into<String>, old: Value, new: Value) -> Self {
        Self { field: field.into(), old, new }
    }
}

/// The changed fields of a cue; `payload` are those of its payload.
pub fn cue_fields(
    before: &Cue,
    after: &Cue,
    changed: &[&'static str],
    payload: &[FieldView],
) -> Vec<FieldView> {
    let view = |cue: &Cue| serde_json::to_value(CueView::new(cue, None)).unwrap_or_default();
    let (before, after) = (view(before), view(after));
    let mut views = Vec::new();
    for field in changed {
        let at = |cue: &Value| field.split('.').fold(cue, |value, part| &value[part]).clone();
        match (*field, at(&before), at(&after)) {
            ("payload", ..) => views.extend_from_slice(payload),
            ("callback.headers", Value::Object(old), Value::Object(new)) => {
                let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
                for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
                    let value = |headers: &Map<String, Value>| {
                        hidden(headers.get(name).unwrap_or(&Value::Null))
                    };
                    views.push(FieldView::new(format!("{field}.{name}"), value(&old), value(&new)));
                }
            }
            (_, old, new) if PRIVATE.contains(field) => {
                views.push(FieldView::new(*field, hidden(&old), new));
            }
            (_, old, new) if URLS.contains(field) => {
                views.push(FieldView::new(*field, without_path(&old), new));
            }
            (_, old, new) => views.push(FieldView::new(*field, old, new)),
        }
    }
    views
}

/// The keys in which two payloads differ, or the whole payloads if one is missing or very many do.
pub fn payload_fields(before: Option<&str>, after: Option<&str>) -> Vec<FieldView> {
    let read = |text: Option<&str>| text.and_then(|text| json::read(text.as_bytes()).ok());
    let (before, after) = (read(before), read(after));
    let entries = |json: &'_ Option<JsonText>| -> Option<BTreeMap<String, String>> {
        let entries = json.as_ref()?.get().entries()?;
        Some(entries.map(|(key, value)| (key.to_owned(), value.as_str().to_owned())).collect())
    };
    let value = |json: Option<&String>| json.map_or(Value::Null, |it| echoed(JsonStr::stored(it)));
    if let (Some(old), Some(new)) = (entries(&before), entries(&after)) {
        let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        let keys: Vec<_> = keys.into_iter().filter(|key| old.get(*key) != new.get(*key)).collect();
        if keys.len() <= MAX_KEYS {
            let view = |key: &String| {
                let name = format!("payload.{}", truncated(&json::unescaped(key)));
                FieldView::new(name, hidden(&value(old.get(key))), value(new.get(key)))
            };
            return keys.into_iter().map(view).collect();
        }
    }
    let whole = |json: &Option<JsonText>| json.as_ref().map_or(Value::Null, |it| echoed(it.get()));
    vec![FieldView::new("payload", hidden(&whole(&before)), whole(&after))]
}

/// The fields in which two channels of a type differ.
pub fn channel_fields(before: &ChannelFields, after: &ChannelFields) -> Vec<FieldView> {
    let mut views = Vec::new();
    for setting in service(after.channel_type).settings {
        let value =
            |fields: &ChannelFields| match (fields.settings.get(setting.name), &setting.kind) {
                (Some(text), SettingKind::Number(_)) => {
                    text.parse::<i64>().map_or(Value::Null, Value::from)
                }
                (text, _) => text.into(),
            };
        if before.settings.get(setting.name) != after.settings.get(setting.name) {
            let (old, new) = (value(before), value(after));
            let (old, new) = match setting.kind {
                SettingKind::Secret | SettingKind::SecretUrl => (hidden(&old), hidden(&new)),
                SettingKind::Url => (without_path(&old), new),
                _ => (hidden(&old), new),
            };
            views.push(FieldView::new(setting.name, old, new));
        }
    }
    let others = |fields: &ChannelFields| {
        [
            ("events", json!(fields.events)),
            ("tags", json!(fields.tags)),
            ("quiet", json!(fields.quiet)),
            ("repeat", fields.repeat.as_str().into()),
            ("remind_after_seconds", fields.remind_after_seconds.into()),
        ]
    };
    for ((field, old), (_, new)) in others(before).into_iter().zip(others(after)) {
        if old != new {
            views.push(FieldView::new(field, old, new));
        }
    }
    views
}

/// Numbers and the other words of JSON are no secrets.
pub fn hidden(value: &Value) -> Value {
    match value {
        Value::String(_) | Value::Array(_) | Value::Object(_) => HIDDEN.into(),
        plain => plain.clone(),
    }
}

/// `https://example.com/***`: the path and the query of a URL often have a secret.
fn without_path(url: &Value) -> Value {
    url.as_str().map_or(Value::Null, |url| without_paths_of_urls(url).replace('…', HIDDEN).into())
}
