//! What the few HTML pages are made of (contract §9): a [`Page`] takes values and no markup, so that every text that
//! it shows went through the one escape in here. A page needs no script and loads nothing.
//!
//! `Page::new("Title").text("…").form(Form::post(path).hidden("token", token).button("Go")).reply(StatusCode::OK)`

pub mod device_login;
mod form;
pub mod manual_billing;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{self, HeaderValue};
use hyper::{StatusCode, http::uri::PathAndQuery};

pub use form::{Form, FormField, FormFieldKind};

use crate::domain::account::credentials::sha256;
use crate::error::Error;
use crate::http::response::{Response, refusal_of};

const STYLE: &str = include_str!("style.css");

/// A code of more bytes is set smaller, over several lines.
const LONG_CODE: usize = 28;

/// `Content-Security-Policy` of every page: its own style and nothing else, forms only to this server, never framed.
pub static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = STANDARD.encode(sha256(STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    // Base64 and what stands around it are letters that a header may have.
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// How a notice is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// Something went well.
    Good,
    /// Something is wrong.
    Bad,
}

/// A page under construction: a heading and blocks below it, in the order in which they are added.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    body: HtmlBuilder,
}

impl Page {
    /// A page with its title, which is its heading too.
    #[must_use]
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), body: HtmlBuilder::default() }
    }

    /// A paragraph.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.body.element("p", &[], text);
        self
    }

    /// A paragraph of less weight.
    #[must_use]
    pub fn small(mut self, text: &str) -> Self {
        self.body.element("p", &[("class", "small")], text);
        self
    }

    /// A paragraph that stands out; a bad one is read out at once by screen readers.
    #[must_use]
    pub fn notice(mut self, kind: NoticeKind, text: &str) -> Self {
        let (class, role) = match kind {
            NoticeKind::Good => ("notice good", "status"),
            NoticeKind::Bad => ("notice bad", "alert"),
        };
        self.body.element("p", &[("class", class), ("role", role)], text);
        self
    }

    /// A code to compare letter by letter, with what it is above it.
    #[must_use]
    pub fn code(mut self, label: &str, code: &str) -> Self {
        let class = if code.len() > LONG_CODE { "code long" } else { "code" };
        self.body.open("div", &[("class", class)]);
        self.body.element("span", &[], label);
        self.body.element("code", &[], code);
        self.body.close("div");
        self
    }

    /// Names and values, one below the other.
    #[must_use]
    pub fn facts(mut self, facts: &[(&str, &str)]) -> Self {
        self.body.open("dl", &[]);
        for (name, value) in facts {
            self.body.element("dt", &[], name);
            self.body.element("dd", &[], value);
        }
        self.body.close("dl");
        self
    }

    /// A form.
    #[must_use]
    pub fn form(mut self, form: &Form) -> Self {
        form.write(&mut self.body);
        self
    }

    /// The page as an answer. The headers of a page come from its door, `Door::Page`.
    #[must_use]
    pub fn reply(self, status: StatusCode) -> Response {
        Response::html(status, self.render())
    }

    fn render(&self) -> String {
        let mut title = HtmlBuilder::default();
        title.element("title", &[], &self.title);
        let mut heading = HtmlBuilder::default();
        heading.element("h1", &[], &self.title);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"robots\" content=\"noindex\">\n\
             <meta name=\"format-detection\" content=\"telephone=no\">\n{}<style>{STYLE}</style>\n</head>\n\
             <body>\n<main>\n{}{}</main>\n<footer>cued</footer>\n</body>\n</html>\n",
            title.0, heading.0, self.body.0
        )
    }
}

/// The page in place of an error's JSON, for a request that came through `Door::Page`.
#[must_use]
pub fn failed(error: Error, request_id: &str) -> Response {
    let refusal = refusal_of(error, request_id);
    let (_, status) = refusal.code.text_and_status();
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let title = if status.is_server_error() { "Something went wrong" } else { "This did not work" };
    let page = Page::new(title).notice(NoticeKind::Bad, &refusal.message);
    let reply = page.reply(status);
    match refusal.retry_after {
        Some(seconds) => reply.with(header::RETRY_AFTER, seconds.into()),
        None => reply,
    }
}

/// Where a form of this server posts to: `path` below the path of its public URL, which a proxy may have given it.
#[must_use]
pub fn action(public_url: &str, path: &str) -> String {
    let rest = public_url.split_once("://").map_or("", |(_, rest)| rest);
    let prefix = rest.find('/').map_or("", |slash| rest[slash..].trim_end_matches('/'));
    // A prefix that is no path would lead elsewhere.
    let prefix = if prefix.parse::<PathAndQuery>().is_ok() { prefix } else { "" };
    format!("{prefix}{path}")
}

/// HTML that is being written. Names of elements and attributes are the program's own, values are escaped.
#[derive(Debug, Clone, Default)]
struct HtmlBuilder(String);

impl HtmlBuilder {
    fn element(&mut self, name: &'static str, attributes: &[(&'static str, &str)], text: &str) {
        self.open(name, attributes);
        self.escaped(text);
        self.close(name);
    }

    fn open(&mut self, name: &'static str, attributes: &[(&'static str, &str)]) {
        self.0.push('<');
        self.0.push_str(name);
        for (attribute, value) in attributes {
            self.0.push(' ');
            self.0.push_str(attribute);
            self.0.push_str("=\"");
            self.escaped(value);
            self.0.push('"');
        }
        self.0.push('>');
    }

    fn close(&mut self, name: &'static str) {
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push_str(">\n");
    }

    /// The one place where a value becomes HTML, for text and for attributes in double quotes alike.
    fn escaped(&mut self, value: &str) {
        for char in value.chars() {
            match char {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // What HTML has no way to say, and marks that turn the reading direction of what follows.
                '\0'..='\u{8}' | '\u{b}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}' => {
                    self.0.push('\u{fffd}')
                }
                '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    self.0.push('\u{fffd}');
                }
                _ => self.0.push(char),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::api_error::{ErrorCode, Refusal};

    const NASTY: &str = "</title></h1><script>alert('1')</script>\" onload=\"x&amp;\u{202e}\0";
    const SHOWN: &str = "&lt;/title&gt;&lt;/h1&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=&quot;x&amp;amp;\u{fffd}\u{fffd}";

    fn body(reply: &Response) -> String {
        String::from_utf8(reply.body.to_vec()).unwrap()
    }

    #[test]
    fn values_in_a_page_are_escaped() {
        let field = FormField {
            name: "email",
            label: NASTY,
            kind: FormFieldKind::Email,
            value: NASTY,
            fault: Some(NASTY),
        };
        let form = Form::post(NASTY).hidden("token", NASTY).field(&field).button(NASTY).grave_button(NASTY);
        let page =
            Page::new(NASTY).text(NASTY).small(NASTY).notice(NoticeKind::Bad, NASTY).code(NASTY, NASTY);
        let html = body(&page.facts(&[(NASTY, NASTY)]).form(&form).reply(StatusCode::OK));
        assert_eq!(html.matches(SHOWN).count(), 16, "{html}");
        assert!(!html.contains("<script") && !html.contains("\" onload"), "{html}");
    }

    #[test]
    fn the_content_security_policy_allows_the_style_sheet() {
        let html = body(&Page::new("Title").reply(StatusCode::OK));
        let (_, rest) = html.split_once("<style>").unwrap();
        let (style, _) = rest.split_once("</style>").unwrap();
        let hash = STANDARD.encode(sha256(style.as_bytes()));
        assert!(POLICY.to_str().unwrap().contains(&format!("style-src 'sha256-{hash}'")));
        assert!(!style.contains("url(") && !style.contains("@import"), "a page loads nothing");
    }

    #[test]
    fn an_error_of_a_page_is_a_page_with_its_status() {
        let refusal = Refusal::new(ErrorCode::RateLimitExceeded, "Too many <b>");
        let reply = failed(Refusal { retry_after: Some(7), ..refusal }.into(), "id");
        assert_eq!(
            (reply.status.as_u16(), &reply.headers[header::RETRY_AFTER]),
            (429, &"7".parse().unwrap())
        );
        assert!(body(&reply).contains("Too many &lt;b&gt;"));
        let fault = failed(Error::Fault("the reason".to_owned()), "id");
        assert_eq!(fault.status, 500);
        assert!(!body(&fault).contains("the reason"));
    }

    #[test]
    fn forms_post_below_the_path_of_the_public_url() {
        for (url, expected) in [
            ("http://127.0.0.1:8000", "/x"),
            ("https://example.com/", "/x"),
            ("https://example.com/cued", "/cued/x"),
            ("https://example.com/a/b/", "/a/b/x"),
        ] {
            assert_eq!(action(url, "/x"), expected, "{url}");
        }
    }
}
