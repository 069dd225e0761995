//! The requests of a plan, each a part of the files, and what the server says that they change.

use serde_json::{Map, Value, json};

use crate::api::apply::hidden;
use crate::cli::client::commands::apply::channels::{WantedChannel, is_secret};
use crate::cli::client::commands::apply::file::{Namespace, Wanted, WantedCue};
use crate::cli::input::placed::Placed;
use crate::cli::output::table::text_of;
use crate::client::request::ApiRequest;

/// Cues of a request, and their bytes: the server takes 2 MB.
const MAX_CUES: usize = 500;
const MAX_BYTES: usize = 1_900_000;

/// Cues of one namespace, which are all written or none of them.
#[derive(Debug)]
pub struct Batch<'a> {
    namespace: &'a Namespace,
    pub cues: Vec<&'a WantedCue>,
    pub channels: Vec<&'a WantedChannel>,
    prunes: bool,
    /// Keys of cues that pruning leaves: another request has them, or they are refused.
    kept: Vec<&'a str>,
}

/// The requests for the files, in their order.
pub fn batches(wanted: &Wanted, prunes: bool) -> Vec<Batch<'_>> {
    let mut batches: Vec<Batch<'_>> = Vec::new();
    for namespace in &wanted.namespaces {
        let (first, mut bytes) = (batches.len(), 0);
        let batch = |prunes| Batch {
            namespace,
            cues: Vec::new(),
            channels: Vec::new(),
            prunes,
            kept: Vec::new(),
        };
        batches.push(batch(prunes));
        for cue in wanted.cues.iter().filter(|cue| cue.namespace.name == namespace.name) {
            let size = cue.body.to_value().to_string().len();
            bytes += size;
            let count = batches.last().map_or(0, |batch| batch.cues.len());
            if count == MAX_CUES || (count > 0 && bytes > MAX_BYTES) {
                batches.push(batch(false));
                bytes = size;
            }
            if let Some(batch) = batches.last_mut() {
                batch.cues.push(cue);
            }
        }
        let others = batches[first + 1..].iter().flat_map(|batch| &batch.cues);
        let kept = others.filter(|_| prunes).map(|cue| cue.key.as_str()).collect();
        batches[first].kept = kept;
    }
    if let Some(first) = batches.first_mut() {
        first.channels = wanted.channels.iter().collect();
    }
    batches
}

impl Batch<'_> {
    pub fn request(&self, is_dry: bool, adopts: bool) -> ApiRequest {
        ApiRequest::post("/v1/apply").json(self.body(is_dry, adopts))
    }

    pub fn body(&self, is_dry: bool, adopts: bool) -> Value {
        let cues = self.cues.iter().map(|cue| (cue.key.clone(), cue.body.to_value()));
        let mut body = json!({ "cues": cues.collect::<Map<_, _>>() });
        if !self.channels.is_empty() {
            let channel = |it: &&WantedChannel| (it.name.clone(), it.body.to_value());
            body["channels"] = self.channels.iter().map(channel).collect::<Map<_, _>>().into();
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

    /// Leaves out a cue or a channel that is refused; `false` if there is none of this kind and key.
    pub fn leave_out(&mut self, section: &str, key: &str) -> bool {
        let before = self.cues.len() + self.channels.len();
        match section {
            "channels" => self.channels.retain(|channel| channel.name != key),
            _ => {
                let refused = self.cues.iter().position(|cue| cue.key == key);
                let refused = refused.map(|index| self.cues.remove(index));
                // It has not left the files.
                self.kept.extend(refused.filter(|_| self.prunes).map(|cue| cue.key.as_str()));
            }
        }
        before > self.cues.len() + self.channels.len()
    }

    /// The changes of an answer, in the order of the files: channels, cues, and cues that are deleted.
    pub fn changes(&self, answer: &Value) -> Vec<Change> {
        let listed = answer["changes"].as_array().into_iter().flatten();
        let change = |change: &Value| {
            let (kind, key) = (text_of(change, "kind"), text_of(change, "key"));
            let is_deleted = change["action"] == "delete";
            let place = match kind.as_str() {
                "channel" => self.channels.iter().position(|it| it.name == key),
                _ => self.cues.iter().position(|cue| cue.key == key),
            };
            let wanted = |place| match kind.as_str() {
                "channel" => Wish::Channel(self.channels[place]),
                _ => Wish::Cue(self.cues[place]),
            };
            let change = Change::read(change, place.map(wanted), self.namespace);
            ((is_deleted, kind != "channel", place), change)
        };
        let mut changes: Vec<_> = listed.map(change).collect();
        changes.sort_by_key(|(order, _)| *order);
        changes.into_iter().map(|(_, change)| change).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Created,
    Updated,
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

/// What a file says of a cue or a channel.
enum Wish<'a> {
    Cue(&'a WantedCue),
    Channel(&'a WantedChannel),
}

/// A cue or a channel, and what happens to it.
#[derive(Debug)]
pub struct Change {
    pub is_channel: bool,
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
#[derive(Debug, PartialEq)]
pub struct FieldChange {
    pub field: String,
    pub old: Value,
    pub new: Value,
}

impl Change {
    fn read(change: &Value, wish: Option<Wish<'_>>, namespace: &Namespace) -> Self {
        let (is_channel, key) = (change["kind"] == "channel", text_of(change, "key"));
        let field = |it: &Value| {
            let (field, old, new) = (text_of(it, "field"), it["old"].clone(), it["new"].clone());
            if wish.as_ref().is_some_and(|wish| wish.hides(&field)) {
                return FieldChange { field, old: hidden(&old), new: hidden(&new) };
            }
            FieldChange { field, old, new }
        };
        Self {
            is_channel,
            action: match change["action"].as_str() {
                Some("create") => Action::Created,
                Some("change") => Action::Updated,
                Some("delete") => Action::Deleted,
                _ => Action::Unchanged,
            },
            id: change["id"].as_str().map(str::to_owned),
            fields: change["fields"].as_array().into_iter().flatten().map(field).collect(),
            next_run: change["next_run"].clone(),
            next_run_before: change["next_run_before"].clone(),
            key: if is_channel { key } else { namespace.shown(&key) },
        }
    }

    /// What a command takes as the id: a cue that does not exist yet has only its slug.
    pub fn id_or_slug(&self) -> String {
        match &self.id {
            Some(id) => id.clone(),
            None if self.is_channel => self.key.clone(),
            None => format!("slug:{}", self.key),
        }
    }

    pub fn to_json(&self) -> Value {
        let fields = self.fields.iter();
        let fields = fields.map(|it| json!({"field": it.field, "old": it.old, "new": it.new}));
        let (kind, name) = if self.is_channel { ("channel", "name") } else { ("cue", "slug") };
        let mut object = json!({
            "kind": kind, "action": self.action.word(), "id": self.id, name: self.key,
            "changes": fields.collect::<Vec<_>>(),
        });
        if !self.is_channel {
            object["next_run"] = self.next_run.clone();
            object["next_run_before"] = self.next_run_before.clone();
        }
        object
    }
}

impl Wish<'_> {
    /// Whether the value of a field is of the environment. The names of headers and keys of a payload may have dots.
    fn hides(&self, field: &str) -> bool {
        let body = match self {
            Self::Channel(channel) => {
                let value = channel.body.get(field);
                let is_of_secret = channel.setting(field).is_some_and(is_secret);
                return is_of_secret || value.is_some_and(Placed::is_of_environment);
            }
            Self::Cue(cue) => &cue.body,
        };
        let mut path: Vec<&str> = field.split('.').collect();
        for users_own in ["payload.", "callback.headers."] {
            if let Some(name) = field.strip_prefix(users_own) {
                path = users_own.trim_end_matches('.').split('.').chain([name]).collect();
            }
        }
        let value = path.iter().try_fold(body, |body, part| body.get(part));
        value.is_some_and(Placed::is_of_environment)
    }
}

pub fn count(changes: &[Change], action: Action) -> usize {
    changes.iter().filter(|change| change.action == action).count()
}
