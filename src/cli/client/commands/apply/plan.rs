//! The requests of a plan, each a part of the files, and what the server says that they change.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::apply::hidden;
use crate::cli::client::commands::apply::file::{Kind, Namespace, Object, Wanted};
use crate::cli::input::placed::Placed;
use crate::client::request::ApiRequest;
use crate::domain::channel::ChannelType;
use crate::domain::channel::services::{SettingKind, service};
use crate::domain::secret::MASK;

/// Objects of a request, and their bytes: the server takes 2 MB.
const MAX_OBJECTS: usize = 500;
const MAX_BYTES: usize = 1_900_000;

/// Cues of one namespace, and channels, which are all written or none of them.
#[derive(Debug)]
pub struct Batch<'a> {
    namespace: &'a Namespace,
    pub objects: Vec<&'a Object>,
    prunes: bool,
    /// Keys of cues that pruning leaves: another request has them, or they are refused.
    kept: Vec<&'a str>,
}

/// The requests for the files, in their order. Channels come with the first cues.
pub fn batches(wanted: &Wanted, prunes: bool) -> Vec<Batch<'_>> {
    let mut batches: Vec<Batch<'_>> = Vec::new();
    for namespace in &wanted.namespaces {
        let is_first = batches.is_empty();
        let own = |it: &&Object| match it.kind {
            Kind::Channel => is_first,
            Kind::Cue => it.namespace.name == namespace.name,
        };
        let (mut parts, mut bytes) = (vec![Vec::new()], 0);
        for object in wanted.objects.iter().filter(own) {
            let size = object.body.to_value().to_string().len();
            bytes += size;
            let count = parts.last().map_or(0, Vec::len);
            if count == MAX_OBJECTS || (count > 0 && bytes > MAX_BYTES) {
                parts.push(Vec::new());
                bytes = size;
            }
            parts.last_mut().into_iter().for_each(|part| part.push(object));
        }
        // The first one prunes, because that makes room.
        let later = parts.iter().skip(1).flatten().filter(|it| prunes && it.kind == Kind::Cue);
        let mut kept = later.map(|cue| cue.key.as_str()).collect();
        for (number, objects) in parts.into_iter().enumerate() {
            let prunes = prunes && number == 0;
            batches.push(Batch { namespace, objects, prunes, kept: std::mem::take(&mut kept) });
        }
    }
    batches
}

impl<'a> Batch<'a> {
    pub fn request(&self, is_dry: bool, adopts: bool) -> ApiRequest {
        ApiRequest::post("/v1/apply").json(self.body(is_dry, adopts))
    }

    pub fn body(&self, is_dry: bool, adopts: bool) -> Value {
        let mut body = json!({});
        for (section, kind) in [("cues", Kind::Cue), ("channels", Kind::Channel)] {
            let objects = self.objects.iter().filter(|it| it.kind == kind);
            let objects: Map<_, _> =
                objects.map(|it| (it.key.clone(), it.body.to_value())).collect();
            if !objects.is_empty() {
                body[section] = objects.into();
            }
        }
        if !self.namespace.name.is_empty() {
            body["namespace"] = self.namespace.name.as_str().into();
        }
        if !self.kept.is_empty() {
            body["keep"] = json!(self.kept);
        }
        let switches = [("prune", self.prunes), ("adopt", adopts), ("dry_run", is_dry)];
        for (name, _) in switches.into_iter().filter(|(_, is_set)| *is_set) {
            body[name] = true.into();
        }
        body
    }

    /// The object that an error of the server is about, if it is about one.
    pub fn object_of(&self, error: &Value) -> Option<&'a Object> {
        let kind = match error["loc"][1].as_str()? {
            "cues" => Kind::Cue,
            "channels" => Kind::Channel,
            _ => return None,
        };
        let key = error["loc"][2].as_str()?;
        self.objects.iter().copied().find(|it| it.kind == kind && it.key == key)
    }

    /// Leaves out an object that is refused.
    pub fn leave_out(&mut self, object: &'a Object) {
        self.objects.retain(|it| !std::ptr::eq(*it, object));
        // It has not left the files.
        let is_kept = self.prunes && object.kind == Kind::Cue;
        self.kept.extend(is_kept.then_some(object.key.as_str()));
    }

    /// The changes of an answer, in the order of the files: channels, cues, and cues that are deleted.
    pub fn changes(&self, answer: Answer) -> Vec<Change> {
        let mut changes: Vec<_> = answer.changes.into_iter().map(|it| self.placed(it)).collect();
        changes.sort_by_key(|(order, _)| *order);
        changes.into_iter().map(|(_, change)| change).collect()
    }

    fn placed(&self, mut change: Change) -> ((Action, Kind, Option<usize>), Change) {
        let is_of = |it: &&Object| it.kind == change.kind && it.key == change.key;
        let place = self.objects.iter().position(is_of);
        for FieldChange { field, old, new } in &mut change.fields {
            let Some(object) = place.map(|place| self.objects[place]) else { continue };
            match value_of(&object.body, field) {
                Some(value) if value.is_of_environment() => {
                    (*old, *new) = (hidden(old), hidden(new));
                }
                // The server shows no value that may be a secret. The file shows its own.
                Some(value) if is_masked(new) && !is_secret(object, field) => {
                    *new = value.to_value();
                }
                _ => {}
            }
        }
        if change.kind == Kind::Cue {
            change.key = self.namespace.shown(&change.key);
        }
        let last = Some(change.action).filter(|action| *action == Action::Deleted);
        ((last.unwrap_or(Action::Created), change.kind, place), change)
    }
}

/// The value of a field in its file. The names of headers and the keys of a payload may have dots.
fn value_of<'a>(body: &'a Placed, field: &str) -> Option<&'a Placed> {
    let own = ["payload.", "callback.headers."].into_iter().find(|own| field.starts_with(own));
    let (path, name) = field.split_at(own.map_or(0, str::len));
    let names = if own.is_some() { vec![name] } else { name.split('.').collect() };
    let mut path = path.split('.').filter(|part| !part.is_empty()).chain(names);
    path.try_fold(body, |body, part| body.get(part))
}

fn is_masked(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains(MASK))
}

/// Whether a value is a secret wherever it stands.
fn is_secret(object: &Object, field: &str) -> bool {
    let channel_type = || ChannelType::parse(object.body.get("type")?.to_value().as_str()?);
    match object.kind {
        Kind::Cue => field.starts_with("callback.headers."),
        Kind::Channel => channel_type().is_none_or(|it| {
            let setting = service(it).settings.iter().find(|setting| setting.name == field);
            let is_secret =
                |kind: &SettingKind| matches!(kind, SettingKind::Secret | SettingKind::SecretUrl);
            setting.is_some_and(|setting| is_secret(&setting.kind))
        }),
    }
}

/// What the server says that a request changes.
#[derive(Debug, Deserialize)]
pub struct Answer {
    changes: Vec<Change>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Action {
    #[serde(rename = "create")]
    Created,
    #[serde(rename = "change")]
    Updated,
    #[serde(rename = "unchanged")]
    Unchanged,
    #[serde(rename = "delete")]
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
#[derive(Debug, Deserialize)]
pub struct Change {
    pub kind: Kind,
    pub action: Action,
    /// The slug of a cue as it may be printed, the name of a channel.
    pub key: String,
    /// `None` for what does not exist yet.
    id: Option<String>,
    pub fields: Vec<FieldChange>,
    pub next_run: Value,
    pub next_run_before: Value,
}

/// A field before and after, as it may be shown.
#[derive(Debug, Deserialize)]
pub struct FieldChange {
    pub field: String,
    pub old: Value,
    pub new: Value,
}

impl Change {
    /// What a command takes as the id: a cue that does not exist yet has only its slug.
    pub fn id_or_slug(&self) -> String {
        match (&self.id, self.kind) {
            (Some(id), _) => id.clone(),
            (None, Kind::Channel) => self.key.clone(),
            (None, Kind::Cue) => format!("slug:{}", self.key),
        }
    }

    pub fn to_json(&self) -> Value {
        let fields = self.fields.iter();
        let fields = fields.map(|it| json!({"field": it.field, "old": it.old, "new": it.new}));
        let mut object = json!({
            "kind": self.kind.word(), "action": self.action.word(), "id": self.id,
            "changes": fields.collect::<Vec<_>>(),
        });
        object[if self.kind == Kind::Cue { "slug" } else { "name" }] = self.key.as_str().into();
        if self.kind == Kind::Cue {
            object["next_run"] = self.next_run.clone();
            object["next_run_before"] = self.next_run_before.clone();
        }
        object
    }
}

pub fn count(changes: &[Change], action: Action) -> usize {
    changes.iter().filter(|change| change.action == action).count()
}
