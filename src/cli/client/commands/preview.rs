//! `cued preview`: the runs of a schedule that is not stored.

use clap::Args;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde_json::json;

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::cue::caret::with_caret;
use crate::cli::client::commands::cue::occurrences;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Preview {
    /// Cron expression, in quotes: minute, hour, day of month, month, day of week
    #[arg(value_name = "CRON", required_unless_present = "at", conflicts_with = "at")]
    cron: Option<String>,

    /// The instant of a schedule with one run; without an offset in the time zone of the schedule
    #[arg(long, value_name = "TIME")]
    at: Option<String>,

    /// Runs that are shown
    #[arg(short = 'n', long = "count", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    count: u8,

    /// Show the runs from this date or time on, in the time zone of the schedule [default: now]
    #[arg(long, value_name = "DATE")]
    from: Option<String>,
}

impl ClientAction for Preview {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let zone = context.zone.as_deref().unwrap_or("UTC");
        let mut body = json!({"limit": self.count, "schedule": {"timezone": zone}});
        match (&self.cron, &self.at) {
            (Some(cron), _) => {
                body["schedule"]["type"] = "recurring".into();
                body["schedule"]["cron"] = cron.as_str().into();
            }
            (None, at) => {
                body["schedule"]["type"] = "once".into();
                body["schedule"]["at"] = at.as_deref().into();
            }
        }
        if let Some(from) = &self.from {
            let utc = TimeZone::UTC;
            let zone = context.zone.as_ref().map_or(&utc, |_| context.output.times.zone());
            body["from"] = instant(from, zone)?.to_string().into();
        }
        let answer = context
            .send(&ApiRequest::post("/v1/schedule/preview").json(&body))
            .map_err(|error| with_caret(error, self.cron.as_deref()))?;
        occurrences::print_answer(context, &answer, false)
    }
}

/// An instant with an offset, or a date or a local time of the zone.
fn instant(text: &str, zone: &TimeZone) -> Result<Timestamp, CliError> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let local = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from));
    let at = local.and_then(|local| zone.to_ambiguous_zoned(local).compatible());
    at.map(|at| at.timestamp()).map_err(|_| {
        CliError::Usage(format!("--from: {text:?} is no date; examples are 2030-03-30 and 2030-03-30T09:00"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_midnight_in_the_zone() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let read = |text: &str| instant(text, &berlin).map(|at| at.to_string()).ok();
        assert_eq!(read("2030-01-02").unwrap(), "2030-01-01T23:00:00Z");
        assert_eq!(read("2030-07-01T09:00").unwrap(), "2030-07-01T07:00:00Z");
        assert_eq!(read("2030-07-01T09:00:00Z").unwrap(), "2030-07-01T09:00:00Z");
        assert_eq!(read("tomorrow"), None);
    }
}
