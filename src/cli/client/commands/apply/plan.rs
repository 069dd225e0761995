//! What the server would change: each cue and each channel of the files compared with what is stored.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use url::{Origin, Url};

use crate::cli::client::arguments::fetch;
use crate::cli::client::commands::apply::channels::WantedChannel;
use crate::cli::client::commands::apply::faults::{At, HIDDEN};
use crate::cli::client::commands::apply::file::{Wanted, WantedCue};
use crate::cli::client::commands::apply::parallel::each;
use crate::cli::client::commands::apply::refusal::{Refusals, is_of_one};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::input::placed::Placed;
use crate::cli::output::table::text_of;
use crate::client::Client;
use crate::client::request::{ApiRequest, ClientError, segment};
use crate::domain::channel::services::SettingKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Action {
    Created,
    Updated,
    #[default]
    Unchanged,
    Deleted,
}

impl Action {
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
            Self::Deleted => "deleted",
        }
    }
}

/// A cue or a channel, and what happens to it.
#[derive(Debug, Default)]
pub struct Change {
    pub kind: &'static str,
    pub action: Action,
    /// The slug of a cue as it may be printed, the name of a channel.
    pub key: String,
    /// Of a cue that is deleted.
    pub slug: String,
    /// `None` for what does not exist yet.
    pub id: Option<String>,
    pub fields: Vec<FieldChange>,
    pub next_run: Value,
    pub next_run_before: Value,
    /// By how many the active cues, and all cues, become more.
    pub more_active: i64,
    pub more_cues: i64,
}

/// A field before and after. What must not be shown is [`HIDDEN`].
#[derive(Debug, PartialEq)]
pub struct FieldChange {
    pub field: String,
    pub old: Value,
    pub new: Value,
}

/// What the files change, in their order: channels, cues, and cues that are not in the files.
#[derive(Debug, Default)]
pub struct Plan {
    /// With the index of the channel in the files.
    pub channels: Vec<(usize, Change)>,
    /// With the index of the cue in the files.
    pub cues: Vec<(usize, Change)>,
    pub pruned: Vec<Change>,
    pub refusals: Refusals,
}

impl Plan {
    pub fn all(&self) -> impl Iterator<Item = &Change> {
        let of_files = self.channels.iter().chain(&self.cues).map(|(_, change)| change);
        of_files.chain(&self.pruned)
    }

    pub fn count(&self, action: Action) -> usize {
        self.all().filter(|change| change.action == action).count()
    }

    pub fn differs(&self) -> bool {
        self.all().any(|change| change.action != Action::Unchanged)
    }
}

impl Change {
    fn new(kind: &'static str, action: Action, key: &str) -> Self {
        Self { kind, action, key: key.to_owned(), ..Self::default() }
    }

    /// What a command takes as the id: a cue that does not exist yet has only its slug.
    pub fn id_or_slug(&self) -> String {
        match (&self.id, self.kind) {
            (Some(id), _) => id.clone(),
            (None, "cue") => format!("slug:{}", self.key),
            (None, _) => self.key.clone(),
        }
    }

    pub fn to_json(&self) -> Value {
        let fields = self.fields.iter();
        let fields = fields.map(|it| json!({"field": it.field, "old": it.old, "new": it.new}));
        let mut object = json!({
            "kind": self.kind, "action": self.action.word(), "id": self.id,
            "changes": fields.collect::<Vec<_>>(),
        });
        object[if self.kind == "cue" { "slug" } else { "name" }] = self.key.as_str().into();
        if self.kind == "cue" {
            object["next_run"] = self.next_run.clone();
            object["next_run_before"] = self.next_run_before.clone();
        }
        object
    }
}

/// The path of a cue by its slug.
pub fn by_slug(slug: &str) -> String {
    let parts: Vec<String> = slug.split('/').map(segment).collect();
    format!("/v1/cues/by-slug/{}", parts.join("/"))
}

pub fn put(cue: &WantedCue, is_dry: bool, adopts: bool) -> ApiRequest {
    let request = ApiRequest::new("PUT", by_slug(&cue.slug)).json(cue.body.to_value());
    let request = request.maybe_query("dry_run", is_dry.then_some("true"));
    request.query("source", &cue.namespace.name).maybe_query("adopt", adopts.then_some("true"))
}

/// Compares everything with the server, which writes nothing.
/// Errors: what is not about one object alone; a refusal of one is in the plan.
pub fn compare(
    context: &Context,
    wanted: &Wanted,
    prunes: bool,
    adopts: bool,
) -> Result<Plan, CliError> {
    context.check_key()?;
    let mut plan = Plan::default();
    if !wanted.channels.is_empty() {
        let stored = fetch(
            |page| context.fetch(page),
            &ApiRequest::get("/v1/channels"),
            "channels",
            u64::MAX,
        )?;
        for (index, channel) in wanted.channels.iter().enumerate() {
            match compare_channel(channel, &stored.items) {
                Ok(change) => plan.channels.push((index, change)),
                Err((at, reason)) => plan.refusals.add_fault(at, reason),
            }
        }
    }
    let client = &*context.client;
    let goes_on =
        |result: &Result<Change, ClientError>| result.as_ref().err().is_none_or(is_of_one);
    let compared = each(&wanted.cues, |cue| compare_cue(client, cue, adopts), goes_on);
    for (index, result) in compared.into_iter().enumerate() {
        let cue = &wanted.cues[index];
        match result {
            Some(Ok(change)) => plan.cues.push((index, change)),
            Some(Err(error)) => plan.refusals.add(error, &cue.at, &cue.body, &wanted.short)?,
            None => {}
        }
    }
    if prunes {
        plan.pruned = find_pruned(context, wanted)?;
    }
    Ok(plan)
}

/// The cues of the namespaces that are not in the files. Those of other namespaces, and those without a slug, are never
/// among them.
fn find_pruned(context: &Context, wanted: &Wanted) -> Result<Vec<Change>, CliError> {
    let kept: BTreeSet<&str> = wanted.cues.iter().map(|cue| cue.slug.as_str()).collect();
    let mut pruned = Vec::new();
    for namespace in &wanted.namespaces {
        let request = ApiRequest::get("/v1/cues").query("namespace", &namespace.name);
        for cue in fetch(|page| context.fetch(page), &request, "cues", u64::MAX)?.items {
            let slug = text_of(&cue, "slug");
            // Whatever the server lists: a cue elsewhere is not deleted.
            let key = slug.strip_prefix(&namespace.name).and_then(|rest| rest.strip_prefix('/'));
            if let Some(key) = key.filter(|_| !kept.contains(slug.as_str())) {
                let shown = namespace.shown(key);
                pruned.push(Change {
                    id: Some(text_of(&cue, "id")),
                    next_run_before: cue["next_run"].clone(),
                    more_active: -i64::from(cue["status"] == "active"),
                    more_cues: -1,
                    slug,
                    ..Change::new("cue", Action::Deleted, &shown)
                });
            }
        }
    }
    pruned.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(pruned)
}

fn compare_cue(client: &Client, cue: &WantedCue, adopts: bool) -> Result<Change, ClientError> {
    let answer = client.send(&put(cue, true, adopts))?.value()?;
    let mut change = change_of(cue, &answer);
    match change.action {
        Action::Created => {
            change.id = None;
            change.more_cues = 1;
            change.more_active = i64::from(answer["status"] == "active");
        }
        Action::Updated => {
            let path = format!("/v1/cues/{}", segment(&text_of(&answer, "id")));
            let old = client.send(&ApiRequest::get(path).query("execution_limit", "1"))?.value()?;
            change.fields = field_changes(cue, &old, &answer);
            change.more_active =
                i64::from(answer["status"] == "active") - i64::from(old["status"] == "active");
        }
        _ => {}
    }
    Ok(change)
}

/// What an answer says that the server does, without the fields.
pub fn change_of(cue: &WantedCue, answer: &Value) -> Change {
    let action = match answer["action"].as_str() {
        Some("created") => Action::Created,
        Some("updated") => Action::Updated,
        _ => Action::Unchanged,
    };
    Change {
        id: Some(text_of(answer, "id")),
        next_run: answer["next_run"].clone(),
        next_run_before: answer["next_run_before"].clone(),
        ..Change::new("cue", action, &cue.shown)
    }
}

/// Fields whose stored value a person may have kept secret. Nothing says whether it came from a variable, so it is
/// never shown.
const PRIVATE: [&str; 3] = ["payload", "description", "callback.flow"];

/// URLs: only the scheme and the host of the stored value are shown.
const URLS: [&str; 2] = ["callback.url", "on_failure.webhook"];

/// The changed fields with their values; of header fields and keys of the payload only those that differ.
fn field_changes(cue: &WantedCue, old: &Value, new: &Value) -> Vec<FieldChange> {
    let changed = new["changed"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut changes = Vec::new();
    for field in changed {
        let path: Vec<&str> = field.split('.').collect();
        let at = |cue: &Value| path.iter().fold(cue.clone(), |value, part| value[*part].clone());
        let (old, new) = (at(old), at(new));
        let given = path.iter().try_fold(&cue.body, |body, part| body.get(part));
        let mut add = |name: String, old: Value, new: Value, given: Option<&Placed>| {
            let change = FieldChange { field: name, old, new };
            changes.push(change.without_secrets(field, given));
        };
        match (old, new) {
            (Value::Object(old), Value::Object(new))
                if field == "callback.headers" || field == "payload" =>
            {
                let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                for key in keys.into_iter().filter(|key| old.get(*key) != new.get(*key)) {
                    let value =
                        |object: &Map<String, Value>| object.get(key).cloned().unwrap_or_default();
                    let given = given.and_then(|given| given.get(key));
                    add(format!("{field}.{key}"), value(&old), value(&new), given);
                }
            }
            (old, new) => add(field.to_owned(), old, new, given),
        }
    }
    changes
}

impl FieldChange {
    /// A change of `field` of a cue, to what the file gives, as it may be shown.
    fn without_secrets(mut self, field: &str, given: Option<&Placed>) -> Self {
        if PRIVATE.contains(&field) {
            self.old = hidden(&self.old);
        } else if URLS.contains(&field) {
            self.old = without_path(&self.old);
        }
        let is_header = field == "callback.headers";
        self.hidden_if(is_header || given.is_some_and(Placed::is_of_environment))
    }

    fn hidden_if(mut self, is_hidden: bool) -> Self {
        if is_hidden {
            (self.old, self.new) = (hidden(&self.old), hidden(&self.new));
        }
        self
    }
}

/// Numbers and the other words of JSON are no secrets.
fn hidden(value: &Value) -> Value {
    match value {
        Value::String(_) | Value::Array(_) | Value::Object(_) => HIDDEN.into(),
        plain => plain.clone(),
    }
}

/// `https://example.com/***`: the path and the query of a URL often have a secret.
fn without_path(url: &Value) -> Value {
    let origin = url.as_str().and_then(|url| Url::parse(url).ok()).map(|url| url.origin());
    match origin.filter(Origin::is_tuple) {
        Some(origin) => format!("{}/{HIDDEN}", origin.ascii_serialization()).into(),
        None => hidden(url),
    }
}

/// Errors: what the server has under this name is not one channel of the same type; its place in the file, and why.
fn compare_channel(channel: &WantedChannel, stored: &[Value]) -> Result<Change, (At, String)> {
    let own: Vec<&Value> = stored
        .iter()
        .filter(|it| it["built_in"] != true && it["name"] == channel.name.as_str())
        .collect();
    let found = match own.as_slice() {
        [] => return Ok(Change::new("channel", Action::Created, &channel.name)),
        [found] => *found,
        several => {
            let ids: Vec<String> = several.iter().map(|it| text_of(it, "id")).collect();
            let (count, ids) = (several.len(), ids.join(", "));
            let reason = format!("{count} channels have this name; rename or delete one of {ids}");
            return Err((channel.at.clone(), reason));
        }
    };
    if found["type"] != channel.channel_type.as_str() {
        let at = channel.at.in_file(channel.body.place_of(&["type".into()], false));
        let stored = text_of(found, "type");
        let reason = format!(
            "the type of a channel cannot be changed, and this one is {stored}; use another name, or delete it first"
        );
        return Err((at, reason));
    }
    let wanted = channel.body.to_value();
    let fields = channel.differences(found).into_iter().map(|field| {
        let (old, new) = (found[&field].clone(), wanted[&field].clone());
        let old = match channel.setting(&field).map(|setting| &setting.kind) {
            Some(SettingKind::Url) => without_path(&old),
            Some(SettingKind::Number(_)) | None => old,
            Some(_) => hidden(&old),
        };
        let is_hidden = channel.hides(&field);
        FieldChange { field, old, new }.hidden_if(is_hidden)
    });
    let fields: Vec<FieldChange> = fields.collect();
    let action = if fields.is_empty() { Action::Unchanged } else { Action::Updated };
    Ok(Change {
        id: Some(text_of(found, "id")),
        fields,
        ..Change::new("channel", action, &channel.name)
    })
}
