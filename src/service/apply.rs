//! Many cues and channels in one write, all or nothing (contract §4.18).

use std::collections::BTreeSet;
use std::sync::{Arc, mpsc};

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::user::Caller;
use crate::domain::api_error::{ErrorCode, Refusal};
use crate::domain::apply::{
    Apply, Change, ChangedKey, Difference, MAX_COMPARED, MAX_CUES, changed_keys,
};
use crate::domain::channel::services::service;
use crate::domain::channel::{Channel, ChannelFields};
use crate::domain::cue::slug::Slug;
use crate::domain::cue::{Cue, CueRequest, RequestedStatus};
use crate::domain::ids::CueId;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::domain::time::instant_with_offset;
use crate::error::{Error, Result};
use crate::service::channels::{change, insert, new_id};
use crate::service::cues::{ChangeContext, FoundCue, PutAction, PutResult, delete_later, new_cue};
use crate::service::fire::MAX_OVERDUE_RUNS;
use crate::store::accounts::idempotency::{
    IdempotencyRequest, StoredResponse, find_response, store_response,
};
use crate::store::accounts::users;
use crate::store::cues::NamedCue;
use crate::store::{Pending, ReadTx, WriteTx, channels, cues};
use crate::system::random;

/// Bytes of headers of stored cues that are kept to show what differs.
const MAX_BEFORE: usize = 1 << 20;

/// What was found out about a cue before the write, because it is too much work for the thread that writes.
#[derive(Debug)]
pub struct Seen {
    /// The stored cue: its key, when it was changed, and its payload.
    version: Option<(CueKey, Timestamp, Option<i64>)>,
    /// What its payload differs in; nothing if it is the same.
    payload: Vec<ChangedKey>,
    /// The cue that is created if none is stored.
    new: Option<Result<Cue>>,
}

/// Compares the cues of a request with those that are stored, and makes those that are not. `room` is the most bytes for the
/// names of changed keys of payloads.
pub fn look(
    read: &ReadTx<'_>,
    user_key: UserKey,
    request: &Apply,
    now: Timestamp,
    mut room: usize,
) -> Result<Vec<Seen>> {
    let look_at = |request: &CueRequest| {
        let slug = request.fields.slug.as_ref();
        let stored = slug.map_or(Ok(None), |slug| cues::find_by_slug(read, user_key, slug))?;
        let Some(stored) = stored else {
            let id = CueId::generate(now, random::fill)?.to_string();
            let new = Some(new_cue(request, &id, user_key, now));
            return Ok(Seen { version: None, payload: Vec::new(), new });
        };
        let payload = compare_payloads(read, &stored, request, &mut room)?;
        Ok(Seen { version: Some(version(&stored)), payload, new: None })
    };
    request.cues.iter().map(look_at).collect()
}

/// Lists the keys of the payload that change. The stored payload is read only if it is small or may be the same.
fn compare_payloads(
    read: &ReadTx<'_>,
    stored: &Cue,
    put: &CueRequest,
    room: &mut usize,
) -> Result<Vec<ChangedKey>> {
    let new = put.new_payload().map(|payload| payload.body.as_str());
    let (was_there, is_there) = (stored.payload_key.is_some(), new.is_some());
    let whole = ChangedKey { name: None, was_there, is_there };
    let (Some(key), Some(new)) = (stored.payload_key, new) else {
        return Ok(if was_there || is_there { vec![whole] } else { Vec::new() });
    };
    let size = cues::payload_size(read, stored.user_key, &stored.id)?;
    let is_small = size.max(new.len()) <= MAX_COMPARED;
    if size != new.len() && !is_small {
        return Ok(vec![whole]);
    }
    let old = cues::find_payload(read, stored.key, key)?;
    if old.as_deref() == Some(new) {
        return Ok(Vec::new());
    }
    let keys = old.filter(|_| is_small).and_then(|old| changed_keys(&old, new));
    let cost = |key: &ChangedKey| 100 + 4 * key.name.as_ref().map_or(0, String::len);
    let Some(keys) = keys.filter(|keys| !keys.is_empty()) else { return Ok(vec![whole]) };
    let left = room.checked_sub(keys.iter().map(cost).sum());
    *room = left.unwrap_or(*room);
    Ok(if left.is_some() { keys } else { vec![whole] })
}

/// What was done, or would be.
#[derive(Debug, Default)]
pub struct Applied {
    /// Channels, cues, and cues that are deleted.
    pub changes: Vec<Change>,
    /// What is refused, each with the section and the key of its object, if it is about one. Nothing was done if there is
    /// one.
    pub refused: Vec<(Option<(&'static str, String)>, Refusal)>,
}

#[derive(Debug)]
pub enum Attempt {
    /// The answer is stored already.
    Answered(StoredResponse),
    Done(Applied),
    /// A cue has changed since it was compared.
    Stale,
}

/// The receiver gets what comes of it if nothing is done: the write then fails, so that none of it is in the log of the
/// database. `seen` is what [`look`] saw. `render` makes the answer that is stored for repetitions: it must be quick.
/// Errors: `idempotency_conflict`.
pub fn apply(
    app: &App,
    caller: &Caller,
    request: Arc<Apply>,
    seen: Vec<Seen>,
    call: Option<IdempotencyRequest>,
    render: fn(&Applied) -> Result<StoredResponse>,
) -> Result<(Pending<Attempt>, mpsc::Receiver<Attempt>)> {
    let (now, user_key) = (app.clock.now(), caller.user_key);
    let job = Job {
        context: ChangeContext::new(app, caller, now),
        new_channels: request.channels.iter().map(|_| new_id()).collect::<Result<_>>()?,
        request,
    };
    // A dry run is no repetition of the request, and none of it.
    let call = call.filter(|_| !job.request.is_dry_run);
    let (sender, undone) = mpsc::channel();
    let done = app.store.write_for(user_key, move |tx| {
        if let Some(response) = find_response(tx, user_key, call.as_ref(), now)? {
            return Ok(Attempt::Answered(response));
        }
        let applied = match job.write(tx, seen)? {
            Some(applied) if applied.refused.is_empty() && !job.request.is_dry_run => applied,
            undone => {
                // It fails only without a receiver.
                drop(sender.send(undone.map_or(Attempt::Stale, Attempt::Done)));
                return Err(Error::refused(ErrorCode::InvalidState, "Nothing was done"));
            }
        };
        if call.is_some() {
            let response = render(&applied)?;
            // The work is done, so a full account does not refuse it. It is short.
            store_response(tx, user_key, call.as_ref(), &response, now)?;
        }
        Ok(Attempt::Done(applied))
    });
    Ok((done, undone))
}

struct Job {
    context: ChangeContext,
    /// An id for each channel, if it is created.
    new_channels: Vec<String>,
    request: Arc<Apply>,
}

impl Job {
    /// Refusals do not end it, so that all are found. `None` if a cue is not as it was seen.
    fn write(&self, tx: &WriteTx<'_>, seen: Vec<Seen>) -> Result<Option<Applied>> {
        let mut applied = Applied::default();
        let user_key = self.context.user_key;
        let (bytes, ..) = users::stored_bytes(tx, user_key)?;
        let stored = channels::list(tx, user_key)?;
        for (new, id) in self.request.channels.iter().zip(&self.new_channels) {
            let about = Some(("channels", new.name.clone()));
            applied.add(about, tx.part(|tx| self.put_channel(tx, id, new, &stored)))?;
        }
        let pruned = accepted(tx.part(|tx| self.prune(tx)))?;
        let pruned = pruned.map_err(|refusal| applied.refused.push((None, refusal)));
        let ignores_limits = self.request.ignores_limits || pruned.is_err();
        let pruned = pruned.unwrap_or_default();
        let mut cues: Vec<_> = self.request.cues.iter().zip(seen).collect();
        // Those that become paused come first: they make room.
        cues.sort_by_key(|(request, _)| request.status != Some(RequestedStatus::Paused));
        let (mut fired, mut room) = (0, MAX_BEFORE);
        for (request, seen) in cues {
            let slug = request.fields.slug.as_ref();
            let cue = slug.map_or(Ok(None), |slug| cues::find_by_slug(tx, user_key, slug))?;
            if cue.as_ref().map(version) != seen.version {
                return Ok(None);
            }
            let key = slug.map_or("", |slug| self.request.key(slug.as_str())).to_owned();
            let about = Some(("cues", key.clone()));
            let mut done = tx.part(|tx| self.put_cue(tx, key, request, cue, seen));
            if let Ok(change) = &mut done {
                keep_small(change, &mut room);
                fired += change.fired;
            }
            applied.add(about, done)?;
            if fired > MAX_OVERDUE_RUNS {
                applied.refused = vec![(None, too_many_runs())];
                return Ok(Some(applied));
            }
        }
        let freed = pruned.iter().map(|cue| cue.payload_bytes).sum();
        let full = users::storage_refusal(tx, self.context.firer.plans(), user_key, bytes, freed)?;
        applied.refused.extend(full.map(|refusal| (None, refusal)));
        let limits = [ErrorCode::CueLimitExceeded, ErrorCode::StorageLimitExceeded];
        applied.refused.retain(|(_, it)| !(ignores_limits && limits.contains(&it.code)));
        applied.refused.sort_by(|(one, _), (other, _)| one.cmp(other));
        applied.changes.sort_by(|one, other| (one.kind, &one.key).cmp(&(other.kind, &other.key)));
        applied.changes.extend(pruned.into_iter().map(|cue| self.deleted(cue)));
        Ok(Some(applied))
    }

    fn deleted(&self, cue: NamedCue) -> Change {
        let (key, id) = (self.request.key(&cue.slug).to_owned(), Some(cue.id));
        let next_run_before = cue.next_run.map(instant_with_offset);
        Change { next_run_before, ..Change::new("cue", key, "delete", id) }
    }

    fn put_cue(
        &self,
        tx: &WriteTx<'_>,
        key: String,
        request: &CueRequest,
        cue: Option<Cue>,
        seen: Seen,
    ) -> Result<Change> {
        let has_other_payload = !seen.payload.is_empty();
        let found = cue.map(|cue| FoundCue { cue, has_other_payload });
        let result = match (&found, seen.new) {
            (Some(found), _) => self.context.replace(tx, found, request)?,
            (None, Some(new)) => self.context.insert(tx, new?, request)?,
            (None, None) => return Err(Error::fault("a cue to create was not prepared")),
        };
        let PutResult { action, cue: after, changed, next_run_before, fired } = result;
        let id = Some(after.id.clone());
        let (action, id) = match action {
            PutAction::Created => ("create", id.filter(|_| !self.request.is_dry_run)),
            PutAction::Updated => ("change", id),
            PutAction::Unchanged => ("unchanged", id),
        };
        let mut change = Change {
            next_run: after.next_run.map(instant_with_offset),
            next_run_before: next_run_before.map(instant_with_offset),
            fired,
            ..Change::new("cue", key, action, id)
        };
        if let Some(FoundCue { cue: before, .. }) = found.filter(|_| !changed.is_empty()) {
            let (before, after) = (Box::new(before), Box::new(after));
            let payload = seen.payload;
            change.difference = Some(Difference::Cue { before, after, fields: changed, payload });
        }
        Ok(change)
    }

    fn prune(&self, tx: &WriteTx<'_>) -> Result<Vec<NamedCue>> {
        let Apply { cues, kept, namespace, prunes, .. } = &*self.request;
        if !prunes {
            return Ok(Vec::new());
        }
        let named = cues.iter().filter_map(|cue| cue.fields.slug.as_ref()).map(Slug::as_str);
        let stays: BTreeSet<&str> = named.chain(kept.iter().map(String::as_str)).collect();
        let limit = stays.len() + MAX_CUES + 1;
        let mut pruned = cues::list_namespace(tx, self.context.user_key, namespace, limit)?;
        pruned.retain(|cue| !stays.contains(cue.slug.as_str()));
        if pruned.len() > MAX_CUES {
            let reason = format!(
                "would delete more than {MAX_CUES} cues, the most in one request; delete some of them before"
            );
            return Err(Refusal::invalid_value(["body", "prune"], &reason, true).into());
        }
        for cue in &pruned {
            delete_later(tx, self.context.user_key, &cue.id, self.context.firer.now())?;
        }
        Ok(pruned)
    }

    fn put_channel(
        &self,
        tx: &WriteTx<'_>,
        id: &str,
        new: &ChannelFields,
        stored: &[Channel],
    ) -> Result<Change> {
        let (user_key, now) = (self.context.user_key, self.context.firer.now());
        let mut named = stored.iter().filter(|it| it.fields.name == new.name);
        let (first, second) = (named.next(), named.next());
        if let (Some(Channel { id, .. }), Some(Channel { id: second, .. })) = (first, second) {
            let message = format!(
                "several channels have this name, as {id} and {second}: rename or delete all but one"
            );
            return Err(Error::refused(ErrorCode::InvalidState, message));
        }
        let change_to = |action, id| Change::new("channel", new.name.clone(), action, id);
        let Some(channel) = first else {
            insert(tx, user_key, id, new, now)?;
            // What a dry run creates does not stay.
            let id = (!self.request.is_dry_run).then(|| id.to_owned());
            return Ok(change_to("create", id));
        };
        check_replaced(&channel.fields, new)?;
        let id = Some(channel.id.clone());
        if channel.fields == *new {
            return Ok(change_to("unchanged", id));
        }
        change(tx, channel, new, now)?;
        let (before, after) = (Box::new(channel.fields.clone()), Box::new(new.clone()));
        let difference = Some(Difference::Channel { before, after });
        Ok(Change { difference, ..change_to("change", id) })
    }
}

impl Applied {
    /// Adds a change or a refusal. Errors: those that end the write.
    fn add(&mut self, about: Option<(&'static str, String)>, done: Result<Change>) -> Result<()> {
        match accepted(done)? {
            Ok(change) => self.changes.push(change),
            Err(refusal) => self.refused.push((about, refusal)),
        }
        Ok(())
    }
}

fn version(cue: &Cue) -> (CueKey, Timestamp, Option<i64>) {
    (cue.key, cue.updated_at, cue.payload_key)
}

/// Forgets what a cue was before, if that is more than there is room for: a short request can change many large cues.
fn keep_small(change: &mut Change, room: &mut usize) {
    let Some(Difference::Cue { before, .. }) = &change.difference else { return };
    let headers = before.fields.callback.iter().flat_map(|callback| callback.headers.expose());
    let bytes = headers.map(|(name, value)| name.len() + value.len()).sum();
    match room.checked_sub(bytes) {
        Some(left) => *room = left,
        None => change.difference = None,
    }
}

fn too_many_runs() -> Refusal {
    let message = format!(
        "Of these cues more than {MAX_OVERDUE_RUNS} runs are due and have not fired: repeat the request in a minute, or send \
         the cues in several requests"
    );
    Refusal::new(ErrorCode::InvalidState, message)
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
        let (before, now) = (stored.settings.get(setting.name), new.settings.get(setting.name));
        let masked = before.map(|secret| setting.kind.shown(secret));
        if setting.kind.is_secret() && now.is_some() && now == masked.as_deref() {
            let reason = "is the masked form of the secret; send the secret itself";
            return Err(Refusal::invalid_value(["body", setting.name], reason, now).into());
        }
    }
    Ok(())
}
