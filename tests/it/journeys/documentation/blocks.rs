//! The pages of the documentation and their fenced blocks.

use std::fs;
use std::path::Path;

use crate::architecture::sources::collect;

/// A page below `src/docs`.
pub struct Page {
    /// Its path below `src/docs`.
    pub name: String,
    pub blocks: Vec<Block>,
}

pub struct Block {
    /// The line of the page that opens it, from 1.
    pub line: usize,
    pub language: String,
    /// What follows the language in the info string.
    pub marker: String,
    pub text: String,
}

impl Block {
    pub fn is_receiver(&self) -> bool {
        self.marker == "receiver"
    }

    /// A receiver, a test of `examples/testing`, or a block for root, another machine or another server.
    pub fn is_run_elsewhere(&self) -> bool {
        ["receiver", "kit", "elsewhere"].contains(&self.marker.as_str())
    }
}

/// A page of another kind: the list of changes, and what a program writes.
fn is_checked_elsewhere(name: &str, text: &str) -> bool {
    name == "changelog.md" || text.starts_with("<!-- generated")
}

/// All pages, in the order of their names.
pub fn pages() -> Vec<Page> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/docs");
    let mut paths = Vec::new();
    collect(&root, "md", &mut paths);
    paths.sort();
    let mut pages = Vec::new();
    for path in paths {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        if !is_checked_elsewhere(&name, &text) {
            pages.push(Page { blocks: blocks(&name, &text), name });
        }
    }
    pages
}

/// The blocks of a text. The indentation of a fence, as in a list, is no part of the lines below it.
fn blocks(name: &str, text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = text.lines().zip(1..);
    while let Some((fence, line)) = lines.next() {
        let Some(info) = fence.trim_start().strip_prefix("```") else { continue };
        let indent = fence.len() - fence.trim_start().len();
        let (language, marker) = info.split_once(' ').unwrap_or((info, ""));
        let mut body = String::new();
        loop {
            let (inner, _) =
                lines.next().unwrap_or_else(|| panic!("{name}:{line}: a block without an end"));
            if inner.trim() == "```" {
                break;
            }
            body.push_str(inner.get(indent..).unwrap_or_default());
            body.push('\n');
        }
        let (language, marker) = (language.to_owned(), marker.trim().to_owned());
        found.push(Block { line, language, marker, text: body });
    }
    found
}

#[test]
fn blocks_are_read_with_their_lines_and_without_their_indentation() {
    let text =
        "a\n```sh\none\n\n  two\n```\n- b\n\n  ```python receiver\n  three\n    four\n  ```\n";
    let found = blocks("a.md", text);
    let [first, second] = &found[..] else { panic!("{} blocks", found.len()) };
    assert_eq!(first.line, 2);
    assert_eq!(first.language.as_str(), "sh");
    assert_eq!(first.text.as_str(), "one\n\n  two\n");
    assert_eq!((second.line, second.text.as_str()), (9, "three\n  four\n"));
    assert!(second.is_receiver() && !first.is_run_elsewhere());
}
