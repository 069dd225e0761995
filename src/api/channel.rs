//! The channel of the API: the fields of a create, of a PATCH and of a response (contract §12).

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::api::cue::{read_tags, set};
use crate::api::fields::JsonFields;
use crate::domain::api_error::{FieldError, LocSegment, Refusal};
use crate::domain::channel::services::{SERVICES, Service, Setting, SettingKind, service};
use crate::domain::channel::{
    Channel, ChannelEvents, ChannelFields, ChannelType, EVENT_RULE, MAX_EVENTS, MAX_NAME, Quiet,
    REMIND_RANGE, Repeat, is_event, parse_minute,
};
use crate::domain::schedule::Zone;
use crate::domain::secret::{masked, masked_url};
use crate::domain::text::is_order_mark;
use crate::domain::time::JsonTimestamp;
use crate::domain::webhook::address_policy::AddressPolicy;
use crate::domain::webhook::callback::{CallbackTarget, MAX_URL, UrlError, check_url};

/// Longest setting that is no URL.
const MAX_SETTING: usize = 300;

/// Fields whose values an error may repeat. All others are masked, whatever the type: a wrong type or a field under the
/// name of another often has the secret of the right one.
const REPEATED: [&str; 9] =
    ["type", "name", "events", "tags", "quiet", "repeat", "remind_after_seconds", "to", "priority"];

/// Reads the body of a create.
pub fn new_channel(
    mut fields: JsonFields<'_>,
    policy: &AddressPolicy,
) -> Result<ChannelFields, Refusal> {
    let channel_type =
        fields.required().one_of("type", &ChannelType::WORDS).and_then(ChannelType::parse);
    let Some(channel_type) = channel_type else {
        // Which settings it should have follows from the type.
        return fields.finish_with(None).map_err(without_secrets);
    };
    let mut new = read_fields(fields, ChannelFields::none(channel_type), None, policy)?;
    if new.name.is_empty() {
        let name =
            format!("{} {}", channel_type.as_str(), (service(channel_type).label)(&new.settings));
        new.name = name.trim_end().chars().take(MAX_NAME).collect();
    }
    Ok(new)
}

/// Reads the body of a PATCH of a channel. A setting as it reads back stays what it is.
pub fn changed_channel(
    mut fields: JsonFields<'_>,
    stored: &ChannelFields,
    policy: &AddressPolicy,
) -> Result<ChannelFields, Refusal> {
    let asked = fields.one_of("type", &ChannelType::WORDS);
    if asked.is_some_and(|asked| asked != stored.channel_type.as_str()) {
        fields.reject("type", "cannot be changed; make another channel");
    }
    read_fields(fields, stored.clone(), Some(stored), policy)
}

/// Reads the fields beside the type onto `it`: those of `stored`, or of a new channel.
fn read_fields(
    mut fields: JsonFields<'_>,
    mut it: ChannelFields,
    stored: Option<&ChannelFields>,
    policy: &AddressPolicy,
) -> Result<ChannelFields, Refusal> {
    let mut changed = Vec::new();
    for setting in service(it.channel_type).settings {
        let read = |fields: &mut JsonFields<'_>| {
            read_setting(fields, it.channel_type, setting, stored, policy)
        };
        if let Some(Some(value)) = fields.nullable(setting.name, read) {
            it.settings.set(setting.name, value);
            changed.push(setting.name);
        }
        if setting.is_required && fields.any(setting.name).is_none() {
            if stored.is_none() {
                fields.add_missing(setting.name);
            } else if !fields.is_absent(setting.name) {
                fields.reject(
                    setting.name,
                    &format!("a channel of type {} needs it", it.channel_type.as_str()),
                );
            }
        }
    }
    if let Some(stored) = stored {
        ask_for_secrets(&fields, stored, &it, &changed);
    }
    set(&mut it.name, read_name(&mut fields));
    set(&mut it.events, read_events(&mut fields));
    set(&mut it.repeat, fields.one_of("repeat", &Repeat::WORDS).and_then(Repeat::parse));
    set(&mut it.remind_after_seconds, read_remind_after(&mut fields));
    let kinds = [
        ("name", "text"),
        ("events", "list"),
        ("repeat", "text"),
        ("remind_after_seconds", "number"),
    ];
    for (field, kind) in kinds {
        if stored.is_some() && !fields.is_absent(field) && fields.any(field).is_none() {
            fields.reject(field, &format!("must be a {kind}, not null; leave it out to keep it"));
        }
    }
    set(&mut it.tags, fields.nullable("tags", read_tags).map(Option::unwrap_or_default));
    set(&mut it.quiet, fields.nullable("quiet", read_quiet));
    forbid_other_settings(&mut fields, it.channel_type);
    fields.forbid_unknown();
    fields.finish().map_err(without_secrets)?;
    Ok(it)
}

/// Settings that only channels of other types have.
fn forbid_other_settings(fields: &mut JsonFields<'_>, channel_type: ChannelType) {
    let has = |service: &Service, name: &str| service.settings.iter().any(|own| own.name == name);
    let others = SERVICES.iter().filter(|service| service.channel_type != channel_type);
    for Setting { name, .. } in others.flat_map(|service| service.settings) {
        let owners = SERVICES.iter().filter(|service| has(service, name));
        let owners: Vec<&str> = owners.map(|service| service.channel_type.as_str()).collect();
        let owners = match owners.split_last() {
            Some((last, others @ [_, ..])) => format!("{} or {last}", others.join(", ")),
            _ => owners.concat(),
        };
        fields.forbid(name, &format!("is only for channels of type {owners}"));
    }
}

/// No host gets a secret that was given for another one: with a new host a secret is given too, or removed.
fn ask_for_secrets(
    fields: &JsonFields<'_>,
    stored: &ChannelFields,
    new: &ChannelFields,
    changed: &[&str],
) {
    let origin = |url: &str| {
        CallbackTarget::parse(url).ok().map(|target| (target.https, target.authority()))
    };
    let moves = |setting: &Setting| {
        let url = new.settings.get(setting.name);
        setting.kind == SettingKind::Url
            && url.is_some()
            && url.and_then(origin) != stored.settings.get(setting.name).and_then(origin)
    };
    let of_type = service(stored.channel_type).settings;
    if !of_type.iter().any(moves) {
        return;
    }
    for setting in of_type.iter().filter(|setting| setting.kind == SettingKind::Secret) {
        if stored.settings.get(setting.name).is_some() && !changed.contains(&setting.name) {
            fields.reject(
                setting.name,
                "must be given again: another host does not get the stored one",
            );
        }
    }
}

/// `None` for an invalid value and for that of `stored` as it reads back, `Some(None)` for none.
fn read_setting(
    fields: &mut JsonFields<'_>,
    channel_type: ChannelType,
    setting: &Setting,
    stored: Option<&ChannelFields>,
    policy: &AddressPolicy,
) -> Option<Option<String>> {
    let name = setting.name;
    let value = match &setting.kind {
        SettingKind::Number(range) => {
            return Some(fields.integer(name, range.clone()).map(|number| number.to_string()));
        }
        SettingKind::Url | SettingKind::SecretUrl => fields.string(name, 1..=MAX_URL),
        SettingKind::Secret | SettingKind::Address => fields.string(name, 1..=MAX_SETTING),
        // The id of a chat is a number.
        SettingKind::Text => fields.text_or_number(name, 1..=MAX_SETTING),
    };
    let Some(value) = value else { return Some(None) };
    if stored
        .and_then(|channel| channel.settings.get(name))
        .is_some_and(|kept| setting.kind.shown(kept) == value)
    {
        return None;
    }
    let checked = match setting.kind {
        SettingKind::Url | SettingKind::SecretUrl => check_url(&value, policy)
            .map_err(|error| url_problem(setting, &error))
            .map(|target| target.url),
        _ => Ok(value),
    };
    let checked =
        checked.and_then(|value| (service(channel_type).check)(name, &value).map(|()| value));
    checked.map_err(|problem| fields.reject(name, &problem)).ok().map(Some)
}

fn url_problem(setting: &Setting, error: &UrlError) -> String {
    match error {
        // They repeat a part of a text that is not a URL, and may be the secret itself.
        UrlError::Host(_) | UrlError::InternationalName(_) | UrlError::Port(_)
            if setting.kind == SettingKind::SecretUrl =>
        {
            "has a host or a port that is not valid; correct it".to_owned()
        }
        // It may repeat a secret that was meant for another setting.
        UrlError::Scheme(_) => UrlError::Scheme(None).to_string(),
        UrlError::UserInfo => "must not contain a user name or password".to_owned(),
        other => other.to_string(),
    }
}

/// Replaces the secrets in the values that the errors repeat.
fn without_secrets(mut refusal: Refusal) -> Refusal {
    for FieldError { kind, loc, input, .. } in &mut refusal.problems {
        let [_, LocSegment::Field(name), ..] = &loc[..] else { continue };
        match (*kind, loc.len(), &mut *input) {
            // The object that has no such field.
            ("missing", 2, Value::Object(fields)) => {
                for (name, value) in fields {
                    mask(name, value);
                }
            }
            // The name of the field.
            ("extra_forbidden", ..) => {}
            _ => mask(name, input),
        }
    }
    refusal
}

fn mask(name: &str, value: &mut Value) {
    if !REPEATED.contains(&name) && !value.is_null() {
        *value = masked_input(value.as_str().unwrap_or_default()).into();
    }
}

/// A setting that nothing has checked yet, as an error repeats it.
fn masked_input(text: &str) -> String {
    // The host of a text that only resembles a URL could be anything, and so is what follows `#`.
    let is_url = !text.contains('#') && CallbackTarget::parse(text).is_ok();
    if is_url { masked_url(text) } else { masked(text) }
}

/// A name stands in tables, mails and messages, where it is one line that shows what it is.
fn read_name(fields: &mut JsonFields<'_>) -> Option<String> {
    let name = fields.string("name", 1..=MAX_NAME)?;
    let problem = name_problem(&name);
    if let Some(problem) = problem {
        fields.reject("name", problem);
    }
    problem.is_none().then_some(name)
}

/// Why a text is no name of a channel.
pub fn name_problem(name: &str) -> Option<&'static str> {
    let is_unsafe = |char: char| {
        char.is_control() || is_order_mark(char) || matches!(char, '\u{2028}' | '\u{2029}')
    };
    if name.contains(is_unsafe) {
        Some(
            "must be one line without control characters and marks that change the direction of text",
        )
    } else if name.trim().is_empty() || name.chars().count() > MAX_NAME {
        Some("must have 1 to 100 characters, and more than white space")
    } else {
        None
    }
}

fn read_events(fields: &mut JsonFields<'_>) -> Option<ChannelEvents> {
    fields.words("events", 1..=MAX_EVENTS, (is_event, EVENT_RULE)).map(ChannelEvents::new)
}

/// 0 for no reminders, or the time between two.
fn read_remind_after(fields: &mut JsonFields<'_>) -> Option<u32> {
    let seconds = fields.integer("remind_after_seconds", 0..=*REMIND_RANGE.end())?;
    if seconds > 0 && !REMIND_RANGE.contains(&seconds) {
        let (min, max) = REMIND_RANGE.into_inner();
        fields.reject("remind_after_seconds", &format!("must be 0 for none, or {min} to {max}"));
    }
    u32::try_from(seconds).ok()
}

fn read_quiet(fields: &mut JsonFields<'_>) -> Option<Quiet> {
    let mut quiet = fields.object("quiet")?;
    let (from, to) =
        (quiet.required().string("from", 1..=20), quiet.required().string("to", 1..=20));
    let minute = |name: &'static str, text: Option<String>| {
        let text = text?;
        let time = parse_minute(&text);
        if time.is_none() {
            quiet.reject(name, "must be a time of day from 00:00 to 23:59, as in 22:00");
        }
        time
    };
    let (from, to) = (minute("from", from), minute("to", to));
    let timezone = quiet.string("timezone", 1..=100).unwrap_or_else(|| "UTC".to_owned());
    let zone = Zone::find(&timezone);
    if let Err(error) = &zone {
        quiet.reject("timezone", &error.to_string());
    }
    quiet.forbid_unknown();
    let (from, to, zone) = (from?, to?, zone.ok()?);
    if from == to {
        quiet.reject("to", "must differ from `from`: the quiet hours are less than a day");
    }
    Some(Quiet { from, to, timezone: zone.name().to_owned() })
}

/// A channel as the API shows it.
#[derive(Debug, Clone)]
pub struct ChannelView {
    pub channel: Channel,
    pub status: &'static str,
    /// Messages that wait for their next attempt, and events that wait for their turn.
    pub waiting: usize,
    pub is_built_in: bool,
}

impl Serialize for ChannelView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { channel, status, waiting, is_built_in } = self;
        let fields = &channel.fields;
        let mut object = serializer.serialize_map(None)?;
        object.serialize_entry("id", &channel.id)?;
        object.serialize_entry("type", fields.channel_type.as_str())?;
        object.serialize_entry("name", &fields.name)?;
        for setting in service(fields.channel_type).settings {
            let value = fields.settings.get(setting.name);
            let value = value.map(|value| match setting.kind {
                SettingKind::Number(_) => value.parse::<i64>().map_or(Value::Null, Value::from),
                _ => setting.kind.shown(value).into(),
            });
            object.serialize_entry(setting.name, &value)?;
        }
        object.serialize_entry("events", &fields.events)?;
        object.serialize_entry("tags", &fields.tags)?;
        object.serialize_entry("quiet", &fields.quiet)?;
        object.serialize_entry("repeat", fields.repeat.as_str())?;
        object.serialize_entry("remind_after_seconds", &fields.remind_after_seconds)?;
        object.serialize_entry("status", status)?;
        object.serialize_entry("failures", &channel.failures)?;
        object.serialize_entry("waiting", waiting)?;
        object.serialize_entry("last_sent_at", &channel.last_sent_at.map(JsonTimestamp))?;
        object.serialize_entry("last_failed_at", &channel.last_failed_at.map(JsonTimestamp))?;
        object.serialize_entry("last_error", &channel.last_error)?;
        object.serialize_entry("built_in", is_built_in)?;
        object.serialize_entry("created_at", &JsonTimestamp(channel.created_at))?;
        object.serialize_entry("updated_at", &JsonTimestamp(channel.updated_at))?;
        object.end()
    }
}
