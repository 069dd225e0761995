//! The commands that are a client of a server. Most of them are rows of a table: the arguments, the request that they
//! make, and how its answer is printed.

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches as _};
use serde_json::Value;

use crate::cli::client::arguments::{FoundCue, Moment, fetch, find, find_channel, find_run};
use crate::cli::client::context::{ClientArgs, Context, target};
use crate::cli::error::{CliError, usage};
use crate::cli::output::table::{Cell, ColumnRule, Table, duration, status, text_of};
use crate::cli::output::{Format, List};
use crate::cli::printable::printable;
use crate::client::credentials::Target;
use crate::client::request::{ApiRequest, ApiResponse, segment};

pub trait ClientAction {
    fn target(&self, args: &ClientArgs) -> Result<Target, CliError> {
        target(args)
    }

    fn run(self, context: &Context) -> Result<(), CliError>;
}

/// Runs a command. Its errors are JSON if its output is.
fn run(
    args: &ClientArgs,
    target: Result<Target, CliError>,
    work: impl FnOnce(&Context) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let context = target.and_then(|target| Context::new(args, target));
    let result = context.and_then(|context| work(&context));
    result.map_err(|error| if args.format().is_ok_and(Format::is_json) { error.into_json() } else { error })
}

pub type CallCode = fn(&Call<'_>) -> Result<(), CliError>;
pub type AnswerCode = fn(&Call<'_>, &ApiResponse) -> Result<(), CliError>;
pub type Finish = fn(Command) -> Command;
pub type ActionCode = fn(&ClientArgs, &ArgMatches) -> Result<(), CliError>;

pub struct Entry {
    clap: Command,
    /// Changes the command after the flags of all commands were added.
    finish: Finish,
    parts: Vec<(String, Part)>,
    /// A field of the query in the wide form.
    wide: Option<(&'static str, &'static str)>,
    work: Work,
}

pub enum Work {
    /// A method and a path, with names of arguments in braces, and the form of the answer.
    Request(&'static str, View),
    /// Several requests, or those of more complicated arguments.
    Code(CallCode),
    Action(ActionCode),
    /// Commands below this one, and the one that it stands for alone.
    Group(Vec<Entry>, &'static str),
}

/// How an answer is printed. The first text is the field with the id.
#[derive(Clone, Copy)]
pub enum View {
    /// The list in a field of the answer.
    List(&'static str, &'static str, Columns),
    /// A list that is read by pages, with flags for the number of rows.
    Pages(&'static str, &'static str, Columns),
    Details(&'static str, Lines),
    /// The names in braces are arguments, else fields of the answer.
    Sentence(&'static str, &'static str),
    Code(AnswerCode),
}

/// The part of the request that an argument sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The place of the path that has the name of the argument: the id of a cue, a run or a channel, or the text itself.
    Cue,
    Run,
    Channel,
    Place,
    /// Once for each value.
    Query(&'static str),
    QueryCue(&'static str),
    QueryMoment(&'static str),
    /// With this value, if the flag is set.
    QuerySwitch(&'static str, &'static str),
    /// The code of the command reads the argument.
    Own,
}

/// An argument that the code of the command reads.
pub fn own(arg: Arg) -> (Arg, Part) {
    (arg, Part::Own)
}

pub fn cue() -> (Arg, Part) {
    (place("cue", "CUE", "Id or name of the cue"), Part::Cue)
}

pub fn run_id() -> (Arg, Part) {
    (place("run", "RUN", "Id of the run, or at least 8 characters of its beginning"), Part::Run)
}

pub fn channel() -> (Arg, Part) {
    (place("channel", "CHANNEL", "Id or name of the channel"), Part::Channel)
}

pub fn cue_filter() -> (Arg, Part) {
    (flag("cue", "CUE", "Only of this cue: its id or its name"), Part::QueryCue("cue_id"))
}

pub const TAG_HELP: &str = "Only of cues with this tag; more than once for cues with all of them";

pub fn tag_flag(help: &'static str) -> Arg {
    flag("tag", "TAG", help).action(ArgAction::Append)
}

/// `--server`, for a command whose `--url` is another one.
pub fn server_flag() -> Arg {
    let help = "Base URL of the server, which other commands name with --url";
    flag("server", "URL", help).help_heading("Server and output")
}

pub fn tag_filter() -> (Arg, Part) {
    (tag_flag(TAG_HELP), Part::Query("tag"))
}

pub fn place(id: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(id).value_name(value).help(help).required(true)
}

pub fn flag(id: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).value_name(value).help(help)
}

pub fn switch(id: &'static str, help: &'static str) -> Arg {
    Arg::new(id).long(id).help(help).action(ArgAction::SetTrue)
}

pub fn number(id: &'static str, max: u32, help: &'static str) -> Arg {
    flag(id, "N", help).value_parser(clap::value_parser!(u32).range(1..=i64::from(max)))
}

pub fn words(id: &'static str, value: &'static str, words: &'static [&str], help: &'static str) -> Arg {
    flag(id, value, help).value_parser(PossibleValuesParser::new(words))
}

pub fn moment(id: &'static str, help: &'static str) -> Arg {
    flag(id, "TIME", help).value_parser(Moment::parse)
}

/// A command. The first paragraph of `help` is the short help.
pub fn entry(
    name: &'static str,
    help: &'static str,
    arguments: impl IntoIterator<Item = (Arg, Part)>,
    work: Work,
) -> Entry {
    let with_id = |(arg, part): (Arg, Part)| ((arg.get_id().to_string(), part), arg);
    let (parts, args): (Vec<_>, Vec<_>) = arguments.into_iter().map(with_id).unzip();
    let command = Command::new(name).args(args);
    let command = match &work {
        Work::Request(_, View::Pages(..)) => command
            .arg(
                flag("limit", "N", "Rows at most")
                    .default_value("20")
                    .value_parser(clap::value_parser!(u64).range(1..)),
            )
            .arg(switch("all", "All rows").conflicts_with("limit")),
        Work::Group(entries, default) => command
            .subcommands(entries.iter().map(|entry| entry.clap.clone()))
            .subcommand_required(default.is_empty())
            .arg_required_else_help(default.is_empty()),
        _ => command,
    };
    Entry { clap: with_help(command, help), finish: |command| command, parts, wide: None, work }
}

/// A command with a type for its arguments.
pub fn action<A: Args + ClientAction>(name: &'static str, help: &'static str) -> Entry {
    let work = Work::Action(|args, matches| {
        let action = A::from_arg_matches(matches).map_err(|error| usage(error.to_string()))?;
        run(args, action.target(args), |context| action.run(context))
    });
    let entry = entry(name, help, [], work);
    Entry { clap: A::augment_args(entry.clap), ..entry }
}

fn with_help(command: Command, help: &'static str) -> Command {
    match help.split_once("\n\n") {
        Some((about, _)) => command.about(about).long_about(help),
        None => command.about(help),
    }
}

impl Entry {
    pub fn name(&self) -> &str {
        self.clap.get_name()
    }

    /// The definition of the command, with the flags of all commands.
    pub fn into_command(self) -> Command {
        (self.finish)(ClientArgs::augment_args(self.clap))
    }

    pub fn finish(self, finish: Finish) -> Self {
        Self { finish, ..self }
    }

    /// Adds text at the end of the long help.
    pub fn example(self, text: &'static str) -> Self {
        Self { clap: self.clap.after_long_help(text), ..self }
    }

    pub fn wide(self, field: &'static str, value: &'static str) -> Self {
        Self { wide: Some((field, value)), ..self }
    }
}

/// Runs the command that the arguments name, or else `default`.
pub fn run_one(entries: Vec<Entry>, default: &str, matches: &ArgMatches) -> Result<(), CliError> {
    let (name, matches) = matches.subcommand().unwrap_or((default, matches));
    let entry = entries.into_iter().find(|entry| entry.name() == name);
    let entry = entry.ok_or_else(|| usage(format!("there is no command {name:?}")))?;
    if let Work::Group(entries, default) = entry.work {
        return run_one(entries, default, matches);
    }
    let mut args = ClientArgs::from_arg_matches(matches).map_err(|error| usage(error.to_string()))?;
    // A command whose `--url` is another one names the server by `--server`.
    if let Ok(url) = matches.try_get_one::<String>("server") {
        args.url = url.cloned();
    }
    let own_tz = entry.clap.get_arguments().find(|arg| arg.get_id() == "tz").and_then(Arg::get_long);
    if let Some(flag) = own_tz {
        args.tz_flag = flag.to_owned();
    }
    if let Work::Action(run) = entry.work {
        return run(&args, matches);
    }
    run(&args, target(&args), |context| {
        let call = Call::new(context, &entry, matches)?;
        match entry.work {
            Work::Request(line, view) => call.request_and_print(line, view),
            Work::Code(code) => code(&call),
            Work::Action(_) | Work::Group(..) => Ok(()),
        }
    })
}

pub struct Call<'a> {
    pub context: &'a Context,
    pub cue: Option<FoundCue>,
    entry: &'a Entry,
    matches: &'a ArgMatches,
    /// The places of the path, with whole ids.
    places: Vec<(&'a str, String)>,
}

impl<'a> Call<'a> {
    fn new(context: &'a Context, entry: &'a Entry, matches: &'a ArgMatches) -> Result<Self, CliError> {
        let mut call = Self { context, cue: None, entry, matches, places: Vec::new() };
        for (id, part) in &entry.parts {
            let value = match part {
                Part::Cue => {
                    let cue = find(context, call.text(id).unwrap_or_default())?;
                    call.cue.insert(cue).id.clone()
                }
                Part::Run => find_run(context, call.text(id).unwrap_or_default())?,
                Part::Channel => find_channel(context, call.text(id).unwrap_or_default())?,
                Part::Place => call.text(id).unwrap_or_default().to_owned(),
                _ => continue,
            };
            call.places.push((id, value));
        }
        Ok(call)
    }

    pub fn get<T: Clone + Send + Sync + 'static>(&self, id: &str) -> Option<&'a T> {
        self.matches.get_one(id)
    }

    pub fn text(&self, id: &str) -> Option<&'a str> {
        self.get::<String>(id).map(String::as_str)
    }

    pub fn texts(&self, id: &str) -> Vec<&'a str> {
        self.matches.get_many::<String>(id).into_iter().flatten().map(String::as_str).collect()
    }

    /// The command line has the argument.
    pub fn is_given(&self, id: &str) -> bool {
        self.matches.value_source(id) == Some(ValueSource::CommandLine)
    }

    pub fn is_set(&self, id: &str) -> bool {
        self.matches.get_flag(id)
    }

    pub fn place(&self, id: &str) -> &str {
        self.places.iter().find(|(it, _)| *it == id).map_or("", |(_, value)| value)
    }

    fn request_and_print(&self, line: &'static str, view: View) -> Result<(), CliError> {
        let (context, output) = (self.context, &self.context.output);
        let request = self.request(line)?;
        if let View::Pages(id, key, columns) = view {
            let limit = self.get("limit").copied().unwrap_or(u64::MAX);
            let wanted = if self.is_set("all") { u64::MAX } else { limit };
            let list = fetch(|page| context.send(page), &request, key, wanted)?;
            return output.list(&list, id, |items| table(columns, context, items));
        }
        let answer = context.send(&request)?;
        match view {
            View::List(id, key, columns) | View::Pages(id, key, columns) => {
                output.list(&List::from_response(&answer, key)?, id, |items| table(columns, context, items))
            }
            View::Details(id, lines) => output.object(&answer, id, |object| details(lines, context, object)),
            View::Sentence(id, text) => output.done(&answer, id, |object| {
                fill(text, |name| match self.place(name) {
                    "" => printable(&text_of(object, name)),
                    place => printable(place),
                })
            }),
            View::Code(code) => code(self, &answer),
        }
    }

    fn request(&self, line: &'static str) -> Result<ApiRequest, CliError> {
        let (method, path) = line.split_once(' ').unwrap_or(("GET", line));
        let mut request = ApiRequest::new(method, fill(path, |id| segment(self.place(id))));
        for (id, part) in &self.entry.parts {
            let texts = || {
                let values = self.matches.get_raw(id).into_iter().flatten();
                values.map(|value| value.to_string_lossy().into_owned())
            };
            let text = || texts().next();
            let (field, value) = match *part {
                Part::Query(field) => {
                    request = texts().fold(request, |request, text| request.query(field, text));
                    continue;
                }
                Part::QueryCue(field) => {
                    let cue = text().map(|text| find(self.context, &text)).transpose()?;
                    (field, cue.map(|cue| cue.id))
                }
                Part::QueryMoment(field) => {
                    let moment: Option<&Moment> = self.get(id);
                    let at = moment.map(|moment| moment.resolve(self.context)).transpose()?;
                    (field, at.map(|at| at.to_string()))
                }
                Part::QuerySwitch(field, value) => (field, self.is_set(id).then(|| value.to_owned())),
                Part::Cue | Part::Run | Part::Channel | Part::Place | Part::Own => continue,
            };
            request = request.maybe_query(field, value);
        }
        let wide = self.entry.wide.filter(|_| self.context.output.is_wide());
        Ok(wide.into_iter().fold(request, |request, (field, value)| request.query(field, value)))
    }
}

pub type Columns = &'static [(&'static str, Form, ColumnRule)];

pub type Lines = &'static [(&'static str, Form)];

/// How a cell is made of an object. The text is the name of a field; a dot leads into an object inside.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    Text(&'static str),
    Status(&'static str),
    Time(&'static str),
    /// An instant that is short unless the form is wide.
    ShortTime(&'static str),
    Millis(&'static str),
    /// JSON, an object on several lines.
    Json(&'static str),
    List(&'static str),
    /// A text with the fields whose names are in braces.
    Template(&'static str),
    Cell(fn(&Context, &Value) -> Cell),
}

impl Form {
    fn cell(self, context: &Context, object: &Value) -> Cell {
        match self {
            Self::Text(name) => text_of(object, name).into(),
            Self::Status(name) => status(&text_of(object, name)),
            Self::Time(name) => context.output.times.instant(&text_of(object, name)).into(),
            Self::ShortTime(name) => context.output.column_time(&text_of(object, name)).into(),
            Self::Millis(name) => text_of(object, name).parse().map(duration).unwrap_or_default().into(),
            Self::Json(name) => match name.split('.').fold(object, |value, name| &value[name]) {
                value @ (Value::Object(_) | Value::Array(_)) => format!("{value:#}").into(),
                _ => text_of(object, name).into(),
            },
            Self::List(name) => {
                let texts = object[name].as_array().into_iter().flatten().filter_map(Value::as_str);
                texts.collect::<Vec<_>>().join(", ").into()
            }
            Self::Template(text) => fill(text, |name| text_of(object, name)).trim().into(),
            Self::Cell(cell) => cell(context, object),
        }
    }
}

pub fn fill(text: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for (name, rest) in parts.filter_map(|part| part.split_once('}')) {
        filled.push_str(&value(name));
        filled.push_str(rest);
    }
    filled
}

pub fn table(columns: Columns, context: &Context, objects: &[Value]) -> Table {
    let row = |object: &Value| columns.iter().map(|(_, form, _)| form.cell(context, object)).collect();
    let titles = columns.iter().map(|(title, _, shown)| (*title, *shown)).collect();
    Table { columns: titles, rows: objects.iter().map(row).collect() }
}

pub fn details(lines: Lines, context: &Context, object: &Value) -> Vec<(&'static str, Cell)> {
    lines.iter().map(|(title, form)| (*title, form.cell(context, object))).collect()
}
