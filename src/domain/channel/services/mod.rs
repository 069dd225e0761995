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
        .map_err(|_| "should be an absolute http or https URL".to_owned())?;
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
        return Err(format!("should be the address of the server alone, as in {example}"));
    }
    Ok(())
}

fn is_visible(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn host_label(settings: &Settings) -> String {
    host_of(settings.text("url"))
}
