//! The parts that every command of the client has: the connection, the form of the output, questions to the user.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::client::client_args::ClientArgs;
use crate::cli::client::environment::environment;
use crate::cli::error::CliError;
use crate::cli::output::Output;
use crate::cli::output::print::print_line;
use crate::cli::output::times::Times;
use crate::cli::printable::print_error;
use crate::client::credentials::{Chosen, Credentials, Target};
use crate::client::error::ClientError;
use crate::client::event_stream::EventStream;
use crate::client::request::{Answer, ApiRequest};
use crate::client::{Client, Connection, Exchange, TlsOptions};

pub struct Context {
    /// Shared with the threads of a command.
    pub client: Arc<Client>,
    pub output: Output,
    pub target: Target,
    /// The time zone that the command line names.
    pub zone: Option<String>,
    /// Requests are shown, not made.
    is_curl: bool,
    is_yes: bool,
    args: ClientArgs,
}

impl Context {
    /// Errors: if a certificate or a time zone is not usable.
    pub fn new(args: &ClientArgs, target: Target) -> Result<Self, CliError> {
        let tls = TlsOptions { ca: args.ca.clone(), is_insecure: args.insecure };
        let times = Times::new(args.utc, args.tz.as_deref())?;
        Ok(Self {
            client: Arc::new(connect(&target, tls, args.verbose)?),
            output: Output::new(args.format()?, args.color, times),
            target,
            zone: if args.utc { Some("UTC".to_owned()) } else { args.tz.clone() },
            is_curl: args.curl,
            is_yes: args.yes,
            args: args.clone(),
        })
    }

    /// The same for another server or key.
    pub fn at(&self, target: Target) -> Result<Self, CliError> {
        Ok(Self {
            client: Arc::new(connect(&target, self.client.connection().tls.clone(), self.args.verbose)?),
            output: self.output.clone(),
            target,
            zone: self.zone.clone(),
            is_curl: self.is_curl,
            is_yes: self.is_yes,
            args: self.args.clone(),
        })
    }

    /// The same by the credentials of this moment, for a command that runs on while somebody signs in.
    pub fn anew(&self) -> Result<Self, CliError> {
        Self::new(&self.args, target(&self.args)?)
    }

    /// Makes the request of the command, or shows it as a command of curl.
    /// Errors: if the server refuses it or cannot be reached; [`CliError::OnlyShown`] if it was shown.
    pub fn send(&self, request: &ApiRequest) -> Result<Answer, CliError> {
        self.show(request)?;
        self.look_up(request)
    }

    /// As [`Context::send`], but every answer is a result, whatever its status. Without a key the request has none.
    /// Errors: if the server cannot be reached; [`CliError::OnlyShown`] if the request was shown.
    pub fn call(&self, request: &ApiRequest) -> Result<Answer, CliError> {
        self.show(request)?;
        Ok(self.client.call(request)?)
    }

    /// Shows the request, if it is not to be made.
    fn show(&self, request: &ApiRequest) -> Result<(), CliError> {
        if !self.is_curl {
            return Ok(());
        }
        print_line(&request.curl(self.client.connection()))?;
        Err(CliError::OnlyShown)
    }

    /// Makes a request that only prepares that of the command, also if that one is only shown.
    /// Errors: if the server refuses it or cannot be reached.
    pub fn look_up(&self, request: &ApiRequest) -> Result<Answer, CliError> {
        if !request.is_anonymous && self.target.key.is_none() {
            return Err(ClientError::NotSignedIn.into());
        }
        Ok(self.client.send(request)?)
    }

    /// Opens the stream of the command, or shows its request. It ends at `deadline`, on the clock of the client.
    pub fn open_stream(
        &self,
        request: ApiRequest,
        deadline: Option<Duration>,
    ) -> Result<EventStream<'_>, CliError> {
        if self.is_curl {
            print_line(&request.curl(self.client.connection()))?;
            return Err(CliError::OnlyShown);
        }
        if self.target.key.is_none() {
            return Err(ClientError::NotSignedIn.into());
        }
        Ok(EventStream::open(&self.client, request, deadline)?)
    }

    /// Requests are shown, not made.
    pub fn is_curl(&self) -> bool {
        self.is_curl
    }

    /// Questions are asked: their answer is not given, and a request is made.
    pub fn asks(&self) -> bool {
        !self.is_yes && !self.is_curl
    }

    /// Asks a question that has yes or no as its answer.
    /// Errors: if the answer is no, or if there is nobody to ask.
    pub fn confirm(&self, question: &str) -> Result<(), CliError> {
        if !self.asks() {
            return Ok(());
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Err(CliError::Usage(format!("{question} Nobody can be asked here: add -y for yes")));
        }
        let mut answer = String::new();
        let mut ask = || {
            print_error(&format!("{question} [y/N] "))?;
            io::stdin().read_line(&mut answer)
        };
        ask().map_err(|error| CliError::Failed(format!("cannot ask: {error}")))?;
        if matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(());
        }
        Err(CliError::Usage("nothing was changed".to_owned()))
    }
}

/// The place of the credentials file.
/// Errors: if the environment names no home.
pub fn credentials_path() -> Result<PathBuf, CliError> {
    Ok(Credentials::path(&environment).map_err(ClientError::from)?)
}

/// The server and the key by flags, environment and credentials file.
/// Errors: if the file or an address is not usable.
pub fn target(args: &ClientArgs) -> Result<Target, CliError> {
    let chosen =
        Chosen { url: args.url.clone().filter(|url| !url.is_empty()), profile: args.profile.clone() };
    let names_profile = chosen.profile.is_some() || environment("CUED_PROFILE").is_some();
    // A machine without a home, such as a service, has no file, and needs none unless a profile is named.
    let (path, credentials) = match credentials_path() {
        Err(_) if !names_profile => (PathBuf::new(), Credentials::default()),
        path => {
            let path = path?;
            let credentials = Credentials::read(&path).map_err(ClientError::from)?;
            (path, credentials)
        }
    };
    Ok(Target::resolve(&chosen, &environment, &credentials, &path).map_err(ClientError::from)?)
}

/// A pause in which a command would seem to hang.
const NOTED_PAUSE: Duration = Duration::from_secs(2);

fn connect(target: &Target, tls: TlsOptions, is_verbose: bool) -> Result<Client, CliError> {
    let mut client = Client::new(Connection { url: target.url.clone(), key: target.key.clone(), tls })?;
    if is_verbose {
        client.watch(print_exchange);
    }
    client.watch_pauses(|pause| {
        if pause >= NOTED_PAUSE {
            // Without standard error there is nobody to tell.
            drop(print_error(&format!("The server asks for a pause of {} s.\n", pause.as_secs())));
        }
    });
    Ok(client)
}

fn print_exchange(exchange: &Exchange<'_>) {
    let Exchange { method, url, status, duration, request_id } = exchange;
    let status = status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
    let id = request_id.map(|id| format!(" {id}")).unwrap_or_default();
    // Without standard error there is nobody to tell.
    drop(print_error(&format!("{method} {url} {status} {} ms{id}\n", duration.as_millis())));
}
