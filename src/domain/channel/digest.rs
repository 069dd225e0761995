//! The digest: one message that counts many, and names the cues with the most of them.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::domain::channel::message::{DIGEST, Message, Mood, Notice};
use crate::domain::channel::{ALL_ALERTS, CUE_PAUSED, CUE_RECOVERED, EXECUTION_FAILED};

/// Cues that a digest names in its title, and lines of its text.
const NAMED_CUES: usize = 3;
const DIGEST_LINES: usize = 20;

/// The events that a digest counts: the event, and its words. Every other one is an alert.
const COUNTED: [(&str, &str, &str); 4] = [
    (EXECUTION_FAILED, "failure", "failures"),
    (ALL_ALERTS, "alert", "alerts"),
    (CUE_PAUSED, "pause", "pauses"),
    (CUE_RECOVERED, "recovery", "recoveries"),
];
const ALERTS: usize = 1;

/// What a digest counts of one cue, or of the account.
#[derive(Debug, Default)]
struct Tally<'a> {
    /// In the order of [`COUNTED`].
    counts: [usize; COUNTED.len()],
    last: &'a str,
    /// The worst since the last recovery.
    mood: Mood,
}

impl<'a> Tally<'a> {
    fn add(&mut self, message: &'a Message) {
        let row = COUNTED.iter().position(|(event, ..)| *event == message.event);
        self.counts[row.unwrap_or(ALERTS)] += 1;
        self.last = &message.title;
        // What a recovery ends is no longer worth an alarm.
        let before = if message.event == CUE_RECOVERED { Mood::Info } else { self.mood };
        self.mood = before.max(message.mood);
    }

    fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    fn line(&self, name: &str) -> String {
        if self.total() == 1 {
            self.last.to_owned()
        } else {
            format!("{name}{}; last: {}", self.counts(), self.last)
        }
    }

    /// `3 failures, 1 recovery`
    fn counts(&self) -> String {
        let counted = self.counts.iter().zip(COUNTED).filter(|(count, _)| **count > 0);
        counted
            .map(|(count, (_, one, many))| {
                format!("{count} {}", if *count == 1 { one } else { many })
            })
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// One message about `notices`, which are not empty. `is_cut` if there were more than are kept.
pub fn digest(id: String, notices: &[Notice], is_cut: bool, now: Timestamp) -> Message {
    let (mut all, mut account) = (Tally::default(), Tally::default());
    let mut cues = BTreeMap::<&str, (&str, Tally<'_>)>::new();
    for Notice { message, .. } in notices {
        all.add(message);
        match &message.cue_id {
            Some(cue_id) => {
                let (name, tally) =
                    cues.entry(cue_id).or_insert_with(|| (cue_id, Tally::default()));
                *name = message.cue_name.as_deref().unwrap_or(*name);
                tally.add(message);
            }
            None => account.add(message),
        }
    }
    let mut cues: Vec<_> = cues.into_values().collect();
    cues.sort_by_key(|(name, tally)| (std::cmp::Reverse(tally.total()), *name));
    let mood = cues.iter().map(|(_, tally)| tally.mood).chain([account.mood]).max();
    let named: Vec<String> = cues
        .iter()
        .take(NAMED_CUES)
        .map(|(name, tally)| format!("{name} ({})", tally.total()))
        .collect();
    let and_more = |shown: usize| match cues.len().saturating_sub(shown) {
        0 => String::new(),
        1 => " and 1 more cue".to_owned(),
        more => format!(" and {more} more cues"),
    };
    let at_least = if is_cut { "At least " } else { "" };
    let mut title = format!("{at_least}{}", all.counts());
    if !named.is_empty() {
        title += &format!(": {}{}", named.join(", "), and_more(NAMED_CUES));
    }
    // Events of the account have no name.
    let mut lines: Vec<String> =
        (account.total() > 0).then(|| account.line("")).into_iter().collect();
    let shown = DIGEST_LINES - lines.len();
    lines.extend(cues.iter().take(shown).map(|(name, tally)| tally.line(&format!("{name}: "))));
    let rest = and_more(shown);
    if !rest.is_empty() {
        lines.push(rest.trim_start().to_owned());
    }
    let text = lines.join("\n");
    Message { text, ..Message::new(id, DIGEST, mood.unwrap_or(Mood::Info), &title, now) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::channel::message::Topic;
    use crate::domain::cue::tags::Tags;

    fn now() -> Timestamp {
        "2026-01-05T10:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_digest_counts_each_kind_and_names_the_cues_with_the_most() {
        let notice = |cue: &str, event: &str, mood, title: &str| Notice {
            topic: Topic::new(Vec::new(), Tags::default(), now()),
            message: Message {
                cue_id: Some(format!("cue_{cue}")),
                cue_name: Some(cue.to_owned()),
                event: event.to_owned(),
                mood,
                title: title.to_owned(),
                ..Message::test("id", "x", now())
            },
        };
        let failed = |cue: &str| {
            notice(cue, EXECUTION_FAILED, Mood::Critical, &format!("{cue} failed: 500 from a"))
        };
        let mut notices = vec![failed("sync"), failed("backup"), failed("backup")];
        notices.push(notice("backup", CUE_RECOVERED, Mood::Good, "backup recovered after 2 min"));
        notices.push(notice("trim", "alert.claim_lost", Mood::Warning, "Worker a lost its claim"));
        let message = digest("id".to_owned(), &notices, false, now());
        assert_eq!(
            message.title,
            "3 failures, 1 alert, 1 recovery: backup (3), sync (1), trim (1)"
        );
        assert_eq!(
            message.text,
            "backup: 2 failures, 1 recovery; last: backup recovered after 2 min\nsync failed: 500 from a\n\
             Worker a lost its claim"
        );
        assert_eq!(message.mood, Mood::Critical);
        notices.retain(|notice| notice.message.cue_name.as_deref() == Some("backup"));
        let message = digest("id".to_owned(), &notices, false, now());
        assert_eq!(
            (message.title.as_str(), message.mood),
            ("2 failures, 1 recovery: backup (3)", Mood::Good)
        );
        notices.push(failed("backup"));
        notices.push(notice(
            "backup",
            CUE_PAUSED,
            Mood::Warning,
            "backup was paused because a run failed",
        ));
        assert_eq!(digest("id".to_owned(), &notices, false, now()).mood, Mood::Critical);
        let of_account = |title: &str| {
            let mut notice = notice("", "alert.catch_up", Mood::Warning, title);
            (notice.message.cue_id, notice.message.cue_name) = (None, None);
            notice
        };
        let alerts = [of_account("12 runs were missed"), of_account("The clock was behind")];
        let message = digest("id".to_owned(), &alerts, false, now());
        assert_eq!((message.title.as_str(), message.mood), ("2 alerts", Mood::Warning));
        assert_eq!(message.text, "2 alerts; last: The clock was behind");
        let message = digest("id".to_owned(), &[failed("sync"), alerts[0].clone()], false, now());
        assert_eq!(message.title, "1 failure, 1 alert: sync (1)");
        assert_eq!(message.text, "12 runs were missed\nsync failed: 500 from a");
        let many: Vec<Notice> = (0..24).map(|number| failed(&format!("cue {number:02}"))).collect();
        let message = digest("id".to_owned(), &many, true, now());
        assert_eq!(
            message.title,
            "At least 24 failures: cue 00 (1), cue 01 (1), cue 02 (1) and 21 more cues"
        );
        assert_eq!(message.text.lines().count(), DIGEST_LINES + 1);
        assert!(message.text.ends_with("\nand 4 more cues"));
    }
}
