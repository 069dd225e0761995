//! `cued info`: version and public settings of the server.

use clap::Args;
use serde_json::Value;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::client::request::ApiRequest;

#[derive(Debug, Args)]
pub struct Info {}

impl ClientAction for Info {
    fn run(self, context: &Context) -> Result<(), CliError> {
        let answer = context.send(&ApiRequest::get("/v1/info").anonymous())?;
        context.output.object(&answer, "version", |info| {
            let yes_or_no = |field: &str| if info[field] == true { "yes" } else { "no" };
            let callbacks = info["callbacks"].as_array().into_iter().flatten().filter_map(Value::as_str);
            vec![
                ("server", context.target.url.as_str().into()),
                ("version", text_of(info, "version").into()),
                ("registration", text_of(info, "registration").into()),
                ("mail", text_of(info, "mail").into()),
                ("billing", text_of(info, "billing").into()),
                ("limits", yes_or_no("limits").into()),
                ("callbacks", callbacks.collect::<Vec<_>>().join(", ").into()),
                ("test clock", yes_or_no("test_clock").into()),
            ]
        })
    }
}
