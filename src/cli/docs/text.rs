//! The HTML of a documentation page as text for a terminal, close to its Markdown: paragraphs and tables in the width, code
//! as it is. It reads what `src/build/markdown.rs` writes, and no other HTML.

use unicode_width::UnicodeWidthStr as _;

use crate::cli::docs::table::table;
use crate::cli::output::table::{Style, Styles};
use crate::cli::width::fill;

/// A heading below the title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    pub anchor: String,
    pub text: String,
}

pub fn sections(html: &str) -> Vec<Section> {
    let section = |rest: &str| {
        let (anchor, rest) = rest.split_once("\">")?;
        let (text, _) = rest.split_once("</h")?;
        Some(Section { anchor: anchor.to_owned(), text: inline(text) })
    };
    starts(html).filter_map(|(start, _)| section(&html[start + "<h2 id=\"".len()..])).collect()
}

/// The HTML of a section, up to the next one of its level or above.
pub fn section(html: &str, anchor: &str) -> Option<String> {
    let (start, level) = starts(html)
        .find(|(start, _)| html[start + "<h2 id=\"".len()..].starts_with(&format!("{anchor}\"")))?;
    let end = starts(html).find(|(other, of_other)| *other > start && *of_other <= level);
    Some(html[start..end.map_or(html.len(), |(end, _)| end)].to_owned())
}

/// The places of the headings, and their levels.
fn starts(html: &str) -> impl Iterator<Item = (usize, u8)> {
    html.match_indices(" id=\"").filter_map(|(end, _)| {
        let start = end.checked_sub(3)?;
        let level = html.get(start..end)?.strip_prefix("<h")?.parse().ok()?;
        Some((start, level))
    })
}

/// A text without tags.
fn inline(html: &str) -> String {
    let texts = tokens(html).map(|token| if let Token::Text(text) = token { text } else { "" });
    unescaped(&texts.collect::<String>())
}

#[derive(Debug, Clone, Copy)]
enum Token<'a> {
    /// The name, with a slash if it closes, and the attributes.
    Tag(&'a str, &'a str),
    Text(&'a str),
}

fn tokens(html: &str) -> impl Iterator<Item = Token<'_>> {
    html.split('<').enumerate().flat_map(|(number, part)| {
        let (tag, text) = match part.split_once('>') {
            Some((tag, text)) if number > 0 => (Some(tag), text),
            _ => (None, part),
        };
        let tag = tag.map(|tag| tag.split_once(' ').unwrap_or((tag, "")));
        tag.map(|(name, rest)| Token::Tag(name, rest)).into_iter().chain([Token::Text(text)])
    })
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// The text of a page or a section.
pub fn plain(html: &str, width: usize, styles: &Styles) -> String {
    let mut writer = Writer { width, styles: *styles, ..Writer::default() };
    for token in tokens(html) {
        match token {
            Token::Text(_) if writer.is_left_out => {}
            Token::Text(text) => writer.text(text),
            // The list of the sections serves clicks.
            Token::Tag("nav", _) => writer.is_left_out = true,
            Token::Tag("/nav", _) => writer.is_left_out = false,
            Token::Tag("p", "class=\"kind\"") => writer.is_left_out = true,
            Token::Tag("/p", _) if writer.is_left_out => writer.is_left_out = false,
            Token::Tag(..) if writer.is_left_out => {}
            Token::Tag(name, attributes) => writer.tag(name, attributes),
        }
    }
    writer.end_block();
    format!("{}\n", writer.out.trim_end())
}

#[derive(Default)]
struct Writer {
    out: String,
    /// The text of the block that is being read.
    block: String,
    width: usize,
    styles: Styles,
    is_left_out: bool,
    is_code: bool,
    /// The mark before the first line of the block.
    mark: String,
    /// The number of the next item of each list; 0 if it has no numbers.
    lists: Vec<usize>,
    rows: Vec<Vec<String>>,
    url: Option<String>,
}

impl Writer {
    fn text(&mut self, text: &str) {
        self.block += &unescaped(text);
    }

    fn tag(&mut self, name: &str, attributes: &str) {
        match name {
            "h1" | "h2" | "h3" | "h4" => self.end_block(),
            "/h1" | "/h2" | "/h3" | "/h4" => self.heading(name.trim_start_matches("/h")),
            "p" | "/p" | "/li" => self.end_block(),
            "ul" | "ol" => {
                self.end_block();
                self.lists.push(usize::from(name == "ol"));
            }
            "/ul" | "/ol" => {
                self.end_block();
                self.lists.pop();
                self.gap();
            }
            "li" => self.item(),
            "pre" => {
                self.end_block();
                self.is_code = true;
            }
            "/pre" => self.code(),
            "code" | "/code" if !self.is_code => self.block.push('`'),
            "strong" | "/strong" => self.block += "**",
            "em" | "/em" => self.block.push('*'),
            "br" | "br /" => self.block.push('\n'),
            "a" => {
                let url =
                    attributes.split("href=\"").nth(1).and_then(|rest| rest.split('"').next());
                self.url = url.filter(|url| url.contains("://")).map(unescaped);
            }
            "/a" => {
                if let Some(url) = self.url.take().filter(|url| !self.block.ends_with(url.as_str()))
                {
                    self.block += &format!(" ({url})");
                }
            }
            "table" | "tr" => self.begin_row(name == "table"),
            "/th" | "/td" => {
                let cell = std::mem::take(&mut self.block);
                self.rows
                    .last_mut()
                    .into_iter()
                    .for_each(|row| row.push(words(&cell).join(" ").replace('|', "\\|")));
            }
            "/table" => self.table(),
            _ => {}
        }
    }

    fn heading(&mut self, level: &str) {
        let text = words(&std::mem::take(&mut self.block)).join(" ");
        let marks = "#".repeat(level.parse().unwrap_or(1));
        self.gap();
        let line = self.styles.paint(&format!("{marks} {text}"), Style::Title);
        self.out += &format!("{line}\n\n");
    }

    fn item(&mut self) {
        self.end_block();
        let depth = self.lists.len().saturating_sub(1);
        let mark = match self.lists.last_mut() {
            Some(number) if *number > 0 => {
                *number += 1;
                format!("{}. ", *number - 1)
            }
            _ => "- ".to_owned(),
        };
        self.mark = format!("{:1$}{mark}", "", 2 * depth);
    }

    /// An empty line, if there is none yet.
    fn gap(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// Writes the block as lines of the width.
    fn end_block(&mut self) {
        let text = std::mem::take(&mut self.block);
        let words = words(&text);
        if words.is_empty() {
            return;
        }
        let mark = std::mem::take(&mut self.mark);
        let indent = if mark.is_empty() { 2 * self.lists.len() } else { mark.width() };
        let first = if mark.is_empty() { " ".repeat(indent) } else { mark };
        self.out += &fill(words, first, indent, self.width);
        self.out.push('\n');
        if self.lists.is_empty() {
            self.out.push('\n');
        }
    }

    fn code(&mut self) {
        self.is_code = false;
        let code = std::mem::take(&mut self.block);
        self.gap();
        let indent = 4 + 2 * self.lists.len();
        for line in code.trim_end().lines() {
            let line = format!("{:indent$}{line}", "");
            self.out += &format!("{}\n", line.trim_end());
        }
        self.out.push('\n');
    }

    fn begin_row(&mut self, is_table: bool) {
        if is_table {
            self.end_block();
            self.rows.clear();
            self.gap();
        } else {
            self.block.clear();
            self.rows.push(Vec::new());
        }
    }

    fn table(&mut self) {
        let rows: Vec<Vec<String>> =
            std::mem::take(&mut self.rows).into_iter().filter(|row| !row.is_empty()).collect();
        self.out += &table(&rows, self.width);
        self.out.push('\n');
        self.block.clear();
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}
