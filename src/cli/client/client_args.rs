//! The flags of all commands that are clients of a server.

use std::path::PathBuf;

use clap::{Args, ValueEnum as _};

use crate::cli::client::environment::environment;
use crate::cli::error::CliError;
use crate::cli::output::format::{ColorWhen, Format};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server and output")]
pub struct ClientArgs {
    /// Base URL of the server [default: that of the profile, or http://127.0.0.1:8000]
    #[arg(long, alias = "server", value_name = "URL", global = true)]
    pub url: Option<String>,

    /// Profile of the credentials file, as `cued login --profile` wrote it
    #[arg(long, value_name = "NAME", global = true)]
    pub profile: Option<String>,

    /// Certificate authority to trust, in PEM, in place of the public ones
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,

    /// Accept any certificate; whoever is in between then reads the key
    #[arg(long, global = true)]
    pub insecure: bool,

    /// Form of the output [default: CUED_OUTPUT, or table]
    #[arg(short, long, value_name = "FORM", global = true)]
    pub output: Option<Format>,

    /// Print the server's JSON unchanged (-o json)
    #[arg(long, global = true, conflicts_with = "output")]
    pub json: bool,

    /// Print ids only (-o id)
    #[arg(short, long, global = true, conflicts_with_all = ["output", "json"])]
    pub quiet: bool,

    /// Colours in the output
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub color: ColorWhen,

    /// Print times in UTC
    #[arg(long, global = true, conflicts_with = "tz")]
    pub utc: bool,

    /// Print times in this time zone, such as Europe/Berlin [default: that of the system]
    #[arg(long, value_name = "ZONE", global = true)]
    pub tz: Option<String>,

    /// Answer every question with yes
    #[arg(short, long, global = true)]
    pub yes: bool,

    /// Print each request and its status to standard error
    #[arg(short, long, global = true)]
    pub verbose: bool,

    /// Print the request as a command of curl instead of making it
    #[arg(long, global = true)]
    pub curl: bool,
}

impl ClientArgs {
    /// Errors: if CUED_OUTPUT counts, and is no form.
    pub fn format(&self) -> Result<Format, CliError> {
        match (self.json, self.quiet, self.output) {
            (true, _, _) => Ok(Format::Json),
            (_, true, _) => Ok(Format::Id),
            (_, _, Some(form)) => Ok(form),
            (_, _, None) => match environment("CUED_OUTPUT") {
                Some(form) => Format::from_str(&form, false).map_err(|_| {
                    CliError::Usage(format!(
                        "CUED_OUTPUT: {form:?} is none of table, wide, json, jsonl, yaml, id"
                    ))
                }),
                None => Ok(Format::default()),
            },
        }
    }
}
