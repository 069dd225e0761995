//! The specification as a table: each of its rows and sentences, and the tests that hold it.

mod endpoints_of_accounts;
mod endpoints_of_work;
mod gaps;
mod purpose;
mod resources;
mod rules;
mod states;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A place in the specification, what it says in a few words, and the tests that hold it.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// The chapters, by their numbers.
const TABLE: [(u8, &[Row]); 10] = [
    (1, purpose::PURPOSE),
    (2, resources::RESOURCES),
    (3, states::STATES),
    (4, endpoints_of_work::ENDPOINTS),
    (4, endpoints_of_accounts::ENDPOINTS),
    (5, rules::AUTHENTICATION),
    (6, rules::EVENTS),
    (7, rules::ERRORS),
    (8, rules::LIMITS),
    (9, rules::VERSIONING),
];

fn rows() -> impl Iterator<Item = &'static Row> {
    TABLE.into_iter().flat_map(|(_, rows)| rows)
}

/// Adds the names of the tests in the sources below a folder.
fn gather(folder: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            tests.extend(tests_of(&fs::read_to_string(path).unwrap()));
        }
    }
}

/// The names of the functions that stand under `#[test]` or `#[tokio::test]`, other attributes between or not.
fn tests_of(text: &str) -> Vec<String> {
    let (mut found, mut marked) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if let Some(rest) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") {
            if marked {
                found.extend(rest.split('(').next().map(str::to_owned));
            }
            marked = false;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            marked = false;
        }
    }
    found
}

#[test]
fn every_row_names_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = BTreeSet::new();
    for folder in ["src", "tests"] {
        gather(&root.join(folder), &mut tests);
    }
    let mut faults = Vec::new();
    for (place, says, held_by) in rows() {
        if says.is_empty() || held_by.is_empty() {
            faults.push(format!("{place}: {says}: no test"));
        }
        let gone = held_by.iter().filter(|name| !tests.contains(**name));
        faults.extend(gone.map(|name| format!("{place}: there is no test {name}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_row_is_unique_and_names_each_test_once() {
    let mut places = BTreeSet::new();
    for (place, _, held_by) in rows() {
        assert!(places.insert(place), "{place} stands twice");
        let names: BTreeSet<_> = held_by.iter().collect();
        assert_eq!(names.len(), held_by.len(), "{place}");
    }
}

#[test]
fn every_section_has_a_row_and_every_row_a_section() {
    for (chapter, rows) in TABLE {
        let begin = format!("§{chapter} ");
        assert!(!rows.is_empty());
        for (place, ..) in rows {
            assert!(place.starts_with(&begin), "{place} in chapter {chapter}");
        }
    }
}

#[test]
fn only_functions_with_a_test_attribute_count_as_tests() {
    let text = "fn a() {}\n#[test]\nfn b() {}\n#[tokio::test]\n#[ignore]\nasync fn c() {}\n#[test]\nstruct D;\nfn e() {}";
    assert_eq!(tests_of(text), ["b", "c"]);
}
