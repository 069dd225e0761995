//! A command that is a client of a server: its flags, and what it does.

use clap::{Args, Subcommand};

use crate::cli::client::client_args::ClientArgs;
use crate::cli::client::context::{Context, target};
use crate::cli::error::CliError;
use crate::cli::output::format::Format;
use crate::client::credentials::Target;

/// A group of commands, such as `cued cue …`.
#[derive(Debug, Args)]
pub struct CommandGroup<A: Subcommand> {
    #[command(flatten)]
    client: ClientArgs,
    #[command(subcommand)]
    action: A,
}

/// A single command, such as `cued whoami`.
#[derive(Debug, Args)]
pub struct SingleCommand<A: Args> {
    // First, so that its flags stand before the heading of the others.
    #[command(flatten)]
    action: A,
    #[command(flatten)]
    client: ClientArgs,
}

/// The work of a command with a server.
pub trait ClientAction {
    /// The server and the key.
    /// Errors: if the credentials file or an address is not usable.
    fn target(&self, args: &ClientArgs) -> Result<Target, CliError> {
        target(args)
    }

    /// Errors: if the server refuses a request or cannot be reached, or the output cannot be written.
    fn run(self, context: &Context) -> Result<(), CliError>;
}

impl<A: Subcommand + ClientAction> CommandGroup<A> {
    pub fn run(self) -> Result<(), CliError> {
        run(&self.client, self.action)
    }
}

impl<A: Args + ClientAction> SingleCommand<A> {
    pub fn action(&self) -> &A {
        &self.action
    }

    pub fn run(self) -> Result<(), CliError> {
        run(&self.client, self.action)
    }
}

/// Runs an action. Its errors are JSON if its output is.
fn run<A: ClientAction>(args: &ClientArgs, action: A) -> Result<(), CliError> {
    let context = action.target(args).and_then(|target| Context::new(args, target));
    let result = context.and_then(|context| action.run(&context));
    result.map_err(|error| if args.format().is_ok_and(Format::is_json) { error.into_json() } else { error })
}
