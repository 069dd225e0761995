//! The channels of a file, and of an account for a file.

use serde_json::{Map, Value, json};

use crate::cli::client::commands::apply::environment::escaped;
use crate::cli::client::commands::apply::faults::{At, Faults, without_value};
use crate::cli::input::placed::{Entry, Place, Placed};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::table::text_of;
use crate::domain::channel::services::{Setting, SettingKind, service};
use crate::domain::channel::{ChannelEvents, ChannelType, REMIND_AFTER, Repeat};

/// The fields of every channel beside the settings of its type.
const COMMON: [&str; 6] = ["type", "events", "tags", "quiet", "repeat", "remind_after_seconds"];

/// Those that a file may leave out.
fn defaults() -> [(&'static str, Value); 5] {
    [
        ("events", json!(ChannelEvents::default())),
        ("tags", json!([])),
        ("quiet", Value::Null),
        ("repeat", Repeat::default().as_str().into()),
        ("remind_after_seconds", REMIND_AFTER.into()),
    ]
}

/// Reads a channel as the API takes it. `entry` has its name and its fields.
pub fn read(entry: &Entry, at: &At, faults: &mut Faults) -> Option<Placed> {
    let name = &entry.key;
    let mut fault = |place: Place, reason: String| faults.add(at.in_file(place), reason);
    if !entry.value.is_object() {
        fault(
            entry.value.place,
            format!("the channel {name} is an object of fields, such as `type: ntfy`"),
        );
        return None;
    }
    let Some(given) = entry.value.entry("type") else {
        let types = ChannelType::WORDS.join(", ");
        fault(entry.place, format!("the channel {name} has no type; it is one of {types}"));
        return None;
    };
    let word = given.value.as_str().unwrap_or_default();
    let Some(channel_type) = ChannelType::parse(word) else {
        let types = format!("use one of {}", ChannelType::WORDS.join(", "));
        let advice = did_you_mean(word, ChannelType::WORDS, types);
        let reason = format!("there is no type {word:?} of channels; {advice}");
        fault(given.value.place, without_value(&reason, &given.value));
        return None;
    };
    let settings = service(channel_type).settings;
    let known = || settings.iter().map(|setting| setting.name).chain(COMMON);
    for field in entry.value.entries() {
        let setting = settings.iter().find(|setting| setting.name == field.key);
        let is_literal = !field.value.is_null() && !field.value.is_of_environment();
        if setting.is_some_and(|setting| is_secret(setting) && is_literal) {
            let variable = variable_of(name, &field.key);
            let reason = format!(
                "{} is a secret; write \"${{{variable}}}\", and set that variable",
                field.key
            );
            fault(field.value.place, reason);
        } else if field.key == "name" {
            fault(field.place, "the name of a channel is its key; remove this field".to_owned());
        } else if !known().any(|known| known == field.key) {
            let otherwise = format!("it has {}", known().collect::<Vec<_>>().join(", "));
            let advice = did_you_mean(&field.key, known(), otherwise);
            fault(
                field.place,
                format!("a channel of type {word} has no field {:?}; {advice}", field.key),
            );
        }
    }
    Some(Placed { place: entry.place, ..entry.value.clone() })
}

fn is_secret(setting: &Setting) -> bool {
    matches!(setting.kind, SettingKind::Secret | SettingKind::SecretUrl)
}

/// The variable that has a secret in an exported file: `NTFY_BACKUPS_TOKEN`.
fn variable_of(channel: &str, setting: &str) -> String {
    let upper =
        |char: char| if char.is_ascii_alphanumeric() { char.to_ascii_uppercase() } else { '_' };
    let name: String = format!("{channel}_{setting}").chars().map(upper).collect();
    // A variable does not begin with a digit.
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("CHANNEL_{name}")
    } else {
        name
    }
}

/// The fields of a channel for a file, without those that have their defaults. Secrets are variables.
pub fn exported(channel: &Value) -> Option<(String, Value)> {
    let channel_type = ChannelType::parse(channel["type"].as_str()?)?;
    let name = text_of(channel, "name");
    let mut fields = Map::new();
    fields.insert("type".to_owned(), channel_type.as_str().into());
    for setting in service(channel_type).settings {
        match &channel[setting.name] {
            Value::Null => {}
            _ if is_secret(setting) => {
                let variable = format!("${{{}}}", variable_of(&name, setting.name));
                fields.insert(setting.name.to_owned(), variable.into());
            }
            value => drop(fields.insert(setting.name.to_owned(), escaped(value.clone()))),
        }
    }
    for (field, default) in defaults() {
        if channel[field] != default {
            fields.insert(field.to_owned(), channel[field].clone());
        }
    }
    Some((name, Value::Object(fields)))
}
