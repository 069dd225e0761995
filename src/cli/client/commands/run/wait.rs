//! `cued run wait`: the end of a run, by the events of the server.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

use crate::cli::client::command::{Call, Form, Lines, details};
use crate::cli::client::context::Context;
use crate::cli::client::live_output::end_on_signals;
use crate::cli::error::CliError;
use crate::cli::output::table::text_of;
use crate::client::event_stream::{EventStream, StreamItem, request};
use crate::client::request::{Answer, ApiRequest, ClientError, segment};

/// The events after which a run may have ended, or be gone.
const TYPES: &str = "execution.succeeded,execution.failed,execution.cancelled,cue.deleted";

/// The pause between two reads of a run, for want of a stream: an account has few of them.
const READ_INTERVAL: Duration = Duration::from_secs(5);

const LINES: Lines = &[
    ("id", Form::Text("id")),
    ("cue", Form::Text("cue_name")),
    ("status", Form::Status("status")),
    ("attempts", Form::Template("{attempts} of {max_attempts}")),
    ("http status", Form::Text("http_status")),
    ("error", Form::Text("error_message")),
    ("duration", Form::Millis("duration_ms")),
];

pub fn wait(call: &Call<'_>) -> Result<(), CliError> {
    let (context, id) = (call.context, call.place("run"));
    end_on_signals()?;
    let deadline = deadline(context, call.get("timeout"));
    let mut answer = context.send(&run_request(id))?;
    let run = answer.value()?;
    if !has_ended(&run) {
        answer = RunWatch::open(context, &text_of(&run, "cue_id"), deadline)?.until_ended(id)?;
    }
    print_end(context, &answer)
}

/// The end of a wait that begins now, on the clock of the client.
pub fn deadline(context: &Context, timeout: Option<&SignedDuration>) -> Option<Duration> {
    let now = context.client.clock().monotonic();
    timeout.map(|timeout| now.saturating_add(timeout.unsigned_abs()))
}

/// Prints a run that has ended.
/// Errors: [`CliError::WaitedFailed`] if it has failed.
pub fn print_end(context: &Context, answer: &Answer) -> Result<(), CliError> {
    let run = answer.value()?;
    context.output.object(answer, "id", |run| details(LINES, context, run))?;
    if run["status"] == "success" {
        return Ok(());
    }
    let reason = text_of(&run, "error_message");
    let reason = if reason.is_empty() { text_of(&run, "cause") } else { reason };
    let word = if reason == "cancelled" { "was cancelled".to_owned() } else { format!("failed: {reason}") };
    Err(CliError::WaitedFailed(format!("the run {} {word}", text_of(&run, "id"))))
}

/// Watches the runs of a cue. No end is missed from the moment at which it is opened.
pub struct RunWatch<'a> {
    context: &'a Context,
    /// `None` if the server has no stream for it.
    stream: Option<EventStream<'a>>,
    deadline: Option<Duration>,
}

impl<'a> RunWatch<'a> {
    /// Begins. A run that is created later is watched from its beginning.
    pub fn open(context: &'a Context, cue_id: &str, deadline: Option<Duration>) -> Result<Self, CliError> {
        let stream = match context.open_stream(request(Some(TYPES), Some(cue_id)), deadline) {
            Err(CliError::Client(ClientError::Refused(refused)))
                if matches!(refused.code.as_str(), "too_many_streams" | "not_found") =>
            {
                let seconds = READ_INTERVAL.as_secs();
                let note = format!("{}. The run is read every {seconds} s instead", refused.message);
                context.output.note(&note)?;
                None
            }
            stream => Some(stream?),
        };
        Ok(Self { context, stream, deadline })
    }

    /// Waits for the end of a run of the cue, and returns the run.
    /// Errors: if the run or its cue is deleted, or the time is over.
    pub fn until_ended(mut self, id: &str) -> Result<Answer, CliError> {
        let mut must_read = true;
        loop {
            if must_read {
                match self.context.look_up(&run_request(id)) {
                    Ok(answer) if has_ended(&answer.value()?) => return Ok(answer),
                    Ok(_) => must_read = false,
                    // The server may come back: the stream reports it.
                    Err(CliError::Client(error)) if error.is_transient() => {}
                    Err(error) => return Err(error),
                }
            }
            must_read |= self.next_may_have_ended(id)?;
        }
    }

    /// Waits for the next news. Returns whether the run may have ended.
    fn next_may_have_ended(&mut self, id: &str) -> Result<bool, CliError> {
        let time_is_over =
            || CliError::Failed(format!("the time is over, and the run {id} has not ended; it goes on"));
        let Some(stream) = &mut self.stream else {
            let now = self.context.client.clock().monotonic();
            let left = self.deadline.map_or(READ_INTERVAL, |deadline| deadline.saturating_sub(now));
            if left.is_zero() {
                return Err(time_is_over());
            }
            self.context.client.pause(left.min(READ_INTERVAL));
            return Ok(true);
        };
        match stream.next_item()?.ok_or_else(time_is_over)? {
            StreamItem::Hello { .. } => Ok(true),
            // A burst stands for events of any run, as a reset does.
            StreamItem::Event(event) => Ok(matches!(event.event.as_str(), "burst" | "cue.deleted" | "reset")
                || serde_json::from_str::<Value>(&event.data).is_ok_and(|data| data["execution_id"] == id)),
            StreamItem::Lost(reason) => {
                let note = format!("connection lost ({reason}); connecting again");
                self.context.output.note(&note).map(|()| false)
            }
        }
    }
}

fn run_request(id: &str) -> ApiRequest {
    ApiRequest::get(format!("/v1/executions/{}", segment(id)))
}

fn has_ended(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("success" | "failed"))
}
