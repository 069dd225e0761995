//! The rules of the architecture, checked on the source text: which module may use which, import cycles, banned text,
//! sizes of files, functions and folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const LONGEST_FILE: usize = 400;
const LONGEST_FUNCTION: usize = 70;
/// Files and folders beside a folder's `mod.rs`.
const MOST_ENTRIES: usize = 12;

/// The modules that each module may import besides itself. `server` and `cli` assemble the program and may use all.
const MAY_USE: [(&str, &[&str]); 18] = [
    ("domain", &[]),
    ("error", &["domain"]),
    ("clock", &[]),
    ("metrics", &["clock"]),
    ("panics", &["error"]),
    ("random", &["domain", "error"]),
    ("logging", &["clock"]),
    ("mail", &["clock"]),
    ("store", &["domain", "error", "metrics", "panics"]),
    ("lifecycle", &["domain", "error", "panics", "random", "store"]),
    ("billing", &["domain", "error", "random", "store"]),
    ("config", &["billing", "domain", "mail"]),
    ("app", &["billing", "clock", "config", "domain", "mail", "metrics", "random", "store"]),
    ("bench", &["actions", "clock", "domain", "engine", "error", "random", "store"]),
    ("actions", &["app", "billing", "domain", "error", "lifecycle", "mail", "random", "store"]),
    ("engine", &["app", "clock", "domain", "error", "lifecycle", "mail", "metrics", "panics", "store"]),
    ("http", &["actions", "app", "config", "domain", "error", "metrics", "panics", "store"]),
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

// Imports name modules from the crate root: `super::` would hide them from the search for cycles.
const NOWHERE: [&str; 9] =
    [".unwrap()", ".expect(", "panic!(", "todo!(", "unimplemented!(", "dbg!(", "TODO", "FIXME", "super::"];

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

/// Siblings of a folder, files or whole folders, that import each other in a circle. A folder's `mod.rs` counts as the
/// parent: what it imports from its children, and they from it, is no cycle.
#[test]
fn no_siblings_of_a_folder_import_each_other_in_a_circle() {
    let sources = sources();
    let paths: BTreeSet<&str> = sources.iter().map(|source| source.path.as_str()).collect();
    let imports: Vec<(&str, &str)> = sources
        .iter()
        .flat_map(|source| imports(&source.code, &paths).into_iter().map(|used| (source.path.as_str(), used)))
        .collect();
    let folders: BTreeSet<&str> = paths
        .iter()
        .flat_map(|path| Path::new(path).ancestors().skip(1))
        .map(|it| it.to_str().unwrap())
        .collect();
    let mut found = Vec::new();
    for folder in folders {
        for members in cycles(folder, &imports) {
            let between = imports.iter().filter(|(user, used)| {
                let ends = (sibling(folder, user), sibling(folder, used));
                matches!(ends, (Some(user), Some(used)) if user != used && members.contains(user) && members.contains(used))
            });
            let between: Vec<String> = between.map(|(user, used)| format!("  {user} uses {used}")).collect();
            found.push(format!("{members:?} in src/{folder}:\n{}", between.join("\n")));
        }
    }
    assert!(found.is_empty(), "import cycles:\n{}", found.join("\n"));
}

/// A transaction may still roll back; a line of the log cannot.
#[test]
fn nothing_is_logged_inside_a_transaction() {
    // The machinery of the file logs between transactions: what it opened, lost, copied.
    let machinery = ["store/mod.rs", "store/db/", "store/maintenance/"];
    for source in sources() {
        let calls = source.code.matches("tracing::").count();
        match source.room() {
            "store" if !machinery.iter().any(|place| source.path.starts_with(place)) => {
                assert_eq!(calls, 0, "{} logs", source.path);
            }
            "lifecycle" => {
                let after_commit = source.code.matches(".on_commit(").count();
                assert!(calls <= after_commit, "{} logs before the commit", source.path);
            }
            _ => {}
        }
    }
}

#[test]
fn a_folder_fits_one_screen() {
    let mut entries = BTreeMap::<PathBuf, BTreeSet<String>>::new();
    for source in sources() {
        let path = Path::new(&source.path);
        for (entry, folder) in path.ancestors().zip(path.ancestors().skip(1)) {
            let entry = entry.file_name().unwrap().to_str().unwrap();
            if entry != "mod.rs" {
                entries.entry(folder.to_owned()).or_default().insert(entry.to_owned());
            }
        }
    }
    entries.remove(Path::new(""));
    for (folder, entries) in entries {
        assert!(entries.len() <= MOST_ENTRIES, "src/{} has {} entries", folder.display(), entries.len());
    }
}

#[test]
fn files_and_functions_can_be_read_at_one_sitting() {
    let mut too_long = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > LONGEST_FILE {
            too_long.push(format!("{} has {lines} lines", source.path));
        }
        let functions = functions(&source.text).into_iter();
        let long = functions.filter(|(_, length)| *length > LONGEST_FUNCTION);
        too_long.extend(long.map(|(name, length)| format!("{}: {name} has {length} lines", source.path)));
    }
    assert!(too_long.is_empty(), "{}", too_long.join("\n"));
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

/// The files that the `crate::` paths of `code` lead to.
fn imports<'a>(code: &str, files: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    let paths = code.match_indices("crate::").flat_map(|(at, found)| expand(&code[at + found.len()..]));
    paths.filter_map(|path| resolve(&path, files)).collect()
}

/// The paths at the beginning of `text`, each as its segments: `a::{b, c::d};` is `a::b` and `a::c::d`.
fn expand(text: &str) -> Vec<Vec<&str>> {
    let (mut paths, mut path, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if name > 0 {
            path.push(&rest[..name]);
            rest = &rest[name..];
            if groups.is_empty() && !rest.starts_with("::") {
                break;
            }
            continue;
        }
        match next {
            '{' => groups.push(path.len()),
            ',' | '}' if !groups.is_empty() => {
                paths.push(path.clone());
                path.truncate(*groups.last().unwrap());
                if next == '}' {
                    groups.pop();
                    if groups.is_empty() {
                        return paths;
                    }
                }
            }
            ':' => {}
            space if space.is_whitespace() && !groups.is_empty() => {}
            _ => break,
        }
        rest = &rest[1..];
    }
    paths.push(path);
    paths
}

/// The file that holds the item at `path`: that of its innermost module.
fn resolve<'a>(path: &[&str], files: &BTreeSet<&'a str>) -> Option<&'a str> {
    (1..=path.len()).rev().find_map(|length| {
        let module = path[..length].join("/");
        [format!("{module}.rs"), format!("{module}/mod.rs")]
            .iter()
            .find_map(|file| files.get(file.as_str()).copied())
    })
}

/// The file or folder directly in `folder` that `path` belongs to; none if it is elsewhere, or the folder's own `mod.rs`.
fn sibling<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let below = Path::new(path).strip_prefix(folder).ok()?;
    let first = below.iter().next()?.to_str()?;
    let at = path.len() - below.to_str()?.len();
    (!["mod.rs", "lib.rs", "main.rs"].contains(&first)).then(|| &path[at..at + first.len()])
}

/// The sets of siblings in `folder` that import each other in a circle.
fn cycles<'a>(folder: &str, imports: &[(&'a str, &'a str)]) -> BTreeSet<BTreeSet<&'a str>> {
    let mut uses = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (user, used) in imports {
        if let (Some(user), Some(used)) = (sibling(folder, user), sibling(folder, used))
            && user != used
        {
            uses.entry(user).or_default().insert(used);
        }
    }
    let reached = |from: &'a str| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            let new = uses.get(at).into_iter().flatten().filter(|used| reached.insert(**used));
            next.extend(new);
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|it| (*it, reached(it))).collect();
    let circle = |at: &&'a str| -> BTreeSet<&'a str> {
        reached[at]
            .iter()
            .copied()
            .filter(|it| reached.get(it).is_some_and(|back| back.contains(at)))
            .collect()
    };
    uses.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
}

/// Names and lengths of functions: from the line with `fn` to the first closing brace as far in.
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
            let mut has_body = false;
            let end = lines[start..].iter().position(|later| {
                has_body |= later.ends_with('{') || later.ends_with('}');
                // A declaration without a body ends with its semicolon.
                (!has_body && later.ends_with(';'))
                    || (indent(later) == indent(line)
                        && (later.trim().starts_with('}') || later.ends_with('}')))
            });
            let end = end.unwrap_or(0);
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
        .filter(|path| !is_test_code(path))
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

/// Files that are compiled into tests only.
fn is_test_code(path: &Path) -> bool {
    path.ends_with("test_support.rs") || path.to_string_lossy().ends_with("_tests.rs")
}
