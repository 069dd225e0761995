//! Messages of channels: composed when they are due, made into requests of their service, and judged by its answer.

use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::channel::message::Message;
use crate::domain::channel::secrets::without_tokens;
use crate::domain::channel::services::{ServiceAnswer, ServiceRequest, Verdict, redacted, service};
use crate::domain::channel::{ChannelType, after_failure};
use crate::domain::execution::NextStep;
use crate::domain::notification::NotificationKind;
use crate::domain::text::one_line;
use crate::domain::webhook::signature::{SigningSecrets, signature_headers};
use crate::engine::delivery::attempt::SendResult;
use crate::engine::run_while_due;
use crate::engine::webhook_client::{WebhookRequest, WebhookResponse};
use crate::error::{Error, Result};
use crate::service::channels::{self as composer, Untold};
use crate::store::outbox::Notification;
use crate::store::{Pending, WriteTx, channels};

/// Below the 15 s within which a test is answered.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Channels that compose at a time, each in a write of its own.
const BATCH: u32 = 50;

const MAX_EXCERPT: usize = 300;

/// Puts the messages that are due into the outbox. Returns when the next one is; none is while the database is on hold.
pub fn compose_due(app: &App, now: Timestamp) -> Result<Option<Timestamp>> {
    let base = app.config.has_public_url.then(|| app.config.public_url.clone());
    run_while_due(app, now, channels::next_due_at, || {
        let due = app.store.read_blocking(|read| channels::list_due(read, now, BATCH))?;
        let turns = due.into_iter().map(|key| take_turn(app, key, base.clone(), now));
        let writes = turns.filter_map(Result::transpose).collect::<Result<Vec<_>>>()?;
        writes.into_iter().try_for_each(Pending::wait)
    })
}

/// A channel that cannot be read holds up no other: it composes nothing until it is changed.
fn take_turn(
    app: &App,
    key: i64,
    base: Option<String>,
    now: Timestamp,
) -> Result<Option<Pending<()>>> {
    match app.store.read_blocking(|read| composer::plan(read, key, now)) {
        Ok(plan) => Ok(plan.map(|plan| {
            let apply = move |tx: &WriteTx<'_>| composer::apply(tx, plan, base.as_deref(), now);
            app.store.write_with_priority(apply)
        })),
        Err(error @ Error::Storage(_)) => Err(error),
        Err(error) => {
            tracing::error!(channel_row = key, %error, "channel skipped");
            Ok(Some(app.store.write_with_priority(move |tx| channels::stop_looking(tx, key))))
        }
    }
}

/// Makes the reminders that are due. Returns when the next one is; none is while the database is on hold.
pub fn remind_due(app: &App, now: Timestamp) -> Result<Option<Timestamp>> {
    run_while_due(app, now, channels::next_reminder, || {
        app.store.write_with_priority(move |tx| composer::send_reminders(tx, BATCH, now)).wait()
    })
}

/// The request for a message, as its service expects it. Errors: text, if the message cannot be read.
pub fn request(
    notification: &Notification,
    secrets: SigningSecrets<'_>,
    now: Timestamp,
) -> std::result::Result<WebhookRequest, String> {
    let channel = notification.channel.as_ref().ok_or("the notification has no channel")?;
    let message =
        Message::read(notification.body.expose()).ok_or("the stored message cannot be read")?;
    let build = service(channel.channel_type).request.ok_or("the channel sends mails")?;
    let ServiceRequest { url, mut headers, body } = build(&channel.settings, &message);
    if channel.channel_type == ChannelType::Webhook {
        let signature =
            signature_headers(secrets, &notification.id, now.as_second(), body.expose().as_bytes());
        headers
            .expose_mut()
            .extend(signature.into_iter().map(|(name, value)| (name.to_owned(), value)));
    }
    headers
        .expose_mut()
        .push(("User-Agent".to_owned(), concat!("cued/", env!("CARGO_PKG_VERSION")).to_owned()));
    let request = WebhookRequest::post(url, headers, Some(body.into_exposed().into_bytes().into()));
    Ok(WebhookRequest { timeout: Some(TIMEOUT), ..request })
}

/// The next step of a message of a channel, and why the service did not take it; `None` for another notification. A
/// message that the service refuses for what it says is not sent again.
pub fn judge(
    notification: &Notification,
    sent: &SendResult,
    now: Timestamp,
) -> Option<(NextStep, Option<String>)> {
    let channel =
        notification.channel.as_ref().filter(|_| notification.kind == NotificationKind::Channel)?;
    let verdict = match sent {
        Ok(WebhookResponse { http_status, headers, body, .. }) => {
            // Before a reason is cut: the beginning of a secret would remain.
            let body = shown(notification, &String::from_utf8_lossy(body));
            let answer =
                ServiceAnswer { http_status: *http_status, headers, body: body.as_bytes(), now };
            (service(channel.channel_type).read)(&answer)
        }
        Err(error) => Verdict::Retry { after: None, reason: error.to_string() },
    };
    Some(match verdict {
        Verdict::Accepted => (NextStep::Success, None),
        Verdict::Retry { after, reason } => {
            let next = after_failure(channel.failures + 1, after, notification.created_at, now);
            (next, Some(shown(notification, &reason)))
        }
        Verdict::Refused { reason } => (NextStep::Failed, Some(shown(notification, &reason))),
    })
}

/// Nothing but tests is sent in the quiet hours, also not what waited for another attempt.
pub fn quiet_end(notification: &Notification, now: Timestamp) -> Option<Timestamp> {
    let end = notification.channel.as_ref()?.quiet.as_ref()?.end(now)?;
    (!is_test(notification)).then_some(end)
}

/// The failures that nobody has heard of after this end of a message. Read here, because the writer thread reads no
/// messages.
pub fn untold(notification: &Notification, next: NextStep, now: Timestamp) -> Untold {
    if notification.channel.is_none() || next != NextStep::Failed {
        return Untold::Nothing;
    }
    let age = now.duration_since(notification.created_at);
    Untold::after(Message::read(notification.body.expose()).as_ref(), age)
}

pub fn is_test(notification: &Notification) -> bool {
    Message::read(notification.body.expose()).is_some_and(|message| message.is_test())
}

/// A text of a service, which may repeat the request, without the secrets of the channel.
fn shown(notification: &Notification, text: &str) -> String {
    let channel = notification.channel.as_ref();
    channel.map_or_else(
        || text.to_owned(),
        |channel| redacted(text, channel.channel_type, &channel.settings),
    )
}

/// The beginning of an answer, for whoever tests a channel.
pub fn excerpt(notification: &Notification, body: &[u8]) -> String {
    let text = shown(notification, &String::from_utf8_lossy(body));
    without_tokens(&one_line(&text, MAX_EXCERPT))
}
