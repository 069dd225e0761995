//! What the formats of several services share: clean text, cuts at a limit in the unit that a service counts, markup, and
//! the look of the moods.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::domain::channel::message::{DIGEST, Message, Mood, TEST};
use crate::domain::text::{is_order_mark, one_line};
use crate::domain::webhook::callback::host_of;

/// The title as one line, which is not empty.
pub fn title(message: &Message) -> String {
    let title: String = message.title.chars().filter(|char| !is_order_mark(*char)).collect();
    let line = one_line(&title, usize::MAX);
    if line.is_empty() { message.event.clone() } else { line }
}

/// The further lines, with `\n` as their only control character.
pub fn text(message: &Message) -> String {
    let clean = |char: char| match char {
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some('\n'),
        '\t' => Some(' '),
        char if char.is_control() || is_order_mark(char) => None,
        char => Some(char),
    };
    let text: String = message.text.replace("\r\n", "\n").chars().filter_map(clean).collect();
    text.trim().to_owned()
}

/// The title and the text for a service that requires a text and shows its own name in place of a missing title.
pub fn title_and_required_text(message: &Message) -> (Option<String>, String) {
    let (title, text) = (title(message), text(message));
    if text.is_empty() { (None, title) } else { (Some(title), text) }
}

/// The text if its characters, each as large as `size` says, are at most `max` in sum; else its beginning with `…`.
pub fn cut(text: &str, max: usize, size: impl Fn(char) -> usize) -> String {
    let (mut total, mut end) = (0, 0);
    for (at, char) in text.char_indices() {
        if total + size('…') <= max {
            end = at;
        }
        total += size(char);
        if total > max {
            return format!("{}…", text[..end].trim_end());
        }
    }
    text.to_owned()
}

/// Of a text with `\n` as its only control character.
pub fn size_in_json(char: char) -> usize {
    char.len_utf8() + usize::from(matches!(char, '"' | '\\' | '\n'))
}

pub fn utf16_len(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The three characters that are markup in HTML, and for Slack.
fn entity(char: char) -> Option<&'static str> {
    match char {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        _ => None,
    }
}

pub fn with_entities(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match entity(char) {
            Some(entity) => escaped.push_str(entity),
            None => escaped.push(char),
        }
    }
    escaped
}

/// UTF-16 units of a character after [`with_entities`].
pub fn size_with_entities(char: char) -> usize {
    entity(char).map_or(char.len_utf16(), str::len)
}

/// Markup of Markdown at the beginning of a line.
const BLOCK_MARKUP: &str = "#-+>=";

/// What follows the number of an item of a list.
const AFTER_NUMBER: &str = ".)";

/// The text with a backslash before each character of `markup`, and before what is markup at the beginning of a line.
pub fn without_markdown(text: &str, markup: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    let (mut is_line_start, mut is_number) = (true, false);
    for char in text.chars() {
        let is_of_block = is_line_start && BLOCK_MARKUP.contains(char)
            || is_number && AFTER_NUMBER.contains(char);
        if markup.contains(char) || is_of_block {
            escaped.push('\\');
        }
        escaped.push(char);
        is_number = (is_line_start || is_number) && char.is_ascii_digit();
        is_line_start = char == '\n' || (is_line_start && char == ' ');
    }
    escaped
}

/// UTF-16 units of a character after [`without_markdown`], at most.
pub fn size_without_markdown(char: char, markup: &str) -> usize {
    let may_be_escaped =
        [markup, BLOCK_MARKUP, AFTER_NUMBER].iter().any(|chars| chars.contains(char));
    char.len_utf16() + usize::from(may_be_escaped)
}

/// The words of the link.
pub fn link_label(message: &Message) -> &'static str {
    match (&message.execution_id, &message.cue_id) {
        (Some(_), _) => "Open the run",
        (None, Some(_)) => "Open the cue",
        _ if message.event == DIGEST => "Open the failed runs",
        _ if message.event == TEST => "Open the channels",
        _ => "Open the alerts",
    }
}

/// The link, with percent-encoding of all that would end it or begin markup in Markdown, HTML or the markup of Slack.
pub fn link(message: &Message) -> Option<String> {
    let encoded = |char: char| {
        let is_plain = char.is_ascii_graphic() && !"\"'()<>\\`|".contains(char);
        let bytes = || char.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
        if is_plain { char.to_string() } else { bytes() }
    };
    message
        .link
        .as_deref()
        .filter(|link| !link.is_empty())
        .map(|link| link.chars().map(encoded).collect())
}

/// Returns whether the host is a name with a dot. Some services take no other URL for one.
pub fn has_dotted_name(url: &str) -> bool {
    let host = host_of(url);
    host.contains('.') && host.parse::<IpAddr>().is_err()
}

/// The instant of the event.
pub fn instant(message: &Message) -> Option<Timestamp> {
    message.at.parse().ok()
}

/// A colour in the form `0xRRGGBB`.
pub fn colour(mood: Mood) -> u32 {
    match mood {
        Mood::Critical => 0xD9_30_25,
        Mood::Warning => 0xF2_99_00,
        Mood::Good => 0x1E_8E_3E,
        Mood::Info => 0x1A_73_E8,
    }
}

/// A sign for services without colours.
pub fn sign(mood: Mood) -> &'static str {
    match mood {
        Mood::Critical => "🔴",
        Mood::Warning => "🟠",
        Mood::Good => "🟢",
        Mood::Info => "🔵",
    }
}
