//! `cued sink`: receives deliveries, verifies and prints them, and answers by a script.

mod listener;
mod receiver;
mod script;
mod secrets;

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::sink::receiver::Receiver;
use crate::cli::client::commands::sink::script::Script;
use crate::cli::client::commands::sink::secrets::Secrets;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::format::Format;
use crate::cli::output::print::print_line;
use crate::cli::server::flag_values::socket_address;
use crate::client::request::ApiRequest;
use crate::locks::Mutex;

#[derive(Debug, Args)]
pub struct Sink {
    /// Address and port to listen on; with port 0 a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9000", value_parser = socket_address)]
    listen: SocketAddr,

    /// Answers, one for each delivery; the last one repeats. A step is a status, a status with the seconds of Retry-After
    /// (429:5), or timeout: no answer until the sender gives up
    #[arg(long, value_name = "STEP,…", default_value = "200", value_parser = clap::value_parser!(Script))]
    script: Script,

    /// Body of the answers of success, such as '{"success": true}'
    #[arg(long, value_name = "TEXT")]
    reply: Option<String>,

    /// End after so many deliveries
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    exit_after: Option<u64>,

    /// Webhook secret: @FILE, or - for standard input; other text is the secret itself, which the list of processes shows.
    /// Prefer CUED_WEBHOOK_SECRET in the environment [default: that of your account]
    #[arg(long, value_name = "@FILE|-|TEXT")]
    secret: Option<String>,

    /// Print the line of each delivery only
    #[arg(long)]
    no_body: bool,
}

impl ClientAction for Sink {
    fn run(self, context: &Context) -> Result<(), CliError> {
        if context.is_curl() {
            context.send(&ApiRequest::get("/v1/auth/webhook-secret"))?;
        }
        let mut secrets = Secrets::choose(self.secret.as_deref())?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| CliError::Failed(format!("cannot start the receiver: {error}")))?;
        let (listener, address) = runtime.block_on(listener::bind(self.listen))?;
        let line = format!("listening on http://{address}");
        match context.output.format {
            Format::Table | Format::Wide => print_line(&line)?,
            _ => context.output.note(&line)?,
        }
        if !address.ip().is_loopback() {
            context.output.note("whoever reaches this address can post to it, not only cued")?;
        }
        secrets.announce(context)?;
        let (end, ends) = mpsc::channel(1);
        let receiver = Arc::new(Receiver {
            context: context.anew()?,
            secrets: Mutex::new(secrets),
            script: self.script,
            reply: self.reply,
            exit_after: self.exit_after,
            has_body: !self.no_body,
            printing: Mutex::default(),
            counts: Mutex::default(),
            end,
        });
        let result = runtime.block_on(listener::serve(listener, Arc::clone(&receiver), ends));
        // A thread may wait for a reader of standard output that has stopped reading.
        runtime.shutdown_background();
        result?;
        context.output.note(&receiver.summary())
    }
}
