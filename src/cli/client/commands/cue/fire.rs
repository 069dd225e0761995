//! `cued cue fire`.

use clap::Args;
use jiff::SignedDuration;
use serde_json::{Map, Value};

use crate::cli::client::arguments::cue_name;
use crate::cli::client::commands::run::wait::{RunWatch, deadline, print_end};
use crate::cli::client::context::Context;
use crate::cli::client::live_output::end_on_signals;
use crate::cli::error::CliError;
use crate::cli::input::values;
use crate::cli::output::cells::text_of;
use crate::cli::output::times::parse_duration;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Fire {
    /// Id or name of the cue
    #[arg(value_name = "CUE")]
    cue: String,

    /// Payload of this run, merged into that of the cue; @FILE and - read a file and standard input
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    payload: Option<String>,

    /// The payload of this run replaces that of the cue
    #[arg(long, requires = "payload")]
    replace: bool,

    /// The instant of the run; without an offset in the time zone of the cue
    #[arg(long, value_name = "TIME")]
    at: Option<String>,

    /// Wait for the end of the run; exits with 8 if it fails
    #[arg(long)]
    wait: bool,

    /// Give up the wait after this time, such as 90s, 5m, 2h [default: never]
    #[arg(long, value_name = "SPAN", value_parser = parse_duration, requires = "wait")]
    timeout: Option<SignedDuration>,
}

impl Fire {
    pub fn run(self, context: &Context) -> Result<(), CliError> {
        let body = self.body()?;
        let cue = cue_name::find(context, &self.cue)?;
        let request = ApiRequest::post(format!("{}/fire", cue.path())).json(body).idempotent();
        if self.wait && !context.is_curl() {
            return self.fire_and_wait(context, &cue.id, &request);
        }
        let answer = context.send(&request)?;
        let output = &context.output;
        output.object(&answer, "execution_id", |run| {
            vec![
                ("execution", text_of(run, "execution_id").into()),
                ("cue", cue.label().into()),
                ("scheduled for", output.times.instant(&text_of(run, "scheduled_for")).into()),
            ]
        })
    }

    /// Opens the stream before it fires, so that no end is missed.
    fn fire_and_wait(&self, context: &Context, cue_id: &str, request: &ApiRequest) -> Result<(), CliError> {
        end_on_signals()?;
        let watch = RunWatch::open(context, cue_id, deadline(context, self.timeout))?;
        let run = context.send(request)?.value()?;
        print_end(context, &watch.until_ended(&text_of(&run, "execution_id"))?)
    }

    fn body(&self) -> Result<Value, CliError> {
        let mut body = Map::new();
        if let Some(payload) = &self.payload {
            body.insert("payload_override".to_owned(), values::structured("--payload", payload)?);
            body.insert("merge_strategy".to_owned(), if self.replace { "replace" } else { "merge" }.into());
        }
        if let Some(at) = &self.at {
            body.insert("send_at".to_owned(), at.as_str().into());
        }
        Ok(Value::Object(body))
    }
}
