//! The variables that a command gets. Those of the published worker have their names too, so that its handlers run
//! unchanged.

use std::path::Path;

use crate::worker::api::Claim;

/// Larger payloads are on standard input only: systems limit the size of the environment.
const MAX_PAYLOAD: usize = 32 * 1024;

/// Variables of the worker that a command does not get: its key, the file and the profile in which the key is stored, and
/// its connection to the service manager, to which a command could report in its name.
pub const REMOVED: [&str; 7] = [
    "CUED_API_KEY",
    "CUEAPI_API_KEY",
    "CUED_CONFIG",
    "CUED_PROFILE",
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
];

/// The part that all runs of a worker have in common.
#[derive(Debug, Clone, Copy)]
pub struct Common<'a> {
    pub worker_id: &'a str,
    pub url: &'a str,
    /// If commands get it.
    pub key: Option<&'a str>,
}

/// The variables of a run.
#[must_use]
pub fn variables(common: Common<'_>, claim: &Claim, task: &str, outcome: &Path) -> Vec<(String, String)> {
    let attempt = claim.attempt.to_string();
    let outcome = outcome.to_string_lossy();
    let payload = Some(claim.payload.get()).filter(|payload| payload.len() <= MAX_PAYLOAD);
    let both = [
        ("EXECUTION_ID", Some(claim.execution_id.as_str())),
        ("CUE_ID", Some(&claim.cue_id)),
        ("CUE_NAME", Some(&claim.cue_name)),
        ("TASK", Some(task)),
        ("SCHEDULED_FOR", Some(&claim.scheduled_for)),
        ("ATTEMPT", Some(&attempt)),
        ("WORKER_ID", Some(common.worker_id)),
        ("PAYLOAD", payload),
        ("OUTCOME_FILE", Some(&outcome)),
        ("API_KEY", common.key),
    ];
    // An environment has no NUL.
    let clean = |value: &str| value.replace('\0', "");
    let mut variables =
        vec![("CUED_URL".to_owned(), clean(common.url)), ("CUEAPI_BASE_URL".to_owned(), clean(common.url))];
    for (name, value) in both {
        for prefix in ["CUED", "CUEAPI"] {
            variables.extend(value.map(|value| (format!("{prefix}_{name}"), clean(value))));
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn names(payload: &str, key: Option<&str>) -> Vec<(String, String)> {
        let claim = Claim {
            execution_id: "e".to_owned(),
            cue_id: "c".to_owned(),
            cue_name: "n\0n".to_owned(),
            scheduled_for: "2030-01-01T00:00:00Z".to_owned(),
            attempt: 2,
            lease_seconds: 900,
            payload: RawValue::from_string(payload.to_owned()).unwrap(),
        };
        let common = Common { worker_id: "w", url: "http://x", key };
        variables(common, &claim, "t", Path::new("/tmp/o"))
    }

    #[test]
    fn each_variable_has_both_names() {
        let of = |prefix: &str| {
            let variables = names(r#"{"n":1.50}"#, None);
            let own = variables.into_iter().filter(|(name, _)| name.starts_with(prefix));
            own.map(|(name, value)| format!("{}={value}", name.trim_start_matches(prefix)))
                .collect::<Vec<_>>()
        };
        let expected = [
            "EXECUTION_ID=e",
            "CUE_ID=c",
            "CUE_NAME=nn",
            "TASK=t",
            "SCHEDULED_FOR=2030-01-01T00:00:00Z",
            "ATTEMPT=2",
            "WORKER_ID=w",
            r#"PAYLOAD={"n":1.50}"#,
            "OUTCOME_FILE=/tmp/o",
        ];
        assert_eq!(
            (&of("CUED_")[0], &of("CUEAPI_")[0]),
            (&"URL=http://x".into(), &"BASE_URL=http://x".into())
        );
        assert_eq!(
            (&of("CUED_")[1..], &of("CUEAPI_")[1..]),
            (&expected.map(String::from)[..], &expected.map(String::from)[..])
        );
    }

    #[test]
    fn the_key_and_a_large_payload_are_left_out() {
        let has = |variables: &[(String, String)], name: &str| variables.iter().any(|(it, _)| it == name);
        let large = format!("\"{}\"", "x".repeat(MAX_PAYLOAD));
        let without = names(&large, None);
        assert!(!has(&without, "CUED_PAYLOAD") && !has(&without, "CUEAPI_API_KEY"));
        let with = names("{}", Some("k"));
        assert!(has(&with, "CUED_PAYLOAD") && has(&with, "CUED_API_KEY") && has(&with, "CUEAPI_API_KEY"));
    }
}
