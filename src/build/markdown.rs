//! Markdown as GitHub reads it: the headings and their anchors, the links and where they lead, HTML. Uses nothing of the
//! build script, so that the tests include this file too.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html,
};

/// The texts by the paths of their files in the repository.
pub type Documents = BTreeMap<String, String>;

/// The headings of the index, in this order (Diátaxis). Not all need to be there.
pub const KINDS: [&str; 4] = ["Tutorials", "How-to guides", "Reference", "Explanation"];

/// What the paragraphs of the repository begin with that a server does not have. Other HTML is a mistake.
const LEFT_OUT: [&str; 2] = ["<picture", "<!--"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    pub level: u8,
    pub anchor: String,
    pub text: String,
    /// Its place in the Markdown, in bytes.
    pub start: usize,
}

/// A page in the list of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: &'static str,
    pub title: String,
    /// Of its file in the repository.
    pub file: String,
    /// What it is about.
    pub line: String,
}

/// Where a link of a page leads on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    Url(String),
    /// A file of the repository that the server does not have.
    File(String),
}

fn parse(markdown: &str) -> Parser<'_> {
    // `## Title {#anchor}`: the generated pages have anchors that outlast their titles.
    let anchors = Options::ENABLE_HEADING_ATTRIBUTES;
    Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | anchors)
}

/// The text of events, without their markup.
fn text_of(events: &[Event<'_>]) -> String {
    let texts = events.iter().map(|event| match event {
        Event::Text(text) | Event::Code(text) => text.as_ref(),
        Event::SoftBreak | Event::HardBreak => " ",
        _ => "",
    });
    texts.collect()
}

/// The anchor of a heading: small letters, without punctuation, a hyphen for each blank.
fn slug(text: &str) -> String {
    let kept =
        text.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// Anchors of one page: the second of the same text ends with `-1`.
#[derive(Default)]
struct Anchors(BTreeSet<String>);

impl Anchors {
    fn of(&mut self, text: &str) -> String {
        let slug = slug(text);
        let numbered = (1..).map(|number| format!("{slug}-{number}"));
        let free =
            std::iter::once(slug.clone()).chain(numbered).find(|anchor| !self.0.contains(anchor));
        let anchor = free.unwrap_or(slug);
        self.0.insert(anchor.clone());
        anchor
    }
}

pub fn headings(markdown: &str) -> Vec<Heading> {
    let (mut anchors, mut found) = (Anchors::default(), Vec::new());
    let (mut inside, mut own): (Option<Vec<Event<'_>>>, _) = (None, None);
    for (event, place) in parse(markdown).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { id, .. }) => (inside, own) = (Some(Vec::new()), id),
            Event::End(TagEnd::Heading(level)) => {
                let text = text_of(&inside.take().unwrap_or_default());
                let anchor = own.take().map_or_else(|| anchors.of(&text), |id| id.to_string());
                found.push(Heading { level: level as u8, anchor, text, start: place.start });
            }
            event => inside.iter_mut().for_each(|events| events.push(event.clone())),
        }
    }
    found
}

/// A page without its pictures and comments.
pub fn without_pictures(markdown: &str) -> String {
    let is_kept = |part: &&str| !LEFT_OUT.iter().any(|start| part.starts_with(start));
    markdown.split("\n\n").filter(is_kept).collect::<Vec<_>>().join("\n\n")
}

/// The text of the first heading, which is the title of a page.
pub fn title(markdown: &str) -> Option<String> {
    let first = headings(markdown).into_iter().next();
    first.filter(|heading| heading.level == 1).map(|heading| heading.text)
}

/// The file and the anchor that a link of a file leads to; `None` if it leads out of the repository.
pub fn target(file: &str, link: &str) -> Option<(String, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) =
        link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor.to_owned())));
    if path.is_empty() {
        return Some((file.to_owned(), anchor));
    }
    Some((resolve(file, path), anchor))
}

/// The path that a file refers to by one that is relative to it.
pub fn resolve(file: &str, path: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| *part != ".") {
        match part {
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The pages that the index lists, in its order.
/// Errors: a heading that is none of [`KINDS`] or is out of their order; an entry without a link.
pub fn entries(index_file: &str, index: &str) -> Result<Vec<Entry>, String> {
    let (mut kinds, mut kind, mut found) = (KINDS.iter(), None, Vec::new());
    for line in index.lines() {
        if let Some(text) = line.strip_prefix("## ") {
            kind = kinds.find(|known| **known == text);
            kind.ok_or_else(|| {
                format!("{index_file}: {text:?} must be one of {KINDS:?}, in this order")
            })?;
        } else if let Some(item) = line.strip_prefix("- ") {
            let entry = kind.and_then(|kind| entry(index_file, kind, item));
            found.push(
                entry.ok_or_else(|| format!("{index_file}: {item:?} needs a link to a page"))?,
            );
        }
    }
    Ok(found)
}

/// Of `[Title](file.md): what it is about`.
fn entry(index_file: &str, kind: &'static str, item: &str) -> Option<Entry> {
    let (title, rest) = item.strip_prefix('[')?.split_once("](")?;
    let (link, line) = rest.split_once("): ")?;
    let (file, _) = target(index_file, link)?;
    let [title, line] = [title, line].map(|text| text.replace('`', ""));
    Some(Entry { kind, title, file, line })
}

/// Whether a page begins with a list of its sections. They have their links there, the other headings in themselves.
pub fn are_listed(headings: &[Heading]) -> bool {
    headings.iter().filter(|heading| heading.level == 2).count() >= 3
}

/// The HTML of a page, with an anchor at each heading.
/// Errors: HTML in the text.
pub fn to_html(
    markdown: &str,
    destination: &dyn Fn(&str) -> Destination,
) -> Result<String, String> {
    let headings = headings(markdown);
    let are_listed = are_listed(&headings);
    let mut anchors = headings.into_iter();
    let (mut events, mut files, mut pictures) = (Vec::new(), Vec::new(), 0);
    for event in parse(markdown) {
        match event {
            Event::Start(Tag::Image { .. }) => pictures += 1,
            Event::End(TagEnd::Image) => pictures -= 1,
            _ if pictures > 0 => {}
            Event::Html(text) | Event::InlineHtml(text) => {
                return Err(format!("HTML is not rendered: {}", text.trim()));
            }
            Event::Start(Tag::Heading { level, .. }) => {
                let anchor = anchors.next().map(|heading| heading.anchor).unwrap_or_default();
                let html = match level {
                    HeadingLevel::H1 => "<h1>".to_owned(),
                    HeadingLevel::H2 if are_listed => format!("<h2 id=\"{anchor}\">"),
                    level => format!("<{level} id=\"{anchor}\"><a href=\"#{anchor}\">"),
                };
                events.push(raw(html));
            }
            Event::End(TagEnd::Heading(HeadingLevel::H1)) => events.push(raw("</h1>\n")),
            Event::End(TagEnd::Heading(HeadingLevel::H2)) if are_listed => {
                events.push(raw("</h2>\n"))
            }
            Event::End(TagEnd::Heading(level)) => events.push(raw(format!("</a></{level}>\n"))),
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                match destination(&dest_url) {
                    Destination::Url(url) => {
                        files.push(None);
                        events.push(Event::Start(Tag::Link {
                            link_type,
                            dest_url: url.into(),
                            title,
                            id,
                        }));
                    }
                    Destination::File(path) => files.push(Some(path)),
                }
            }
            Event::End(TagEnd::Link) => match files.pop().flatten() {
                Some(path) => events.extend([
                    Event::Text(" (".into()),
                    Event::Code(path.into()),
                    Event::Text(")".into()),
                ]),
                None => events.push(event),
            },
            // Nothing colours code, so nothing needs its language.
            Event::Start(Tag::CodeBlock(_)) => {
                events.push(Event::Start(Tag::CodeBlock(CodeBlockKind::Indented)))
            }
            event => events.push(event),
        }
    }
    let mut text = String::new();
    html::push_html(&mut text, events.into_iter());
    Ok(with_scrolling(&text))
}

fn raw<'a>(html: impl Into<CowStr<'a>>) -> Event<'a> {
    Event::InlineHtml(html.into())
}

/// What may be wider than a phone scrolls by itself, and can have the focus, so that a keyboard can scroll it.
fn with_scrolling(html: &str) -> String {
    html.replace("<pre>", "<pre tabindex=\"0\">")
        .replace(
            "<table>",
            "<div class=\"table\" role=\"group\" aria-label=\"Table\" tabindex=\"0\"><table>",
        )
        .replace("</table>", "</table></div>")
}

#[cfg(test)]
mod checks {
    use super::*;

    fn links(markdown: &str) -> Vec<String> {
        let of_event = |event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.to_string())
            }
            _ => None,
        };
        Parser::new(markdown).filter_map(of_event).collect()
    }

    /// The links that lead nowhere, each as a sentence. `exists` is asked about files that are none of the documents.
    pub fn broken_links(documents: &Documents, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
        let anchors: BTreeMap<&String, BTreeSet<String>> = documents
            .iter()
            .map(|(file, text)| (file, headings(text).into_iter().map(|it| it.anchor).collect()))
            .collect();
        let mut broken = Vec::new();
        for (file, text) in documents {
            for link in links(text) {
                let Some((path, anchor)) = target(file, &link) else { continue };
                let missing = match (anchors.get(&path), anchor) {
                    (None, _) if exists(&path) => continue,
                    (None, _) => format!("there is no {path}"),
                    (Some(known), Some(anchor)) if !known.contains(&anchor) => {
                        format!("{path} has no heading #{anchor}")
                    }
                    (Some(_), _) => continue,
                };
                broken.push(format!("{file}: the link {link} is broken: {missing}"));
            }
        }
        broken
    }

    /// The documents below `folder` that the index does not list, each as a sentence, and those that it lists twice.
    pub fn unlisted(
        index_file: &str,
        folder: &str,
        documents: &Documents,
        entries: &[Entry],
    ) -> Vec<String> {
        let pages = documents.keys().filter(|file| file.starts_with(folder) && *file != index_file);
        let count = |file: &String| entries.iter().filter(|entry| entry.file == *file).count();
        let wrong = pages.filter(|file| count(file) != 1);
        wrong
            .map(|file| format!("{index_file}: list {file} once, under the heading of its kind"))
            .collect()
    }

    fn documents(texts: &[(&str, &str)]) -> Documents {
        texts.iter().map(|(file, text)| (format!("src/docs/{file}"), (*text).to_owned())).collect()
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found_with_its_file() {
        let texts = documents(&[
            (
                "a.md",
                "# A\n\n[b](b.md) [part](b.md#a-part) [here](#sec-1) [c](../../examples/c.py) [web](https://x.example/#y)\n\n## Sec\n\n## Sec\n",
            ),
            (
                "b.md",
                "# B\n\n## A `part`!\n\n[1](c.md) [2](a.md#none) [3](#nowhere) [4](../README.md) [5](how-to/b.md#x)\n",
            ),
            (
                "how-to/b.md",
                "# H\n\n[up](../a.md#sec) ![picture](gone.png) `[no](link.md)`\n\n    [no](code.md)\n",
            ),
        ]);
        let broken = broken_links(&texts, &|file| file == "examples/c.py");
        assert_eq!(
            broken,
            [
                "src/docs/b.md: the link c.md is broken: there is no src/docs/c.md",
                "src/docs/b.md: the link a.md#none is broken: src/docs/a.md has no heading #none",
                "src/docs/b.md: the link #nowhere is broken: src/docs/b.md has no heading #nowhere",
                "src/docs/b.md: the link ../README.md is broken: there is no src/README.md",
                "src/docs/b.md: the link how-to/b.md#x is broken: src/docs/how-to/b.md has no heading #x",
                "src/docs/how-to/b.md: the link gone.png is broken: there is no src/docs/how-to/gone.png",
            ]
        );
    }

    #[test]
    fn the_index_lists_each_page_once_under_a_known_heading() {
        const INDEX: &str = "src/docs/index.md";
        let listed = |index: &str| {
            let texts = documents(&[("index.md", index), ("a.md", "# A"), ("b/c.md", "# C")]);
            entries(INDEX, index).map(|entries| unlisted(INDEX, "src/docs/", &texts, &entries))
        };
        let whole = "# Home\n\nText\n\n## Tutorials\n\n- [A](a.md): first\n\n## Reference\n\n- [The `c`](b/c.md): the rest\n";
        assert_eq!(listed(whole), Ok(Vec::new()));
        let found = entries(INDEX, whole).unwrap();
        let of = |at: usize| {
            (
                found[at].kind,
                found[at].title.as_str(),
                found[at].file.as_str(),
                found[at].line.as_str(),
            )
        };
        assert_eq!(of(0), ("Tutorials", "A", "src/docs/a.md", "first"));
        assert_eq!(of(1), ("Reference", "The c", "src/docs/b/c.md", "the rest"));
        let missing = "src/docs/index.md: list src/docs/b/c.md once, under the heading of its kind"
            .to_owned();
        assert_eq!(
            listed(&whole.replace("b/c.md", "a.md")).map(|faults| faults.contains(&missing)),
            Ok(true)
        );
        for wrong in [
            whole.replace("Reference", "Other"),
            whole.replace("[A](a.md)", "A"),
            format!("{whole}\n## Tutorials\n"),
        ] {
            assert!(listed(&wrong).is_err(), "{wrong}");
        }
    }
}

#[cfg(test)]
pub use checks::{broken_links, unlisted};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_anchors_of_github() {
        let text = "# A b\n\n## In words\n\n### 4.3 Schedule\n\n## `cued work`\n\n## What's *new*?\n\n## In words\n\n## invalid_state\n";
        let anchors: Vec<String> =
            headings(text).into_iter().map(|heading| heading.anchor).collect();
        assert_eq!(
            anchors,
            [
                "a-b",
                "in-words",
                "43-schedule",
                "cued-work",
                "whats-new",
                "in-words-1",
                "invalid_state"
            ]
        );
        assert_eq!((title(text).as_deref(), title("Text\n\n## A\n")), (Some("A b"), None));
    }

    #[test]
    fn pictures_are_left_out_and_files_of_the_repository_are_named() {
        let destination = |link: &str| match link.strip_prefix("../") {
            Some(path) => Destination::File(path.to_owned()),
            None => Destination::Url(format!("docs/{link}")),
        };
        let render = |text: &str| to_html(&without_pictures(text), &destination).unwrap();
        assert_eq!(
            render(
                "[one](a.md) [two](../b.py) ![x](y.png)\n\n<picture>\n  <img src=\"x\">\n</picture>\n"
            ),
            "<p><a href=\"docs/a.md\">one</a> two (<code>b.py</code>) </p>\n"
        );
        for refused in ["## A <b>\n", "<script>alert(1)</script>\n", "a <i>b</i>\n"] {
            assert!(to_html(refused, &destination).is_err(), "{refused}");
        }
    }
}
