//! Time zones by their IANA names, and the two questions that daylight saving asks of one (contract §4).
//!
//! The rules are the system's where it has them, else those built into the program.

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use crate::domain::time::saturating_sub;

/// A time zone: its IANA name, or `UTC`, and its rules. Cheap to clone and to find again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    rules: TimeZone,
}

/// No zone is known by this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownZone(
    /// The name as it was given.
    pub String,
);

impl Zone {
    /// Coordinated universal time, the default of every schedule.
    pub const UTC: Self = Self { rules: TimeZone::UTC };

    /// The zone of this name, in any case of letters; offsets such as `+02:00` are not names.
    ///
    /// # Errors
    /// No such zone, neither on this system nor built in.
    pub fn find(name: &str) -> Result<Self, UnknownZone> {
        // Some systems leave out names such as `US/Pacific`, which the built-in rules have.
        Self::find_in(jiff::tz::db(), name).or_else(|_| Self::find_in(&TimeZoneDatabase::bundled(), name))
    }

    /// The zone of this name by the rules of one database.
    ///
    /// # Errors
    /// No such zone in it.
    pub fn find_in(database: &TimeZoneDatabase, name: &str) -> Result<Self, UnknownZone> {
        let unknown = || UnknownZone(name.to_owned());
        if !is_iana(name) {
            return Err(unknown());
        }
        let rules = database.get(name).map_err(|_| unknown())?;
        // `Etc/Unknown` is found, but has no name.
        if rules.iana_name().is_none() { Err(unknown()) } else { Ok(Self { rules }) }
    }

    /// The IANA name in its own spelling: `Europe/Berlin`, `UTC`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.rules.iana_name().unwrap_or("UTC")
    }

    /// The distance of the local clock from UTC at an instant.
    #[must_use]
    pub fn offset(&self, at: Timestamp) -> Offset {
        self.rules.to_offset(at)
    }

    /// What the local clock reads at an instant.
    #[must_use]
    pub fn reading(&self, at: Timestamp) -> DateTime {
        self.rules.to_datetime(at)
    }

    /// The furthest reading that the local clock has shown up to and at an instant.
    ///
    /// It is ahead of the reading itself while the clock goes through an hour for the second time.
    #[must_use]
    pub fn latest_local_time(&self, at: Timestamp) -> DateTime {
        // Two readings differ by less than the widest offsets do: an older change is overtaken by now.
        const WIDEST: SignedDuration = SignedDuration::from_hours(52);
        let horizon = saturating_sub(at, WIDEST);
        self.changes_after(horizon)
            .take_while(|change| *change <= at)
            .map(|change| self.reading(last_nanosecond(change)))
            .fold(self.reading(at), DateTime::max)
    }

    /// The first instant at which the local clock reads this or has passed it: of a repeated time the first,
    /// of a skipped one the end of the gap. `None` beyond the calendar.
    #[must_use]
    pub fn earliest_instant(&self, reading: DateTime) -> Option<Timestamp> {
        match self.rules.to_ambiguous_timestamp(reading).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(reading).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(reading).ok(),
            // By the new offset the skipped reading lies just before the change that skipped it.
            AmbiguousOffset::Gap { after, .. } => {
                self.changes_after(after.to_timestamp(reading).ok()?).next()
            }
        }
    }

    /// The instants at which the clock is changed, strictly after this one, in their order.
    pub fn changes_after(&self, at: Timestamp) -> impl Iterator<Item = Timestamp> {
        // Never jiff's `preceding`: it passes over a change with which a zone comes under a yearly rule
        // in the middle of the year (Ciudad Juárez in November 2022).
        self.rules.following(at).map(|change| change.timestamp())
    }
}

impl fmt::Display for UnknownZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: String = self.0.chars().take(60).collect();
        write!(f, "`{name}` is not a time zone; use an IANA name such as Europe/Berlin, or UTC")
    }
}

impl std::error::Error for UnknownZone {}

/// The instant just before, at the resolution of jiff.
pub(crate) fn last_nanosecond(at: Timestamp) -> Timestamp {
    at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at)
}

/// Whether this can be the name of a zone, and is no other file in a system's folder of zones.
fn is_iana(name: &str) -> bool {
    const NOT_ZONES: [&str; 3] = ["localtime", "posixrules", "Factory"];
    const OTHER_FOLDERS: [&str; 2] = ["posix/", "right/"];
    let starts_with =
        |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    !NOT_ZONES.iter().any(|other| other.eq_ignore_ascii_case(name))
        && !OTHER_FOLDERS.iter().any(|prefix| starts_with(prefix))
}
