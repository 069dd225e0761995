//! The room that the plan of the account has for the cues of the files.

use serde_json::Value;

use crate::cli::client::commands::apply::file::Wanted;
use crate::cli::client::commands::apply::plan::{Change, Plan};
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::client::request::ApiRequest;

/// One of the two limits of cues.
struct Limit {
    /// `active cues`
    what: &'static str,
    limit: i64,
    used: i64,
    more: fn(&Change) -> i64,
}

/// The limits that the files may exceed.
#[derive(Default)]
pub struct Room {
    limits: Vec<Limit>,
    /// The deletions come first, because there is no room for the new cues beside the old ones.
    pub prunes_first: bool,
    /// `this needs 12 active cues, the plan has 10`
    pub excess: Option<String>,
    /// What lifts the limits, if there is an excess.
    pub remedy: &'static str,
}

/// Compares a plan with the limits of the account. No request is made if nothing becomes more.
pub fn room(context: &Context, plan: &Plan) -> Result<Room, CliError> {
    let of_files = || plan.cues.iter().map(|(_, change)| change);
    let kinds = [
        ("active", "limit", "active cues", (|change| change.more_active) as fn(&Change) -> i64),
        ("total", "total_limit", "cues in all states", |change| change.more_cues),
    ];
    let mut room = Room::default();
    if kinds.iter().all(|(.., more)| of_files().map(more).sum::<i64>() <= 0) {
        return Ok(room);
    }
    let usage: Value = context.fetch(&ApiRequest::get("/v1/usage"))?.value()?;
    for (used, limit, what, more) in kinds {
        let (Some(used), Some(limit)) =
            (usage["cues"][used].as_i64(), usage["cues"][limit].as_i64())
        else {
            continue;
        };
        let added: i64 = of_files().map(more).sum();
        let removed: i64 = plan.pruned.iter().map(more).sum();
        let needed = used + added + removed;
        if added > 0 && needed > limit {
            room.excess.get_or_insert(format!("this needs {needed} {what}, the plan has {limit}"));
        }
        room.prunes_first |= used + added > limit;
        room.limits.push(Limit { what, limit, used, more });
    }
    if room.excess.is_some() {
        // As the server says it of a single cue.
        let account = context.fetch(&ApiRequest::get("/v1/auth/me"))?.value()?;
        let runs_server = account["is_operator"] == true;
        room.remedy = if runs_server { "start this server with --limits off" } else { "upgrade" };
    }
    Ok(room)
}

impl Room {
    /// Removes from a plan what the limits have no room for: the last ones of the files.
    pub fn leave_out(&self, plan: &mut Plan, wanted: &Wanted) {
        let freed = |more: fn(&Change) -> i64| {
            let changes = plan.cues.iter().map(|(_, change)| change).chain(&plan.pruned);
            changes.map(|change| more(change).min(0)).sum::<i64>()
        };
        let mut free: Vec<i64> =
            self.limits.iter().map(|it| it.limit - it.used - freed(it.more)).collect();
        let (mut kept, refusals) = (Vec::new(), &mut plan.refusals);
        for (index, change) in std::mem::take(&mut plan.cues) {
            let mut limits = self.limits.iter().zip(&free);
            let full = limits.find(|(limit, free)| (limit.more)(&change) > (**free).max(0));
            if let Some((limit, _)) = full {
                let reason = format!(
                    "no room for {}: the plan has {} {}",
                    change.key, limit.limit, limit.what
                );
                refusals.add_limited(wanted.cues[index].at.clone(), reason);
                continue;
            }
            for (limit, free) in self.limits.iter().zip(&mut free) {
                *free -= (limit.more)(&change).max(0);
            }
            kept.push((index, change));
        }
        plan.cues = kept;
    }
}
