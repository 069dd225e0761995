//! `cued export`: the cues of an account as a file for `cued apply`.

use std::collections::{BTreeMap, BTreeSet};

use clap::Arg;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::api::cue_names::FIELDS;
use crate::api::cue_view::CueView;
use crate::cli::client::arguments::fetch;
use crate::cli::client::command::{Call, Part, flag, own, switch};
use crate::cli::client::commands::apply::channels::exported as exported_channel;
use crate::cli::client::commands::apply::environment::escaped;
use crate::cli::client::commands::apply::fields::{SHORT, SWITCHES};
use crate::cli::client::commands::apply::parallel::each;
use crate::cli::client::context::Context;
use crate::cli::error::{CliError, usage};
use crate::cli::output::table::text_of;
use crate::cli::output::yaml::{self, ordered};
use crate::cli::output::{Format, count, print, print_line};
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, ClientError, segment};
use crate::domain::cue::slug::{NAMESPACE_RULE, is_namespace, take_unused};
use crate::domain::cue::{CueFields, CueRequest};
use crate::domain::row_keys::UserKey;
use crate::domain::schedule::{CatchUp, Schedule, ScheduleRule, Zone};

/// The order of the sections and fields in the file.
const ORDER: &str = "namespace channels cues name description tags paused schedule cron every at timezone catch_up \
    start end jitter_seconds url method headers timeout worker task payload retry on_failure type events";

/// Characters of a proposed slug, apart from the number that makes it another one. A slug has 63.
const MAX_PROPOSED: usize = 56;

pub fn arguments() -> Vec<(Arg, Part)> {
    let namespace = "Only cues in this namespace; keys omit the prefix";
    let all = "Also channels, and in comments the cues that have no slug";
    let adopt = "Give every cue without a slug one made of its name (changes the server)";
    let arguments = [
        flag("namespace", "NAME", namespace).conflicts_with("all"),
        switch("all", all),
        switch("adopt", adopt),
    ];
    arguments.into_iter().map(own).collect()
}

pub fn export(call: &Call<'_>) -> Result<(), CliError> {
    let (context, namespace) = (call.context, call.text("namespace"));
    if let Some(name) = namespace.filter(|name| !is_namespace(name)) {
        return Err(usage(format!("--namespace: {name:?}: {NAMESPACE_RULE}")));
    }
    let all = ApiRequest::get("/v1/cues");
    let request = match namespace.filter(|_| !call.is_set("adopt")) {
        Some(namespace) => all.query("namespace", namespace),
        None => all,
    };
    // With `--curl` the first request.
    let listed = fetch(|page| context.send(page), &request, "cues", u64::MAX)?.items;
    let slug_and_id = |cue: &Value| (text_of(cue, "slug"), text_of(cue, "id"));
    let (listed, without): (Vec<Value>, Vec<Value>) =
        listed.into_iter().partition(|cue| cue["slug"].is_string());
    let mut slugs: Vec<(String, String)> = listed.iter().map(slug_and_id).collect();
    let mut proposed = propose(&without, &slugs, namespace);
    if call.is_set("adopt") {
        adopt(context, &proposed)?;
        slugs.extend(proposed.drain(..).map(|it| (it.slug, it.id)));
    }
    slugs.retain(|(slug, _)| namespace.is_none_or(|name| key_in(slug, name).is_some()));
    slugs.sort();
    let client = &*context.client;
    let read = |(slug, id): &(String, String)| -> Result<_, ClientError> {
        let request =
            ApiRequest::get(format!("/v1/cues/{}", segment(id))).query("execution_limit", "1");
        match client.send(&request) {
            // It was deleted meanwhile.
            Err(error) if error.status() == Some(404) => Ok(None),
            answer => Ok(Some((slug.clone(), answer?.value()?))),
        }
    };
    let cues: Vec<(String, Value)> = each(&slugs, read)?.into_iter().flatten().collect();
    let is_all = call.is_set("all");
    let channels = if is_all { read_channels(context)? } else { BTreeMap::new() };
    print_file(context, namespace, &cues, channels, if is_all { &proposed } else { &[] })
}

/// A cue without a slug, and the one that its name makes.
struct Proposed {
    id: String,
    name: String,
    slug: String,
}

/// The key of a slug in its namespace.
fn key_in<'a>(slug: &'a str, namespace: &str) -> Option<&'a str> {
    slug.strip_prefix(namespace)?.strip_prefix('/')
}

/// Proposes slugs that no cue has for the cues without one, in the order of their names.
fn propose(
    without: &[Value],
    slugs: &[(String, String)],
    namespace: Option<&str>,
) -> Vec<Proposed> {
    let mut taken: BTreeSet<String> = slugs.iter().map(|(slug, _)| slug.clone()).collect();
    let mut named: Vec<(String, String)> =
        without.iter().map(|cue| (text_of(cue, "name"), text_of(cue, "id"))).collect();
    named.sort();
    let before = namespace.map(|name| format!("{name}/")).unwrap_or_default();
    let mut slug = |name: &str| take_unused(format!("{before}{}", slug_of(name)), &mut taken);
    let propose = |(name, id): (String, String)| Proposed { slug: slug(&name), name, id };
    named.into_iter().map(propose).collect()
}

/// `Nightly backup (NAS)` is `nightly-backup-nas`.
fn slug_of(name: &str) -> String {
    let mut slug = String::new();
    for char in name.to_lowercase().chars() {
        match char {
            'a'..='z' | '0'..='9' | '.' | '_' => slug.push(char),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(MAX_PROPOSED);
    let slug = slug.trim_matches(['-', '.', '_']);
    if slug.is_empty() { "cue".to_owned() } else { slug.to_owned() }
}

fn adopt(context: &Context, proposed: &[Proposed]) -> Result<(), CliError> {
    for Proposed { id, name, slug } in proposed {
        let request =
            ApiRequest::patch(format!("/v1/cues/{}", segment(id))).json(json!({ "slug": slug }));
        context.fetch(&request)?;
        context.output.note(&format!("{} ({id}) has the slug {slug} now", printable(name)))?;
    }
    Ok(())
}

/// The channels by their names. Two of one name cannot be told apart in a file.
fn read_channels(context: &Context) -> Result<BTreeMap<String, Value>, CliError> {
    let request = ApiRequest::get("/v1/channels");
    let listed = fetch(|page| context.fetch(page), &request, "channels", u64::MAX)?.items;
    let own = listed.iter().filter(|channel| channel["built_in"] != true);
    let (mut channels, mut twice) = (BTreeMap::new(), BTreeSet::new());
    for (name, channel) in own.filter_map(exported_channel) {
        if channels.insert(name.clone(), channel).is_some() {
            twice.insert(name);
        }
    }
    for name in twice {
        channels.remove(&name);
        context.output.note(&format!(
            "several channels have the name {:?}, so they are left out; rename them",
            printable(&name)
        ))?;
    }
    Ok(channels)
}

fn print_file(
    context: &Context,
    namespace: Option<&str>,
    cues: &[(String, Value)],
    channels: BTreeMap<String, Value>,
    comments: &[Proposed],
) -> Result<(), CliError> {
    let key = |slug: &str| namespace.and_then(|name| key_in(slug, name)).unwrap_or(slug).to_owned();
    let of_key = |(slug, cue): &(String, Value)| (key(slug), exported(&key(slug), cue));
    let (ended, cues): (Vec<_>, Vec<_>) = cues.iter().partition(|(_, cue)| has_ended(cue));
    let cues: Map<String, Value> = cues.into_iter().map(of_key).collect();
    let format = context.output.format;
    if format == Format::Id {
        return cues.keys().try_for_each(|slug| print_line(slug));
    }
    let mut file = json!({ "cues": cues });
    if let Some(namespace) = namespace {
        file["namespace"] = namespace.into();
    }
    if !channels.is_empty() {
        file["channels"] = json!(channels);
    }
    if format.is_json() {
        if !ended.is_empty() {
            let count = count(ended.len() as i128, "cue");
            context.output.note(&format!("{count} left out, whose time has passed"))?;
        }
        return print_line(&file.to_string());
    }
    let mut text = in_order(&file);
    if !ended.is_empty() {
        text += "# The time of these cues has passed: they cannot be created again, and --prune deletes them:\n";
    }
    for (slug, cue) in ended.into_iter().map(of_key) {
        text += &commented(&in_order(&json!({ slug: cue })), "#   ");
    }
    if !comments.is_empty() {
        text += "# These cues have no slug; --adopt gives them the proposed ones:\n";
    }
    for Proposed { id, name, slug } in comments {
        text += &format!("# {slug}: {id} {}\n", yaml::escaped(&printable(name)));
    }
    print(&text)
}

/// A cue as a file for `cued apply`. What only the server sets is in comments.
pub fn document(cue: &Value) -> String {
    let slug = text_of(cue, "slug");
    let (namespace, key) = slug.split_once('/').unwrap_or(("", &slug));
    let key = if key.is_empty() { &slug_of(&text_of(cue, "name")) } else { key };
    let mut file = json!({ "cues": { key: exported(key, cue) } });
    if !namespace.is_empty() {
        file["namespace"] = namespace.into();
    }
    let mut text = in_order(&file);
    if slug.is_empty() {
        text += "# It has no slug, so that `cued apply` would add a cue; `cued cue set --slug` gives it one.\n";
    }
    let mut others = cue.clone();
    if let Some(fields) = others.as_object_mut() {
        fields.retain(|name, _| !FIELDS.contains(&name.as_str()));
    }
    text + "# Set by the server:\n" + &commented(&ordered(&others, &["id", "status"]), "# ")
}

fn commented(text: &str, mark: &str) -> String {
    text.lines().map(|line| format!("{mark}{line}\n")).collect()
}

/// Writes a file, or a part of one, with its fields in a readable order.
fn in_order(value: &Value) -> String {
    ordered(value, &ORDER.split(' ').collect::<Vec<_>>())
}

/// Whether the only run of a cue is over.
fn has_ended(cue: &Value) -> bool {
    cue["schedule"]["at"].is_string()
        && matches!(cue["status"].as_str(), Some("completed" | "failed"))
}

/// The fields of a cue in the short forms of a file, without those that have their defaults.
fn exported(key: &str, cue: &Value) -> Value {
    let plain = plain_cue(key).unwrap_or_default();
    let mut fields = Map::new();
    for name in FIELDS.into_iter().chain(["status"]).filter(|name| *name != "slug") {
        let (own, none) = match &plain[name] {
            default @ Value::Object(_) => (differing(&cue[name], default).into(), json!({})),
            default => (cue[name].clone(), default.clone()),
        };
        if own != none {
            fields.insert(name.to_owned(), own);
        }
    }
    let mut take = |path: &str| match path.split_once('.') {
        None => fields.remove(path),
        Some((field, part)) => {
            let object = fields.get_mut(field)?.as_object_mut()?;
            let taken = object.remove(part);
            if taken.is_some() && object.is_empty() {
                fields.remove(field);
            }
            taken
        }
    };
    // It follows from the other parts.
    take("schedule.type");
    if cue["retry"]["backoff_seconds"].is_array() {
        take("retry.backoff_minutes");
    }
    let mut short = Map::new();
    for (name, path) in SHORT {
        let is_task = cue["transport"] == "worker" && cue["payload"]["task"].is_string();
        if (name != "task" || is_task)
            && let Some(value) = take(path)
        {
            short.insert(name.to_owned(), value);
        }
    }
    for (name, field, [_, on]) in SWITCHES {
        if take(field).is_some_and(|value| value == on) {
            short.insert(name.to_owned(), true.into());
        }
    }
    if let Some(schedule) = fields.get_mut("schedule")
        && schedule.as_object().is_some_and(|parts| parts.len() == 1)
        && schedule["cron"].is_string()
    {
        *schedule = schedule["cron"].take();
    }
    fields.extend(short);
    escaped(Value::Object(fields))
}

/// A cue with a name alone, as the server shows it: all else has its default.
fn plain_cue(name: &str) -> Option<Value> {
    let begin = Timestamp::UNIX_EPOCH;
    let once = ScheduleRule::Once(begin + SignedDuration::from_secs(1));
    let request = CueRequest {
        fields: CueFields { name: name.to_owned(), ..CueFields::default() },
        schedule: Some(Schedule::new(once, Zone::UTC, CatchUp::default())),
        ..CueRequest::default()
    };
    let cue = request.into_cue(String::new(), UserKey::default(), begin).ok()?;
    let mut view = serde_json::to_value(CueView::new(&cue, None)).ok()?;
    view["schedule"]["at"] = Value::Null;
    Some(view)
}

/// The entries of an object that another one has not.
pub fn differing(value: &Value, other: &Value) -> Map<String, Value> {
    let entries = value.as_object().into_iter().flatten();
    let entries = entries.filter(|(name, value)| other[*name] != **value);
    entries.map(|(name, value)| (name.clone(), value.clone())).collect()
}
