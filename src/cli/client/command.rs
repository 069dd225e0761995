//! The commands that are a client of a server. Most of them are rows of a table: the arguments, the request that they
//! make, and how its answer is printed.

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches as _};
use serde_json::Value;

use crate::cli::client::arguments::{Moment, fetch, find_channel, find_run};
use crate::cli::client::context::{ClientArgs, Context, SERVER_URL, target};
use crate::cli::client::cues::{FoundCue, find};
use crate::cli::client::refusals::{Fault, reworded};
use crate::cli::client::words::{in_words, of_words};
use crate::cli::error::{CliError, usage};
use crate::cli::output::table::{Cell, ColumnRule, Table, duration, relative, status, text_of};
use crate::cli::output::{Format, List};
use crate::cli::printable::printable;
use crate::client::credentials::Target;
use crate::client::request::{ApiRequest, ApiResponse, segment};

/// Rows of a list for a person, who asks for more with `--all`.
const ROWS_OF_PERSON: u64 = 20;

/// Rows of a list for a program, which expects the whole list: more are read with `--all` only, because an account can
/// have millions of runs.
const MAX_ROWS: u64 = 10_000;

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
    name: &dyn Fn(&Fault) -> Option<String>,
    work: impl FnOnce(&Context) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let context = target.and_then(|target| Context::new(args, target));
    args.warn_of_unknown_zone()?;
    let result = context
        .and_then(|context| work(&context).map_err(|error| reworded(error, &context.target, name)));
    result.map_err(
        |error| if args.format().is_ok_and(Format::is_json) { error.into_json() } else { error },
    )
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
    /// A word of the API, or the words that a table shows for it.
    QueryWords(&'static str),
    QueryCue(&'static str),
    QueryMoment(&'static str),
    /// With this value, if the flag is set.
    QuerySwitch(&'static str, &'static str),
    /// The code of the command reads the argument.
    Own,
}

impl Part {
    fn is_filter(self) -> bool {
        !matches!(self, Self::Cue | Self::Run | Self::Channel | Self::Place | Self::Own)
    }
}

/// An argument that the code of the command reads.
pub fn own(arg: Arg) -> (Arg, Part) {
    (arg, Part::Own)
}

pub fn cue() -> (Arg, Part) {
    (
        place("cue", "CUE", "Name, id, short id (`cued cue list`) or slug (slug:S) of the cue"),
        Part::Cue,
    )
}

pub fn run_id() -> (Arg, Part) {
    (
        place("run", "RUN", "Id of the run, or at least 8 characters of its beginning or end"),
        Part::Run,
    )
}

pub fn channel() -> (Arg, Part) {
    (place("channel", "CHANNEL", "Id or name of the channel"), Part::Channel)
}

pub fn cue_filter() -> (Arg, Part) {
    (flag("cue", "CUE", "Only of this cue, by id or name"), Part::QueryCue("cue_id"))
}

pub const TAG_HELP: &str = "Only of cues with this tag; repeat it for cues with all of them";

pub fn tag_flag(help: &'static str) -> Arg {
    flag("tag", "TAG", help).action(ArgAction::Append)
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

/// `--server`, for a command whose `--url` is another one.
pub fn server_flag() -> Arg {
    let help = "Base URL of the server, which other commands name with --url";
    flag(SERVER_URL, "URL", help)
        .long("server")
        .hide_short_help(true)
        .help_heading("Server and output")
}

pub fn number(id: &'static str, max: u32, help: &'static str) -> Arg {
    flag(id, "N", help).value_parser(clap::value_parser!(u32).range(1..=i64::from(max)))
}

pub fn words(
    id: &'static str,
    value: &'static str,
    words: &'static [&str],
    help: &'static str,
) -> Arg {
    flag(id, value, help).value_parser(PossibleValuesParser::new(words))
}

pub fn moment(id: &'static str, help: &'static str) -> Arg {
    flag(id, "TIME", help).value_parser(Moment::parse)
}

/// Names of commands in other programs. They are in no help.
const OTHER_NAMES: [(&str, &[&str]); 4] = [
    ("list", &["ls"]),
    ("add", &["create", "new"]),
    ("rm", &["delete", "remove"]),
    ("set", &["update"]),
];

/// A command. The first paragraph of `help` is the short help.
pub fn entry(
    name: &'static str,
    help: &'static str,
    arguments: impl IntoIterator<Item = (Arg, Part)>,
    work: Work,
) -> Entry {
    let with_id = |(arg, part): (Arg, Part)| ((arg.get_id().to_string(), part), arg);
    let (parts, args): (Vec<_>, Vec<_>) = arguments.into_iter().map(with_id).unzip();
    let other = OTHER_NAMES.iter().find(|(own, _)| *own == name).map(|(_, names)| *names);
    let command = Command::new(name).args(args).aliases(other.unwrap_or_default());
    let command = match &work {
        Work::Request(_, View::Pages(..)) => command
            .arg(
                flag("limit", "N", "Maximum number of rows [default: 20 at a terminal, else all]")
                    .value_parser(clap::value_parser!(u64).range(1..)),
            )
            .arg(switch("all", "Show all rows").conflicts_with("limit")),
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
        run(args, action.target(args), &|fault| flag_of(fault, &[], matches), |context| {
            action.run(context)
        })
    });
    let entry = entry(name, help, [], work);
    Entry { clap: A::augment_args(entry.clap), ..entry }
}

/// The options that every command of a client has. Its help names them in one line.
pub fn common_options() -> impl Iterator<Item = Arg> {
    let options = ClientArgs::augment_args(Command::new("options"));
    options.get_arguments().cloned().collect::<Vec<_>>().into_iter()
}

const COMMON_OPTIONS: &str = "Server and output options: cued help options";

fn with_help(command: Command, help: &'static str) -> Command {
    let command = command.after_help(COMMON_OPTIONS);
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
        let common = common_options().map(|arg| arg.hide_short_help(true).hide_long_help(true));
        (self.finish)(self.clap.args(common))
    }

    pub fn finish(self, finish: Finish) -> Self {
        Self { finish, ..self }
    }

    /// Only these options are in the short help.
    pub fn short(self, options: &str) -> Self {
        Self { clap: with_short_help(self.clap, options), ..self }
    }

    pub fn wide(self, field: &'static str, value: &'static str) -> Self {
        Self { wide: Some((field, value)), ..self }
    }
}

/// The short help has only these options, and all arguments without a flag.
pub fn with_short_help(command: Command, options: &str) -> Command {
    let options: Vec<&str> = options.split(' ').collect();
    command.mut_args(|arg| {
        let is_shown = arg.get_long().is_none_or(|name| options.contains(&name));
        arg.hide_short_help(!is_shown)
    })
}

/// Runs the command that the arguments name, or else `default`. `before` has the options in front of the command.
pub fn run_one(
    entries: Vec<Entry>,
    default: &str,
    matches: &ArgMatches,
    before: ClientArgs,
) -> Result<(), CliError> {
    let (name, matches) = matches.subcommand().unwrap_or((default, matches));
    let entry = entries.into_iter().find(|entry| entry.name() == name);
    let entry = entry.ok_or_else(|| usage(format!("there is no command {name:?}")))?;
    if let Work::Group(entries, default) = entry.work {
        return run_one(entries, default, matches, before);
    }
    let args = ClientArgs::from_arg_matches(matches).map_err(|error| usage(error.to_string()))?;
    let mut args = args.or(before);
    let own_tz =
        entry.clap.get_arguments().find(|arg| arg.get_id() == "tz").and_then(Arg::get_long);
    if let Some(flag) = own_tz {
        args.tz_flag = flag.to_owned();
        args.is_own_tz = true;
    }
    if let Work::Action(run) = entry.work {
        return run(&args, matches);
    }
    run(&args, target(&args), &|fault| flag_of(fault, &entry.parts, matches), |context| {
        let call = Call::new(context, &entry, matches)?;
        match entry.work {
            Work::Request(line, view) => call.request_and_print(line, view),
            Work::Code(code) => code(&call),
            Work::Action(_) | Work::Group(..) => Ok(()),
        }
    })
}

/// The flag of the command line that sets the field of a fault.
fn flag_of(fault: &Fault, parts: &[(String, Part)], matches: &ArgMatches) -> Option<String> {
    let field = fault.path();
    let sets = |part: &Part| match part {
        Part::Query(name)
        | Part::QueryWords(name)
        | Part::QueryCue(name)
        | Part::QueryMoment(name)
        | Part::QuerySwitch(name, _) => *name == field,
        _ => false,
    };
    if let Some((id, _)) = parts.iter().find(|(_, part)| sets(part)) {
        return Some(format!("--{id}"));
    }
    let has = |id: &str| matches.try_contains_id(id).is_ok();
    let is_given = |id: &str| has(id) && matches.value_source(id) == Some(ValueSource::CommandLine);
    // What is missing, and what the command adds, has its flag too, unless a text may have the field.
    let is_of_text = ["fields", "field", "edit"].into_iter().any(is_given);
    fault.flag(is_given).or_else(|| fault.flag(has).filter(|_| !is_of_text))
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
    fn new(
        context: &'a Context,
        entry: &'a Entry,
        matches: &'a ArgMatches,
    ) -> Result<Self, CliError> {
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

    /// False for a flag that the command does not have.
    pub fn is_set(&self, id: &str) -> bool {
        self.matches.try_get_one(id).ok().flatten().copied().unwrap_or(false)
    }

    pub fn place(&self, id: &str) -> &str {
        self.places.iter().find(|(it, _)| *it == id).map_or("", |(_, value)| value)
    }

    fn request_and_print(&self, line: &'static str, view: View) -> Result<(), CliError> {
        let (context, output) = (self.context, &self.context.output);
        let request = self.request(line)?;
        if let View::Pages(id, key, columns) = view {
            let limit = self.get("limit").copied();
            let bound = if output.is_read_by_person() { ROWS_OF_PERSON } else { MAX_ROWS };
            let bound = if self.is_set("all") { u64::MAX } else { bound };
            let mut list = fetch(|page| context.send(page), &request, key, limit.unwrap_or(bound))?;
            list.is_limited = limit.is_some();
            list.is_filtered =
                self.entry.parts.iter().any(|(id, part)| part.is_filter() && self.is_given(id));
            return output.list(&list, id, |items| table(columns, context, items));
        }
        let answer = context.send(&request)?;
        match view {
            View::List(id, key, columns) | View::Pages(id, key, columns) => {
                output.list(&List::from_response(&answer, key)?, id, |items| {
                    table(columns, context, items)
                })
            }
            View::Details(id, lines) => {
                output.object(&answer, id, |object| details(lines, context, object))
            }
            View::Sentence(id, text) => output.done(&answer, id, |object| {
                fill(text, |name| match self.place(name) {
                    "" => printable(&text_of(object, name)),
                    place => printable(&output.id(place)),
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
                Part::QueryWords(field) => (field, text().map(|text| of_words(&text))),
                Part::QueryCue(field) => {
                    let cue = text().map(|text| find(self.context, &text)).transpose()?;
                    (field, cue.map(|cue| cue.id))
                }
                Part::QueryMoment(field) => {
                    let moment: Option<&Moment> = self.get(id);
                    let at = moment.map(|moment| moment.resolve(self.context)).transpose()?;
                    (field, at.map(|at| at.to_string()))
                }
                Part::QuerySwitch(field, value) => {
                    (field, self.is_set(id).then(|| value.to_owned()))
                }
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
    /// The id of a cue or a run.
    Id(&'static str),
    /// A number that is of interest if it is not 0.
    Count(&'static str),
    /// An instant, which a table shows by its distance from now if a person reads it.
    Time(&'static str),
    /// An instant that needs its seconds.
    ExactTime(&'static str),
    Millis(&'static str),
    /// JSON, an object on several lines.
    Json(&'static str),
    /// A word of the API, as a person reads it.
    Words(&'static str),
    List(&'static str),
    /// A text with the fields whose names are in braces.
    Template(&'static str),
    Cell(fn(&Context, &Value) -> Cell),
}

impl Form {
    fn cell(self, context: &Context, object: &Value) -> Cell {
        match self {
            Self::Status(name) => status(&text_of(object, name)),
            Self::Count(name) if context.output.is_short() && object[name] == 0 => Cell::default(),
            Self::Text(name) | Self::Count(name) => text_of(object, name).into(),
            Self::Words(name) => in_words(&text_of(object, name)).into(),
            Self::Id(name) => context.output.id(&text_of(object, name)).into(),
            Self::Time(name) if context.output.is_short() => {
                relative(&text_of(object, name), context.client.server_time()).into()
            }
            Self::Time(name) | Self::ExactTime(name) => {
                context.output.times.instant(&text_of(object, name)).into()
            }
            Self::Millis(name) => {
                text_of(object, name).parse().map(duration).unwrap_or_default().into()
            }
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
    let row =
        |object: &Value| columns.iter().map(|(_, form, _)| form.cell(context, object)).collect();
    let titles = columns.iter().map(|(title, _, shown)| (*title, *shown)).collect();
    Table { columns: titles, rows: objects.iter().map(row).collect() }
}

pub fn details(lines: Lines, context: &Context, object: &Value) -> Vec<(&'static str, Cell)> {
    let cell = |form: &Form| match *form {
        Form::Time(name) => context.exact_time(&text_of(object, name)).into(),
        form => form.cell(context, object),
    };
    lines.iter().map(|(title, form)| (*title, cell(form))).collect()
}
