//! `cued docs`: the pages of `/docs` in a terminal, as they are written in Markdown. Needs neither a server nor a file.

use std::io::{self, IsTerminal as _};

use clap::{Args, ColorChoice};

use crate::cli::error::{Result, failed, not_found};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::table::{Style, Styles};
use crate::cli::output::{print, print_note};
use crate::cli::width::{cut, fill, folded};
use crate::http::docs::{DocsPage, DocsSection, PAGES};

/// Columns of a text: longer lines are hard to read.
const MAX_WIDTH: usize = 100;
/// Where the output is no terminal.
const USUAL_WIDTH: usize = 80;

const MAX_FOUND: usize = 20;

#[derive(Debug, Args)]
pub struct Docs {
    /// Page, such as `schedules`, an error code, or words of a page; a list of the pages without it
    #[arg(value_name = "TOPIC", num_args = 0..)]
    topic: Vec<String>,
}

/// The page whose headings are error codes.
const ERRORS: &str = "reference/errors";

impl Docs {
    pub fn run(self) -> Result {
        let topic = self.topic.join(" ");
        if topic.is_empty() {
            print(&list(&Styles::for_stdout(ColorChoice::Auto)))?;
            return note("`cued docs TOPIC` prints a page. TOPIC may be an error code.");
        }
        show(&topic)
    }
}

/// The topics that a shell completes, and what they are about: a person writes a page without its folder.
pub fn topics() -> impl Iterator<Item = (&'static str, &'static str)> {
    listed().map(|page| (page.path.rsplit('/').next().unwrap_or(page.path), page.line))
}

/// What an error code means, and what to do.
pub fn help_of_error(code: &str) -> Option<String> {
    let page = listed().find(|page| page.path == ERRORS)?;
    let markdown = page.markdown()?;
    let text = section(page, &markdown, code)?;
    // After the heading.
    text.split("\n\n").nth(1).map(|text| without_links(&text.trim_end().replace('\n', " ")))
}

/// A text with the words of its links alone.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut words = parts.next().unwrap_or_default().to_owned();
    for rest in parts.filter_map(|part| part.split_once(')')).map(|(_, rest)| rest) {
        if let Some(start) = words.rfind('[') {
            words.remove(start);
        }
        words += rest;
    }
    words
}

fn listed() -> impl Iterator<Item = &'static DocsPage> {
    PAGES.iter().filter(|page| !page.kind.is_empty())
}

fn note(text: &str) -> Result {
    if io::stdout().is_terminal() { print_note(text) } else { Ok(()) }
}

fn markdown(page: &DocsPage) -> Result<String> {
    page.markdown().ok_or_else(|| failed("a page of the documentation cannot be decompressed"))
}

fn list(styles: &Styles) -> String {
    let width = styles.width.unwrap_or(USUAL_WIDTH).min(MAX_WIDTH);
    let (mut text, mut kind) = (String::new(), "");
    let name_width = listed().map(|page| page.path.len()).max().unwrap_or(0);
    for page in listed() {
        if page.kind != kind {
            kind = page.kind;
            let gap = if text.is_empty() { "" } else { "\n" };
            text += &format!("{gap}{}\n", styles.paint(kind, Style::Title));
        }
        let line = format!("  {:name_width$}  {}", page.path, page.line);
        text += &format!("{}\n", cut(&line, width));
    }
    text
}

/// The text of a section, up to the next one of its level or above.
fn section<'a>(page: &DocsPage, markdown: &'a str, anchor: &str) -> Option<&'a str> {
    let index = page.sections.iter().position(|it| it.anchor == anchor)?;
    let (own, after) = (&page.sections[index], &page.sections[index + 1..]);
    let end = after.iter().find(|it| it.level <= own.level).map_or(markdown.len(), |it| it.start);
    markdown.get(own.start..end)
}

/// Prints a text: at a terminal with its paragraphs in the width, else as it is.
fn print_text(text: &str) -> Result {
    let text = match Styles::for_stdout(ColorChoice::Never).width {
        Some(width) => in_width(text, width.min(MAX_WIDTH)),
        None => text.to_owned(),
    };
    print(&format!("{}\n", text.trim_end()))
}

/// Paragraphs and items of lists in the width. Headings, tables and code stay.
fn in_width(markdown: &str, width: usize) -> String {
    let (mut text, mut block, mut is_code) = (String::new(), String::new(), false);
    // An empty line ends the last block.
    for line in markdown.lines().chain([""]) {
        let content = line.trim_start();
        let is_fence = content.starts_with("```");
        let stays = is_code || is_fence || content.is_empty() || content.starts_with(['#', '|']);
        if !stays && !is_item(content) && !block.is_empty() {
            block += &format!(" {content}");
            continue;
        }
        let words = block.trim_start();
        let indent = block.len() - words.len();
        let below = if is_item(words) { indent + 2 } else { indent };
        text += &fill(words.split_whitespace(), " ".repeat(indent), below, width);
        text += if block.is_empty() { "" } else { "\n" };
        block.clear();
        if stays {
            text += &format!("{line}\n");
        } else {
            block += line;
        }
        is_code ^= is_fence;
    }
    text
}

/// Whether a block begins with `-` or `1.`.
fn is_item(text: &str) -> bool {
    let mark = text.split(' ').next().unwrap_or_default();
    mark == "-" || mark.strip_suffix('.').is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The page of this path, else those with this last part of the path or this title.
fn named(path: &str) -> Vec<&'static DocsPage> {
    let is_named = |page: &&DocsPage| {
        page.path.rsplit('/').next() == Some(path) || page.title.to_lowercase() == path
    };
    match listed().find(|page| page.path == path) {
        Some(page) => vec![page],
        None => listed().filter(is_named).collect(),
    }
}

/// Shows a page by its path, its last part or its title, a section by its anchor, and by a part of their names
/// a list of pages, headings and lines of the index; else by their texts. A URL of `/docs` and the target of a link of a
/// page are topics too.
fn show(given: &str) -> Result {
    let topic = given.rsplit_once("/docs/").map_or(given, |(_, path)| path).to_lowercase();
    let (path, anchor) = topic.split_once('#').unwrap_or((&topic, ""));
    let path = path.trim_start_matches("../");
    if let [page] = named(path.strip_suffix(".md").unwrap_or(path))[..] {
        let text = markdown(page)?;
        return print_text(section(page, &text, anchor).unwrap_or(&text));
    }
    let wanted = topic.replace(' ', "-");
    let forms = forms(&topic);
    let has = |text: &str| forms.iter().any(|form| text.to_lowercase().contains(form));
    let mut found = Vec::new();
    for page in listed() {
        let fits = [page.path.contains(&wanted) || has(page.path), has(page.title), has(page.line)];
        let rank = fits.iter().position(|fits| *fits);
        found.extend(rank.map(|rank| (rank, page, None)));
        for it in page.sections.iter().filter(|it| it.level > 1) {
            // Only a code: a word such as `try` is the heading of a section, too, and says little without the others.
            if it.anchor == wanted && wanted.contains('_') {
                return print_text(section(page, &markdown(page)?, &wanted).unwrap_or_default());
            }
            found.extend(has(it.text).then_some((fits.len() - 1, page, Some(it))));
        }
    }
    found.sort_by_key(|(rank, ..)| *rank);
    let mut found: Vec<_> = found.into_iter().map(|(_, page, part)| (page, part)).collect();
    // A word in the name of an error alone, such as `timezone`, explains nothing.
    if found.iter().any(|(page, _)| page.path != ERRORS) {
        note(&format!("No page is called {given:?}. Did you mean one of these?"))?;
        return print(&lines(&found));
    }
    found.extend(texts(&forms)?.into_iter().map(|page| (page, None)));
    if found.is_empty() {
        let names: Vec<&str> = topics().map(|(topic, _)| topic).collect();
        let advice = did_you_mean(given, names, "`cued docs` lists the pages");
        return Err(not_found(format!("the documentation has no {given:?}; {advice}")));
    }
    note(&format!("No page or heading is called {given:?}. It is in the text of:"))?;
    print(&lines(&found))
}

/// A topic in the singular and the plural, where one is no part of the other.
fn forms(topic: &str) -> Vec<String> {
    let singular = topic.strip_suffix("ies").map(|stem| format!("{stem}y"));
    let plural = topic.strip_suffix('y').map(|stem| format!("{stem}ies"));
    [Some(topic.to_owned()), singular, plural].into_iter().flatten().collect()
}

/// The pages whose text has a word that begins like a form, those with most of them first.
fn texts(forms: &[String]) -> Result<Vec<&'static DocsPage>> {
    let mut found = Vec::new();
    for page in listed() {
        let text = markdown(page)?.to_lowercase();
        let begins = |place: usize| !text[..place].ends_with(char::is_alphanumeric);
        let count =
            |form: &String| text.match_indices(form).filter(|(place, _)| begins(*place)).count();
        found.push((forms.iter().map(count).sum::<usize>(), page));
    }
    found.retain(|(count, _)| *count > 0);
    found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    Ok(found.into_iter().map(|(_, page)| page).collect())
}

/// Pages and headings of them, each with the topic that shows it.
fn lines(found: &[(&DocsPage, Option<&DocsSection>)]) -> String {
    let topic = |(page, section): &(&DocsPage, Option<&DocsSection>)| match section {
        Some(section) => (format!("{}#{}", page.path, section.anchor), section.text),
        None => (page.path.to_owned(), page.line),
    };
    let found: Vec<_> = found.iter().map(topic).collect();
    let width = found.iter().map(|(topic, _)| topic.len()).max().unwrap_or(0);
    let line =
        |(topic, text): &(String, &str)| folded(&format!("{topic:width$}  {text}\n"), usize::MAX);
    found.iter().take(MAX_FOUND).map(line).collect()
}
