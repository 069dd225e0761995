//! The source files as text, and their functions.

use std::fs;
use std::path::{Path, PathBuf};

pub struct Source {
    /// Below the folder that was read, with `/` as the separator.
    pub path: String,
    pub text: String,
    /// Without tests and comments.
    pub code: String,
}

impl Source {
    /// The top-level module. Those of `system` count one by one: each has imports of its own.
    pub fn module(&self) -> &str {
        let path = self.path.strip_prefix("system/").unwrap_or(&self.path);
        let first = if path == "mod.rs" { "system" } else { path.split('/').next().unwrap() };
        first.strip_suffix(".rs").unwrap_or(first)
    }
}

/// A function's text, from the line with `fn` to the first closing brace at the same indentation.
pub struct Function {
    pub text: String,
}

impl Function {
    /// The first line.
    pub fn name(&self) -> &str {
        self.text.lines().next().unwrap().trim()
    }

    pub fn signature(&self) -> &str {
        self.text.split(" {").next().unwrap()
    }
}

pub fn functions(text: &str) -> Vec<Function> {
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
            Function { text: lines[start..=start + end.unwrap_or(0)].join("\n") }
        })
        .collect()
}

/// The files of `src` that are compiled into the program.
pub fn sources() -> Vec<Source> {
    read("src").into_iter().filter(|source| !is_test_code(Path::new(&source.path))).collect()
}

/// The Rust files below `folder`.
pub fn read(folder: &str) -> Vec<Source> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    collect(&folder, "rs", &mut files);
    assert!(files.len() > 50, "the source was not found");
    files
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let path = path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned();
            Source { path, code: production(&text), text }
        })
        .collect()
}

/// Adds the files below `folder` whose names end so.
pub fn collect(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, extension, files);
        } else if path.extension().is_some_and(|it| it == extension) {
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

#[test]
fn functions_end_at_their_closing_brace() {
    let text = "impl A {\n    fn a(\n        b: u8,\n    ) -> u8 {\n        if b {\n        }\n    }\n\n    fn c() {}\n}\ntrait D {\n    fn e();\n}";
    let found: Vec<_> = functions(text)
        .into_iter()
        .map(|it| (it.text.lines().count(), it.name().to_owned()))
        .collect();
    let expected = [(6, "fn a("), (1, "fn c() {}"), (1, "fn e();")];
    assert_eq!(found, expected.map(|(lines, name)| (lines, name.to_owned())));
    assert_eq!(functions(text)[0].signature().lines().nth(1), Some("        b: u8,"));
}
