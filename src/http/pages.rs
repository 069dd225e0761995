//! Building blocks of the HTML pages (contract §9). A [`Page`] takes values, never markup, so that every text passes
//! the one escape function in this file. A page needs no script and loads no resource.
//!
//! `Page::new("Title").text("…").form(Form::post(path).hidden("token",
//! token).button("Go")).into_response(StatusCode::OK)`

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use hyper::http::uri::PathAndQuery;
use hyper::{StatusCode, header};

use crate::domain::account::credentials::sha256;
use crate::error::Error;
use crate::http::message::{Response, to_refusal};

const STYLE: &str = include_str!("style.css");

/// Longer codes, in bytes, use a smaller font and several lines.
const LONG_CODE: usize = 28;

/// `Content-Security-Policy` of every page: only the style above, forms only to this server, no frames.
pub static CONTENT_SECURITY_POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = STANDARD.encode(sha256(STYLE.as_bytes()));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    // Cannot fail: Base64 contains only characters that a header may have.
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    Success,
    Error,
}

/// A heading, followed by the blocks in the order of the calls.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    body: HtmlBuilder,
}

impl Page {
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), body: HtmlBuilder::default() }
    }

    pub fn text(mut self, text: &str) -> Self {
        self.body.element("p", &[], text);
        self
    }

    pub fn small(mut self, text: &str) -> Self {
        self.body.element("p", &[("class", "small")], text);
        self
    }

    /// Adds a highlighted paragraph. Screen readers announce an error immediately.
    pub fn notice(mut self, kind: NoticeKind, text: &str) -> Self {
        let (class, role) = match kind {
            NoticeKind::Success => ("notice success", "status"),
            NoticeKind::Error => ("notice error", "alert"),
        };
        self.body.element("p", &[("class", class), ("role", role)], text);
        self
    }

    /// Adds a code for comparison, with a label above it.
    pub fn code(mut self, label: &str, code: &str) -> Self {
        let class = if code.len() > LONG_CODE { "code long" } else { "code" };
        self.body.open("div", &[("class", class)]);
        self.body.element("span", &[], label);
        self.body.element("code", &[], code);
        self.body.close("div");
        self
    }

    /// Adds a list of names and values.
    pub fn facts(mut self, facts: &[(&str, String)]) -> Self {
        self.body.open("dl", &[]);
        for (name, value) in facts {
            self.body.element("dt", &[], name);
            self.body.element("dd", &[], value);
        }
        self.body.close("dl");
        self
    }

    pub fn form(mut self, form: &Form) -> Self {
        self.body.open("form", &[("method", "post"), ("action", &form.action)]);
        self.body.0.push('\n');
        self.body.0.push_str(&form.body.0);
        self.body.close("form");
        self
    }

    /// The middleware adds the headers of a page because of the route's `Access::Page`.
    pub fn into_response(self, status: StatusCode) -> Response {
        Response::html(status, self.render())
    }

    fn render(&self) -> String {
        let [mut title, mut heading] = [HtmlBuilder::default(), HtmlBuilder::default()];
        title.element("title", &[], &self.title);
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

/// Hidden values, fields with labels, and buttons, in the order of the calls.
#[derive(Debug, Clone)]
pub struct Form {
    action: String,
    body: HtmlBuilder,
}

impl Form {
    /// Posts to a path of this server (see [`form_action`]).
    pub fn post(action: &str) -> Self {
        Self { action: action.to_owned(), body: HtmlBuilder::default() }
    }

    pub fn hidden(mut self, name: &'static str, value: &str) -> Self {
        self.body.open("input", &[("type", "hidden"), ("name", name), ("value", value)]);
        self.body.0.push('\n');
        self
    }

    /// A field for an email address, which the browser may complete. `error` is about `value`.
    pub fn email(self, label: &str, value: &str, error: Option<&str>) -> Self {
        let kind =
            [("type", "email"), ("autocomplete", "email"), ("maxlength", "254"), ("value", value)];
        self.field("email", label, &kind, error)
    }

    /// A field for the code of a device, which the browser must not complete or correct.
    pub fn device_code(self, label: &str) -> Self {
        let kind = [("type", "text"), ("autocomplete", "off"), ("maxlength", "128"), ("value", "")];
        self.field("code", label, &kind, None)
    }

    fn field(
        mut self,
        name: &'static str,
        label: &str,
        kind: &[(&'static str, &str)],
        error: Option<&str>,
    ) -> Self {
        let error_id = format!("{name}-error");
        let mut attributes = vec![("id", name), ("name", name)];
        attributes.extend_from_slice(kind);
        attributes.extend([
            ("autocapitalize", "none"),
            ("spellcheck", "false"),
            ("required", "required"),
        ]);
        if error.is_some() {
            attributes.extend([("aria-invalid", "true"), ("aria-describedby", error_id.as_str())]);
        }
        self.body.open("div", &[("class", "field")]);
        self.body.element("label", &[("for", name)], label);
        self.body.open("input", &attributes);
        self.body.0.push('\n');
        if let Some(error) = error {
            self.body.element("p", &[("class", "error-text"), ("id", &error_id)], error);
        }
        self.body.close("div");
        self
    }

    /// A choice of one of `options`, each a value and its text.
    pub fn select(
        mut self,
        name: &'static str,
        label: &str,
        options: &[(&str, &str)],
        selected: &str,
    ) -> Self {
        self.body.open("div", &[("class", "field")]);
        self.body.element("label", &[("for", name)], label);
        self.body.open("select", &[("id", name), ("name", name)]);
        for (value, text) in options {
            let mut attributes = vec![("value", *value)];
            attributes.extend((*value == selected).then_some(("selected", "selected")));
            self.body.element("option", &attributes, text);
        }
        self.body.close("select");
        self.body.close("div");
        self
    }

    pub fn button(mut self, label: &str) -> Self {
        self.body.element("button", &[("type", "submit")], label);
        self
    }

    /// A button for an action that removes something.
    pub fn danger_button(mut self, label: &str) -> Self {
        self.body.element("button", &[("type", "submit"), ("class", "danger")], label);
        self
    }
}

/// Renders an error as a page, for a route with `Access::Page`.
pub fn error_response(error: Error, request_id: &str) -> Response {
    let refusal = to_refusal(error, request_id);
    let (_, status) = refusal.code.text_and_status();
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let title = if status.is_server_error() { "Something went wrong" } else { "This did not work" };
    let page = Page::new(title).notice(NoticeKind::Error, &refusal.message);
    let response = page.into_response(status);
    match refusal.retry_after {
        Some(seconds) => response.with(header::RETRY_AFTER, seconds.into()),
        None => response,
    }
}

/// Returns the URL path of a form: `path` below the path of the public URL, which a proxy may add.
pub fn form_action(public_url: &str, path: &str) -> String {
    let rest = public_url.split_once("://").map_or("", |(_, rest)| rest);
    let prefix = rest.find('/').map_or("", |slash| rest[slash..].trim_end_matches('/'));
    // An invalid path could make the form post to another server.
    let prefix = if prefix.parse::<PathAndQuery>().is_ok() { prefix } else { "" };
    format!("{prefix}{path}")
}

/// Writes HTML. The types allow only literal names of elements and attributes; all values are escaped.
#[derive(Debug, Clone, Default)]
struct HtmlBuilder(String);

impl HtmlBuilder {
    fn element(&mut self, name: &'static str, attributes: &[(&'static str, &str)], text: &str) {
        self.open(name, attributes);
        self.push_escaped(text);
        self.close(name);
    }

    fn open(&mut self, name: &'static str, attributes: &[(&'static str, &str)]) {
        self.0.extend(["<", name]);
        for (attribute, value) in attributes {
            self.0.extend([" ", attribute, "=\""]);
            self.push_escaped(value);
            self.0.push('"');
        }
        self.0.push('>');
    }

    fn close(&mut self, name: &'static str) {
        self.0.extend(["</", name, ">\n"]);
    }

    /// The only place that turns a value into HTML. Safe for text and for attributes in double quotes.
    fn push_escaped(&mut self, value: &str) {
        for char in value.chars() {
            match char {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Characters that HTML cannot represent, and marks that change the direction of the text after them.
                '\0'..='\u{8}'
                | '\u{b}'
                | '\u{e}'..='\u{1f}'
                | '\u{7f}'..='\u{9f}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' => self.0.push('\u{fffd}'),
                _ => self.0.push(char),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::domain::api_error::{ErrorCode, Refusal};

    const HOSTILE: &str = "</title></h1><script>alert('1')</script>\" onload=\"x&amp;\u{202e}\0";
    const ESCAPED: &str = "&lt;/title&gt;&lt;/h1&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot; onload=&quot;x&amp;amp;\u{fffd}\u{fffd}";

    fn body(response: &Response) -> String {
        String::from_utf8(response.body.to_vec()).unwrap()
    }

    #[test]
    fn every_value_in_a_page_is_escaped() {
        let form = Form::post(HOSTILE)
            .hidden("token", HOSTILE)
            .email(HOSTILE, HOSTILE, Some(HOSTILE))
            .button(HOSTILE)
            .danger_button(HOSTILE);
        let form = form.select("choice", HOSTILE, &[(HOSTILE, HOSTILE)], "");
        let page = Page::new(HOSTILE)
            .text(HOSTILE)
            .small(HOSTILE)
            .notice(NoticeKind::Error, HOSTILE)
            .code(HOSTILE, HOSTILE);
        let html = body(
            &page.facts(&[(HOSTILE, HOSTILE.to_owned())]).form(&form).into_response(StatusCode::OK),
        );
        assert_eq!(html.matches(ESCAPED).count(), 19, "{html}");
        assert!(!html.contains("<script") && !html.contains("\" onload"), "{html}");
    }

    #[test]
    fn the_content_security_policy_allows_the_style_of_a_page() {
        let html = body(&Page::new("Title").into_response(StatusCode::OK));
        let (_, rest) = html.split_once("<style>").unwrap();
        let (style, _) = rest.split_once("</style>").unwrap();
        let hash = STANDARD.encode(sha256(style.as_bytes()));
        assert!(
            CONTENT_SECURITY_POLICY
                .to_str()
                .unwrap()
                .contains(&format!("style-src 'sha256-{hash}'"))
        );
        assert!(!style.contains("url(") && !style.contains("@import"), "a page loads no resource");
    }

    #[test]
    fn a_refusal_of_a_page_is_a_page_with_its_status() {
        let refusal = Refusal::new(ErrorCode::RateLimitExceeded, "Too many <b>");
        let response = error_response(refusal.retry_after(7).into(), "id");
        assert_eq!(
            (response.status.as_u16(), &response.headers[header::RETRY_AFTER]),
            (429, &"7".parse().unwrap())
        );
        assert!(body(&response).contains("Too many &lt;b&gt;"));
        let fault = error_response(Error::fault("the reason"), "id");
        assert_eq!(fault.status, 500);
        assert!(!body(&fault).contains("the reason"));
    }
}
