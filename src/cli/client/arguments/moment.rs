//! An instant of the command line: `--since 1h`, `--until 2026-11-22`.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp};

use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::times::parse_duration;
use crate::client::error::ClientError;
use crate::client::request::ApiRequest;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    At(Timestamp),
    /// In the time zone of the output.
    Local(DateTime),
    /// Before the present time of the server.
    Ago(SignedDuration),
}

impl Moment {
    /// Parses a duration, which counts back from now, an instant of RFC 3339, a date, or a date with a time.
    /// Errors: if the text is none of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Ok(ago) = parse_duration(text) {
            return Ok(Self::Ago(ago));
        }
        if let Ok(at) = text.parse() {
            return Ok(Self::At(at));
        }
        text.parse().map(Self::Local).map_err(|_| {
            "expected a duration before now such as 90s, 10m, 2h or 1d, a date, or an instant such as 2026-11-22T18:00:00Z"
                .to_owned()
        })
    }

    /// The instant in UTC.
    /// Errors: if the server does not tell its time, or the instant is outside of the calendar.
    pub fn resolve(self, context: &Context) -> Result<Timestamp, CliError> {
        let out_of_range = |_| CliError::Usage("the instant is too far away".to_owned());
        match self {
            Self::At(at) => Ok(at),
            Self::Local(local) => {
                let zone = context.output.times.zone().clone();
                Ok(local.to_zoned(zone).map_err(out_of_range)?.timestamp())
            }
            Self::Ago(ago) => server_now(context)?.checked_sub(ago).map_err(out_of_range),
        }
    }
}

/// As [`Moment::resolve`], for a flag that may be absent, and as text.
pub fn resolve_maybe(context: &Context, moment: Option<Moment>) -> Result<Option<Timestamp>, CliError> {
    moment.map(|moment| moment.resolve(context)).transpose()
}

/// The present time by the clock of the server, which dates everything that it stores; the clock here may differ.
fn server_now(context: &Context) -> Result<Timestamp, CliError> {
    let health = context.look_up(&ApiRequest::get("/health").anonymous())?.value()?;
    let timestamp = format!("{}Z", text_of(&health, "timestamp"));
    timestamp
        .parse()
        .map_err(|_| ClientError::NotCued { url: context.target.url.clone(), status: 200 }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_duration_a_date_or_an_instant() {
        assert_eq!(Moment::parse("1h30m"), Ok(Moment::Ago(SignedDuration::from_mins(90))));
        let at = "2026-11-22T17:00:00Z".parse().unwrap();
        assert_eq!(Moment::parse("2026-11-22T18:00:00+01:00"), Ok(Moment::At(at)));
        let local = |text: &str| Ok(Moment::Local(text.parse().unwrap()));
        assert_eq!(Moment::parse("2026-11-22"), local("2026-11-22T00:00"));
        assert_eq!(Moment::parse("2026-11-22 18:00"), local("2026-11-22T18:00"));
        for bad in ["", "yesterday", "1", "18:00", "-1h", "2026-13-01"] {
            assert!(Moment::parse(bad).is_err(), "{bad}");
        }
    }
}
