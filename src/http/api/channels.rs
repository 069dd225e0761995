//! `/v1/channels`: the channels that send an account its failures, recoveries and alerts (contract §12).

use std::time::Duration;

use serde_json::json;

use crate::api::channel::{ChannelView, changed_channel, new_channel};
use crate::domain::account::user::User;
use crate::domain::api_error::ErrorCode;
use crate::domain::channel::message::Topic;
use crate::domain::channel::{
    ALL_ALERTS, BUILT_IN_ALERT_WEBHOOK, BUILT_IN_EMAIL, Channel, ChannelType, EXECUTION_FAILED,
    Settings,
};
use crate::domain::row_keys::UserKey;
use crate::error::{Error, Result};
use crate::http::api::alerts::run_test;
use crate::http::list::{ListBody, Pagination};
use crate::http::message::{Request, Response};
use crate::service;
use crate::service::channels::not_found;
use crate::store::accounts::users;
use crate::store::{ReadTx, channels};

/// Longest wait for a test (contract §12).
const MAX_TEST_WAIT: Duration = Duration::from_secs(15);

/// `topics` are those of all notices of the account after the cursor of the channel, or of all of them.
fn view(read: &ReadTx<'_>, channel: Channel, topics: &[Topic]) -> Result<ChannelView> {
    let status = if channel.is_failing() { "failing" } else { "active" };
    let waits = |topic: &&Topic| topic.key > channel.cursor && channel.takes(topic);
    let waiting =
        topics.iter().filter(waits).count() + channels::count_in_outbox(read, channel.key)?;
    Ok(ChannelView { channel, status, waiting, is_built_in: false })
}

/// The channels that are set elsewhere.
fn built_in(user: &User) -> Vec<ChannelView> {
    let with = |name: &str, value: &str| {
        let mut settings = Settings::default();
        settings.set(name, Some(value.to_owned()));
        settings
    };
    let shown = |channel, status| ChannelView { channel, status, waiting: 0, is_built_in: true };
    let at = user.created_at;
    let (name, to, events) = ("Failure emails", with("to", &user.email), &[EXECUTION_FAILED]);
    let email = Channel::built_in(BUILT_IN_EMAIL, name, ChannelType::Email, to, events, at);
    let email = shown(email, if user.confirmed_at.is_some() { "active" } else { "unconfirmed" });
    let alert_webhook = user.alert_webhook_url.as_deref().map(|url| {
        let (id, name, url) = (BUILT_IN_ALERT_WEBHOOK, "Alert webhook", with("url", url));
        let webhook = ChannelType::Webhook;
        shown(Channel::built_in(id, name, webhook, url, &[ALL_ALERTS], at), "active")
    });
    [email].into_iter().chain(alert_webhook).collect()
}

fn find(read: &ReadTx<'_>, user_key: UserKey, id: &str) -> Result<ChannelView> {
    if !matches!(id, BUILT_IN_EMAIL | BUILT_IN_ALERT_WEBHOOK) {
        let channel = channels::find(read, user_key, id)?.ok_or_else(not_found)?;
        let topics = channels::list_topics(read, user_key, channel.cursor)?;
        return view(read, channel, &topics);
    }
    let user = users::find(read, user_key)?.ok_or_else(not_found)?;
    built_in(&user).into_iter().find(|shown| shown.channel.id == id).ok_or_else(not_found)
}

/// Errors: `invalid_state` for a channel that is set elsewhere.
fn require_own(id: &str) -> Result<()> {
    let message = match id {
        BUILT_IN_EMAIL => {
            "This channel is built in: each cue sets with its on_failure whether its failures are mailed"
        }
        BUILT_IN_ALERT_WEBHOOK => {
            "This channel is built in: set or remove the account's alert_webhook_url"
        }
        _ => return Ok(()),
    };
    Err(Error::refused(ErrorCode::InvalidState, message))
}

pub async fn list(request: Request) -> Result<Response> {
    let (user_key, query) = (request.user_key()?, request.query());
    let pagination = query.pagination(50);
    query.finish()?;
    let list = move |read: &ReadTx<'_>| {
        let user = users::find(read, user_key)?;
        let mut found = user.as_ref().map(built_in).unwrap_or_default();
        let topics = channels::list_topics(read, user_key, 0)?;
        for channel in channels::list(read, user_key)? {
            found.push(view(read, channel, &topics)?);
        }
        Ok(found)
    };
    let (found, _turn) = request.read_list(false, list).await?;
    let Pagination { limit, offset } = pagination;
    let total = i64::try_from(found.len()).unwrap_or(i64::MAX);
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    let page = found.iter().skip(skipped).take(limit as usize);
    let list = ListBody::new("channels", page)?;
    Ok(list.with_page("", total, pagination).into_response())
}

pub async fn create(request: Request) -> Result<Response> {
    let user_key = request.user_key()?;
    let new = new_channel(request.fields()?, &request.app.config.callbacks)?;
    let channel = service::channels::create(&request.app, user_key, new)?.await?;
    let shown = ChannelView { channel, status: "active", waiting: 0, is_built_in: false };
    Ok(Response::created(&json!(shown)))
}

pub async fn show(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.param("channel_id").to_owned());
    let shown = request.app.store.read(move |read| find(read, user_key, &id)).await?;
    Ok(Response::ok(&json!(shown)))
}

pub async fn update(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.param("channel_id").to_owned());
    require_own(&id)?;
    loop {
        let of_user = id.clone();
        let stored =
            request.app.store.read(move |read| channels::find(read, user_key, &of_user)).await?;
        let base = stored.ok_or_else(not_found)?.fields;
        let new = changed_channel(request.fields()?, &base, &request.app.config.callbacks)?;
        // Else another request has changed it meanwhile.
        if service::channels::update(&request.app, user_key, id.clone(), base, new).await? {
            return show(request).await;
        }
    }
}

pub async fn delete(request: Request) -> Result<Response> {
    let (user_key, id) = (request.user_key()?, request.param("channel_id").to_owned());
    require_own(&id)?;
    service::channels::delete(&request.app, user_key, id).await?;
    Ok(Response::no_content())
}

/// Sends a test message, and answers when the attempt has ended.
pub async fn test(request: Request) -> Result<Response> {
    let id = request.param("channel_id").to_owned();
    let (mut body, attempt) = run_test(&request, MAX_TEST_WAIT, id).await?;
    body["response"] = attempt.and_then(|attempt| attempt.response).into();
    Ok(Response::ok(&body))
}
