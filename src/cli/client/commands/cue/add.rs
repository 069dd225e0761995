//! `cued cue add`. With `--or-update` it changes the cue that has the slug or the name already.

use clap::Arg;
use serde_json::{Value, json};

use crate::api::cue_names::field_of;
use crate::cli::client::arguments::{
    CUES, FoundCue, ambiguous, choices, items, label_of, named, with_slug,
};
use crate::cli::client::command::{Call, Part, own, switch};
use crate::cli::client::commands::cue::change::{
    changed, document, edit_until_accepted, editable, is_empty, merged, print_added, read, zone_of,
};
use crate::cli::client::commands::cue::flags::{body, flags, is_for_workers};
use crate::cli::client::commands::schedule::{send_fields, understand_fields};
use crate::cli::client::context::Context;
use crate::cli::error::{Result, refused, usage};
use crate::cli::output::table::text_of;
use crate::cli::output::{print_note, short_id};
use crate::client::request::ApiRequest;
use crate::domain::cue_fields::{PLAIN_FIELDS, Transport};

const TASK: &str = "Task that workers claim, stored as `task` in the payload; implies --worker";

const OR_UPDATE: &str = "or-update";

pub fn arguments() -> impl Iterator<Item = (Arg, Part)> {
    let fitting = |arg: Arg| match arg.get_id().as_str() {
        "name" => arg.required_unless_present("edit"),
        "task" => arg.conflicts_with("url").help(TASK),
        id => match only_transport(id) {
            Some(Transport::Worker) => arg.conflicts_with("url"),
            Some(Transport::Webhook) => arg.conflicts_with_all(["worker", "task"]),
            None => arg,
        },
    };
    let edit = switch("edit", "Edit the cue as YAML in an editor before it is added");
    let or_update = switch(
        OR_UPDATE,
        "Change the cue with this slug, or without --slug the one with this name, if there is one",
    )
    .conflicts_with("edit")
    .requires("name");
    let flags = flags().map(move |(arg, part)| (fitting(arg), part));
    flags.chain([own(edit), own(or_update)])
}

/// The transport that alone has the field of a flag. The URL itself is an alternative to a worker.
fn only_transport(flag: &str) -> Option<Transport> {
    let is_of_call = field_of(flag).is_some_and(|field| field.starts_with("callback."));
    if is_of_call && flag != "url" {
        return Some(Transport::Webhook);
    }
    let field = PLAIN_FIELDS.iter().find(|field| field.flag.0 == flag)?;
    field.only.map(|(transport, _)| transport)
}

pub fn add(call: &Call<'_>) -> Result {
    let is_edited = call.is_set("edit");
    if call.is_given("flow-key")
        && !["parallelism", "per-minute"].iter().any(|limit| call.is_given(limit))
    {
        return Err(usage("--flow-key needs a limit: add --parallelism, --per-minute, or both"));
    }
    let mut body = body(call)?;
    if is_for_workers(call) {
        body["transport"] = "worker".into();
    }
    for (flags, reason) in [
        (
            ["cron", "at", "every"],
            "the cue has no schedule: add --cron, --at or --every (or --edit)",
        ),
        (
            ["url", "worker", "task"],
            "the cue has no target: add --url URL or --task TASK (or --edit)",
        ),
    ] {
        if !is_edited && !flags.iter().any(|flag| call.is_given(flag)) {
            return Err(usage(reason));
        }
    }
    if call.is_set(OR_UPDATE) && update(call)? {
        return Ok(());
    }
    if !is_edited {
        complete(call.context, &mut body)?;
        return submit(call.context, &body, if call.is_set(OR_UPDATE) { "created" } else { "" });
    }
    let text = document(&with_defaults(body, call.context.own_zone().name()), NEW_NOTE);
    edit_until_accepted(call.context, &text, |edited| {
        if is_empty(edited) {
            return Err(usage("the text is empty; no cue was added"));
        }
        let mut body = read(edited)?;
        complete(call.context, &mut body)?;
        submit(call.context, &body, "")
    })
}

/// Changes the cue of the slug, or else the only one of the name, to what the flags say. Returns false if there is none.
fn update(call: &Call<'_>) -> Result<bool> {
    let context = call.context;
    let name = call.text("name").unwrap_or_default();
    let cues = match call.text("slug") {
        Some(slug) => with_slug(context, slug)?,
        None => named(context, name)?,
    };
    let found = match cues.as_slice() {
        [] => return Ok(false),
        [cue] => FoundCue::of(cue),
        several => return Err(ambiguous(context, "the name", name, several)),
    };
    let answer = context.fetch(&ApiRequest::get(found.path()).query("execution_limit", "1"))?;
    let cue = answer.value()?;
    let patch = patch(call, &found, &cue)?;
    if patch.as_object().is_none_or(|fields| fields.is_empty()) {
        return print_added(context, &answer, "unchanged").map(|()| true);
    }
    let answer = send_fields(context, ApiRequest::patch(found.path()), &patch)?;
    let names = names(&changed(&editable(&cue), &editable(&answer.value()?)));
    let result =
        if names.is_empty() { "unchanged".to_owned() } else { format!("updated: {names}") };
    print_added(context, &answer, &result).map(|()| true)
}

/// The fields that the flags set to another value than the cue has.
fn patch(call: &Call<'_>, found: &FoundCue, cue: &Value) -> Result<Value> {
    let wants_worker = is_for_workers(call);
    if wants_worker != (cue["transport"] == "worker") {
        let is = if wants_worker { "calls a URL" } else { "is for workers" };
        return Err(refused(format!(
            "{} {is}, which cannot be changed: use another name, or delete that cue first",
            label_of(cue)
        )));
    }
    let task = call.text("task").filter(|_| !call.is_given("payload"));
    let mut fields = merged(body(call)?, cue, task);
    if let Some(schedule) = fields.get_mut("schedule") {
        drop(understand_fields(call.context, schedule, || zone_of(call.context, found))?);
    }
    Ok(changed(cue, &fields))
}

/// `schedule.cron, payload`
fn names(changes: &Value) -> String {
    let mut names = Vec::new();
    for (field, change) in changes.as_object().into_iter().flatten() {
        match change.as_object().filter(|_| field != "payload") {
            Some(parts) => names.extend(parts.keys().map(|part| format!("{field}.{part}"))),
            None => names.push(field.clone()),
        }
    }
    names.join(", ")
}

const NEW_NOTE: &str = "\
# A new cue. It is added when you save and leave the editor; an empty text adds nothing.
# Delete the callback and set `transport: worker` for a cue of workers.
# Set `at` in place of `cron` for one run.
";

/// The fields of a new cue that flags have not set, so that the editor shows them.
fn with_defaults(mut body: Value, zone: &str) -> Value {
    let mut defaults = json!({
        "name": "", "description": null, "schedule": { "timezone": zone, "catch_up": "latest" },
        "transport": "webhook", "payload": {},
        "retry": { "max_attempts": 4, "backoff_minutes": [1, 5, 15] },
        "on_failure": { "email": true, "webhook": null, "pause": false },
    });
    if body["schedule"]["at"].is_null() && body["schedule"]["every"].is_null() {
        defaults["schedule"]["cron"] = "0 9 * * *".into();
    }
    if body["transport"] != "worker" {
        defaults["callback"] = json!({ "url": "", "method": "POST", "headers": {} });
    }
    add_missing(&mut body, defaults);
    if let Some(schedule) = body["schedule"].as_object_mut() {
        // It follows from `cron` or `at`.
        schedule.remove("type");
    }
    body
}

fn add_missing(value: &mut Value, defaults: Value) {
    if let (Value::Object(own), Value::Object(defaults)) = (value, defaults) {
        for (name, default) in defaults {
            match own.get_mut(&name) {
                Some(own) => add_missing(own, default),
                None => drop(own.insert(name, default)),
            }
        }
    }
}

/// The schedule as the API takes it: understood, in the zone of the person, and with its type.
fn complete(context: &Context, body: &mut Value) -> Result {
    let Some(schedule) = body.get_mut("schedule") else { return Ok(()) };
    let zone = context.own_zone();
    if let Some(fields) = schedule.as_object_mut() {
        fields.entry("timezone").or_insert_with(|| zone.name().into());
    }
    drop(understand_fields(context, schedule, || Ok(zone.name().to_owned()))?);
    if let Some(schedule) = schedule.as_object_mut() {
        let is_once = schedule.get("at").is_some_and(|at| !at.is_null());
        schedule.entry("type").or_insert_with(|| if is_once { "once" } else { "recurring" }.into());
    }
    Ok(())
}

fn submit(context: &Context, body: &Value, result: &str) -> Result {
    let answer = send_fields(context, ApiRequest::post("/v1/cues").idempotent(), body)?;
    if !context.output.format.is_json() {
        let cue = answer.value()?;
        if let Some(warning) = cue["warning"].as_str() {
            print_note(&format!("warning: {warning}"))?;
        }
        if cue["transport"] == "worker" && cue["payload"]["task"].as_str().is_none_or(str::is_empty)
        {
            let id = text_of(&cue, "id");
            let way = format!("cued cue set {} --task TASK", short_id(&id));
            print_note(&format!("warning: `cued work` takes runs by their task; set one: {way}"))?;
        }
        warn_of_same_name(context, &cue)?;
    }
    print_added(context, &answer, result)?;
    if context.output.format.is_for_programs() {
        return Ok(());
    }
    note_of_silence(context, &answer.value()?)
}

/// Says that a failure of the cue reaches nobody: it is mailed, by a server without mail, and there is no channel. A
/// failure of the lookup does not fail the command.
fn note_of_silence(context: &Context, added: &Value) -> Result {
    let is_only_mailed =
        added["on_failure"]["email"] == true && added["on_failure"]["webhook"].is_null();
    if !is_only_mailed || !context.sends_no_mail() {
        return Ok(());
    }
    let channels = items(context, &ApiRequest::get("/v1/channels"), "channels", u64::MAX);
    if channels.is_ok_and(|channels| channels.iter().all(|channel| channel["type"] == "email")) {
        print_note("No one is notified if it fails; add a channel: `cued channel add`")?;
    }
    Ok(())
}

/// A failure of the lookup does not fail the command: the cue exists already.
fn warn_of_same_name(context: &Context, added: &Value) -> Result {
    let name = text_of(added, "name");
    let mut others = named(context, &name).unwrap_or_default();
    others.retain(|cue| cue["id"] != added["id"]);
    let Some(first) = others.last().map(|cue| text_of(cue, "id")) else { return Ok(()) };
    let is_single = others.len() == 1;
    let has = if is_single { "another cue has" } else { "other cues have" };
    let choices = choices(context, CUES, &others);
    print_note(&format!("warning: {has} the name {name:?}:{choices}"))?;
    if !is_single {
        return Ok(());
    }
    let way = format!(
        "To change that one instead: cued cue set {}, or cued cue add --or-update",
        short_id(&first)
    );
    print_note(&way)
}
