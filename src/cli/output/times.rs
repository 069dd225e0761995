//! Instants as people read them: in their time zone, or the one of `--tz`.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::cli::error::CliError;

/// The time zone of the output.
#[derive(Debug, Clone)]
pub struct Times {
    zone: TimeZone,
}

impl Times {
    pub fn new(is_utc: bool, zone: Option<&str>) -> Result<Self, CliError> {
        let zone = match zone {
            _ if is_utc => TimeZone::UTC,
            None => TimeZone::system(),
            Some(name) => TimeZone::get(name).map_err(|_| {
                CliError::Usage(format!("--tz: there is no time zone {name:?}; an example is Europe/Berlin"))
            })?,
        };
        Ok(Self { zone })
    }

    /// An instant of the API: `2026-11-22 18:00:00+01:00`. Text that is no instant stays.
    pub fn instant(&self, rfc3339: &str) -> String {
        let Ok(at) = rfc3339.parse::<Timestamp>() else { return rfc3339.to_owned() };
        let format =
            if at.subsec_millisecond() == 0 { "%Y-%m-%d %H:%M:%S%:z" } else { "%Y-%m-%d %H:%M:%S%.3f%:z" };
        at.to_zoned(self.zone.clone()).strftime(format).to_string()
    }

    /// An instant of the API for a narrow column, without year and seconds: `11-22 18:00`. Text that is no instant stays.
    pub fn short(&self, rfc3339: &str) -> String {
        let Ok(at) = rfc3339.parse::<Timestamp>() else { return rfc3339.to_owned() };
        at.to_zoned(self.zone.clone()).strftime("%m-%d %H:%M").to_string()
    }

    /// The time of day with milliseconds, for a line of a log.
    pub fn time_of_day(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).strftime("%H:%M:%S%.3f").to_string()
    }

    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

/// A duration in milliseconds as text: `132 ms`, `30.0 s`, `2 min`, `3 h`, `4 d`.
pub fn duration(millis: i64) -> String {
    let sign = if millis < 0 { "-" } else { "" };
    let of = |unit: i64| {
        let unit = unit.unsigned_abs();
        (millis.unsigned_abs() + unit / 2) / unit
    };
    let text = match millis.unsigned_abs() {
        0..1_000 => format!("{} ms", millis.unsigned_abs()),
        1_000..100_000 => format!("{}.{} s", of(100) / 10, of(100) % 10),
        100_000..7_200_000 => format!("{} min", of(60_000)),
        7_200_000..172_800_000 => format!("{} h", of(3_600_000)),
        _ => format!("{} d", of(86_400_000)),
    };
    format!("{sign}{text}")
}

/// Parses a duration such as `90s`, `10m`, `2h`, `1d` or `1h30m`.
pub fn parse_duration(text: &str) -> Result<SignedDuration, String> {
    let expected = || format!("{text:?} is no duration; examples are 90s, 10m, 2h and 1d");
    let (mut all, mut digits) = (SignedDuration::ZERO, String::new());
    for char in text.chars() {
        if char.is_ascii_digit() {
            digits.push(char);
            continue;
        }
        let number: i64 = digits.parse().map_err(|_| expected())?;
        let seconds = match char {
            's' => Some(number),
            'm' => number.checked_mul(60),
            'h' => number.checked_mul(3_600),
            'd' => number.checked_mul(86_400),
            _ => None,
        };
        let part = SignedDuration::from_secs(seconds.ok_or_else(expected)?);
        all = all.checked_add(part).ok_or_else(expected)?;
        digits.clear();
    }
    if !digits.is_empty() || all <= SignedDuration::ZERO { Err(expected()) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_shown_in_the_zone() {
        let berlin = Times::new(false, Some("Europe/Berlin")).unwrap();
        assert_eq!(berlin.instant("2026-11-22T17:00:00Z"), "2026-11-22 18:00:00+01:00");
        assert_eq!(
            Times::new(true, None).unwrap().instant("2026-11-22T17:00:00.25Z"),
            "2026-11-22 17:00:00.250+00:00"
        );
        assert_eq!(berlin.short("2026-11-22T17:00:00.25Z"), "11-22 18:00");
        assert_eq!(berlin.short(""), "");
        assert!(Times::new(false, Some("Mars/Olympus")).is_err());
    }

    #[test]
    fn durations_are_rounded_to_their_unit() {
        let shown = [0, 999, 1_000, 30_049, 119_000, 7_200_000, 172_800_000, -50].map(duration);
        assert_eq!(shown, ["0 ms", "999 ms", "1.0 s", "30.0 s", "2 min", "2 h", "2 d", "-50 ms"]);
    }

    #[test]
    fn durations_are_read_in_their_units() {
        let seconds = |text| parse_duration(text).map(|it| it.as_secs());
        assert_eq!(seconds("1h30m"), Ok(5_400));
        assert_eq!(seconds("90s"), Ok(90));
        for bad in ["", "10", "0s", "-5m", "5w", "m", "99999999999999999999d"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
