//! `cued docs`: the pages of `/docs` in a terminal. Needs neither a server nor a file.

mod table;
mod text;

use std::io::{self, IsTerminal as _};

use clap::{Args, ColorChoice};

use crate::cli::docs::text::{Section, plain, section, sections};
use crate::cli::error::{CliError, failed, not_found};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::table::{Style, Styles};
use crate::cli::output::{print, print_note};
use crate::cli::width::{cut, folded};
use crate::http::docs::{DocsPage, PAGES};

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

/// A page, or a heading of it, with the text that describes it in a list.
type Place = (&'static DocsPage, Section);

/// The page whose headings are error codes.
const ERRORS: &str = "reference/errors";

impl Docs {
    pub fn run(self) -> Result<(), CliError> {
        let styles = Styles::for_stdout(ColorChoice::Auto);
        let width = styles.width.unwrap_or(USUAL_WIDTH).min(MAX_WIDTH);
        let topic = self.topic.join(" ");
        if topic.is_empty() {
            print(&list(&styles, width))?;
            return note("`cued docs TOPIC` prints a page. TOPIC may be an error code.");
        }
        show(&topic, &|html| print(&with_links(html, width, &styles)))
    }
}

/// The topics that a shell completes, and what they are about.
pub fn topics() -> impl Iterator<Item = (&'static str, &'static str)> {
    listed().map(|page| (page.path, page.line))
}

/// What an error code means, and what to do.
pub fn help_of_error(code: &str) -> Option<String> {
    let html = listed().find(|page| page.path == ERRORS)?.article()?;
    let text = plain(&section(&html, code)?, usize::MAX, &Styles::default());
    // After the heading.
    text.split("\n\n").nth(1).map(|text| text.trim_end().to_owned())
}

fn listed() -> impl Iterator<Item = &'static DocsPage> {
    PAGES.iter().filter(|page| !page.kind.is_empty())
}

fn note(text: &str) -> Result<(), CliError> {
    if io::stdout().is_terminal() { print_note(text) } else { Ok(()) }
}

fn article(page: &DocsPage) -> Result<String, CliError> {
    page.article().ok_or_else(|| failed("a page of the documentation cannot be decompressed"))
}

fn list(styles: &Styles, width: usize) -> String {
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

/// The text of a page or a section, and the topics of the pages that it links to: in the text a link is words alone.
fn with_links(html: &str, width: usize, styles: &Styles) -> String {
    let mut topics: Vec<&str> = Vec::new();
    for link in html.split("href=\"../").skip(1) {
        let path = link.trim_start_matches("../").strip_prefix("docs/").unwrap_or_default();
        let path = path.split(['"', '#']).next().unwrap_or_default();
        let topic = listed().find(|page| page.path == path).map(topic_of);
        topics.extend(topic.filter(|topic| !topics.contains(topic)));
    }
    let text = plain(html, width, styles);
    if topics.is_empty() {
        return text;
    }
    let topics = format!("See also (`cued docs TOPIC`): {}", topics.join(", "));
    format!("{text}\n{}\n", folded(&topics, width))
}

/// The shortest topic that means this page.
fn topic_of(page: &'static DocsPage) -> &'static str {
    let last = page.path.rsplit('/').next().unwrap_or_default();
    if let [_] = named(last)[..] { last } else { page.path }
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
/// a list of pages, headings and lines of the index; else by their texts. A URL of `/docs` is a topic too.
fn show(given: &str, print_html: &dyn Fn(&str) -> Result<(), CliError>) -> Result<(), CliError> {
    let topic = given.rsplit_once("/docs/").map_or(given, |(_, path)| path).to_lowercase();
    let (path, anchor) = topic.split_once('#').unwrap_or((&topic, ""));
    if let [page] = named(path)[..] {
        let html = article(page)?;
        let part = if anchor.is_empty() { None } else { section(&html, anchor) };
        return print_html(&part.unwrap_or(html));
    }
    let wanted = topic.replace(' ', "-");
    let forms = forms(&topic);
    let has = |text: &str| forms.iter().any(|form| text.to_lowercase().contains(form));
    let (mut paths, mut titles, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for page in listed() {
        if page.path.contains(&wanted) || has(page.path) {
            paths.push(whole(page));
        } else if has(page.title) {
            titles.push(whole(page));
        } else if has(page.line) {
            others.push(whole(page));
        }
        let html = article(page)?;
        for it in sections(&html) {
            // Only a code: a word such as `try` is the heading of a section, too, and says little without the others.
            if it.anchor == wanted && wanted.contains('_') {
                return print_html(&section(&html, &wanted).unwrap_or_default());
            }
            if has(&it.text) {
                others.push((page, it));
            }
        }
    }
    let mut found = [paths, titles, others].concat();
    // A word in the name of an error alone, such as `timezone`, explains nothing.
    if found.iter().any(|(page, _)| page.path != ERRORS) {
        note(&format!("No page is called {given:?}. Did you mean one of these?"))?;
        return print(&lines(&found));
    }
    found.extend(texts(&forms)?);
    if found.is_empty() {
        let names: Vec<&str> = listed().flat_map(|page| [page.path, page.title]).collect();
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

fn whole(page: &'static DocsPage) -> Place {
    (page, Section { anchor: String::new(), text: page.line.to_owned() })
}

/// The pages whose text has a word that begins like a form, those with most of them first.
fn texts(forms: &[String]) -> Result<Vec<Place>, CliError> {
    let mut found = Vec::new();
    for page in listed() {
        let text = plain(&article(page)?, usize::MAX, &Styles::default()).to_lowercase();
        let begins = |place: usize| !text[..place].ends_with(char::is_alphanumeric);
        let count =
            |form: &String| text.match_indices(form).filter(|(place, _)| begins(*place)).count();
        found.push((forms.iter().map(count).sum::<usize>(), page));
    }
    found.retain(|(count, _)| *count > 0);
    found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    Ok(found.into_iter().map(|(_, page)| whole(page)).collect())
}

fn lines(found: &[Place]) -> String {
    let topic = |(page, section): &Place| match section.anchor.as_str() {
        "" => page.path.to_owned(),
        anchor => format!("{}#{anchor}", page.path),
    };
    let width = found.iter().map(|it| topic(it).len()).max().unwrap_or(0);
    let line = |it: &Place| folded(&format!("{:width$}  {}\n", topic(it), it.1.text), usize::MAX);
    found.iter().take(MAX_FOUND).map(line).collect()
}
