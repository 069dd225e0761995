//! The contract, `.github/CONTRACT.md`, which source and tests cite as `contract §n` or `contract §n.m`: each
//! citation leads somewhere, and its table of endpoints is the routing table. Also rules for the examples beside it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cued::http::router::{Access, Route};
use cued::http::routes::ROUTES;

const CONTRACT: &str = include_str!("../../.github/CONTRACT.md");

/// Files and folders that may cite the contract. Not all of them exist in every checkout.
const CITING: [&str; 7] =
    ["src", "tests", "examples", "README.md", "schema.sql", "Cargo.toml", ".github"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The numbers of all headings: `4` of `## 4. Cues`, `4.3` of `### 4.3 Schedule`.
fn headings() -> BTreeSet<&'static str> {
    let titles =
        CONTRACT.lines().filter_map(|line| line.strip_prefix("### ").or(line.strip_prefix("## ")));
    titles.map(|title| title.split(' ').next().unwrap().trim_end_matches('.')).collect()
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
    found
        .into_iter()
        .filter_map(|path| fs::read_to_string(&path).ok().map(|text| (path, text)))
        .collect()
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
fn every_receiver_in_python_queues_a_burst() {
    let all = below(&["examples", "tests", "src/docs"]);
    let receivers = all.iter().filter(|(path, text)| {
        path.extension().is_some_and(|end| end == "py" || end == "md")
            && text.contains("import BaseHTTPRequestHandler")
    });
    let slow = receivers.filter(|(_, text)| !text.contains("request_queue_size = 128"));
    // Python's backlog is 5.
    assert_eq!(slow.map(|(path, _)| path).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
}

/// The endpoints of §2.12: a method and a path, or the end of a path after `…`.
fn endpoints() -> Vec<(&'static str, &'static str)> {
    let (_, section) = CONTRACT.split_once("### 2.12 Endpoints").unwrap();
    let table =
        section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    let cells =
        table.flat_map(|line| line.split('|')).map(str::trim).filter(|cell| cell.starts_with('`'));
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
fn citations_are_read_with_their_numbers() {
    assert_eq!(
        cited("contract §4.3, §10 and §2.7. Also `contract §n`, RFC 5321 §4.5"),
        ["4.3", "10", "2.7"]
    );
    assert!(headings().contains("10") && headings().contains("4.14"));
}
