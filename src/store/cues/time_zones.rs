//! The stored rules of time zones, and the cues in these zones.

use jiff::Timestamp;

use crate::domain::cue::StoredSchedule;
use crate::domain::row_keys::{CueKey, UserKey};
use crate::error::Result;
use crate::store::db::columns::{row, schedule_columns, select};
use crate::store::{ReadTx, WriteTx};

row! { columns, "",
#[derive(Debug, Clone)]
pub struct ZonedCue {
    pub key: CueKey,
    pub user_key: UserKey,
    pub id: String,
    pub name: String,
    pub next_run: Timestamp,
    pub updated_at: Timestamp,
    pub schedule: StoredSchedule = (schedule_columns),
} }

macro_rules! zoned_cues {
    ($filter:literal) => {
        concat!(
            "SELECT ",
            columns!(),
            " FROM cues WHERE status = 'active' AND cron IS NOT NULL AND next_run IS NOT NULL AND ",
            $filter
        )
    };
}

const LIST: &str = zoned_cues!("key > ?1 ORDER BY key LIMIT ?2 + 0");

const LIST_OF_ZONES: &str = zoned_cues!(
    "key > ?1 AND timezone IN (SELECT value FROM json_each(?3)) ORDER BY key LIMIT ?2 + 0"
);

const FIND: &str = zoned_cues!("key = ?1");

row! { zone_columns, "",
#[derive(Debug, Clone)]
pub struct StoredZone {
    pub name: String,
    /// `None` if a cue has got the zone since the last look.
    pub rules: Option<Vec<u8>>,
    /// The rules of a move that was cut off, and the key of the last cue that it has moved.
    pub moving: Option<Vec<u8>>,
    pub moved_until: Option<CueKey>,
} }

/// The zones of cron expressions.
pub fn zones(read: &ReadTx<'_>) -> Result<Vec<StoredZone>> {
    read.all(select!(zone_columns, "FROM time_zones"), ())
}

/// `rules` hold for all cues of the zone.
pub fn save_rules(tx: &WriteTx<'_>, name: &str, rules: &[u8]) -> Result<()> {
    let sql = "UPDATE time_zones SET rules = ?2, moving = NULL, moved_until = NULL WHERE name = ?1";
    tx.run(sql, (name, rules))
}

/// `rules` hold for the cues of the zone up to a key.
pub fn save_progress(
    tx: &WriteTx<'_>,
    name: &str,
    rules: &[u8],
    moved_until: CueKey,
) -> Result<()> {
    let sql = "UPDATE time_zones SET moving = ?2, moved_until = ?3 WHERE name = ?1";
    tx.run(sql, (name, rules, moved_until))
}

pub fn list(read: &ReadTx<'_>, after: CueKey, limit: u32) -> Result<Vec<ZonedCue>> {
    read.all(LIST, (after, limit))
}

/// `zones`: a JSON array of names.
pub fn list_of_zones(
    read: &ReadTx<'_>,
    zones: &str,
    after: CueKey,
    limit: u32,
) -> Result<Vec<ZonedCue>> {
    read.all(LIST_OF_ZONES, (after, limit, zones))
}

pub fn find(read: &ReadTx<'_>, key: CueKey) -> Result<Option<ZonedCue>> {
    read.find(FIND, [key])
}

pub fn move_next_run(tx: &WriteTx<'_>, cue_key: CueKey, next_run: Timestamp) -> Result<()> {
    tx.run("UPDATE cues SET next_run = ?2 WHERE key = ?1", (cue_key, next_run))
}

#[cfg(test)]
crate::store::test_support::plan_test! { cues_are_read_by_key:
    LIST => "SEARCH cues USING INTEGER PRIMARY KEY (rowid>?)",
    LIST_OF_ZONES => "SEARCH cues USING INTEGER PRIMARY KEY (rowid>?)",
    FIND => "SEARCH cues USING INTEGER PRIMARY KEY (rowid=?)",
}
