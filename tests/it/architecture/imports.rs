//! The imports of the source files, read from the text, and the cycles between them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::architecture::sources::Source;

/// The files of the crate, and the names that a file re-exports with the paths of their definitions.
pub struct ModuleTree<'a> {
    pub files: BTreeSet<&'a str>,
    reexports: BTreeMap<(&'a str, &'a str), Vec<&'a str>>,
}

impl<'a> ModuleTree<'a> {
    pub fn new(sources: &'a [Source]) -> Self {
        let files = sources.iter().map(|source| source.path.as_str()).collect();
        let reexports = sources
            .iter()
            .flat_map(|source| reexports(&source.code).into_iter().map(move |path| (source, path)))
            .map(|(source, mut path)| {
                let name = *path.last().unwrap();
                assert!(name != "*", "{} re-exports names that it does not list", source.path);
                path.truncate(
                    path.iter().position(|segment| *segment == "as").unwrap_or(path.len()),
                );
                ((source.path.as_str(), name), path)
            })
            .collect();
        Self { files, reexports }
    }

    /// The files that the `crate::` paths of `code` lead to.
    pub fn imports(&self, code: &str) -> BTreeSet<&'a str> {
        let paths =
            code.match_indices("crate::").flat_map(|(at, found)| expand(&code[at + found.len()..]));
        paths.filter_map(|path| self.resolve(&path)).collect()
    }

    /// The file that holds the item at `path`: that of its innermost module, or that of the definition where the module
    /// only re-exports the item.
    pub fn resolve(&self, path: &[&str]) -> Option<&'a str> {
        let (file, rest) = (1..=path.len()).rev().find_map(|length| {
            let module = path[..length].join("/");
            let names = [format!("{module}.rs"), format!("{module}/mod.rs")];
            let file = names.iter().find_map(|name| self.files.get(name.as_str()))?;
            Some((*file, &path[length..]))
        })?;
        let definition = rest.first().and_then(|name| self.reexports.get(&(file, *name)));
        definition.map_or(Some(file), |definition| self.resolve(definition))
    }
}

/// The paths of each `pub use crate::…`, whatever its visibility.
fn reexports(code: &str) -> Vec<Vec<&str>> {
    let uses = code.match_indices("use crate::").filter(|(at, _)| {
        let line = code[..*at].rsplit('\n').next().unwrap().trim_start();
        line.starts_with("pub")
    });
    uses.flat_map(|(at, found)| expand(&code[at + found.len()..])).collect()
}

/// Each `crate::module`: in a `use`, a path or an attribute. Those of `system` count one by one.
pub fn used_modules(code: &str) -> BTreeSet<&str> {
    let name_of =
        |rest: &'_ str| rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    code.match_indices("crate::")
        .map(|(at, found)| &code[at + found.len()..])
        .map(|rest| rest.strip_prefix("system::").unwrap_or(rest))
        .map(|rest| &rest[..name_of(rest)])
        .filter(|name| !name.is_empty() && *name != "routes")
        .collect()
}

/// The paths at the beginning of `text`, each as its segments: `a::{b, c::d, e::*};` is `a::b`, `a::c::d` and
/// `a::e::*`.
pub fn expand(text: &str) -> Vec<Vec<&str>> {
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
            '*' => path.push(&rest[..1]),
            space if space.is_whitespace() && !groups.is_empty() => {}
            _ => break,
        }
        rest = &rest[1..];
    }
    paths.push(path);
    paths
}

/// The file or folder directly in `folder` that `path` belongs to; none if it is elsewhere, or the folder's own
/// `mod.rs`.
pub fn sibling<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let below = Path::new(path).strip_prefix(folder).ok()?;
    let first = below.iter().next()?.to_str()?;
    let at = path.len() - below.to_str()?.len();
    (!["mod.rs", "lib.rs", "main.rs"].contains(&first)).then(|| &path[at..at + first.len()])
}

/// The sets of siblings in `folder` that import each other in a circle.
pub fn cycles<'a>(folder: &str, imports: &[(&'a str, &'a str)]) -> BTreeSet<BTreeSet<&'a str>> {
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
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|it| (*it, reached(it))).collect();
    let circle = |at: &&'a str| -> BTreeSet<&'a str> {
        reached[at]
            .iter()
            .copied()
            .filter(|it| reached.get(it).is_some_and(|back| back.contains(at)))
            .collect()
    };
    uses.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, code: &str) -> Source {
        Source { path: path.to_owned(), text: code.to_owned(), code: code.to_owned() }
    }

    fn found_cycles(sources: &[Source], folder: &str) -> Vec<Vec<String>> {
        let tree = ModuleTree::new(sources);
        let imports: Vec<(&str, &str)> = sources
            .iter()
            .flat_map(|source| {
                tree.imports(&source.code).into_iter().map(|used| (source.path.as_str(), used))
            })
            .collect();
        let found = cycles(folder, &imports).into_iter();
        found.map(|members| members.into_iter().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn groups_are_expanded_to_their_end() {
        let expanded =
            |text| expand(text).into_iter().map(|path| path.join("::")).collect::<Vec<_>>();
        assert_eq!(expanded("a::b; c"), ["a::b"]);
        assert_eq!(
            expanded("a::{b, c::{d, e::f}, g};"),
            ["a::b", "a::c::d", "a::c::e::f", "a::c", "a::g"]
        );
        assert_eq!(expanded("a::{b::*, c};"), ["a::b::*", "a::c"]);
        assert_eq!(expanded("a::*;"), ["a::*"]);
        assert_eq!(expanded("a::{\n    b as c,\n    d,\n};"), ["a::b::as::c", "a::d", "a"]);
    }

    #[test]
    fn a_reexported_name_resolves_to_its_definition() {
        let sources = [
            source(
                "a/mod.rs",
                "pub use crate::a::b::{One, Two as Deux};\npub(crate) use crate::c::Three;",
            ),
            source("a/b.rs", ""),
            source("c.rs", "use crate::a::One;"),
        ];
        let tree = ModuleTree::new(&sources);
        assert_eq!(tree.resolve(&["a", "One"]), Some("a/b.rs"));
        assert_eq!(tree.resolve(&["a", "Deux"]), Some("a/b.rs"));
        assert_eq!(tree.resolve(&["a", "Two"]), Some("a/mod.rs"));
        assert_eq!(tree.resolve(&["a", "Three", "new"]), Some("c.rs"));
        assert_eq!(tree.resolve(&["a", "b", "*"]), Some("a/b.rs"));
        assert_eq!(tree.resolve(&["c", "One"]), Some("c.rs"), "a private import exports nothing");
        assert_eq!(tree.resolve(&["unknown"]), None);
    }

    #[test]
    fn a_cycle_is_found_directly_through_a_group_and_through_a_reexport() {
        let direct =
            [source("x/a.rs", "use crate::x::b::B;"), source("x/b.rs", "use crate::x::{c, a::A};")];
        assert_eq!(found_cycles(&direct, "x"), [["a.rs", "b.rs"]]);
        let indirect = [
            source("x/mod.rs", "pub use crate::x::a::A;"),
            source("x/a.rs", "use crate::x::b::B;"),
            source("x/b.rs", "use crate::x::A;"),
        ];
        assert_eq!(found_cycles(&indirect, "x"), [["a.rs", "b.rs"]]);
        let folders = [
            source("x/a/one.rs", "use crate::x::b::B;"),
            source("x/b.rs", "use crate::x::a::two::A;"),
        ];
        assert_eq!(
            found_cycles(
                &[folders, [source("x/a/two.rs", ""), source("y.rs", "")]]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>(),
                "x"
            ),
            [["a", "b.rs"]]
        );
        let none = [
            source("x/mod.rs", "use crate::x::a::A; pub struct X;"),
            source("x/a.rs", "use crate::x::X; use crate::x::b::B;"),
            source("x/b.rs", ""),
        ];
        assert!(found_cycles(&none, "x").is_empty());
    }
}
