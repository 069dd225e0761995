//! `cued cue add`.

mod every;
mod flags;

use clap::{ArgGroup, Args};
use serde_json::{Value, json};

use crate::cli::client::client_args::ClientArgs;
use crate::cli::client::commands::cue::add::flags::{OnFailure, Retry, header};
use crate::cli::client::commands::cue::caret::with_caret;
use crate::cli::client::commands::cue::change::editor::{document, edit_until_accepted, is_empty, read};
use crate::cli::client::commands::cue::list::schedule;
use crate::cli::client::context::{Context, target};
use crate::cli::error::CliError;
use crate::cli::input::values;
use crate::cli::output::cells::text_of;
use crate::cli::output::format::Format;
use crate::cli::printable::printable;
use crate::client::credentials::Target;
use crate::client::request::{Answer, ApiRequest, segment};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("schedule").multiple(false))]
#[command(group = ArgGroup::new("target").multiple(false))]
pub struct Add {
    /// Name of the cue
    #[arg(long, value_name = "NAME", required_unless_present = "edit")]
    name: Option<String>,

    /// Text for people about the purpose of the cue
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Run by a cron expression: minute, hour, day of month, month, day of week
    #[arg(long, value_name = "CRON", group = "schedule")]
    cron: Option<String>,

    /// Run once at an instant; without an offset in the time zone of the schedule
    #[arg(long, value_name = "TIME", group = "schedule")]
    at: Option<String>,

    /// Run every so many minutes or hours, such as 5m, 2h or 1d
    #[arg(long, value_name = "TIME", group = "schedule", value_parser = every::cron)]
    every: Option<String>,

    /// Time zone of the schedule, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,

    /// Runs that follow after the server was down
    #[arg(long, value_name = "WHICH", value_parser = ["latest", "all", "none"])]
    catch_up: Option<String>,

    /// Call this URL
    #[arg(long, value_name = "URL", group = "target")]
    url: Option<String>,

    /// Base URL of the server, which other commands name with --url
    #[arg(long, value_name = "URL", help_heading = "Server and output")]
    server: Option<String>,

    /// Wait for a worker instead of calling a URL
    #[arg(long, group = "target")]
    worker: bool,

    /// Task of the worker: the key `task` of the payload
    #[arg(long, value_name = "TASK", requires = "worker")]
    task: Option<String>,

    /// Method of the call
    #[arg(long, value_name = "METHOD", conflicts_with = "worker")]
    method: Option<String>,

    /// Header field of the call, more than once for several; a value of @FILE is the content of a file
    #[arg(long, value_name = "NAME: VALUE", conflicts_with = "worker")]
    header: Vec<String>,

    /// Payload, a JSON or YAML object; @FILE and - read a file and standard input
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    payload: Option<String>,

    /// Attempts in all, and minutes before each further one: 4:1,5,15
    #[arg(long, value_name = "N:MINUTES")]
    retry: Option<Retry>,

    /// Actions after a failed run: email, pause, a URL to call, several of them with commas, or none
    #[arg(long, value_name = "ACTIONS")]
    on_failure: Option<OnFailure>,

    /// Minutes in which a worker must claim a run
    #[arg(long, value_name = "MINUTES", requires = "worker")]
    claim_within: Option<u32>,

    /// Edit the cue as YAML in an editor before it is added
    #[arg(long)]
    edit: bool,
}

impl Add {
    /// Its `--url` is that of the callback. The parser takes it for the global flag of the same name as well.
    pub fn target(&self, args: &ClientArgs) -> Result<Target, CliError> {
        target(&ClientArgs { url: self.server.clone(), ..args.clone() })
    }

    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let body = self.body()?;
        if !self.edit {
            return submit(context, &body);
        }
        let text = document(&with_defaults(body), NEW_FIELDS, NEW_NOTE);
        edit_until_accepted(&text, |edited| {
            if is_empty(edited) {
                return Err(CliError::Usage("the text is empty; no cue was added".to_owned()));
            }
            let mut body = read(edited)?;
            complete(&mut body);
            submit(context, &body)
        })
    }

    fn body(&self) -> Result<Value, CliError> {
        let mut body = json!({ "schedule": self.schedule()? });
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body[name] = value;
            }
        };
        set("name", self.name.as_deref().map(Value::from));
        set("description", self.description.as_deref().map(Value::from));
        set("payload", self.payload()?);
        set("retry", self.retry.as_ref().map(Retry::to_json));
        set("on_failure", self.on_failure.as_ref().map(OnFailure::to_json));
        set("claim_within_minutes", self.claim_within.map(Value::from));
        set("transport", self.worker.then(|| "worker".into()));
        set("callback", self.callback()?);
        Ok(body)
    }

    fn schedule(&self) -> Result<Value, CliError> {
        let mut schedule = match (self.cron.as_deref().or(self.every.as_deref()), &self.at) {
            (Some(cron), _) => json!({ "type": "recurring", "cron": cron }),
            (None, Some(at)) => json!({ "type": "once", "at": at }),
            (None, None) if self.edit => json!({}),
            (None, None) => {
                let reason = "the cue has no schedule: add --cron, --at or --every (or --edit)";
                return Err(CliError::Usage(reason.to_owned()));
            }
        };
        if let Some(zone) = &self.tz {
            schedule["timezone"] = zone.as_str().into();
        }
        if let Some(catch_up) = &self.catch_up {
            schedule["catch_up"] = catch_up.as_str().into();
        }
        Ok(schedule)
    }

    fn callback(&self) -> Result<Option<Value>, CliError> {
        if self.worker {
            return Ok(None);
        }
        let mut callback = json!({});
        match &self.url {
            Some(url) => callback["url"] = url.as_str().into(),
            None if self.edit => {}
            None => {
                let reason = "the cue has no target: add --url URL or --worker (or --edit)";
                return Err(CliError::Usage(reason.to_owned()));
            }
        }
        if let Some(method) = &self.method {
            callback["method"] = method.to_ascii_uppercase().into();
        }
        for text in &self.header {
            let (name, value) = header(text)?;
            callback["headers"][name] = value.into();
        }
        Ok(Some(callback))
    }

    fn payload(&self) -> Result<Option<Value>, CliError> {
        let mut payload =
            self.payload.as_deref().map(|text| values::structured("--payload", text)).transpose()?;
        if let Some(task) = &self.task {
            match payload.get_or_insert_with(|| json!({})) {
                Value::Object(payload) => payload.insert("task".to_owned(), task.as_str().into()),
                _ => return Err(CliError::Usage("--task needs a payload that is an object".to_owned())),
            };
        }
        Ok(payload)
    }
}

/// The fields of a new cue, in the order of the text.
const NEW_FIELDS: &str =
    "name description schedule transport callback payload retry on_failure claim_within_minutes";

const NEW_NOTE: &str = "\
# A new cue. It is added when you save and leave the editor; an empty text adds nothing.
# Delete the callback and set `transport: worker` for a cue of workers; set `at` in place of `cron` for one run.
";

/// The fields of a new cue that flags have not set, so that the editor shows them.
fn with_defaults(mut body: Value) -> Value {
    let is_worker = body["transport"] == "worker";
    let defaults = json!({
        "name": "", "description": null, "schedule": { "timezone": "UTC", "catch_up": "latest" },
        "transport": "webhook", "payload": {},
        "retry": { "max_attempts": 4, "backoff_minutes": [1, 5, 15] },
        "on_failure": { "email": true, "webhook": null, "pause": false },
    });
    add_missing(&mut body, defaults);
    if body["schedule"]["at"].is_null() {
        add_missing(&mut body, json!({ "schedule": { "cron": "0 9 * * *" } }));
    }
    if !is_worker {
        add_missing(&mut body, json!({ "callback": { "url": "", "method": "POST", "headers": {} } }));
    }
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

/// The type of the schedule, which the API requires.
fn complete(body: &mut Value) {
    if let Some(schedule) = body.get_mut("schedule").and_then(Value::as_object_mut) {
        let is_once = schedule.get("at").is_some_and(|at| !at.is_null());
        schedule.entry("type").or_insert_with(|| if is_once { "once" } else { "recurring" }.into());
    }
}

fn submit(context: &Context, body: &Value) -> Result<(), CliError> {
    let request = ApiRequest::post("/v1/cues").json(body).idempotent();
    let answer =
        context.send(&request).map_err(|error| with_caret(error, body["schedule"]["cron"].as_str()))?;
    let output = &context.output;
    let cue = answer.value()?;
    if let (Some(warning), false) = (cue["warning"].as_str(), output.format.is_json()) {
        output.note(&format!("warning: {}", printable(warning)))?;
    }
    let words = match output.format {
        Format::Table | Format::Wide => words(context, &answer)?,
        _ => String::new(),
    };
    output.object(&answer, "id", |cue| {
        vec![
            ("id", text_of(cue, "id").into()),
            ("name", text_of(cue, "name").into()),
            ("schedule", words.into()),
            ("next run", output.times.instant(&text_of(cue, "next_run")).into()),
        ]
    })
}

/// The schedule in words; the cue was added, so that a failure here is none of the command.
fn words(context: &Context, answer: &Answer) -> Result<String, CliError> {
    let cue = answer.value()?;
    let path = format!("/v1/cues/{}/upcoming", segment(&text_of(&cue, "id")));
    let request = ApiRequest::get(path).query("limit", "1").query("detail", "true");
    let described = context.look_up(&request).and_then(|answer| Ok(text_of(&answer.value()?, "description")));
    Ok(described.unwrap_or_else(|_| schedule(&context.output, &cue)))
}
