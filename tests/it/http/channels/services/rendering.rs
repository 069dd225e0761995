//! What the reader of a service sees of a request. Panics if a text of ours is markup there.

use cued::domain::channel::ChannelType::{
    self, Discord, Email, Gotify, Mattermost, Ntfy, Pushover, Slack, Teams, Telegram, Webhook,
};

use crate::http::channels::services::receivers::telegram_text;
use crate::support::*;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub title: String,
    /// Without blank lines and without the link.
    pub text: String,
    pub link: Option<String>,
}

/// The words of the link in the messages of these tests.
pub const LABEL: &str = "Open the run";

/// `path` is that of the request.
pub fn shown(service: ChannelType, path: &str, body: &str) -> Shown {
    let body: Value = serde_json::from_str(body).unwrap();
    let (title, text, link) = match service {
        Email => panic!("a mail is not sent to a service"),
        Webhook => (text(&body["title"]), text(&body["text"]), link(&body["link"])),
        Ntfy => push(&body, link(&body["click"])),
        Pushover => push(&body, link(&body["url"])),
        Gotify => gotify(&body),
        Slack if path.starts_with("/services/") => slack(&body),
        Slack => (text(&body["title"]), text(&body["text"]), link(&body["link"])),
        Discord => discord(&body["embeds"][0]),
        Mattermost => mattermost(text(&body["attachments"][0]["text"])),
        Teams => teams(&body["attachments"][0]["content"]),
        Telegram => telegram(text(&body["text"])),
    };
    Shown { title, text: without_blank_lines(&text), link }
}

pub fn without_blank_lines(text: &str) -> String {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

type Parts = (String, String, Option<String>);

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn link(value: &Value) -> Option<String> {
    value.as_str().filter(|link| !link.is_empty()).map(str::to_owned)
}

/// A message without a title is one of a title alone.
fn push(body: &Value, link: Option<String>) -> Parts {
    match body["title"].as_str() {
        Some(title) => (title.to_owned(), text(&body["message"]), link),
        None => (text(&body["message"]), String::new(), link),
    }
}

fn gotify(body: &Value) -> Parts {
    let link = link(&body["extras"]["client::notification"]["click"]["url"]);
    let (title, text, _) = push(body, None);
    let without_link = |text: String| match &link {
        Some(link) => {
            text.strip_suffix(&format!("\n\n{LABEL}: {link}")).unwrap_or(&text).to_owned()
        }
        None => text,
    };
    (without_link(title), without_link(text), link)
}

fn slack(body: &Value) -> Parts {
    let blocks = body.list("blocks");
    let (mut title, mut text, mut link) = (String::new(), String::new(), None);
    for block in blocks {
        let shown = block["text"].text("text");
        match (block.text("type"), block["text"].text("type")) {
            ("header", _) => title = without_entities(shown),
            (_, "plain_text") => text = without_entities(shown),
            _ => {
                let inner =
                    shown.strip_prefix('<').and_then(|link| link.strip_suffix('>')).unwrap();
                let (url, label) = inner.split_once('|').unwrap();
                assert_eq!(label, LABEL);
                link = Some(without_entities(url));
            }
        }
    }
    let notification = without_entities(body.text("text"));
    if title != notification {
        // The whole title is the first line of the text.
        assert!(title.ends_with('…'), "{title}");
        let (whole, rest) = text.split_once('\n').unwrap_or((&text, ""));
        (title, text) = (whole.to_owned(), rest.to_owned());
    }
    (title.strip_prefix("🔴 ").unwrap().to_owned(), text, link)
}

fn discord(embed: &Value) -> Parts {
    const MARKUP: &str = "`*_~|[]<";
    let description = text(&embed["description"]);
    let (before, last) = description.rsplit_once("\n\n").unwrap_or(("", &description));
    let (text, link) = match link_part(last) {
        Some(link) => (before, Some(link)),
        None => (description.as_str(), None),
    };
    if let Some(url) = embed.get("url") {
        assert_eq!(url.as_str(), link.as_deref());
    }
    (inert(embed.text("title"), MARKUP), inert(text, MARKUP), link)
}

fn mattermost(all: String) -> Parts {
    const MARKUP: &str = "`*_~|[]<>";
    assert!(
        !all.contains('@') || all.matches('@').count() == all.matches("@\u{200b}").count(),
        "{all}"
    );
    let all = all.replace("@\u{200b}", "@");
    let (before, last) = all.rsplit_once("\n\n").unwrap_or((&all, ""));
    let (all, link) = match link_part(last) {
        Some(link) => (before, Some(link)),
        None => (all.as_str(), None),
    };
    let (title, text) = all.split_once("\n\n").unwrap_or((all, ""));
    let title = title.strip_prefix("**").and_then(|title| title.strip_suffix("**")).unwrap();
    (without_entities(&inert(title, MARKUP)), without_entities(&inert(text, MARKUP)), link)
}

fn teams(card: &Value) -> Parts {
    let run = |block: &Value| block["inlines"][0].text("text").to_owned();
    let blocks = card.list("body");
    let text: Vec<String> = blocks[1..].iter().map(run).collect();
    (run(&blocks[0]["items"][0]), text.join("\n"), link(&card["actions"][0]["url"]))
}

fn telegram(html: String) -> Parts {
    let (head, rest) = html.split_once("\n\n").unwrap_or((&html, ""));
    let title = head.strip_prefix("🔴 <b>").and_then(|head| head.strip_suffix("</b>")).unwrap();
    let (before, last) = rest.rsplit_once("\n\n").unwrap_or(("", rest));
    let anchor = last
        .strip_prefix("<a href=\"")
        .and_then(|last| last.strip_suffix(&format!("\">{LABEL}</a>")));
    let link = anchor.map(without_entities).or_else(|| link_part(&without_tags(last)));
    let text = if link.is_some() { before } else { rest };
    (without_tags(title), without_tags(text), link)
}

fn without_tags(html: &str) -> String {
    telegram_text(html).unwrap()
}

/// The URL of `[Open the run](URL)`, or of `Open the run: URL`.
fn link_part(part: &str) -> Option<String> {
    let masked = part.strip_prefix(&format!("[{LABEL}](")).and_then(|part| part.strip_suffix(')'));
    masked.or_else(|| part.strip_prefix(&format!("{LABEL}: "))).map(str::to_owned)
}

fn without_entities(text: &str) -> String {
    let rest = text.replace("&lt;", "").replace("&gt;", "").replace("&amp;", "");
    assert!(!rest.contains(['<', '>', '&']), "markup in {text:?}");
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// The text without its backslashes. No character of `markup` is without one.
fn inert(text: &str, markup: &str) -> String {
    let (mut shown, mut chars, mut is_line_start) = (String::new(), text.chars(), true);
    while let Some(char) = chars.next() {
        if char == '\\' {
            let escaped = chars.next().unwrap();
            assert!(escaped.is_ascii_punctuation(), "{escaped:?} in {text:?}");
            shown.push(escaped);
            is_line_start = false;
            continue;
        }
        assert!(!markup.contains(char), "{char:?} is markup in {text:?}");
        assert!(!is_line_start || !"#-+>".contains(char), "{char:?} begins a block in {text:?}");
        shown.push(char);
        is_line_start = char == '\n' || (is_line_start && char == ' ');
    }
    shown
}
