//! Many cues and channels in one write, all or nothing (contract §4.18).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::channel::services::{SettingKind, service};
use crate::domain::channel::{Channel, ChannelFields, masked, masked_url};
use crate::domain::cue::Cue;
use crate::domain::cue::slug::Slug;
use crate::domain::ids::CueId;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::error::{Error, Result};
use crate::service::channels::{change, insert, new_id};
use crate::service::cues::{ChangeContext, FoundCue, PutAction, PutCue, delete_later};
use crate::store::accounts::idempotency::{
    IdempotencyRequest, StoredResponse, find_response, store_response,
};
use crate::store::accounts::users;
use crate::store::{Pending, WriteTx, channels, cues};
use crate::system::random;

/// Cues of a request, and cues that one deletes: all are in one write, for which due runs wait.
pub const MAX_CUES: usize = 500;

#[derive(Debug)]
pub struct ApplyRequest {
    /// Of different slugs.
    pub cues: Vec<PutCue>,
    /// Of different names.
    pub channels: Vec<ChannelFields>,
    pub prune: Option<Prune>,
    pub is_dry_run: bool,
}

/// The other cues of a namespace are deleted.
#[derive(Debug)]
pub struct Prune {
    pub namespace: String,
    /// Slugs of cues that stay although the request does not have them.
    pub kept: BTreeSet<String>,
}

/// The payload that the cue of a slug had when it was compared, which is too much work for the thread that writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct SeenPayload {
    /// The keys of the cue and of its payload; `None` if there was no such cue.
    pub keys: Option<(CueKey, Option<i64>)>,
    pub is_other: bool,
}

/// What a refusal is about: the index of an object in the request, or more than one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Whole,
    Channel(usize),
    Prune,
    Cue(usize),
}

#[derive(Debug)]
pub struct AppliedCue {
    pub index: usize,
    pub action: PutAction,
    pub before: Option<Cue>,
    pub cue: Cue,
    /// As [`crate::service::cues::PutResult`] has them.
    pub changed: Vec<&'static str>,
}

#[derive(Debug)]
pub struct AppliedChannel {
    pub index: usize,
    pub id: String,
    pub before: Option<ChannelFields>,
}

#[derive(Debug)]
pub struct PrunedCue {
    pub id: String,
    pub slug: String,
    pub next_run: Option<Timestamp>,
}

/// What was done, or would be.
#[derive(Debug, Default)]
pub struct Applied {
    pub channels: Vec<AppliedChannel>,
    pub cues: Vec<AppliedCue>,
    pub pruned: Vec<PrunedCue>,
    /// Nothing was done if there is one.
    pub refused: Vec<(Target, Refusal)>,
}

#[derive(Debug)]
pub enum Attempt {
    /// The answer is stored already.
    Answered(StoredResponse),
    Done(Applied),
    /// A payload has changed since it was compared.
    Stale,
}

/// `seen` has an entry for each cue. `render` is called if the answer is stored. Errors: `idempotency_conflict`.
pub fn apply(
    app: &App,
    caller: &Caller,
    request: Arc<ApplyRequest>,
    seen: Vec<SeenPayload>,
    call: Option<IdempotencyRequest>,
    render: impl FnOnce(&Applied) -> Result<StoredResponse> + Send + 'static,
) -> Result<Pending<Attempt>> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let new_cue = |_: &PutCue| CueId::generate(now, random::fill).map(|id| id.to_string());
    let job = Job {
        user_key,
        now,
        context: ChangeContext::new(app, caller, now),
        new_cues: request.cues.iter().map(new_cue).collect::<Result<_>>()?,
        new_channels: request.channels.iter().map(|_| new_id()).collect::<Result<_>>()?,
        request,
    };
    let plans = app.config.plans.clone();
    // A dry run is no repetition of the request, and none of it.
    let call = call.filter(|_| !job.request.is_dry_run);
    Ok(app.store.write_for(user_key, move |tx| {
        if let Some(response) = find_response(tx, user_key, call.as_ref(), now)? {
            return Ok(Attempt::Answered(response));
        }
        let Some(found) = job.find(tx, &seen)? else { return Ok(Attempt::Stale) };
        let (mut applied, mut stored, mut is_undone) = (Applied::default(), None, false);
        let written = tx.part(|tx| {
            let write = || job.write(tx, found, &mut applied);
            users::check_storage_quota(tx, &plans, user_key, write)?;
            is_undone = job.request.is_dry_run || !applied.refused.is_empty();
            if is_undone {
                return Err(undone());
            }
            if call.is_none() {
                return Ok(());
            }
            let response = stored.insert(render(&applied)?);
            let store = |tx: &WriteTx<'_>| {
                let store = || store_response(tx, user_key, call.as_ref(), response, now);
                users::check_storage_quota(tx, &plans, user_key, store)
            };
            match tx.part(store) {
                // The work is done, so a full account does not refuse it: it would be the same again.
                Ok(()) | Err(Error::Refused(_)) => Ok(()),
                Err(error) => Err(error),
            }
        });
        match written {
            Err(Error::Refused(refusal)) if refusal.code == ErrorCode::StorageLimitExceeded => {
                applied.refused.push((Target::Whole, refusal));
            }
            Err(Error::Refused(_)) if is_undone => {}
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        applied.refused.sort_by_key(|(target, _)| *target);
        Ok(stored.map_or(Attempt::Done(applied), Attempt::Answered))
    }))
}

/// Ends a part that must change nothing.
fn undone() -> Error {
    Error::refused(ErrorCode::InvalidState, "Nothing was done")
}

struct Job {
    user_key: UserKey,
    now: Timestamp,
    context: ChangeContext,
    /// An id for each cue and each channel, if it is created.
    new_cues: Vec<String>,
    new_channels: Vec<String>,
    request: Arc<ApplyRequest>,
}

impl Job {
    /// The cues with the slugs of the request; `None` if one has another payload than was seen.
    fn find(
        &self,
        tx: &WriteTx<'_>,
        seen: &[SeenPayload],
    ) -> Result<Option<Vec<Option<FoundCue>>>> {
        let mut found = Vec::with_capacity(seen.len());
        for (put, seen) in self.request.cues.iter().zip(seen) {
            let slug = put.request.fields.slug.as_ref();
            let cue = slug.map_or(Ok(None), |slug| cues::find_by_slug(tx, self.user_key, slug))?;
            if cue.as_ref().map(|cue| (cue.key, cue.payload_key)) != seen.keys {
                return Ok(None);
            }
            found.push(cue.map(|cue| FoundCue { cue, has_other_payload: seen.is_other }));
        }
        Ok(Some(found))
    }

    /// Refusals do not end it, so that all are found.
    fn write(
        &self,
        tx: &WriteTx<'_>,
        found: Vec<Option<FoundCue>>,
        applied: &mut Applied,
    ) -> Result<()> {
        let stored = channels::list(tx, self.user_key)?;
        for (index, new) in self.request.channels.iter().enumerate() {
            match accepted(tx.part(|tx| self.put_channel(tx, index, new, &stored)))? {
                Ok(channel) => applied.channels.push(channel),
                Err(refusal) => applied.refused.push((Target::Channel(index), refusal)),
            }
        }
        if let Some(prune) = &self.request.prune {
            match accepted(tx.part(|tx| self.prune(tx, prune)))? {
                Ok(pruned) => applied.pruned = pruned,
                Err(refusal) => applied.refused.push((Target::Prune, refusal)),
            }
        }
        let mut waiting = Vec::new();
        for (index, found) in found.into_iter().enumerate() {
            match accepted(tx.part(|tx| self.put_cue(tx, index, found.clone())))? {
                Ok(cue) => applied.cues.push(cue),
                // A later one may make room for it.
                Err(refusal) if refusal.code == ErrorCode::CueLimitExceeded => {
                    waiting.push((index, found));
                }
                Err(refusal) => applied.refused.push((Target::Cue(index), refusal)),
            }
        }
        for (index, found) in waiting {
            match accepted(tx.part(|tx| self.put_cue(tx, index, found)))? {
                Ok(cue) => applied.cues.push(cue),
                Err(refusal) => applied.refused.push((Target::Cue(index), refusal)),
            }
        }
        applied.cues.sort_by_key(|cue| cue.index);
        Ok(())
    }

    fn put_cue(
        &self,
        tx: &WriteTx<'_>,
        index: usize,
        found: Option<FoundCue>,
    ) -> Result<AppliedCue> {
        let before = found.as_ref().map(|found| found.cue.clone());
        let put = &self.request.cues[index];
        let result = self.context.put(tx, found, put, &self.new_cues[index])?;
        Ok(AppliedCue {
            index,
            action: result.action,
            before,
            cue: result.cue,
            changed: result.changed,
        })
    }

    fn prune(&self, tx: &WriteTx<'_>, prune: &Prune) -> Result<Vec<PrunedCue>> {
        let of_request =
            self.request.cues.iter().filter_map(|put| put.request.fields.slug.as_ref());
        let of_request: BTreeSet<&str> = of_request.map(Slug::as_str).collect();
        let mut pruned = Vec::new();
        for (id, slug, next_run) in cues::list_namespace(tx, self.user_key, &prune.namespace)? {
            if !of_request.contains(slug.as_str()) && !prune.kept.contains(&slug) {
                pruned.push(PrunedCue { id, slug, next_run });
            }
        }
        if pruned.len() > MAX_CUES {
            let reason = format!(
                "would delete {} cues, and a request deletes at most {MAX_CUES}; delete some of them before",
                pruned.len()
            );
            return Err(Refusal::invalid_value(["body", "prune"], &reason, true).into());
        }
        for cue in &pruned {
            delete_later(tx, self.user_key, &cue.id, self.now)?;
        }
        Ok(pruned)
    }

    fn put_channel(
        &self,
        tx: &WriteTx<'_>,
        index: usize,
        new: &ChannelFields,
        stored: &[Channel],
    ) -> Result<AppliedChannel> {
        let named: Vec<&Channel> = stored.iter().filter(|it| it.fields.name == new.name).collect();
        let (id, before) = match named[..] {
            [] => {
                let id = self.new_channels[index].clone();
                insert(tx, self.user_key, &id, new, self.now)?;
                (id, None)
            }
            [channel] => {
                check_replaced(&channel.fields, new)?;
                if channel.fields != *new {
                    change(tx, channel, new, self.now)?;
                }
                (channel.id.clone(), Some(channel.fields.clone()))
            }
            _ => {
                let ids: Vec<&str> = named.iter().map(|channel| channel.id.as_str()).collect();
                let (count, ids) = (ids.len(), ids.join(", "));
                let message =
                    format!("{count} channels have this name; rename or delete one of {ids}");
                return Err(Error::refused(ErrorCode::InvalidState, message));
            }
        };
        Ok(AppliedChannel { index, id, before })
    }
}

/// Separates refusals from the errors that end a write.
fn accepted<T>(result: Result<T>) -> Result<std::result::Result<T, Refusal>> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(Error::Refused(refusal)) => Ok(Err(refusal)),
        Err(error) => Err(error),
    }
}

/// Errors: the type is another one, or a secret is as it reads back, which would replace the secret itself.
fn check_replaced(stored: &ChannelFields, new: &ChannelFields) -> Result<()> {
    if stored.channel_type != new.channel_type {
        let reason = format!(
            "cannot be changed, and this one is {}; use another name, or delete it first",
            stored.channel_type.as_str()
        );
        let given = new.channel_type.as_str();
        return Err(Refusal::invalid_value(["body", "type"], &reason, given).into());
    }
    for setting in service(new.channel_type).settings {
        let masked = match setting.kind {
            SettingKind::Secret => masked,
            SettingKind::SecretUrl => masked_url,
            _ => continue,
        };
        let (before, now) = (stored.settings.get(setting.name), new.settings.get(setting.name));
        if now.is_some() && now == before.map(masked).as_deref() {
            let reason = "is the masked form of the secret; send the secret itself";
            return Err(Refusal::invalid_value(["body", setting.name], reason, now).into());
        }
    }
    Ok(())
}
