//! Variables of the environment that set flags: those whose name is wrong, and the one that a wrong value comes from.

use std::collections::BTreeSet;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};

const PREFIX: &str = "CUED_";

/// Variables of the client that set no flag, and of its commands' scripts.
const OTHERS: [&str; 15] = [
    "CUED_API_KEY",
    "CUED_ATTEMPT",
    "CUED_CONFIG",
    "CUED_CUE_ID",
    "CUED_CUE_NAME",
    "CUED_EXECUTION_ID",
    "CUED_OUTCOME_FILE",
    "CUED_OUTPUT",
    "CUED_PAYLOAD",
    "CUED_PROFILE",
    "CUED_SCHEDULED_FOR",
    "CUED_TASK",
    "CUED_URL",
    "CUED_WEBHOOK_SECRET",
    "CUED_WORKER_ID",
];

/// Differences up to which a known name is suggested for an unknown one.
const MAX_DIFFERENCES: usize = 2;

/// Warns of each variable of cued's prefix that nothing reads: a setting whose name is mistyped has no effect. It is no
/// error: an orchestrator may add variables of its own.
pub fn warn_of_unknown(command: &Command) {
    let known = known(command);
    for name in std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()) {
        if !is_unknown(&name, &known) {
            continue;
        }
        match nearest(&name, &known) {
            Some(nearest) => tracing::warn!(
                variable = name,
                suggestion = nearest,
                "unknown environment variable has no effect: correct its name, or remove it"
            ),
            None => tracing::warn!(
                variable = name,
                "unknown environment variable has no effect: remove it; `cued serve --help` lists the known ones"
            ),
        }
    }
}

/// The variable that an invalid value comes from; `None` if it comes from the command line.
pub fn source_of(error: &clap::Error, command: &Command) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return None;
    }
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (flag, value) = (context(ContextKind::InvalidArg)?, context(ContextKind::InvalidValue)?);
    // As in `--listen <ADDR:PORT>` or `--test-clock [<TIMESTAMP>]`.
    let name = flag.strip_prefix("--")?.split([' ', '=', '[', '<']).next()?;
    let is_flag = |argument: &str| {
        let rest = argument.strip_prefix("--").and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    if std::env::args().any(|argument| is_flag(&argument)) {
        return None;
    }
    let variable = |argument: &Arg| {
        let variable = argument.get_env()?.to_str()?;
        let has_value = std::env::var(variable).is_ok_and(|given| given.contains(value));
        (argument.get_long() == Some(name) && has_value).then(|| variable.to_owned())
    };
    command.get_subcommands().flat_map(Command::get_arguments).find_map(variable)
}

fn known(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned));
    let mut names: BTreeSet<String> = own.chain(OTHERS.map(str::to_owned)).collect();
    for command in command.get_subcommands() {
        names.extend(known(command));
    }
    names
}

fn is_unknown(name: &str, known: &BTreeSet<String>) -> bool {
    // Kubernetes and Docker describe a service of the name `cued` to every container beside it.
    let of_orchestrator = ["CUED_PORT", "CUED_SERVICE_", "CUED_NAME", "CUED_ENV_"];
    name.starts_with(PREFIX)
        && !known.contains(name)
        && !of_orchestrator.iter().any(|prefix| name.starts_with(prefix))
}

fn nearest<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    let by_distance = known.iter().map(|candidate| (strsim::levenshtein(name, candidate), candidate));
    let (distance, nearest) = by_distance.min()?;
    (distance <= MAX_DIFFERENCES).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn a_mistyped_name_is_unknown_and_has_a_suggestion() {
        let known = known(&Cli::command());
        for (name, suggestion) in [
            ("CUED_LISTN", Some("CUED_LISTEN")),
            ("CUED_DB_FILE", None),
            ("CUED_PUBLICURL", Some("CUED_PUBLIC_URL")),
            ("CUED_STRIPE_SECRET", None),
        ] {
            assert_eq!((is_unknown(name, &known), nearest(name, &known)), (true, suggestion), "{name}");
        }
    }

    #[test]
    fn the_variables_of_flags_clients_and_orchestrators_are_known() {
        let known = known(&Cli::command());
        let names =
            ["CUED_LISTEN", "CUED_STRIPE_SECRET_KEY", "CUED_PLANS", "CUED_DB", "CUED_URL", "CUED_HELD"];
        let others = ["CUED_SERVICE_HOST", "CUED_PORT", "CUED_PORT_8000_TCP_ADDR", "CUEDX", "PATH"];
        for name in names.into_iter().chain(others) {
            assert!(!is_unknown(name, &known), "{name}");
        }
    }
}
