//! Variables of the environment that set flags: those whose name is wrong, and the one that a wrong value comes from.

use std::collections::BTreeSet;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::nearest::nearest;

const PREFIX: &str = "CUED_";

/// Variables of the client that set no flag, and of its commands' scripts.
const OTHERS: &str = "CUED_API_KEY CUED_ATTEMPT CUED_CA CUED_COLUMNS CUED_CONFIG CUED_CUE_ID CUED_CUE_NAME \
    CUED_EXECUTION_ID CUED_OUTCOME_FILE CUED_OUTPUT CUED_PAYLOAD CUED_PROFILE CUED_SCHEDULED_FOR CUED_TASK CUED_URL \
    CUED_WEBHOOK_SECRET CUED_WORKER_ID";

/// Warns of each variable of cued's prefix that nothing reads: a setting whose name is mistyped has no effect. It is no
/// error: an orchestrator may add variables of its own.
pub fn warn_of_unknown(command: &Command) {
    let known = known(command);
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| is_unknown(name, &known)) {
        let known = known.iter().filter_map(|known| known.strip_prefix(PREFIX));
        let suggested = nearest(name.trim_start_matches(PREFIX), known);
        tracing::warn!(
            variable = name,
            suggestion = suggested.first().map(|name| format!("{PREFIX}{name}")),
            "unknown environment variable has no effect: correct its name, or remove it; `cued serve --help` lists \
             the known ones"
        );
    }
}

/// The variable that an invalid value comes from; `None` if it comes from the command line.
pub fn source_of(error: &clap::Error) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return None;
    }
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (flag, value) = (context(ContextKind::InvalidArg)?, context(ContextKind::InvalidValue)?);
    // As in `--listen <ADDR:PORT>` or `--test-clock [<TIMESTAMP>]`.
    let flag = flag.split([' ', '=', '[', '<']).next()?;
    let is_flag = |argument: &str| {
        argument.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    if std::env::args().any(|argument| is_flag(&argument)) {
        return None;
    }
    let variable =
        format!("{PREFIX}{}", flag.trim_start_matches('-').to_uppercase().replace('-', "_"));
    std::env::var(&variable).is_ok_and(|given| given.contains(value)).then_some(variable)
}

fn known(command: &Command) -> BTreeSet<String> {
    let own = command
        .get_arguments()
        .filter_map(|argument| argument.get_env()?.to_str().map(str::to_owned));
    let mut names: BTreeSet<String> = own.chain(OTHERS.split(' ').map(str::to_owned)).collect();
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
