//! The rules of the architecture, checked on the source text: which module may use which, import cycles, banned text,
//! sizes of files and functions, and the number of files on the way of a request and of a delivery.

mod imports;
pub mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cued::domain::cue_fields::PLAIN_FIELDS;

use crate::architecture::imports::{ModuleTree, cycles, sibling, used_modules};
use crate::architecture::sources::{functions, read, sources};

const MAX_FILE_LINES: usize = 700;
const MAX_FUNCTION_LINES: usize = 80;

/// They assemble the program and may use every module.
const MAY_USE_ALL: [&str; 6] = ["build", "cli", "lib", "main", "server", "system"];

/// The modules that each other module may import besides itself.
const MAY_USE: [(&str, &[&str]); 23] = [
    ("domain", &[]),
    ("api", &["domain", "locks"]),
    ("cores", &[]),
    ("error", &["domain"]),
    ("locks", &[]),
    ("clock", &["domain", "locks"]),
    ("metrics", &["clock", "domain", "locks"]),
    ("panics", &["error"]),
    ("random", &["domain", "error", "locks"]),
    ("events", &["domain", "error", "locks", "metrics", "random"]),
    ("logging", &["clock", "domain", "locks"]),
    ("mail", &["clock", "domain", "locks"]),
    ("store", &["cores", "domain", "error", "locks", "metrics", "panics"]),
    ("billing", &["domain", "error", "random", "store"]),
    ("config", &["billing", "domain", "mail"]),
    (
        "app",
        &[
            "billing", "clock", "config", "domain", "events", "locks", "mail", "metrics", "random",
            "service", "store",
        ],
    ),
    ("service", &["app", "billing", "domain", "error", "mail", "panics", "random", "store"]),
    (
        "engine",
        &[
            "api", "app", "clock", "cores", "domain", "error", "locks", "mail", "metrics",
            "panics", "service", "store",
        ],
    ),
    (
        "http",
        &[
            "api", "app", "config", "domain", "error", "events", "locks", "logging", "metrics",
            "panics", "service", "store",
        ],
    ),
    ("systemd", &[]),
    ("signals", &[]),
    ("worker", &["api", "client", "clock", "domain", "locks", "signals"]),
    ("client", &["clock", "domain"]),
];

/// Texts that may appear only in some places, and the prefixes of the allowed paths.
const ONLY_IN: [(&str, &[&str]); 17] = [
    // What is written here has no characters that a terminal would execute. The others write texts of the program's
    // own.
    (
        "stdout().lock()",
        &["cli/output/mod.rs", "cli/client/live_output.rs", "mail/mod.rs", "server.rs"],
    ),
    ("stderr().write", &["cli/printable.rs", "cli/error.rs", "logging.rs", "cli/mod.rs"]),
    ("(io::stderr(), ", &[]),
    ("PoisonError", &["system/locks.rs"]),
    ("Timestamp::now", &["clock.rs"]),
    ("SystemTime", &["clock.rs"]),
    // Sockets and disks are timed by the system, not by the clock of the program.
    ("Instant::now", &["clock.rs", "metrics/mod.rs", "http/"]),
    ("thread::sleep", &["clock.rs"]),
    ("time::sleep", &["http/server/"]),
    // An action on many objects awaits its writes one by one. The sink is a server of its own.
    ("async ", &["http/", "server.rs", "service/bulk.rs", "cli/client/commands/sink.rs"]),
    ("SELECT ", &["store/"]),
    ("INSERT ", &["store/"]),
    ("DELETE FROM", &["store/"]),
    ("rusqlite", &["store/", "error.rs"]),
    ("lettre::", &["mail/"]),
    ("saffron::", &["domain/schedule/cron"]),
    ("ureq::", &["billing/stripe.rs", "client/", "engine/webhook_client/"]),
];

// Imports name modules from the crate root: `super::` and `self::` would hide them from the search for cycles.
const NOWHERE: [&str; 10] = [
    ".unwrap()",
    ".expect(",
    "panic!(",
    "todo!(",
    "unimplemented!(",
    "dbg!(",
    "TODO",
    "FIXME",
    "super::",
    "self::",
];

#[test]
fn modules_import_only_allowed_modules() {
    let sources = sources();
    for (module, allowed) in MAY_USE {
        assert!(
            sources.iter().any(|source| source.module() == module),
            "there is no module {module}"
        );
        for source in sources.iter().filter(|source| source.module() == module) {
            for used in used_modules(&source.code) {
                assert!(used == module || allowed.contains(&used), "{} uses {used}", source.path);
            }
        }
    }
}

#[test]
fn every_top_level_module_has_its_allowed_imports() {
    for source in sources() {
        let module = source.module();
        let is_listed = MAY_USE.iter().any(|(listed, _)| *listed == module);
        assert!(
            is_listed != MAY_USE_ALL.contains(&module),
            "{module} must be in one of MAY_USE and MAY_USE_ALL"
        );
    }
}

/// A path that begins with a child module would hide the import from the search for cycles.
#[test]
fn imports_name_modules_from_the_crate_root() {
    for source in sources() {
        let lines = source.code.lines().filter_map(|line| line.trim().strip_suffix(';'));
        let children = lines.filter_map(|line| line.rsplit_once("mod ")).map(|(_, name)| name);
        for child in children {
            assert!(
                !source.code.contains(&format!("use {child}::")),
                "{} has `use {child}::`",
                source.path
            );
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
    let tree = ModuleTree::new(&sources);
    let imports: Vec<(&str, &str)> = sources
        .iter()
        .flat_map(|source| {
            tree.imports(&source.code).into_iter().map(|used| (source.path.as_str(), used))
        })
        .collect();
    let folders: BTreeSet<&str> = tree
        .files
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
            let between: Vec<String> =
                between.map(|(user, used)| format!("  {user} uses {used}")).collect();
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
        if source.module() == "store"
            && !machinery.iter().any(|place| source.path.starts_with(place))
        {
            assert_eq!(calls, 0, "{} logs", source.path);
        }
        for function in functions(&source.code) {
            if function.signature().contains("WriteTx") {
                let logs = without_calls(&function.text, "on_commit(").contains("tracing::");
                assert!(!logs, "{}: {} logs before the commit", source.path, function.name());
            }
        }
    }
}

/// `code` without the arguments of each `call`, which ends with its opening parenthesis.
fn without_calls(code: &str, call: &str) -> String {
    let mut parts = code.split(call);
    let mut kept = parts.next().unwrap().to_owned();
    for part in parts {
        let mut depth = 1;
        let end = part.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        kept.push_str(&part[end.unwrap()..]);
    }
    kept
}

#[test]
fn the_arguments_of_a_call_are_left_out_to_its_closing_parenthesis() {
    let code = "a(1); tx.on_commit(move || b(2, c())); d(); tx.on_commit(e); f()";
    assert_eq!(without_calls(code, "on_commit("), "a(1); tx.); d(); tx.); f()");
}

#[test]
fn files_and_functions_can_be_read_at_one_sitting() {
    let mut too_long = Vec::new();
    for source in sources() {
        let long = functions(&source.text).into_iter().map(|function| {
            let lines = function.text.lines().count();
            (lines > MAX_FUNCTION_LINES)
                .then(|| format!("src/{}: {} has {lines} lines", source.path, function.name()))
        });
        too_long.extend(long.flatten());
    }
    for folder in ["src", "tests/it"] {
        for file in read(folder) {
            let lines = file.text.lines().count();
            if lines > MAX_FILE_LINES {
                too_long.push(format!("{folder}/{} has {lines} lines", file.path));
            }
        }
    }
    assert!(too_long.is_empty(), "{}", too_long.join("\n"));
}

/// The recipe of CONTRIBUTING for a field of a cue depends on it. Behaviour may stand anywhere else.
#[test]
fn a_plain_field_of_a_cue_is_named_in_the_table_alone() {
    let rooms = ["api/", "cli/client/", "domain/cue/", "store/cues/", "store/db/"];
    let found: Vec<String> = sources()
        .iter()
        .filter(|source| rooms.iter().any(|room| source.path.starts_with(room)))
        .flat_map(|source| {
            // A word such as `overlap` names other things too.
            let names =
                PLAIN_FIELDS.iter().map(|field| field.name).filter(|name| name.contains('_'));
            let named = names.filter(|name| source.text.contains(name));
            named.map(|name| format!("{}: {name}", source.path)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

/// ARCHITECTURE.md says which files count. Each list ends its journey: `Files, 2: `a.rs`, `b.rs`.`
#[test]
fn a_create_stops_in_at_most_20_files_and_a_delivery_in_30() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join(".github/ARCHITECTURE.md")).unwrap();
    for (journey, most) in [("1. Create a cue", 20), ("2. A cue fires by webhook", 30)] {
        let (_, section) = page.split_once(&format!("\n### {journey}\n")).expect(journey);
        let section = section.split("\n### ").next().unwrap();
        let (_, list) = section.split_once("\nFiles, ").expect(journey);
        let (number, list) = list.split("\n\n").next().unwrap().split_once(": ").unwrap();
        let files: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        assert!((1..=most).contains(&files.len()), "{journey}: {} files", files.len());
        assert_eq!(number, files.len().to_string(), "{journey}");
        assert_eq!(
            files.iter().collect::<BTreeSet<_>>().len(),
            files.len(),
            "{journey}: a file is listed twice"
        );
        let steps = section.split("\nFiles, ").next().unwrap();
        for file in files {
            assert!(root.join("src").join(file).is_file(), "{journey}: there is no src/{file}");
            assert!(steps.contains(&format!("`{file}`")), "{journey}: no step names {file}");
        }
    }
}

#[test]
fn lib_rs_names_every_top_level_module_and_no_other() {
    let sources = sources();
    let lib = &sources.iter().find(|source| source.path == "lib.rs").unwrap().text;
    let page: String = lib.lines().filter(|line| line.starts_with("//!")).collect();
    for source in &sources {
        let module = source.module();
        assert!(
            module == "lib"
                || page.contains(&format!("`{module}`"))
                || page.contains(&format!("`{module}.rs`")),
            "{module}"
        );
    }
}
