//! The one way into the outbox, and the room that POSTs have in it (contract §6.8).

use jiff::Timestamp;

use crate::domain::notification::{BACKLOG_CLEARED, MAX_WAITING, NotificationKind};
use crate::domain::row_keys::UserKey;
use crate::error::Result;
use crate::store::WriteTx;
use crate::store::outbox::{self, NewNotification, Recipient};

/// Drops a POST of the account or a cue if [`MAX_WAITING`] of its kind wait for the user. Mails have an hourly limit
/// instead, and a channel has one message at a time. Returns `false` if it was dropped.
pub(super) fn enqueue(tx: &WriteTx<'_>, new: &NewNotification, now: Timestamp) -> Result<bool> {
    let has_room = match new.to {
        Recipient::Url(kind, _) => has_room(tx, new.user_key, kind, &new.id)?,
        Recipient::Account | Recipient::Channel(..) => true,
    };
    if has_room {
        outbox::insert(tx, new, now)?;
    }
    Ok(has_room)
}

/// Logs the start and the end of a backlog. It begins when the queue is full and ends when half is sent, so that a queue
/// near its limit is reported once.
fn has_room(tx: &WriteTx<'_>, user_key: UserKey, kind: NotificationKind, id: &str) -> Result<bool> {
    let waiting = outbox::count_waiting(tx, user_key, kind, MAX_WAITING)?;
    if waiting >= MAX_WAITING {
        if outbox::increment_dropped(tx, user_key, kind)? == 1 {
            let (user_id, notification_id) = (outbox::user_id(tx, user_key)?, id.to_owned());
            tx.on_commit(move || {
                tracing::warn!(
                    %user_id, kind = kind.as_str(), %notification_id, limit = MAX_WAITING,
                    "notifications dropped: too many of this kind are waiting for the user"
                );
            });
        }
    } else if waiting <= BACKLOG_CLEARED
        && let Some(count) = outbox::end_backlog(tx, user_key, kind)?
    {
        let user_id = outbox::user_id(tx, user_key)?;
        tx.on_commit(move || {
            tracing::warn!(
                %user_id, kind = kind.as_str(), count,
                "notifications accepted again: the backlog of the user is cleared"
            );
        });
    }
    Ok(waiting < MAX_WAITING)
}
