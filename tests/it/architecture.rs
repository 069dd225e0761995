//! The rules of the code base, read from the source: allowed imports, banned texts, lengths of files and functions.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_FILE: usize = 400;
const LONGEST_FUNCTION: usize = 70;

/// The modules that each module may import besides itself. `server` and `cli` assemble the program and may use all.
const MAY_USE: [(&str, &[&str]); 15] = [
    ("domain", &[]),
    ("error", &["domain"]),
    ("clock", &[]),
    ("metrics", &["clock"]),
    ("random", &["domain", "error"]),
    ("logging", &["clock"]),
    ("mail", &["clock"]),
    ("store", &["domain", "error", "metrics"]),
    ("billing", &["domain", "error", "random", "store"]),
    ("app", &["billing", "clock", "domain", "mail", "metrics", "random", "store"]),
    ("bench", &["actions", "clock", "domain", "engine", "error", "random", "store"]),
    ("actions", &["app", "billing", "domain", "error", "mail", "random", "store"]),
    ("engine", &["app", "clock", "domain", "error", "mail", "metrics", "random", "store"]),
    ("http", &["actions", "app", "domain", "error", "metrics", "store"]),
    ("systemd", &["app"]),
];

/// Texts that may appear only in some places, and the prefixes of the allowed paths.
const ONLY_IN: [(&str, &[&str]); 13] = [
    ("Timestamp::now", &["clock.rs"]),
    ("SystemTime", &["clock.rs"]),
    // Sockets and disks are timed by the system, not by the clock of the program.
    ("Instant::now", &["clock.rs", "metrics/mod.rs", "http/"]),
    ("thread::sleep", &["clock.rs"]),
    ("time::sleep", &["http/server/"]),
    ("async ", &["http/", "server.rs", "bench/baseline.rs"]),
    ("SELECT ", &["store/"]),
    ("INSERT ", &["store/"]),
    ("DELETE FROM", &["store/"]),
    ("rusqlite", &["store/", "error.rs"]),
    ("saffron::", &["domain/schedule/cron"]),
    ("lettre::", &["mail/"]),
    ("ureq::", &["billing/stripe.rs", "engine/webhook_client/"]),
];

const NOWHERE: [&str; 8] =
    [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!(", "dbg!(", "TODO", "FIXME"];

struct Source {
    /// Below `src`, with `/` as the separator.
    path: String,
    text: String,
    /// Without tests and comments.
    code: String,
}

impl Source {
    fn room(&self) -> &str {
        let first = self.path.split('/').next().unwrap();
        first.strip_suffix(".rs").unwrap_or(first)
    }
}

#[test]
fn modules_import_only_allowed_modules() {
    let sources = sources();
    for (room, allowed) in MAY_USE {
        assert!(sources.iter().any(|source| source.room() == room), "there is no room {room}");
        for source in sources.iter().filter(|source| source.room() == room) {
            for used in used_rooms(&source.code) {
                assert!(used == room || allowed.contains(&used), "{} uses {used}", source.path);
            }
        }
    }
}

#[test]
fn restricted_texts_appear_only_in_their_modules() {
    for source in sources() {
        for (text, places) in ONLY_IN {
            let there = places.iter().any(|place| source.path.starts_with(place));
            assert!(there || !source.code.contains(text), "{} has {text:?}", source.path);
        }
        for text in NOWHERE {
            assert!(!source.code.contains(text), "{} has {text:?}", source.path);
        }
    }
}

#[test]
fn files_and_functions_stay_within_the_length_limits() {
    for source in sources() {
        let lines = source.text.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines", source.path);
        for (name, length) in functions(&source.text) {
            assert!(length <= LONGEST_FUNCTION, "{}: {name} has {length} lines", source.path);
        }
    }
}

#[test]
fn lib_rs_names_every_top_level_module_and_no_other() {
    let sources = sources();
    let lib = &sources.iter().find(|source| source.path == "lib.rs").unwrap().text;
    let page: String = lib.lines().filter(|line| line.starts_with("//!")).collect();
    for source in &sources {
        let room = source.room();
        assert!(
            room == "lib" || page.contains(&format!("`{room}`")) || page.contains(&format!("`{room}.rs`")),
            "{room}"
        );
    }
}

/// Each `crate::module`: in a `use`, a path or an attribute.
fn used_rooms(code: &str) -> BTreeSet<&str> {
    let name_of = |rest: &'_ str| rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    code.match_indices("crate::")
        .map(|(at, found)| &code[at + found.len()..])
        .map(|rest| &rest[..name_of(rest)])
        .filter(|name| !name.is_empty() && *name != "routes")
        .collect()
}

/// Names and lengths of functions, from the line with `fn` to the first closing brace with the same indentation.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_function = |line: &str| {
        let words: Vec<&str> = line.trim_start().split([' ', '(']).collect();
        words.iter().take(4).any(|word| *word == "fn") && !line.trim_start().starts_with("//")
    };
    let starts = lines.iter().enumerate().filter(|(_, line)| is_function(line));
    starts
        .map(|(start, line)| {
            // A declaration without a body ends on its own line.
            let end = lines[start..]
                .iter()
                .position(|later| {
                    later.ends_with(';')
                        || (indent(later) == indent(line) && later.trim_start().starts_with('}'))
                })
                .unwrap_or(0);
            (line.trim().to_owned(), end + 1)
        })
        .collect()
}

fn sources() -> Vec<Source> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&src, &mut files);
    assert!(files.len() > 50, "the source was not found");
    files
        .into_iter()
        .filter(|path| !path.to_string_lossy().ends_with("_tests.rs"))
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let path = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
            Source { path, code: production(&text), text }
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The text without comments and without the tests at the end of the file.
fn production(text: &str) -> String {
    let body = text.split("#[cfg(test)]\nmod ").next().unwrap();
    body.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}
