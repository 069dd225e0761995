//! A cue of a file as the API takes it: short forms in place of fields, and below it the defaults of the file.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::api::cue_names::{FIELDS, parts_of, unfit_fields};
use crate::api::preview::schedule_fields;
use crate::cli::client::commands::apply::faults::{At, Faults, without_value};
use crate::cli::input::placed::{Entry, Node, Place, Placed};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::table::parse_seconds;
use crate::domain::cue_fields::Transport;
use crate::domain::schedule::Zone;
use crate::domain::schedule::words::{Understood, understand};

/// Short forms that only have another place than the field of the API.
pub const SHORT: [(&str, &str); 9] = [
    ("url", "callback.url"),
    ("method", "callback.method"),
    ("headers", "callback.headers"),
    ("timeout", "callback.timeout_seconds"),
    ("task", "payload.task"),
    ("timezone", "schedule.timezone"),
    ("catch_up", "schedule.catch_up"),
    ("start", "schedule.start"),
    ("end", "schedule.end"),
];

/// Short forms with a meaning of their own: `worker: true` and `paused: true`.
pub const SWITCHES: [(&str, &str, [&str; 2]); 2] =
    [("worker", "transport", ["webhook", "worker"]), ("paused", "status", ["active", "paused"])];

/// A schedule as a person writes it, until it is understood. The API has no such field.
const TEXT: &str = "text";

/// Fields that exclude each other: one of a cue replaces all of the defaults.
const ALTERNATIVES: [(&str, &[&str]); 2] = [
    ("schedule", &["type", "cron", "every", "at", TEXT]),
    ("retry", &["backoff_minutes", "backoff_seconds"]),
];

/// Reads the fields of one file.
pub struct FieldReader<'a> {
    pub at: At,
    pub now: Timestamp,
    pub faults: &'a mut Faults,
    /// Where the files have short forms.
    pub short: &'a mut BTreeSet<At>,
}

impl FieldReader<'_> {
    fn fault(&mut self, value: &Placed, reason: impl Into<String>) {
        self.fault_at(value.place, without_value(&reason.into(), value));
    }

    pub fn fault_at(&mut self, place: Place, reason: impl Into<String>) {
        self.faults.add(self.at.in_file(place), reason);
    }

    /// The fields of a cue or of the defaults, in the form of the API but for `schedule.text`.
    pub fn normalized(&mut self, given: &Placed) -> Placed {
        let mut fields = Placed::object(given.place);
        for entry in given.entries() {
            let key = entry.key.as_str();
            if let Some((_, path)) = SHORT.iter().find(|(short, _)| *short == key) {
                let value =
                    if key == "timeout" { self.seconds(&entry.value) } else { entry.value.clone() };
                self.short.insert(self.at.in_file(entry.place));
                self.set(&mut fields, path, entry, value);
            } else if let Some((_, field, words)) =
                SWITCHES.iter().find(|(short, ..)| *short == key)
            {
                match entry.value.as_bool() {
                    Some(is_on) => {
                        let word = Placed::scalar(entry.value.place, words[usize::from(is_on)]);
                        self.set(&mut fields, field, entry, word);
                    }
                    None => self.fault(&entry.value, format!("{key} is true or false")),
                }
            } else if key == "schedule" && entry.value.as_str().is_some() {
                self.set(&mut fields, "schedule.text", entry, entry.value.clone());
            } else if is_field(key) {
                self.add_field(&mut fields, entry);
            } else {
                let advice = unknown(key);
                self.fault_at(entry.place, format!("there is no field {key:?}; {advice}"));
            }
        }
        fields
    }

    /// A field of the API. The parts of an object are set one by one, beside those of short forms.
    fn add_field(&mut self, fields: &mut Placed, entry: &Entry) {
        let key = entry.key.as_str();
        if !entry.value.is_object()
            || (entry.value.entries().is_empty() && fields.get(key).is_none())
        {
            return self.set(fields, key, entry, entry.value.clone());
        }
        for part in entry.value.entries() {
            self.set(fields, &format!("{key}.{}", part.key), part, part.value.clone());
        }
    }

    /// Sets a field, or a part of one, to a value that `entry` gives. Two forms of one field are a fault.
    fn set(&mut self, fields: &mut Placed, path: &str, entry: &Entry, value: Placed) {
        let place = entry.place;
        let (field, part) =
            path.split_once('.').map_or((path, None), |(field, part)| (field, Some(part)));
        let object = match part {
            None => Some(fields),
            Some(_) => fields.get_or_insert(field, Placed::object(place)),
        };
        let Some(object) = object else { return };
        let is_whole = part.is_none_or(|part| part == TEXT) || !object.is_object();
        let key = part.unwrap_or(field).to_owned();
        let known = if object.is_object() {
            object.insert(Entry { key, place, value }).map(|known| known.place)
        } else {
            // `payload: 5` beside `task: x`.
            Some(object.place)
        };
        if let Some(Place { line, .. }) = known {
            let name = if is_whole { field } else { path };
            let reason = format!("{name} is set twice, also in line {line}; remove one of the two");
            self.fault_at(place, reason);
        }
    }

    /// A number of seconds, or a span such as `5m`.
    fn seconds(&mut self, value: &Placed) -> Placed {
        match value.as_str().map(parse_seconds) {
            None => value.clone(),
            Some(Ok(seconds)) => Placed { node: Node::Scalar(seconds.into()), ..value.clone() },
            Some(Err(reason)) => {
                self.fault(value, format!("timeout: {reason}"));
                value.clone()
            }
        }
    }

    /// The whole body of a cue. `entry` has its key, `slug` its slug.
    pub fn body(&mut self, entry: &Entry, defaults: &Placed) -> Placed {
        let faults = self.faults.count();
        let own = self.normalized(&entry.value);
        // What is missing may be there under a mistyped name.
        let is_readable = self.faults.count() == faults
            && ["schedule", "callback"].into_iter().all(|object| has_known_parts(&own, object));
        let mut body = defaults.clone();
        leave_out_unfit(&mut body, &own);
        merge(&mut body, own, "");
        body.place = entry.place;
        let key = &entry.key;
        body.get_or_insert("name", Placed::scalar(entry.place, key.as_str()));
        let url = body.get("callback").and_then(|callback| callback.entry("url"));
        match (is_for_workers(&body), url.map(|url| url.place)) {
            (true, Some(place)) => {
                let reason = "a cue calls a URL or waits for a worker; remove url or worker";
                self.fault_at(place, reason);
            }
            (false, None) if is_readable => {
                let reason = format!("{key} has no target; add `url: …`, or `worker: true`");
                self.fault_at(entry.place, reason);
            }
            _ => {}
        }
        let has_when = |schedule: &Placed| {
            let is_set = |name: &str| schedule.get(name).is_some_and(|value| !value.is_null());
            !schedule.is_object() || [TEXT, "cron", "every", "at"].into_iter().any(is_set)
        };
        if body.get("schedule").is_some_and(|schedule| has_when(schedule) || !is_readable) {
            self.complete_schedule(&mut body);
        } else if is_readable {
            let example = "add one, such as `schedule: \"0 3 * * *\"`";
            self.fault_at(entry.place, format!("{key} has no schedule; {example}"));
        }
        body
    }

    fn complete_schedule(&mut self, body: &mut Placed) {
        let Some(schedule) = body.get_mut("schedule") else { return };
        let named = schedule.get("timezone").and_then(Placed::as_str);
        let zone = named.map_or(Ok(Zone::UTC), Zone::find_place);
        if let (Ok(zone), Some(named)) = (&zone, schedule.get_mut("timezone")) {
            // A place stands for its zone.
            if named.as_str().is_some() {
                named.node = Node::Scalar(zone.name().into());
            }
        }
        // The server refuses an unknown zone, with the zones that are near.
        let zone = zone.unwrap_or(Zone::UTC);
        if let Some(text) = schedule.remove(TEXT) {
            match self.understood(&text.value, &zone) {
                Ok((field, value)) => {
                    let value = Placed { node: Node::Scalar(value), ..text.value };
                    schedule.insert(Entry { key: field, place: text.place, value });
                }
                Err(reason) => self.fault(&text.value, reason),
            }
        }
        let is_once = schedule.get("at").is_some_and(|at| !at.is_null());
        let kind = Placed::scalar(schedule.place, if is_once { "once" } else { "recurring" });
        schedule.get_or_insert("type", kind);
    }

    /// The field of a schedule that a text means, and its value. The grammar is that of the server; here it costs no
    /// request, and its faults come before any is made.
    fn understood(&self, text: &Placed, zone: &Zone) -> Result<(String, Value), String> {
        let text = text.as_str().unwrap_or_default();
        // An example of a schedule whose meaning stays.
        let stays = |reason: String| reason.replace("tomorrow 9:00", "2030-01-31T09:00:00");
        let Understood { schedule, is_relative, .. } =
            understand(text, zone, self.now).map_err(|error| stays(error.to_string()))?;
        if is_relative {
            return Err(format!(
                "{text:?} means another time with every apply; write an instant such as 2030-01-31T09:00:00"
            ));
        }
        let fields = schedule_fields(&schedule);
        let found = ["cron", "every", "at"].into_iter().find(|name| fields[*name].is_string());
        let found = found.unwrap_or("cron");
        Ok((found.to_owned(), fields[found].clone()))
    }
}

/// Whether the object, if it is there, is one and has no part of another name.
fn has_known_parts(own: &Placed, object: &str) -> bool {
    let is_known = |entry: &Entry| entry.key == TEXT || parts_of(object).any(|it| it == entry.key);
    own.get(object).is_none_or(|value| match &value.node {
        Node::Object(entries) => entries.iter().all(is_known),
        _ => value.is_null(),
    })
}

/// A field of the API. The slug is the key of the cue.
fn is_field(key: &str) -> bool {
    key == "status" || (key != "slug" && FIELDS.contains(&key))
}

/// What to do about a key that no cue has.
fn unknown(key: &str) -> String {
    let short = SHORT.iter().map(|(short, _)| *short);
    let known = short
        .chain(SWITCHES.iter().map(|(short, ..)| *short))
        .chain(["status"])
        .chain(FIELDS.into_iter().filter(|field| is_field(field)));
    match key {
        "slug" | "id" => "the slug is the key of the cue and the namespace of its file".to_owned(),
        "cron" | "every" | "at" => format!("write `schedule: …`, or `schedule: {{{key}: …}}`"),
        _ => did_you_mean(key, known, "`cued apply --help` lists the fields"),
    }
}

pub fn is_for_workers(body: &Placed) -> bool {
    body.get("transport").and_then(Placed::as_str) == Some("worker")
}

/// Removes defaults that do not fit the cue: those of the other kind of target, and what its own fields exclude.
fn leave_out_unfit(defaults: &mut Placed, own: &Placed) {
    let calls = own.get("callback").is_some_and(|callback| callback.get("url").is_some());
    if own.get("transport").is_some() || calls {
        defaults.remove("transport");
    }
    let is_for_workers = is_for_workers(own) || is_for_workers(defaults);
    for field in unfit_fields(if is_for_workers { Transport::Worker } else { Transport::Webhook }) {
        defaults.remove(field);
    }
    for (field, parts) in ALTERNATIVES {
        let has_one =
            own.get(field).is_some_and(|own| parts.iter().any(|part| own.get(part).is_some()));
        if let Some(value) = defaults.get_mut(field).filter(|_| has_one) {
            for part in parts {
                value.remove(part);
            }
        }
    }
}

/// Puts a value above another one: entries of objects one by one, everything else as a whole.
fn merge(below: &mut Placed, above: Placed, field: &str) {
    // Beside a value of another kind, a merge would keep only some of the defaults.
    let (Node::Object(known), Node::Object(entries)) = (&mut below.node, &above.node) else {
        *below = above;
        return;
    };
    for entry in entries.clone() {
        let is_same = |known: &&mut Entry| match field {
            // Names of header fields are the same in upper and lower case.
            ".callback.headers" => known.key.eq_ignore_ascii_case(&entry.key),
            _ => known.key == entry.key,
        };
        match known.iter_mut().find(is_same) {
            Some(known) => {
                merge(&mut known.value, entry.value, &format!("{field}.{}", entry.key));
                (known.key, known.place) = (entry.key, entry.place);
            }
            None => known.push(entry),
        }
    }
    below.place = above.place;
}
