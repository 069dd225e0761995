//! The names of the fields of a cue and of their parts, for those who read fields by name: files, flags, refusals.

use crate::domain::cue::Transport;
use crate::domain::cue_fields::{PLAIN_FIELDS, PlainField, Values, plain_fields};

macro_rules! fields {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $($row:expr),+;)+) => {
        /// The fields of a cue that users set, in reading order. `transport` cannot be changed.
        pub const FIELDS: [&str; 11 + PLAIN_FIELDS.len()] = [
            "name", "slug", "description", "tags", "schedule", "transport", "callback", "payload",
            "retry", "on_failure", "verification", $(stringify!($name)),+
        ];
    };
}

plain_fields!(fields);

/// A text field, or a field inside another one. The keys of the payload and of the headers are the user's own.
#[derive(Debug, Clone, Copy)]
pub struct NamedField {
    /// With a dot before a part of an object.
    pub path: &'static str,
    /// The flag that sets it, if its name differs from that of the outermost field.
    pub flag: Option<&'static str>,
    /// A value such as `123` is text there, and not a number.
    pub is_text: bool,
}

const fn text(path: &'static str, flag: Option<&'static str>) -> NamedField {
    NamedField { path, flag, is_text: true }
}

const fn other(path: &'static str, flag: Option<&'static str>) -> NamedField {
    NamedField { path, flag, is_text: false }
}

/// The text fields and the parts of objects, in reading order. Plain fields have a table of their own.
pub const NAMED_FIELDS: [NamedField; 30] = [
    text("name", None),
    text("slug", None),
    text("description", None),
    text("status", None),
    other("tags", Some("tag")),
    text("schedule.type", None),
    text("schedule.cron", Some("cron")),
    text("schedule.every", Some("every")),
    text("schedule.at", Some("at")),
    text("schedule.timezone", Some("tz")),
    text("schedule.catch_up", Some("catch-up")),
    text("schedule.start", Some("start")),
    text("schedule.end", Some("end")),
    other("schedule.jitter_seconds", Some("jitter")),
    text("callback.url", Some("url")),
    text("callback.method", Some("method")),
    other("callback.headers", Some("header")),
    other("callback.timeout_seconds", Some("timeout")),
    other("callback.flow", None),
    other("callback.outcome_from_response", Some("outcome-from-response")),
    text("callback.flow.key", Some("flow-key")),
    other("callback.flow.parallelism", Some("parallelism")),
    other("callback.flow.per_minute", Some("per-minute")),
    other("retry.max_attempts", None),
    other("retry.backoff_minutes", None),
    other("retry.backoff_seconds", None),
    other("on_failure.email", None),
    text("on_failure.webhook", Some("on-failure")),
    other("on_failure.pause", None),
    text("verification.mode", Some("verification")),
];

/// The names of the parts of an object; none if it has none, or the user's own.
pub fn parts_of(object: &str) -> impl Iterator<Item = &'static str> {
    let part = move |field: &NamedField| {
        let part = field.path.strip_prefix(object)?.strip_prefix('.')?;
        (!part.contains('.')).then_some(part)
    };
    NAMED_FIELDS.iter().filter_map(part)
}

/// The paths of all fields and their parts.
pub fn field_paths() -> impl Iterator<Item = &'static str> {
    let parts = NAMED_FIELDS.iter().map(|field| field.path).filter(|path| path.contains('.'));
    FIELDS.into_iter().chain(parts)
}

/// The flag that sets a field, if its name differs from that of the field.
pub fn flag_of(path: &str) -> Option<&'static str> {
    let named = NAMED_FIELDS.iter().find(|field| field.path == path).and_then(|field| field.flag);
    named.or(PlainField::named(path).map(|field| field.flag.0))
}

/// The field that a flag sets, unless it sets several.
pub fn field_of(flag: &str) -> Option<&'static str> {
    let is_own = |field: &&NamedField| field.flag.unwrap_or(field.path) == flag;
    let named = NAMED_FIELDS.iter().find(is_own).map(|field| field.path);
    named.or(PLAIN_FIELDS.iter().find(|field| field.flag.0 == flag).map(|field| field.name))
}

/// The fields that a PATCH removes with `null`.
pub fn removable_fields() -> impl Iterator<Item = &'static str> {
    let plain = PLAIN_FIELDS.iter().filter(|field| field.is_removable()).map(|field| field.name);
    ["slug", "description", "tags", "payload"].into_iter().chain(plain)
}

/// The fields that a cue of this transport cannot have.
pub fn unfit_fields(transport: Transport) -> impl Iterator<Item = &'static str> {
    let callback = (transport == Transport::Worker).then_some("callback");
    let plain = PLAIN_FIELDS.iter().filter(move |field| field.misfit(transport).is_some());
    callback.into_iter().chain(plain.map(|field| field.name))
}

/// Returns whether the field has a text.
pub fn is_text_field(path: &str) -> bool {
    let is_word = |field: &PlainField| matches!(field.values, Values::Words(_));
    NAMED_FIELDS.iter().any(|field| field.is_text && field.path == path)
        || PlainField::named(path).is_some_and(is_word)
}
