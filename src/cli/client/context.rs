//! The parts that every command of the client has: its flags, the connection, the form of the output, questions to the
//! user.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{Args, ColorChoice, ValueEnum as _};
use jiff::tz::TimeZone;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use url::Url;

use crate::cli::error::{CliError, Result, cannot, usage};
use crate::cli::output::table::{Times, parse_zone, relative};
use crate::cli::output::{Format, Output, print_line, print_note};
use crate::cli::printable::print_error;
use crate::client::credentials::{ConnectionChoice, Credentials, Target, is_loopback};
use crate::client::event_stream::EventStream;
use crate::client::request::{ApiRequest, ApiResponse, ClientError};
use crate::client::{Client, Connection, TlsOptions};
use crate::domain::schedule::Zone;

// The flags of all commands that are clients of a server. A doc comment here would replace the help of each command.
// The id of the first one is that of `--server` too, which commands have whose `--url` is another.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Server and output")]
pub struct ClientArgs {
    /// Base URL of the server [default: that of the profile, or http://127.0.0.1:8000]
    #[arg(id = SERVER_URL, long = "url", alias = "server", value_name = "URL", global = true)]
    pub url: Option<String>,
    /// Profile of the credentials file, as `cued login --profile` wrote it
    #[arg(long, value_name = "NAME", global = true)]
    pub profile: Option<String>,
    /// Certificate authority to trust, in PEM, in place of those of the system [default: CUED_CA, or that of the
    /// profile]
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
    /// Accept any certificate (anyone in between can then read your API key)
    #[arg(long, global = true)]
    pub insecure: bool,
    /// Output format [default: CUED_OUTPUT, or table]
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
    pub color: ColorChoice,
    /// Print times in UTC
    #[arg(long, global = true, conflicts_with = "tz")]
    pub utc: bool,
    /// Print times in this time zone, such as Europe/Berlin [default: that of the system]
    #[arg(long, value_name = "ZONE", global = true)]
    pub tz: Option<String>,
    /// The flag that sets `tz` in place of `--tz`, as the zone of the thing that the command changes: times are printed in the
    /// zone of the person, as ever.
    #[arg(skip)]
    pub own_tz: Option<String>,
    /// Answer every question with yes
    #[arg(short, long, global = true)]
    pub yes: bool,
    /// Print each request and its status to standard error
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Print the equivalent curl command instead of sending the request
    #[arg(long, global = true)]
    pub curl: bool,
}

pub const SERVER_URL: &str = "server_url";

impl ClientArgs {
    /// These options, and of those before the command the ones that they leave open.
    pub fn or(self, before: Self) -> Self {
        let has_form = self.output.is_some() || self.json || self.quiet;
        let has_zone = self.utc || self.tz.is_some();
        Self {
            url: self.url.or(before.url),
            profile: self.profile.or(before.profile),
            ca: self.ca.or(before.ca),
            insecure: self.insecure || before.insecure,
            output: if has_form { self.output } else { before.output },
            json: if has_form { self.json } else { before.json },
            quiet: if has_form { self.quiet } else { before.quiet },
            color: if self.color == ColorChoice::Auto { before.color } else { self.color },
            utc: if has_zone { self.utc } else { before.utc },
            tz: if has_zone { self.tz } else { before.tz },
            own_tz: self.own_tz,
            yes: self.yes || before.yes,
            verbose: self.verbose || before.verbose,
            curl: self.curl || before.curl,
        }
    }

    /// A TZ that names no time zone counts as UTC, which a person would notice late.
    pub fn warn_of_unknown_zone(&self) -> Result {
        let names_zone = self.utc || (self.tz.is_some() && self.own_tz.is_none());
        let is_quiet = names_zone || self.format()?.is_json();
        note_of_unknown_zone().filter(|_| !is_quiet).map_or(Ok(()), |note| print_note(&note))
    }

    pub fn format(&self) -> Result<Format> {
        let by_flag = [(self.json, Format::Json), (self.quiet, Format::Id)];
        let by_flag = by_flag.into_iter().find(|(is_set, _)| *is_set).map(|(_, form)| form);
        match (by_flag.or(self.output), environment("CUED_OUTPUT")) {
            (Some(form), _) => Ok(form),
            (None, None) => Ok(Format::default()),
            (None, Some(form)) => Format::from_str(&form, false).map_err(|_| {
                let forms = "table, wide, json, jsonl, yaml, id";
                usage(format!("CUED_OUTPUT: {form:?} is none of {forms}"))
            }),
        }
    }
}

/// A variable of the environment; an empty one counts as absent.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What a person has to know before [`zone_of_machine`] is used, if TZ names no time zone.
pub fn note_of_unknown_zone() -> Option<String> {
    let is_unknown = |name: &String| TimeZone::try_system().is_err() && Zone::find(name).is_err();
    let name = environment("TZ").filter(is_unknown)?;
    Some(format!("TZ is {name:?}, which is no time zone: UTC is used"))
}

/// The time zone of this machine, else UTC.
pub fn zone_of_machine() -> Zone {
    // A machine without a database of zones. An unknown TZ is UTC, which `note_of_unknown_zone` says.
    let built_in = || Zone::find(&environment("TZ")?).ok();
    Zone::of_machine(TimeZone::system()).or_else(built_in).unwrap_or(Zone::UTC)
}

pub struct Context {
    /// Shared with the threads of a command.
    pub client: Arc<Client>,
    pub output: Output,
    pub target: Target,
    /// The time zone that the command line names.
    pub zone: Option<Zone>,
    args: ClientArgs,
    sends_no_mail: OnceLock<bool>,
}

impl Context {
    pub fn new(args: &ClientArgs, target: Target) -> Result<Self> {
        let flag = args.own_tz.as_deref().unwrap_or("tz");
        let named = args.tz.as_deref().map(|name| parse_zone(flag, name)).transpose()?;
        let zone = if args.utc { Some(Zone::UTC) } else { named };
        let shown = zone.as_ref().filter(|_| args.utc || args.own_tz.is_none());
        let shown = shown.map_or_else(TimeZone::system, |zone| zone.rules().clone());
        Ok(Self {
            client: Arc::new(connect(&target, args)?),
            output: Output::new(args.format()?, args.color, Times::in_zone(shown)),
            target,
            zone,
            args: args.clone(),
            sends_no_mail: OnceLock::new(),
        })
    }

    /// The time zone of the person: the one that the command line names, else that of the machine, else UTC.
    pub fn own_zone(&self) -> Zone {
        self.zone.clone().unwrap_or_else(zone_of_machine)
    }

    /// The same for another server or key.
    pub fn at(&self, target: Target) -> Result<Self> {
        Self::new(&self.args, target)
    }

    /// Reads the credentials again, for a long-running command.
    pub fn reload(&self) -> Result<Self> {
        Self::new(&self.args, target(&self.args)?)
    }

    /// An instant of the API, for a person with its distance from now: `2026-11-22 18:00:00+01:00 (in 12 s)`.
    pub fn exact_time(&self, instant: &str) -> String {
        let exact = self.output.times.instant(instant);
        match self.output.styles.width {
            Some(_) if !instant.is_empty() => {
                format!("{exact} ({})", relative(instant, self.client.server_time()))
            }
            _ => exact,
        }
    }

    /// Makes the request of the command, or with `--curl` shows it and returns [`CliError::OnlyShown`].
    pub fn send(&self, request: &ApiRequest) -> Result<ApiResponse> {
        self.show(request)?;
        self.fetch(request)
    }

    /// As [`Context::send`], but every answer is a result, whatever its status. Without a key the request has none.
    pub fn call(&self, request: &ApiRequest) -> Result<ApiResponse> {
        self.show(request)?;
        Ok(self.client.call(request)?)
    }

    fn show(&self, request: &ApiRequest) -> Result {
        if !self.args.curl {
            return Ok(());
        }
        print_line(&request.curl(self.client.connection()))?;
        Err(CliError::OnlyShown)
    }

    /// Sends a preparatory request, such as a lookup of an id. `--curl` neither prints nor stops it: it shows only the
    /// request of the command itself.
    pub fn fetch(&self, request: &ApiRequest) -> Result<ApiResponse> {
        self.check_key_for(request)?;
        Ok(self.client.send(request)?)
    }

    /// Errors: if there is no key, for a command whose requests come from threads of its own.
    pub fn check_key(&self) -> Result {
        if self.target.key.is_some() { Ok(()) } else { Err(self.no_key().into()) }
    }

    fn check_key_for(&self, request: &ApiRequest) -> Result {
        if request.is_anonymous { Ok(()) } else { self.check_key() }
    }

    /// A key is stored for a server by one of its names: localhost and 127.0.0.1 are two.
    fn no_key(&self) -> ClientError {
        let url = &self.target.url;
        let port = |url: &str| Url::parse(url).ok().and_then(|url| url.port_or_known_default());
        let is_same =
            |stored: &str| is_loopback(stored) && is_loopback(url) && port(stored) == port(url);
        let stored = credentials_path().ok().and_then(|path| Credentials::read(&path).ok());
        let mut profiles = stored.into_iter().flat_map(|stored| stored.profiles);
        profiles.find(|(_, profile)| is_same(&profile.url)).map_or(
            ClientError::NotSignedIn,
            |(name, profile)| ClientError::OtherName {
                url: url.clone(),
                profile: name,
                stored: profile.url,
            },
        )
    }

    /// Opens the stream of the command, or shows its request. It ends at `deadline`, on the clock of the client.
    pub fn open_stream(
        &self,
        request: ApiRequest,
        deadline: Option<Duration>,
    ) -> Result<EventStream<'_>> {
        self.show(&request)?;
        self.check_key_for(&request)?;
        Ok(EventStream::open(&self.client, request, deadline)?)
    }

    /// The server writes mails to its log in place of sending them. A server that does not say so sends them.
    pub fn sends_no_mail(&self) -> bool {
        *self.sends_no_mail.get_or_init(|| {
            let info = self.fetch(&ApiRequest::get("/v1/info").anonymous());
            info.and_then(|info| Ok(info.value()?)).is_ok_and(|info| info["mail"] == "log")
        })
    }

    /// The command line names a profile.
    pub fn names_profile(&self) -> bool {
        self.args.profile.is_some()
    }

    pub fn is_curl(&self) -> bool {
        self.args.curl
    }

    /// Questions are asked: their answer is not given, and a request is made.
    pub fn asks(&self) -> bool {
        !self.args.yes && !self.args.curl
    }

    pub fn confirm(&self, question: &str) -> Result {
        if !self.asks() {
            return Ok(());
        }
        match ask(&format!("{question} [y/N] "))?.as_deref() {
            None => Err(usage(format!("{question} Not a terminal: add -y to confirm"))),
            Some("y" | "Y" | "yes") => Ok(()),
            Some(_) => Err(usage("nothing was changed")),
        }
    }
}

/// There is a person to ask.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Prints a question without an end of the line. Returns `false` if there is no person to ask.
pub fn prompt(question: &str) -> Result<bool> {
    let can_ask = can_ask();
    if can_ask {
        print_error(question).map_err(|error| cannot("ask", error))?;
    }
    Ok(can_ask)
}

/// The answer to a question; `None` if there is no person to ask, or if the input has ended.
pub fn ask(question: &str) -> Result<Option<String>> {
    if !prompt(question)? {
        return Ok(None);
    }
    let mut answer = String::new();
    let length = io::stdin().read_line(&mut answer).map_err(|error| cannot("ask", error))?;
    Ok((length > 0).then(|| answer.trim().to_owned()))
}

pub fn nothing_entered() -> CliError {
    usage("nothing was entered")
}

/// Asks for a text that does not appear on the screen.
pub fn ask_hidden(question: &str) -> Result<String> {
    let failed = |error| cannot("hide the input", error);
    let shown = tcgetattr(io::stdin()).map_err(failed)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(io::stdin(), OptionalActions::Flush, &hidden).map_err(failed)?;
    let answer = ask(question);
    tcsetattr(io::stdin(), OptionalActions::Now, &shown).map_err(failed)?;
    // The end of the line was not shown either.
    prompt("\n")?;
    answer?.ok_or_else(nothing_entered)
}

pub fn credentials_path() -> Result<PathBuf> {
    Ok(Credentials::path(&environment)?)
}

/// The server and the key by flags, environment and credentials file.
pub fn target(args: &ClientArgs) -> Result<Target> {
    let chosen = ConnectionChoice {
        url: args.url.clone().filter(|url| !url.is_empty()),
        profile: args.profile.clone(),
    };
    let names_profile = chosen.profile.is_some() || environment("CUED_PROFILE").is_some();
    // A machine without a home, such as a service, has no file, and needs none unless a profile is named.
    let (path, credentials) = match credentials_path() {
        Err(_) if !names_profile => Default::default(),
        path => {
            let path = path?;
            let credentials = Credentials::read(&path)?;
            (path, credentials)
        }
    };
    Ok(Target::resolve(&chosen, &environment, &credentials, &path)?)
}

/// A command seems to hang during a pause of this length.
const NOTED_PAUSE: Duration = Duration::from_secs(2);

fn connect(target: &Target, args: &ClientArgs) -> Result<Client> {
    let ca = args.ca.as_ref().or(target.ca.as_ref()).cloned();
    let tls = TlsOptions { ca, is_insecure: args.insecure };
    let mut client =
        Client::new(Connection { url: target.url.clone(), key: target.key.clone(), tls })?;
    if args.verbose {
        // Without standard error the line is lost.
        client.on_exchange = |line| drop(print_error(&format!("{line}\n")));
    }
    client.on_pause = |pause, reason| {
        if pause >= NOTED_PAUSE {
            let colon = if reason.is_empty() { "." } else { ": " };
            let text =
                format!("The server asks for a pause of {} s{colon}{reason}\n", pause.as_secs());
            // Without standard error the note is lost.
            drop(print_error(&text));
        }
    };
    Ok(client)
}
