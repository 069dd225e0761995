//! The services that channels send to (contract §12): a module for the format of each, and the table of them. The sender
//! adds `User-Agent`, and signs what a `webhook` channel sends.

mod answer;
mod discord;
mod form;
mod gotify;
mod mattermost;
mod ntfy;
mod pushover;
mod slack;
mod teams;
mod telegram;
mod webhook;

use std::ops::RangeInclusive;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::domain::channel::message::Message;
use crate::domain::channel::secrets::without_own;
use crate::domain::channel::{ChannelType, Settings};
use crate::domain::secret::{Secret, masked, masked_url};
use crate::domain::webhook::callback::{CallbackTarget, host_of};

/// A service: what a channel of its type is told about it, and how a message is sent to it.
#[derive(Debug)]
pub struct Service {
    pub channel_type: ChannelType,
    /// Its name in a text.
    pub name: &'static str,
    /// In the order in which they are shown.
    pub settings: &'static [Setting],
    /// Checks the form of the setting `name` beyond its kind; a URL has passed the checks of `callback.url`.
    /// Errors: text for the user that follows the name of the setting.
    pub check: fn(name: &str, value: &str) -> Result<(), String>,
    /// The second word of the default name: a topic, host or chat.
    pub label: fn(&Settings) -> String,
    /// `None` for `email`, which is sent as a mail.
    pub request: Option<fn(&Settings, &Message) -> ServiceRequest>,
    pub read: fn(&ServiceAnswer<'_>) -> Verdict,
}

#[derive(Debug)]
pub struct Setting {
    pub name: &'static str,
    pub is_required: bool,
    pub kind: SettingKind,
    /// What the service calls it, inside of a sentence.
    pub label: &'static str,
    /// May be empty, as the help.
    pub example: &'static str,
    pub help: &'static str,
}

/// A setting on the command line, where services share one of the same name.
#[derive(Debug)]
pub struct SettingFlag {
    pub name: &'static str,
    pub flag: &'static str,
    /// In the details of a channel.
    pub label: &'static str,
    /// What its value is called.
    pub value: &'static str,
    pub help: &'static str,
    /// The flag that removes it, and its help; `None` of one that no service can be without.
    pub removal: Option<(&'static str, &'static str)>,
}

/// The settings of all services, in display order.
pub const SETTING_FLAGS: [SettingFlag; 8] = [
    setting_flag("to", "ADDRESS", "Address for mails, the confirmed one of the account (email)"),
    setting_flag("url", "URL|@FILE|-", URL),
    SettingFlag {
        removal: Some(("no-token", "No token (ntfy)")),
        ..setting_flag("token", "TOKEN|@FILE|-", "Access token; - and @FILE as for --url")
    },
    SettingFlag {
        removal: Some(("no-priority", "The usual priority (ntfy)")),
        ..setting_flag("priority", "N", "Priority, 1 to 5 (ntfy) [default: by the event]")
    },
    SettingFlag {
        flag: "bot-token",
        label: "bot token",
        ..setting_flag("bot_token", "TOKEN|@FILE|-", BOT_TOKEN)
    },
    SettingFlag { flag: "chat-id", label: "chat id", ..setting_flag("chat_id", "ID", CHAT_ID) },
    setting_flag("user", "KEY|@FILE|-", USER),
    SettingFlag {
        flag: "api-url",
        label: "api url",
        removal: Some(("no-api-url", "The usual API (telegram, pushover)")),
        ..setting_flag("api_url", "URL", API_URL)
    },
];

const URL: &str =
    "URL of the service, with the topic for ntfy; - and @FILE keep it out of the list of processes";
const BOT_TOKEN: &str = "Token of the bot (telegram); - and @FILE as for --url";
const CHAT_ID: &str = "Chat of the bot: a number or @NAME (telegram)";
const USER: &str = "Key of the user or group (pushover); - and @FILE as for --url";
const API_URL: &str = "API of an own server in place of the public one (telegram, pushover)";

const fn setting_flag(name: &'static str, value: &'static str, help: &'static str) -> SettingFlag {
    SettingFlag { name, flag: name, label: name, value, help, removal: None }
}

impl SettingFlag {
    /// The kinds that it has in the services.
    pub fn kinds(&self) -> impl Iterator<Item = &'static SettingKind> {
        let settings = SERVICES.iter().flat_map(|service| service.settings);
        settings.filter(|setting| setting.name == self.name).map(|setting| &setting.kind)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingKind {
    Url,
    /// A URL that lets whoever has it send messages.
    SecretUrl,
    Secret,
    Text,
    Number(RangeInclusive<i64>),
    /// An email address.
    Address,
}

impl SettingKind {
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::Secret | Self::SecretUrl)
    }

    /// A setting of the kind as it reads back.
    pub fn shown(&self, value: &str) -> String {
        match self {
            Self::Secret => masked(value),
            Self::SecretUrl => masked_url(value),
            Self::Url | Self::Text | Self::Number(_) | Self::Address => value.to_owned(),
        }
    }
}

/// A POST. It has secrets, in its URL, headers or body.
#[derive(Debug)]
pub struct ServiceRequest {
    pub url: Secret,
    pub headers: Secret<Vec<(String, String)>>,
    pub body: Secret,
}

#[derive(Debug, Clone, Copy)]
pub struct ServiceAnswer<'a> {
    pub http_status: u16,
    /// They may be missing if the status is a success.
    pub headers: &'a [(String, String)],
    /// The beginning of the body: JSON may be cut.
    pub body: &'a [u8],
    pub now: Timestamp,
}

/// What the answer of a service means for the message. A reason is one line without a URL or a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// The same message can succeed later, or after a change of the channel. `after` is the pause that the service asks
    /// for.
    Retry {
        after: Option<SignedDuration>,
        reason: String,
    },
    /// The service does not take this message: it is not sent again.
    Refused {
        reason: String,
    },
}

/// One row per type of channel, in the order of the types.
pub static SERVICES: &[Service; ChannelType::ALL.len()] = &[
    EMAIL,
    webhook::SERVICE,
    ntfy::SERVICE,
    slack::SERVICE,
    discord::SERVICE,
    mattermost::SERVICE,
    teams::SERVICE,
    telegram::SERVICE,
    gotify::SERVICE,
    pushover::SERVICE,
];

const EMAIL: Service = Service {
    channel_type: ChannelType::Email,
    name: "email",
    settings: &[Setting::required("to", SettingKind::Address, "email address", "")],
    // It is compared with the address of the account.
    check: |_, _| Ok(()),
    label: |settings| settings.text("to").to_owned(),
    request: None,
    read: |_| Verdict::Accepted,
};

/// The text of a service without the secrets of the channel, and with them the URLs that are secret.
pub fn redacted(text: &str, channel_type: ChannelType, settings: &Settings) -> String {
    let secrets = service(channel_type).settings.iter().filter(|own| own.kind.is_secret());
    without_own(text, secrets.filter_map(|setting| settings.get(setting.name)))
}

pub fn service(channel_type: ChannelType) -> &'static Service {
    &SERVICES[channel_type as usize]
}

/// Hosts that belong to one service alone, with the names below them.
const HOSTS: [(&str, ChannelType); 10] = [
    ("ntfy.sh", ChannelType::Ntfy),
    ("hooks.slack.com", ChannelType::Slack),
    ("hooks.slack-gov.com", ChannelType::Slack),
    ("discord.com", ChannelType::Discord),
    ("discordapp.com", ChannelType::Discord),
    ("webhook.office.com", ChannelType::Teams),
    ("logic.azure.com", ChannelType::Teams),
    ("api.powerplatform.com", ChannelType::Teams),
    ("api.telegram.org", ChannelType::Telegram),
    ("api.pushover.net", ChannelType::Pushover),
];

/// The type whose service has this host, which is in lower case.
pub fn service_of_host(host: &str) -> Option<ChannelType> {
    let is_below = |own: &str| {
        host.strip_suffix(own).is_some_and(|start| start.is_empty() || start.ends_with('.'))
    };
    HOSTS.iter().find(|(own, _)| is_below(own)).map(|(_, channel_type)| *channel_type)
}

impl Setting {
    const fn required(
        name: &'static str,
        kind: SettingKind,
        label: &'static str,
        example: &'static str,
    ) -> Self {
        Self { name, is_required: true, kind, label, example, help: "" }
    }

    const fn optional(
        name: &'static str,
        kind: SettingKind,
        label: &'static str,
        example: &'static str,
        help: &'static str,
    ) -> Self {
        Self { name, is_required: false, kind, label, example, help }
    }

    /// The URL of an incoming webhook.
    const fn webhook(example: &'static str) -> Self {
        Self::required("url", SettingKind::SecretUrl, "webhook URL", example)
    }
}

impl ServiceRequest {
    fn json(url: String, body: &Value) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { url: url.into(), headers: headers.into(), body: body.to_string().into() }
    }

    fn with_header(mut self, name: &str, value: String) -> Self {
        self.headers.expose_mut().push((name.to_owned(), value));
        self
    }
}

/// The parts of a URL for a channel of this type. Errors: text for the user, if its host belongs to another service.
fn own_target(channel_type: ChannelType, url: &str) -> Result<CallbackTarget, String> {
    let target = CallbackTarget::parse(url)
        .map_err(|_| "must be an absolute http or https URL".to_owned())?;
    match service_of_host(&target.host).filter(|other| *other != channel_type) {
        Some(other) => Err(format!(
            "this is a URL of {}; use the type {}",
            service(other).name,
            other.as_str()
        )),
        None => Ok(target),
    }
}

/// Checks a URL to which the service's own paths are appended.
fn check_base(channel_type: ChannelType, url: &str, example: &str) -> Result<(), String> {
    own_target(channel_type, url)?;
    if url.contains(['?', '#']) {
        return Err(format!("must be the address of the server alone, as in {example}"));
    }
    Ok(())
}

fn is_visible(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn host_label(settings: &Settings) -> String {
    host_of(settings.text("url"))
}

#[cfg(test)]
mod test_support {
    use super::*;
    use crate::domain::channel::message::Mood;
    use crate::domain::channel::services::answer::header;

    pub const LINK: &str = "https://cued.example.com/#/runs/0190a5c0-0000-7000-8000-000000000001";
    /// The words of the link in [`message`].
    pub const LABEL: &str = "Open the run";

    pub fn message(title: &str, text: &str, link: Option<&str>) -> Message {
        Message {
            id: "7c1c3f0e-5b1c-4d0a-9a55-0c8f5a1b2c3d".to_owned(),
            event: "execution.failed".to_owned(),
            mood: Mood::Critical,
            title: title.to_owned(),
            text: text.to_owned(),
            link: link.map(str::to_owned),
            cue_id: Some("cue_abcdefghijkl".to_owned()),
            cue_name: Some("backup".to_owned()),
            execution_id: Some("0190a5c0-0000-7000-8000-000000000001".to_owned()),
            at: "2026-01-01T10:00:00Z".to_owned(),
            alert: None,
        }
    }

    pub fn settings(given: &[(&str, &str)]) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in given {
            settings.set(name, Some((*value).to_owned()));
        }
        settings
    }

    pub fn body(request: &ServiceRequest) -> Value {
        serde_json::from_str(request.body.expose()).unwrap()
    }

    pub fn sent_header<'a>(request: &'a ServiceRequest, name: &str) -> Option<&'a str> {
        let now = Timestamp::UNIX_EPOCH;
        header(
            &ServiceAnswer { http_status: 200, headers: request.headers.expose(), body: b"", now },
            name,
        )
    }

    /// The setting `name` may have each of the `good` values, and none of the `bad` ones.
    pub fn assert_checked(service: &Service, name: &str, good: &[&str], bad: &[&str]) {
        for value in good {
            assert_eq!((service.check)(name, value), Ok(()), "{value}");
        }
        for value in bad {
            let problem = (service.check)(name, value).unwrap_err();
            let is_rule = ["must be ", "add "].iter().any(|begin| problem.starts_with(begin));
            assert!(is_rule, "{value}: {problem}");
        }
    }

    /// The verdict on an answer: `accepted`, `refused: REASON`, `retry: REASON` or `retry after PAUSE: REASON`.
    pub fn verdict(service: &Service, answer: &ServiceAnswer<'_>) -> String {
        match (service.read)(answer) {
            Verdict::Accepted => "accepted".to_owned(),
            Verdict::Refused { reason } => format!("refused: {reason}"),
            Verdict::Retry { after: None, reason } => format!("retry: {reason}"),
            Verdict::Retry { after: Some(pause), reason } => {
                format!("retry after {pause:#}: {reason}")
            }
        }
    }

    /// As [`verdict`], of an answer without headers.
    pub fn verdict_on(service: &Service, http_status: u16, body: &str) -> String {
        let (body, now) = (body.as_bytes(), Timestamp::UNIX_EPOCH);
        verdict(service, &ServiceAnswer { http_status, headers: &[], body, now })
    }

    /// As [`verdict_on`], with a header of the answer.
    pub fn verdict_with(
        service: &Service,
        http_status: u16,
        (name, value): (&str, &str),
        body: &str,
    ) -> String {
        let headers = [(name.to_owned(), value.to_owned())];
        let (body, now) = (body.as_bytes(), Timestamp::UNIX_EPOCH);
        verdict(service, &ServiceAnswer { http_status, headers: &headers, body, now })
    }

    #[track_caller]
    pub fn assert_verdicts(service: &Service, rows: &[(u16, &str, &str)]) {
        for (http_status, body, expected) in rows {
            assert_eq!(verdict_on(service, *http_status, body), *expected, "{body}");
        }
    }

    /// What the reader of a service sees of a message.
    #[derive(Debug, Default, PartialEq, Eq)]
    pub struct Shown {
        pub title: String,
        /// Without the link.
        pub text: String,
        pub link: Option<String>,
    }

    impl Shown {
        /// A text that ends with its link behind an empty line: `[LABEL](URL)` or `LABEL: URL`.
        pub fn with_link_in_text(title: &str, text: &str) -> Self {
            let (before, last) = text.rsplit_once("\n\n").unwrap_or(("", text));
            let masked =
                last.strip_prefix(&format!("[{LABEL}](")).and_then(|last| last.strip_suffix(')'));
            let link = masked.or_else(|| last.strip_prefix(&format!("{LABEL}: ")));
            let text = if link.is_some() { before } else { text };
            Self { title: title.to_owned(), text: text.to_owned(), link: link.map(str::to_owned) }
        }

        /// A message without a title is one of a title alone.
        pub fn with_optional_title(title: &Value, text: String, link: Option<String>) -> Self {
            match title.as_str() {
                Some(title) => Self { title: title.to_owned(), text, link },
                None => Self { title: text, text: String::new(), link },
            }
        }
    }

    /// A channel with its settings, and the reader of its service.
    pub struct Reader {
        pub service: &'static Service,
        pub settings: Settings,
        /// What is shown of a request that the service takes. Panics if it does not, or if a text of ours is markup.
        pub shown: fn(&ServiceRequest) -> Shown,
    }

    const LOCAL_LINK: &str = "http://nas:8080/#/runs/0190a5c0-0000-7000-8000-000000000001";

    impl Reader {
        pub fn request(&self, message: &Message) -> ServiceRequest {
            self.service.request.unwrap()(&self.settings, message)
        }

        pub fn shown(&self, title: &str, text: &str, link: Option<&str>) -> Shown {
            let request = self.request(&message(title, text, link));
            assert_eq!(sent_header(&request, "Content-Type"), Some("application/json"));
            (self.shown)(&request)
        }

        /// The settings that are required are given and right, and the channel has this label.
        #[track_caller]
        pub fn assert_has_label(&self, label: &str) {
            for Setting { name, is_required, .. } in self.service.settings {
                let value = self.settings.get(name);
                assert!(!is_required || value.is_some(), "{name}");
                let checked = value.map_or(Ok(()), |value| (self.service.check)(name, value));
                assert_eq!(checked, Ok(()), "{name}");
            }
            assert_eq!((self.service.label)(&self.settings), label);
        }

        /// A text of `most` times this character is shown in whole, and a longer one is cut.
        #[track_caller]
        pub fn assert_cuts_text(&self, char: &str, most: usize) {
            let cut = |count| self.shown("title", &char.repeat(count), None).text.ends_with('…');
            assert!(!cut(most) && cut(most + 1), "{char}");
        }

        #[track_caller]
        pub fn assert_cuts_title(&self, char: &str, most: usize) {
            let cut = |count| self.shown(&char.repeat(count), "text", None).title.ends_with('…');
            assert!(!cut(most) && cut(most + 1), "{char}");
        }

        /// Hostile and long messages pass the service, and show what they say.
        #[track_caller]
        pub fn assert_shows_every_message(&self) {
            let hostile = "<b>&lt; *bold* _it_ ~s~ `code` ||x|| @everyone <!channel> <@U123> [x](http://evil) \"q\" \\ 🔥";
            let control = " a\r\nBcc:\tx\u{1b}[31m\u{7}\u{202e} z\u{2028} ";
            let lines = "# head\n- item\n+ more\n> quote\r\n1. one\t<script>alert(1)</script>\u{7}\n\n`*_~|[]\\<>&\"@here\n  - in";
            let shown_lines = "# head\n- item\n+ more\n> quote\n1. one <script>alert(1)</script>\n`*_~|[]\\<>&\"@here\n  - in";
            let long = |text: &str| text.repeat(20_000 / text.chars().count());
            let mut cases = vec![
                ("backup failed 3 times: 503 from nas.lan".to_owned(), String::new()),
                (
                    "backup failed".to_owned(),
                    "The run of Thu 1 Jan 2026, 10:00 UTC will not be retried.".to_owned(),
                ),
                (hostile.to_owned(), hostile.to_owned()),
                (control.to_owned(), lines.to_owned()),
                (long("t"), String::new()),
                (long("🔥"), "short".to_owned()),
            ];
            let hard = ["x", "é", "🔥", "<", "&", "*", "\"", "\\", "@", "- ", "line\n", "\n\nx"];
            for text in hard.into_iter().chain(["<!channel> ", "[x](http://e) "]) {
                cases.push(("title".to_owned(), long(text)));
                cases.push((long(text), long(text)));
            }
            for (title, text) in &cases {
                for link in [None, Some(LINK), Some(LOCAL_LINK)] {
                    let found = self.shown(title, text, link);
                    let whole = title.replace(control, "a Bcc: x [31m z");
                    let whole = whole.split_whitespace().collect::<Vec<_>>().join(" ");
                    assert!(is_whole_or_cut(&found.title, &whole), "{found:?}");
                    let whole = without_blank_lines(text.replace(lines, shown_lines).trim());
                    let shown = without_blank_lines(&found.text);
                    assert!(is_whole_or_cut(&shown, &whole), "{shown:.80} of {text:.80}");
                    assert_eq!(found.link.as_deref(), link);
                }
            }
        }
    }

    /// Returns whether `part` is `whole`, or a beginning of it that was cut.
    fn is_whole_or_cut(part: &str, whole: &str) -> bool {
        let is_start = |start: &str| !start.is_empty() && whole.starts_with(start);
        part == whole || part.strip_suffix('…').is_some_and(is_start)
    }

    fn without_blank_lines(text: &str) -> String {
        let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    }

    pub fn text_of(value: &Value) -> String {
        value.as_str().unwrap_or_default().to_owned()
    }

    pub fn link_of(value: &Value) -> Option<String> {
        value.as_str().filter(|link| !link.is_empty()).map(str::to_owned)
    }

    pub fn without_entities(text: &str) -> String {
        let rest = text.replace("&lt;", "").replace("&gt;", "").replace("&amp;", "");
        assert!(!rest.contains(['<', '>', '&']), "markup in {text:?}");
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    }

    /// The text without its backslashes. No character of `markup` is without one.
    pub fn without_backslashes(text: &str, markup: &str) -> String {
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
            assert!(
                !is_line_start || !"#-+>".contains(char),
                "{char:?} begins a block in {text:?}"
            );
            shown.push(char);
            is_line_start = char == '\n' || (is_line_start && char == ' ');
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::ChannelType::{
        Discord, Email, Gotify, Mattermost, Ntfy, Pushover, Slack, Teams, Telegram, Webhook,
    };
    use crate::domain::channel::services::test_support::*;

    #[test]
    fn each_type_has_its_row_in_the_table() {
        for (channel_type, row) in ChannelType::ALL.into_iter().zip(SERVICES) {
            assert_eq!(row.channel_type, channel_type);
            assert_eq!(service(channel_type).channel_type, channel_type);
            assert_eq!(row.request.is_none(), channel_type == Email);
        }
        for (channel_type, names) in [
            (Ntfy, ["url", "token", "priority"]),
            (Telegram, ["bot_token", "chat_id", "api_url"]),
            (Pushover, ["token", "user", "api_url"]),
        ] {
            let own: Vec<&str> = service(channel_type).settings.iter().map(|it| it.name).collect();
            assert_eq!(own, names);
        }
        assert_eq!(service(Ntfy).settings[2].kind, SettingKind::Number(1..=5));
        assert_eq!((service(Email).label)(&settings(&[("to", "me@a.example")])), "me@a.example");
    }

    #[test]
    fn a_url_of_another_service_names_its_type() {
        for (channel_type, name, url, other) in [
            (Webhook, "url", "https://discord.com/api/webhooks/1/abc", Discord),
            (Webhook, "url", "https://hooks.slack.com/triggers/T0/1/x", Slack),
            (Webhook, "url", "https://ntfy.sh/backups", Ntfy),
            (Webhook, "url", "https://a.webhook.office.com/webhookb2/1", Teams),
            (Slack, "url", "https://discord.com/api/webhooks/123/abc", Discord),
            (Mattermost, "url", "https://hooks.slack.com/services/T0/B0/x", Slack),
            (Teams, "url", "https://discordapp.com/api/webhooks/123/abc", Discord),
            (Discord, "url", "https://x.logic.azure.com/workflows/1", Teams),
            (Gotify, "url", "https://ntfy.sh/backups", Ntfy),
            (Ntfy, "url", "https://api.telegram.org/bot1:x", Telegram),
            (Telegram, "api_url", "https://api.pushover.net", Pushover),
        ] {
            let (named, word) = (service(other).name, other.as_str());
            let expected = format!("this is a URL of {named}; use the type {word}");
            assert_eq!((service(channel_type).check)(name, url), Err(expected));
        }
        for (host, expected) in [
            ("hooks.slack.com", Some(Slack)),
            ("ptb.discord.com", Some(Discord)),
            ("ntfy.sh", Some(Ntfy)),
            ("notntfy.sh", None),
            ("ntfy.sh.example.com", None),
            ("127.0.0.1", None),
        ] {
            assert_eq!(service_of_host(host), expected, "{host}");
        }
    }

    #[test]
    fn a_status_decides_and_a_success_is_what_the_service_confirms() {
        let html = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>ok</body></html>";
        for row in SERVICES.iter().filter(|row| row.channel_type != Email) {
            let on = |http_status, body: &str| verdict_on(row, http_status, body);
            for http_status in [401, 403, 404, 408, 410, 425, 429, 500, 502, 503, 504, 301] {
                let found = on(http_status, "");
                assert!(found.starts_with("retry: "), "{} {http_status}: {found}", row.name);
            }
            for http_status in [413, 422] {
                let found = on(http_status, "");
                assert!(found.starts_with("refused: "), "{} {http_status}: {found}", row.name);
            }
            let is_retried = [Mattermost, Telegram, Pushover].contains(&row.channel_type);
            assert_eq!(on(400, "").starts_with("retry: "), is_retried, "{}", row.name);
            let page = on(502, "<html><body>Bad Gateway</body></html>");
            assert!(page.ends_with(" answered 502"), "{page}");
            for (http_status, body) in [
                (200, html),
                (201, html),
                (202, html),
                (200, ""),
                (200, "{}"),
                (200, r#"{"error":"x"}"#),
                (200, "OK!"),
            ] {
                let found = on(http_status, body);
                if row.channel_type == Webhook {
                    assert_eq!(found, "accepted");
                    continue;
                }
                let is_named = found.contains(&format!(" answered {http_status}"));
                assert!(found.starts_with("retry: "), "{} {body}: {found}", row.name);
                assert!(is_named || body.contains("error"), "{} {body}: {found}", row.name);
                assert!(body != html || found.contains("login page"), "{found}");
            }
        }
    }
}
