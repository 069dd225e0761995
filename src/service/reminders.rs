//! Reminders: failures of a cue that were told, and last (contract §12.3).

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::domain::notification::alert::ALERT_THRESHOLD;
use crate::domain::row_keys::CueKey;
use crate::error::{Error, Result};
use crate::service::channels;
use crate::store::channels::{DueReminder, forget_told, list_due_reminders, record_told};
use crate::store::{WriteTx, alerts};

/// Sends a batch of the reminders that are due. One that cannot be read holds up no other.
pub fn send_due(tx: &WriteTx<'_>, limit: u32, now: Timestamp) -> Result<()> {
    let mut of_cues = BTreeMap::<CueKey, Vec<DueReminder>>::new();
    for due in list_due_reminders(tx, now, limit)? {
        of_cues.entry(due.cue_key).or_default().push(due);
    }
    for (cue_key, due) in of_cues {
        match send(tx, &due, now) {
            Err(error @ Error::Storage(_)) => return Err(error),
            Err(error) => {
                tx.on_commit(
                    move || tracing::error!(cue_row = cue_key.number(), %error, "reminders skipped"),
                );
                forget_told(tx, cue_key)?;
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// The reminders of one cue: one message for all channels.
fn send(tx: &WriteTx<'_>, due: &[DueReminder], now: Timestamp) -> Result<()> {
    let Some(first) = due.first() else { return Ok(()) };
    if !first.is_active {
        return forget_told(tx, first.cue_key);
    }
    for DueReminder { cue_key, channel_key, remind_after_seconds, .. } in due {
        record_told(tx, *cue_key, *channel_key, *remind_after_seconds, now)?;
    }
    let alert = match first.streak.failures {
        ALERT_THRESHOLD.. => alerts::find_streak(tx, first.cue_key, first.streak.since)?,
        _ => None,
    };
    let keys = due.iter().map(|due| due.channel_key).collect();
    channels::announce_reminder(tx, first, keys, alert.as_ref(), now)
}
