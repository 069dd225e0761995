//! The commands that are a client of a server. Most of them are rows of a table: the arguments, the request that they
//! make, and how its answer is printed.

use std::borrow::Cow;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches as _};
use serde_json::{Value, json};

use crate::cli::client::arguments::{
    FoundCue, Moment, fetch, find, find_channel, find_maybe_id, find_run,
};
use crate::cli::client::context::{ClientArgs, Context, SERVER_URL, ask_hidden, can_ask, target};
use crate::cli::client::forms::{Columns, Lines, details, field, fill, table};
use crate::cli::client::refusals::{Fault, flags_of, reworded};
use crate::cli::client::words::of_words;
use crate::cli::error::{Result, usage};
use crate::cli::input;
use crate::cli::output::table::{parse_seconds, text_of};
use crate::cli::output::{Format, List, print_note};
use crate::cli::printable::printable;
use crate::client::credentials::Target;
use crate::client::request::{ApiRequest, ApiResponse, segment};

/// Rows of a list for a person, who asks for more with `--all`.
const ROWS_OF_PERSON: u64 = 20;

/// Rows of a list for a program, which expects the whole list: more are read with `--all` only, because an account can
/// have millions of runs.
const MAX_ROWS: u64 = 10_000;

pub trait ClientAction {
    fn target(&self, args: &ClientArgs) -> Result<Target> {
        target(args)
    }

    fn run(self, context: &Context) -> Result;
}

/// Runs a command. Its errors are JSON if its output is.
fn run(
    args: &ClientArgs,
    target: Result<Target>,
    name: &dyn Fn(&Fault) -> Option<String>,
    work: impl FnOnce(&Context) -> Result,
) -> Result {
    let context = target.and_then(|target| Context::new(args, target));
    args.warn_of_unknown_zone()?;
    let result = context
        .and_then(|context| work(&context).map_err(|error| reworded(error, &context.target, name)));
    result.map_err(
        |error| if args.format().is_ok_and(Format::is_json) { error.into_json() } else { error },
    )
}

pub type CallCode = fn(&Call<'_>) -> Result;
pub type AnswerCode = fn(&Call<'_>, &ApiResponse) -> Result;
pub type Finish = fn(Command) -> Command;
pub type ActionCode = fn(&ClientArgs, &ArgMatches) -> Result;

pub struct Entry {
    clap: Command,
    /// Changes the command after the flags of all commands were added.
    finish: Finish,
    parts: Vec<(String, Part)>,
    /// A field of the query in the wide form.
    wide: Option<(&'static str, &'static str)>,
    /// What a person reads after the answer, with names of its fields in braces.
    note: &'static str,
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// A field of the JSON body, with a dot before a part of an object.
    Body(&'static str),
    /// A list of all values.
    BodyList(&'static str),
    /// An object, which may be in a file or come from standard input.
    BodyObject(&'static str),
    /// A text that is better in a file, a line of standard input, or the answer to a question.
    BodySecret(&'static str),
    /// With this value, if the flag is set.
    BodySwitch(&'static str, Value),
    /// The code of the command reads the argument, and sets this field.
    Sets(&'static str),
    /// The code of the command reads the argument.
    Own,
}

impl Part {
    fn is_filter(&self) -> bool {
        use Part::{Query, QueryCue, QueryMoment, QuerySwitch, QueryWords};
        matches!(self, Query(_) | QueryWords(_) | QueryCue(_) | QueryMoment(_) | QuerySwitch(..))
    }

    /// The field of the API that the argument sets.
    fn field(&self) -> Option<&'static str> {
        match self {
            Self::Cue | Self::Run | Self::Channel | Self::Place | Self::Own => None,
            Self::Query(field)
            | Self::QueryWords(field)
            | Self::QueryCue(field)
            | Self::QueryMoment(field)
            | Self::QuerySwitch(field, _)
            | Self::Body(field)
            | Self::BodyList(field)
            | Self::BodyObject(field)
            | Self::BodySecret(field)
            | Self::BodySwitch(field, _)
            | Self::Sets(field) => Some(field),
        }
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

pub const TAG_HELP: &str = "Only cues with this tag; repeat to require several tags";

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
    let number = clap::value_parser!(u32).range(1..=i64::from(max));
    flag(id, "N", help).value_parser(number.map(Value::from))
}

/// A time span, which the API has in seconds.
pub fn seconds(id: &'static str, help: &'static str) -> Arg {
    flag(id, "SPAN", help).value_parser(|text: &str| parse_seconds(text).map(Value::from))
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
pub fn row(name: &'static str, help: &'static str) -> Entry {
    let other = OTHER_NAMES.iter().find(|(own, _)| *own == name).map(|(_, names)| *names);
    let clap = Command::new(name).aliases(other.unwrap_or_default()).after_help(COMMON_OPTIONS);
    let clap = match help.split_once("\n\n") {
        Some((about, _)) => clap.about(about).long_about(help),
        None => clap.about(help),
    };
    let work = Work::Group(Vec::new(), "");
    Entry { clap, finish: |command| command, parts: Vec::new(), wide: None, note: "", work }
}

/// A command with commands below it, and the one that it stands for alone.
pub fn group(
    name: &'static str,
    help: &'static str,
    entries: Vec<Entry>,
    default: &'static str,
) -> Entry {
    let entry = row(name, help);
    let clap = entry
        .clap
        .subcommands(entries.iter().map(|entry| entry.clap.clone()))
        .subcommand_required(default.is_empty())
        .arg_required_else_help(default.is_empty());
    Entry { clap, work: Work::Group(entries, default), ..entry }
}

/// A command with a type for its arguments, whose documentation is the help.
pub fn action<A: Args + ClientAction>(name: &'static str) -> Entry {
    let work = Work::Action(|args, matches| {
        let action = A::from_arg_matches(matches).map_err(|error| usage(error.to_string()))?;
        run(args, action.target(args), &|fault| flag_of(fault, &[], matches), |context| {
            action.run(context)
        })
    });
    let entry = row(name, "");
    Entry { clap: A::augment_args(entry.clap), work, ..entry }
}

/// The options that every command of a client has. Its help names them in one line.
pub fn common_options() -> impl Iterator<Item = Arg> {
    let options = ClientArgs::augment_args(Command::new("options"));
    options.get_arguments().cloned().collect::<Vec<_>>().into_iter()
}

const LIMIT: &str = "Maximum number of rows [default: 20 at a terminal, else all]";

const COMMON_OPTIONS: &str = "Server and output options: cued help options";

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

    pub fn args(mut self, arguments: impl IntoIterator<Item = (Arg, Part)>) -> Self {
        for (arg, part) in arguments {
            self.parts.push((arg.get_id().to_string(), part));
            self.clap = self.clap.arg(arg);
        }
        self
    }

    /// The request that the command makes: a method and a path, with names of arguments in braces. A cue, a run and a
    /// channel are arguments of every command whose path has their place.
    pub fn request(self, line: &'static str, view: View) -> Self {
        let places = [("{cue}", cue()), ("{run}", run_id()), ("{channel}", channel())];
        let places = places.into_iter().filter(|(place, _)| line.contains(place));
        let entry = self.args(places.map(|(_, argument)| argument));
        let clap = match view {
            View::Pages(..) => entry
                .clap
                .arg(flag("limit", "N", LIMIT).value_parser(clap::value_parser!(u64).range(1..)))
                .arg(switch("all", "Show all rows").conflicts_with("limit")),
            _ => entry.clap,
        };
        Self { clap, work: Work::Request(line, view), ..entry }
    }

    pub fn code(self, code: CallCode) -> Self {
        Self { work: Work::Code(code), ..self }
    }

    pub fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
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
) -> Result {
    let (name, matches) = matches.subcommand().unwrap_or((default, matches));
    let entry = entries.into_iter().find(|entry| entry.name() == name);
    let entry = entry.ok_or_else(|| usage(format!("there is no command {name:?}")))?;
    if let Work::Group(entries, default) = entry.work {
        return run_one(entries, default, matches, before);
    }
    let args = ClientArgs::from_arg_matches(matches).map_err(|error| usage(error.to_string()))?;
    let mut args = args.or(before);
    let own_tz = entry.clap.get_arguments().find(|arg| arg.get_id() == "tz");
    args.own_tz = own_tz.and_then(Arg::get_long).map(str::to_owned);
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

/// The flag of the command line that sets the field of a fault, or removes it.
fn flag_of(fault: &Fault, parts: &[(String, Part)], matches: &ArgMatches) -> Option<String> {
    let paths = fault.paths();
    let of_path = |path: &String| {
        let own = parts.iter().filter(|(_, part)| part.field() == Some(path.as_str()));
        let own: Vec<String> = own.map(|(id, _)| id.clone()).collect();
        own.into_iter().chain(flags_of(path))
    };
    let has = |id: &String| matches.try_contains_id(id).is_ok();
    let flags: Vec<String> = paths.iter().flat_map(of_path).filter(has).collect();
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    // What is missing, and what the command adds, has its flag too, unless a text may have the field.
    let is_of_text = ["fields", "field", "edit"]
        .into_iter()
        .any(|id| matches.try_contains_id(id).is_ok() && is_given(id));
    let given = flags.iter().find(|id| is_given(id));
    given.or(flags.first().filter(|_| !is_of_text)).map(|id| format!("--{id}"))
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
    fn new(context: &'a Context, entry: &'a Entry, matches: &'a ArgMatches) -> Result<Self> {
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

    /// The values of an argument as they were written.
    fn raw(&self, id: &str) -> impl Iterator<Item = String> + use<'a> {
        let values = self.matches.get_raw(id).into_iter().flatten();
        values.map(|value| value.to_string_lossy().into_owned())
    }

    /// Sets the fields of a body that the arguments name.
    pub fn set_fields(&self, body: &mut Value) -> Result {
        for (id, part) in self.entry.parts.iter().filter(|(id, _)| self.is_given(id)) {
            let text = || self.raw(id).next().unwrap_or_default();
            let (field, value) = match part {
                Part::Body(field) => {
                    let value: Option<&Value> = self.matches.try_get_one(id).ok().flatten();
                    (field, value.cloned().unwrap_or_else(|| text().into()))
                }
                Part::BodyList(field) => (field, json!(self.texts(id))),
                Part::BodyObject(field) => (field, input::structured(&format!("--{id}"), &text())?),
                Part::BodySecret(field) => (field, secret(&format!("--{id}"), &text())?.into()),
                Part::BodySwitch(field, value) => (field, value.clone()),
                _ => continue,
            };
            *field.split('.').fold(&mut *body, |body, name| &mut body[name]) = value;
        }
        Ok(())
    }

    pub fn fields(&self) -> Result<Value> {
        let mut body = json!({});
        self.set_fields(&mut body)?;
        Ok(body)
    }

    /// The command line has the argument.
    pub fn is_given(&self, id: &str) -> bool {
        self.matches.value_source(id) == Some(ValueSource::CommandLine)
    }

    /// False for a flag that the command does not have.
    pub fn is_set(&self, id: &str) -> bool {
        self.matches.try_get_one(id).ok().flatten().copied().unwrap_or(false)
    }

    /// The flag of the command that sets the field of a fault.
    pub fn flag_of(&self, fault: &Fault) -> Option<String> {
        flag_of(fault, &self.entry.parts, self.matches)
    }

    pub fn place(&self, id: &str) -> &str {
        self.places.iter().find(|(it, _)| *it == id).map_or("", |(_, value)| value)
    }

    fn request_and_print(&self, line: &'static str, view: View) -> Result {
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
            View::Sentence(id, text) => self.say(&answer, id, text),
            View::Code(code) => code(self, &answer),
        }?;
        if self.entry.note.is_empty() || output.format.is_for_programs() {
            return Ok(());
        }
        let object = answer.value()?;
        print_note(&fill(self.entry.note, |name| printable(&text_of(&object, name))))
    }

    /// Prints the result of a change in a sentence. The names in braces are arguments, else fields of the answer.
    pub fn say(&self, answer: &ApiResponse, id: &str, text: &'static str) -> Result {
        let (context, output) = (self.context, &self.context.output);
        output.done(answer, id, |object| {
            fill(text, |name| match self.place(name) {
                "" => printable(&field(name, context, object)),
                place => printable(&output.id(place)),
            })
        })
    }

    fn request(&self, line: &'static str) -> Result<ApiRequest> {
        let (method, path) = line.split_once(' ').unwrap_or(("GET", line));
        let mut request = ApiRequest::new(method, fill(path, |id| segment(self.place(id))));
        request.query = self.query()?;
        let fields = self.fields()?;
        if fields != json!({}) {
            request = request.json(fields);
        }
        let wide = self.entry.wide.filter(|_| self.context.output.is_wide());
        Ok(wide.into_iter().fold(request, |request, (field, value)| request.query(field, value)))
    }

    /// The fields of the query that the arguments set.
    pub fn query(&self) -> Result<Vec<(Cow<'static, str>, String)>> {
        let mut fields = Vec::new();
        for (id, part) in &self.entry.parts {
            let text = || self.raw(id).next();
            let (field, value) = match part {
                Part::Query(field) => {
                    fields.extend(self.raw(id).map(|text| ((*field).into(), text)));
                    continue;
                }
                Part::QueryWords(field) => (field, text().map(|text| of_words(&text))),
                Part::QueryCue(field) => (field, find_maybe_id(self.context, text().as_deref())?),
                Part::QueryMoment(field) => {
                    let moment: Option<&Moment> = self.get(id);
                    let at = moment.map(|moment| moment.resolve(self.context)).transpose()?;
                    (field, at.map(|at| at.to_string()))
                }
                Part::QuerySwitch(field, value) => {
                    (field, self.is_set(id).then(|| (*value).to_owned()))
                }
                _ => continue,
            };
            fields.extend(value.map(|value| ((*field).into(), value)));
        }
        Ok(fields)
    }
}

/// The value of a flag, from a file or a line of standard input if it names one; at a terminal it is asked for.
fn secret(flag: &str, value: &str) -> Result<String> {
    let read = match value {
        "-" if can_ask() => ask_hidden(&format!("{flag}: "))?,
        "-" => input::line(flag)?,
        value => input::text(flag, value)?,
    };
    Ok(read.trim().to_owned())
}
