//! The plain fields of a cue, each stated once, and what they do to its runs (contract §4.16, §7.6).

use std::ops::RangeInclusive;

use jiff::{SignedDuration, Timestamp};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::domain::text::word_enum;
use crate::domain::time::saturating_add;

word_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
    pub enum Transport {
        #[default]
        Webhook = "webhook",
        Worker = "worker",
    }
}

word_enum! {
    /// What a scheduled run does that falls due while an earlier execution of its cue is not finished.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Overlap {
        #[default]
        Allow = "allow",
        /// It does not run, and is recorded as missed.
        Skip = "skip",
        /// One waits for the end of the earlier ones. Further ones are skipped.
        BufferOne = "buffer_one",
    }
}

impl Serialize for Overlap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Calls a macro with the table of the plain fields. From a row follow the field of [`Policies`], the column, the field of the API with its rules, the flag, the line of `cue show`, the key of files and its export.
///
/// A row has the values of a field, the only transport that has it and why, the flag with its value name and its help, the
/// label in `cue show`, and the texts of the page.
macro_rules! plain_fields {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            /// The time for which an execution of a worker cue may wait for a claim; `None` is for ever. Up to a week,
            /// because a worker that stays away longer needs a person.
            claim_within_minutes: Option<u32> = Values::Minutes(1..=10_080),
                Some((Transport::Worker, "only executions of a worker cue wait for a claim")),
                ("claim-within", "MINUTES", "Fail a run that no worker claims within this time"), "claim within",
                PageTexts {
                    label: "Fail if no worker claims it within (minutes)",
                    help: "Leave empty to wait indefinitely.",
                    fact: ("Claimed", "within {}"),
                };
            overlap: Overlap = Values::Words(&[
                    (Overlap::Allow.as_str(), "", "Run anyway"),
                    (Overlap::Skip.as_str(), "runs are skipped while an earlier one lasts", "Skip the new run"),
                    (Overlap::BufferOne.as_str(), "one run waits while an earlier one lasts",
                        "Wait for the earlier run (at most one waits)"),
                ]),
                None,
                ("overlap", "WHICH", "If an earlier run is unfinished: run anyway, skip, or let one run wait"),
                "overlap", PageTexts { label: "If the earlier run is still going", help: "", fact: ("Overlap", "{}") };
            /// An execution that has not succeeded that long after its scheduled instant fails: a minute to 30 days.
            max_age_seconds: Option<u32> = Values::Seconds(60..=2_592_000),
                None,
                ("max-age", "SPAN", "Give up on a run this long after its scheduled time, such as 10m"),
                "max age",
                PageTexts {
                    label: "Give up after",
                    help: "After the due time; then the run fails. Leave empty to give up after the last attempt.",
                    fact: ("Gives up", "{} after it was due"),
                };
            /// The deadline for a reported outcome, counted from the delivery: ten seconds to a week.
            outcome_deadline_seconds: Option<u32> = Values::Seconds(10..=604_800),
                Some((Transport::Webhook, "this field is for webhook cues only")),
                ("outcome-deadline", "SPAN", "Deadline for the report of a call's result, such as 1h"),
                "report within",
                PageTexts {
                    label: "Require a reported result within",
                    help: "After its delivery; otherwise you get an alert. Leave empty if delivery is enough.",
                    fact: ("Result", "due within {} of its delivery"),
                };
        }
    };
}

pub(crate) use plain_fields;

/// A row of the table, for those who read fields by their names.
#[derive(Debug)]
pub struct PlainField {
    pub name: &'static str,
    pub values: Values,
    /// The transport whose cues have it, and why no others do.
    pub only: Option<(Transport, &'static str)>,
    /// Flag, name of its value, help.
    pub flag: (&'static str, &'static str, &'static str),
    pub label: &'static str,
    pub page: PageTexts,
}

/// What the page says of a field.
#[derive(Debug)]
pub struct PageTexts {
    /// Of its input.
    pub label: &'static str,
    pub help: &'static str,
    /// A label and, with `{}` for the value, what the page says of a cue that has one.
    pub fact: (&'static str, &'static str),
}

#[derive(Debug)]
pub enum Values {
    /// Whole numbers, or null.
    Minutes(RangeInclusive<i64>),
    Seconds(RangeInclusive<i64>),
    /// Words, the default first, each with what `cue show` says, which is nothing for the default, and the choice on the
    /// page. Of recurring cues only.
    Words(&'static [(&'static str, &'static str, &'static str)]),
}

impl PlainField {
    pub fn named(name: &str) -> Option<&'static Self> {
        PLAIN_FIELDS.iter().find(|field| field.name == name)
    }

    /// Whether null removes the value.
    pub fn is_removable(&self) -> bool {
        !matches!(self.values, Values::Words(_))
    }

    /// The value of a cue that was given none.
    pub fn default_value(&self) -> Value {
        match &self.values {
            Values::Words(known) => known.first().map(|(word, ..)| *word).into(),
            Values::Minutes(_) | Values::Seconds(_) => Value::Null,
        }
    }

    /// Why a cue of this transport cannot have the field.
    pub fn misfit(&self, transport: Transport) -> Option<String> {
        let (_, reason) = self.only.filter(|(only, _)| *only != transport)?;
        Some(format!("{reason}: leave it out, or null"))
    }
}

macro_rules! structs {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $values:expr, $only:expr, $flag:expr, $label:expr, $page:expr;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Policies {
            $($(#[$meta])* pub $name: $type,)+
        }

        /// In reading order.
        pub const PLAIN_FIELDS: &[PlainField] = &[$(PlainField {
            name: stringify!($name), values: $values, only: $only, flag: $flag, label: $label, page: $page,
        }),+];

        impl Policies {
            /// Adds the fields to an object of JSON.
            pub fn serialize_into<M: SerializeMap>(&self, object: &mut M) -> Result<(), M::Error> {
                $(object.serialize_entry(stringify!($name), &self.$name)?;)+
                Ok(())
            }

            /// The names of the fields that differ from those of before.
            pub fn changed_since(&self, before: &Self) -> impl Iterator<Item = &'static str> + use<> {
                let names = [$((self.$name != before.$name).then_some(stringify!($name))),+];
                names.into_iter().flatten()
            }
        }
    };
}

plain_fields!(structs);

/// `error_message` of an execution that has reached the maximum age, after the `error` of its last attempt.
pub fn expired_message(max_age_seconds: u32, error: Option<&str>) -> String {
    let message = format!(
        "not successful within {max_age_seconds} s of its scheduled time (max_age_seconds)"
    );
    match error {
        Some(error) => format!("{message}; the last attempt: {error}"),
        None => message,
    }
}

impl Policies {
    pub fn expires_at(&self, scheduled_for: Timestamp) -> Option<Timestamp> {
        let age = SignedDuration::from_secs(self.max_age_seconds?.into());
        Some(saturating_add(scheduled_for, age))
    }

    /// How many of the runs that are due now may become executions.
    pub fn free_runs(&self, is_running: bool, is_waiting: bool) -> usize {
        match self.overlap {
            Overlap::Allow => usize::MAX,
            Overlap::Skip => usize::from(!is_running),
            Overlap::BufferOne => usize::from(!is_running) + usize::from(!is_waiting),
        }
    }
}
