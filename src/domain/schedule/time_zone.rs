//! Time zones by IANA name, with the two conversions that the daylight saving rule needs (contract §4).
//!
//! The rules come from the system's database, or from the one built into the program where the system has none.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::built_in_zones;
use crate::domain::time::saturating_sub;

/// A time zone: an IANA name, or `UTC`, and its rules. Cheap to clone and to look up again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    rules: TimeZone,
}

/// The name of a zone that neither database has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a time zone; use an IANA name such as Europe/Berlin, or UTC", excerpt(.0))]
pub struct UnknownZone(
    /// The name as the caller wrote it.
    pub String,
);

impl Zone {
    /// Coordinated universal time, the default of every schedule.
    pub const UTC: Self = Self { rules: TimeZone::UTC };

    /// The zone of `name`, compared without case. Offsets such as `+02:00` are not names.
    pub fn find(name: &str) -> Result<Self, UnknownZone> {
        // Some systems leave out names such as `US/Pacific`, which the built-in rules have.
        Self::find_with(|name| jiff::tz::db().get(name).ok(), name).or_else(|_| Self::find_built_in(name))
    }

    /// The zone of `name` with the rules that are built into the program.
    pub fn find_built_in(name: &str) -> Result<Self, UnknownZone> {
        Self::find_with(built_in_zones::find, name)
    }

    fn find_with(find: impl Fn(&str) -> Option<TimeZone>, name: &str) -> Result<Self, UnknownZone> {
        let rules = if is_iana(name) { find(name) } else { None };
        // `Etc/Unknown` is found, but has no name.
        let rules = rules.filter(|rules| rules.iana_name().is_some());
        rules.map(|rules| Self { rules }).ok_or_else(|| UnknownZone(name.to_owned()))
    }

    /// The IANA name in its official spelling: `Europe/Berlin`, `UTC`.
    pub fn name(&self) -> &str {
        self.rules.iana_name().unwrap_or("UTC")
    }

    pub fn offset(&self, at: Timestamp) -> Offset {
        self.rules.to_offset(at)
    }

    /// The local time at an instant.
    pub fn reading(&self, at: Timestamp) -> DateTime {
        self.rules.to_datetime(at)
    }

    /// The latest local time shown at or before an instant.
    ///
    /// During the second pass through a repeated hour it is ahead of the local time itself.
    pub fn latest_local_time(&self, at: Timestamp) -> DateTime {
        // No two offsets differ by more than 52 hours, so that the local time has passed every reading before the
        // horizon.
        const WIDEST: SignedDuration = SignedDuration::from_hours(52);
        let horizon = saturating_sub(at, WIDEST);
        self.changes_after(horizon)
            .take_while(|change| *change <= at)
            .map(|change| self.reading(last_nanosecond(change)))
            .fold(self.reading(at), DateTime::max)
    }

    /// The first instant at which the local clock shows `reading` or has passed it: the first pass of a repeated
    /// time, the end of the gap for a skipped one. `None` beyond the calendar.
    pub fn earliest_instant(&self, reading: DateTime) -> Option<Timestamp> {
        match self.rules.to_ambiguous_timestamp(reading).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(reading).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(reading).ok(),
            // With the offset after the transition, a skipped reading is an instant just before the transition.
            AmbiguousOffset::Gap { after, .. } => {
                self.changes_after(after.to_timestamp(reading).ok()?).next()
            }
        }
    }

    /// The two offsets, in order, of a local time that the clock shows twice.
    pub fn repetition(&self, reading: DateTime) -> Option<(Offset, Offset)> {
        match self.rules.to_ambiguous_timestamp(reading).offset() {
            AmbiguousOffset::Fold { before, after } => Some((before, after)),
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => None,
        }
    }

    /// Returns whether a clock change skips the local time.
    pub fn skips(&self, reading: DateTime) -> bool {
        matches!(self.rules.to_ambiguous_timestamp(reading).offset(), AmbiguousOffset::Gap { .. })
    }

    /// The clock changes (jiff: transitions) strictly after `at`, in order.
    pub fn changes_after(&self, at: Timestamp) -> impl Iterator<Item = Timestamp> {
        // `preceding` is not usable: it skips the transition with which a zone adopts a yearly rule in the middle of
        // the year (Ciudad Juárez, November 2022).
        self.rules.following(at).map(|change| change.timestamp())
    }
}

/// As much of a user's text as belongs in an error message.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

/// One nanosecond earlier: the resolution of jiff.
pub(crate) fn last_nanosecond(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at)
}

/// Returns whether `name` may be a zone. False for other files and folders in the system's zoneinfo directory.
fn is_iana(name: &str) -> bool {
    const NOT_ZONES: [&str; 3] = ["localtime", "posixrules", "Factory"];
    const OTHER_FOLDERS: [&str; 2] = ["posix/", "right/"];
    let starts_with =
        |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    !NOT_ZONES.iter().any(|other| other.eq_ignore_ascii_case(name))
        && !OTHER_FOLDERS.iter().any(|prefix| starts_with(prefix))
}
