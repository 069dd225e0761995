//! The contract as a table: its sections, the promises of each, and the tests that hold them. The contract itself,
//! `contract.md`, is the project's reference; source and tests cite it as `contract §n` or `contract §n.m`.

mod accounts;
mod bounds;
mod clients;
mod cue_endpoints;
mod cues;
mod delivery;
mod executions;
mod figures_and_events;
mod http;
mod pages;
mod plans_billing_operation;
mod program;
mod test_clock;
mod workers;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cued::http::router::{Access, Route};
use cued::http::routes::ROUTES;

const CONTRACT: &str = include_str!("contract.md");

/// A section of the contract, one of its promises in a few words, and the tests that hold it.
type Row = (&'static str, &'static str, &'static [&'static str]);

/// The chapters, each with its number.
const TABLE: [(&str, &[Row]); 14] = [
    ("1", program::ROWS),
    ("1", clients::ROWS),
    ("2", http::ROWS),
    ("3", accounts::ROWS),
    ("4", cues::ROWS),
    ("4", cue_endpoints::ROWS),
    ("5", executions::ROWS),
    ("6", delivery::ROWS),
    ("7", workers::ROWS),
    ("8", plans_billing_operation::ROWS),
    ("8", figures_and_events::ROWS),
    ("9", pages::ROWS),
    ("10", test_clock::ROWS),
    ("11", bounds::ROWS),
];

/// Files and folders that may cite the contract. Not all of them exist in every checkout.
const CITING: [&str; 7] = ["src", "tests", "examples", "README.md", "schema.sql", "Cargo.toml", ".github"];

fn rows() -> impl Iterator<Item = &'static Row> {
    TABLE.into_iter().flat_map(|(_, rows)| rows)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The numbers of all headings: `4` of `## 4. Cues`, `4.3` of `### 4.3 Schedule`.
fn headings() -> BTreeSet<&'static str> {
    let titles = CONTRACT.lines().filter_map(|line| line.strip_prefix("### ").or(line.strip_prefix("## ")));
    titles.map(|title| title.split(' ').next().unwrap().trim_end_matches('.')).collect()
}

/// The headings that need a row: all but chapters with sections of their own.
fn sections() -> BTreeSet<&'static str> {
    let headings = headings();
    let is_divided = |number: &str| headings.iter().any(|other| other.starts_with(&format!("{number}.")));
    headings.iter().copied().filter(|number| !is_divided(number)).collect()
}

/// The numbers of the sections that a text cites: each `§` with a number, except that of an RFC.
fn cited(text: &str) -> Vec<&str> {
    let of_an_rfc = |before: &str| {
        let mut words = before.split_whitespace().rev();
        words.next().is_some_and(|word| word.parse::<u32>().is_ok()) && words.next() == Some("RFC")
    };
    let parts: Vec<&str> = text.split('§').collect();
    let signs = parts.windows(2).filter(|pair| !of_an_rfc(pair[0])).map(|pair| pair[1]);
    let numbers = signs.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        rest[..end].trim_end_matches('.')
    });
    numbers.filter(|number| !number.is_empty()).collect()
}

/// The text files below a path.
fn files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            files(&entry.unwrap().path(), found);
        }
    } else if path.is_file() {
        found.push(path.to_owned());
    }
}

fn below(places: &[&str]) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for place in places {
        files(&root().join(place), &mut found);
    }
    found.into_iter().filter_map(|path| fs::read_to_string(&path).ok().map(|text| (path, text))).collect()
}

/// The names of the functions with a `#[test]` or `#[tokio::test]`, with or without other attributes in between.
fn tests_of(text: &str) -> Vec<String> {
    let (mut found, mut is_test) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") {
            if is_test {
                found.extend(rest.split('(').next().map(str::to_owned));
            }
            is_test = false;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            is_test = false;
        }
    }
    found
}

#[test]
fn every_row_names_existing_tests() {
    let sources = below(&["src", "tests"]);
    let tests: BTreeSet<String> = sources.iter().flat_map(|(_, text)| tests_of(text)).collect();
    let mut faults = Vec::new();
    for (section, promise, held_by) in rows() {
        if promise.is_empty() || held_by.is_empty() {
            faults.push(format!("{section} {promise}: no test"));
        }
        let missing = held_by.iter().filter(|name| !tests.contains(**name));
        faults.extend(missing.map(|name| format!("{section} {promise}: there is no test {name}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_row_is_unique_and_names_each_test_once() {
    let mut seen = BTreeSet::new();
    for (section, promise, held_by) in rows() {
        assert!(seen.insert((section, promise)), "{section} {promise} appears twice");
        let names: BTreeSet<_> = held_by.iter().collect();
        assert_eq!(names.len(), held_by.len(), "{section} {promise}");
    }
}

#[test]
fn every_section_has_a_row_and_every_row_a_section() {
    let number = |row: &'static Row| row.0.strip_prefix('§').expect("a § before the number");
    let in_table: BTreeSet<&str> = rows().map(number).collect();
    assert_eq!(in_table, sections());
    for (chapter, rows) in TABLE {
        for row in rows {
            let first = number(row).split('.').next();
            assert_eq!(first, Some(chapter), "{} is in another chapter", row.0);
        }
    }
}

#[test]
fn every_cited_section_exists() {
    let headings = headings();
    let mut faults = Vec::new();
    for (path, text) in below(&CITING) {
        let unknown = cited(&text).into_iter().filter(|number| !headings.contains(number));
        faults.extend(unknown.map(|number| format!("{}: there is no §{number}", path.display())));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_other_specification_is_cited() {
    let home = root().join("tests/it/conformance");
    for (path, text) in below(&CITING).into_iter().filter(|(path, _)| !path.starts_with(&home)) {
        for (line, number) in text.lines().zip(1..) {
            // The path of the file is fine, its bare name is not a citation.
            let rest = line.replace("conformance/contract.md", "");
            let found = ["spec §", "spec.md", "contract.md"].into_iter().find(|other| rest.contains(other));
            assert!(found.is_none(), "{}:{number}: {line}", path.display());
        }
    }
}

/// The endpoints of §2.12: a method and a path, or the end of a path after `…`.
fn endpoints() -> Vec<(&'static str, &'static str)> {
    let (_, section) = CONTRACT.split_once("### 2.12 Endpoints").unwrap();
    let table = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let cells = table.flat_map(|line| line.split('|')).map(str::trim).filter(|cell| cell.starts_with('`'));
    let mut found = Vec::new();
    for cell in cells {
        // "`GET`, `POST /v1/auth/keys`": the path belongs to each of the methods.
        let (first, path) = cell.trim_matches('`').rsplit_once(' ').unwrap();
        let methods = first.split("`, `").map(|method| method.trim_matches('`'));
        found.extend(methods.map(|method| (method, path)));
    }
    found
}

#[test]
fn the_endpoints_of_the_contract_are_the_routes() {
    let is = |route: &Route, (method, path): (&str, &str)| {
        route.method == method
            && match path.strip_prefix('…') {
                Some(end) => route.path.ends_with(end),
                None => route.path == path,
            }
    };
    let endpoints = endpoints();
    for endpoint in &endpoints {
        assert_eq!(ROUTES.iter().filter(|route| is(route, *endpoint)).count(), 1, "{endpoint:?}");
    }
    for route in ROUTES.iter().filter(|route| route.access != Access::Page) {
        let is_listed = endpoints.iter().any(|endpoint| is(route, *endpoint));
        assert!(is_listed, "{} {} is not in contract §2.12", route.method, route.path);
    }
}

#[test]
fn only_functions_with_a_test_attribute_count_as_tests() {
    let text = "fn a() {}\n#[test]\nfn b() {}\n#[tokio::test]\n#[ignore]\nasync fn c() {}\n#[test]\nstruct D;\nfn e() {}";
    assert_eq!(tests_of(text), ["b", "c"]);
}

#[test]
fn citations_are_read_with_their_numbers() {
    assert_eq!(cited("contract §4.3, §10 and §2.7. Also `contract §n`, RFC 5321 §4.5"), ["4.3", "10", "2.7"]);
    assert!(headings().contains("10") && headings().contains("4.14") && !sections().contains("4"));
}
