//! `cued conformance`: whether a server keeps the promises of the API.

pub mod receiver;
pub mod scenarios;
pub mod step;
pub mod values;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::client::command::ClientAction;
use crate::cli::client::commands::conformance::receiver::Listener;
use crate::cli::client::commands::conformance::scenarios::{
    LONGEST_PAUSE, Promise, Runner, Server,
};
use crate::cli::client::commands::conformance::step::Miss;
use crate::cli::client::context::{ClientArgs, Context, target};
use crate::cli::client::live_output::Interrupt;
use crate::cli::error::{CliError, cannot, failed, usage};
use crate::cli::input;
use crate::cli::output::table::{ColumnRule, Style, Table, text_of};
use crate::cli::output::{Format, List, count, print, print_note, print_sentence};
use crate::cli::printable::printable;
use crate::cli::progress::Bar;
use crate::cli::server::flag_values::socket_address;
use crate::cli::width::fold;
use crate::client::credentials::Target;
use crate::client::request::{ApiRequest, ApiResponse};

pub const HELP: &str = "\
Check that a server keeps the promises of the API

Makes about a hundred requests, deletes what it created, and prints which sections of the reference hold. A free plan \
is enough, and takes a minute. Channels of the account announce a failure and a pause of a cue. \
Exits with 8 if a promise is not kept, with 1 if the account is full.

Deliveries go to a receiver on this machine. If the server cannot reach it, they are not checked: \
--receiver-url http://HOST:PORT with --receiver 0.0.0.0:PORT is one that it can reach.";

/// Time between two looks whether the command was interrupted.
const GLANCE: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub struct Conformance {
    /// Base URL of the server [default: that of the profile]
    #[arg(value_name = "URL")]
    server: Option<String>,

    /// API key: @FILE, or - for standard input; other text is the key itself, which the list of processes shows. Prefer
    /// CUED_API_KEY in the environment [default: that of the profile]
    #[arg(long, value_name = "@FILE|-|TEXT", allow_hyphen_values = true)]
    key: Option<String>,

    /// Only the promises of this section, such as 7 or 4.6, or with this word
    #[arg(long, value_name = "SECTION|WORD")]
    only: Option<String>,

    /// Also long tables of bad input: over ten minutes on a free plan
    #[arg(long)]
    all: bool,

    /// Address and port of the receiver of deliveries
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0", value_parser = socket_address)]
    receiver: SocketAddr,

    /// Base URL of the receiver for the server [default: its address]
    #[arg(long, value_name = "URL")]
    receiver_url: Option<String>,
}

impl ClientAction for Conformance {
    fn target(&self, args: &ClientArgs) -> Result<Target, CliError> {
        let url = self.server.clone().or_else(|| args.url.clone());
        let found = target(&ClientArgs { url, ..args.clone() })?;
        let Some(argument) = &self.key else { return Ok(found) };
        let key = input::text("--key", argument)?.trim().to_owned();
        if key.is_empty() {
            return Err(usage(
                "--key is empty; leave it out for the key of CUED_API_KEY or of the profile",
            ));
        }
        Ok(Target { key: Some(key), key_variable: None, ..found })
    }

    fn run(self, context: &Context) -> Result<(), CliError> {
        if context.output.format == Format::Id {
            return Err(usage("promises have no ids: leave out -q"));
        }
        // The key and the URL are right, or there is nothing to check.
        context.send(&ApiRequest::get("/v1/auth/me"))?.value()?;
        let begin = context.client.clock().monotonic();
        let program =
            std::env::current_exe().map_err(|error| cannot("find this program", error))?;
        let listener = Listener { program, listen: self.receiver, url: self.receiver_url };
        let server = Live {
            context,
            interrupt: Interrupt::listen()?,
            is_interrupt_noted: Cell::new(false),
            bar: RefCell::new(Bar::new("checking")),
        };
        let id = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("cued-conformance-{}", &id[..8]);
        let key = context.target.key.as_deref().unwrap_or_default();
        let mut runner = Runner::new(&server, listener, &name, key);
        let end = runner.run(self.only.as_deref(), self.all);
        let end = end.and_then(|()| server.check_interrupt(false));
        server.bar.borrow_mut().end();
        if matches!(end, Err(CliError::Interrupted(_))) {
            return end;
        }
        if end.is_ok() && runner.promises.is_empty() {
            let only = self.only.unwrap_or_default();
            return Err(usage(format!("--only: no promise has the section or the word {only:?}")));
        }
        let seconds = (context.client.clock().monotonic() - begin).as_secs();
        match (report(context, &runner, seconds), end) {
            // That a promise is not kept counts more than what could not be deleted.
            (Err(error), Err(other)) => print_note(&other.to_string()).and(Err(error)),
            (reported, end) => reported.and(end),
        }
    }
}

struct Live<'a> {
    context: &'a Context,
    interrupt: Interrupt,
    is_interrupt_noted: Cell<bool>,
    bar: RefCell<Bar>,
}

impl Live<'_> {
    /// Notes a signal. Errors: after a signal, but not while something is deleted.
    fn check_interrupt(&self, is_deleting: bool) -> Result<(), CliError> {
        if !self.interrupt.is_requested() {
            return Ok(());
        }
        if !self.is_interrupt_noted.replace(true) {
            self.bar.borrow_mut().end();
            print_note(
                "Interrupted: what was created is being deleted. A second interrupt ends at once.",
            )?;
        }
        if is_deleting {
            return Ok(());
        }
        Err(CliError::Interrupted("interrupted; what was created is deleted".to_owned()))
    }
}

impl Server for Live<'_> {
    fn now(&self) -> Timestamp {
        self.context.client.clock().now()
    }

    fn call(&self, request: &ApiRequest) -> Result<ApiResponse, CliError> {
        Ok(self.context.client.call_once(request)?)
    }

    fn pause(&self, duration: Duration, is_deleting: bool) -> Result<(), CliError> {
        let mut left = duration;
        if duration > LONGEST_PAUSE {
            // The rate limit.
            self.bar.borrow_mut().end();
            (self.context.client.on_pause)(duration, "");
        }
        while !left.is_zero() {
            self.context.client.pause(left.min(GLANCE));
            left = left.saturating_sub(GLANCE);
            self.check_interrupt(is_deleting)?;
        }
        Ok(())
    }

    fn begin(&self, sentence: &str) -> Result<(), CliError> {
        self.bar.borrow_mut().say(sentence);
        self.check_interrupt(false)
    }
}

fn report(context: &Context, runner: &Runner<'_>, seconds: u64) -> Result<(), CliError> {
    let list = List::of("promises", runner.promises.iter().map(view).collect());
    let all = runner.promises.len();
    let number = |word: &str| runner.promises.iter().filter(|it| it.result() == word).count();
    let (holding, differing) = (number("holds"), number("differs"));
    match context.output.format {
        Format::Table => print(&by_group(&list.items).render(false, &context.output.styles))?,
        _ => context.output.list(&list, "section", by_promise)?,
    }
    if !context.output.format.is_for_programs() {
        print(&details(context, &runner.promises))?;
        let waited = match runner.waited.as_secs() {
            0 => String::new(),
            waited => format!(", {waited} s of them for the rate limit"),
        };
        let requests = runner.requests;
        print_sentence(&format!(
            "{holding} of {all} promises hold: {requests} requests in {seconds} s{waited}."
        ))?;
        for ((group, reason), number) in unchecked(&runner.promises) {
            print_sentence(&format!("{number} not checked, {group}: {reason}"))?;
        }
    }
    if differing > 0 {
        return Err(CliError::Differs(format!("{} not kept", count(differing as i128, "promise"))));
    }
    let no_room = runner.promises.iter().find_map(|it| match &it.miss {
        Some(Miss::NoRoom(reason)) => Some(reason),
        _ => None,
    });
    no_room.map_or(Ok(()), |reason| {
        let unchecked = number("not checked");
        Err(failed(format!(
            "{unchecked} of {all} promises not checked, the account is full: {reason}"
        )))
    })
}

fn view(promise: &Promise) -> Value {
    let mut object = json!({
        "group": promise.group, "section": promise.section, "promise": promise.sentence, "result": promise.result(),
    });
    match &promise.miss {
        None => {}
        Some(Miss::NotChecked(reason) | Miss::NoRoom(reason)) => object["reason"] = json!(reason),
        Some(Miss::Differs(it)) => {
            for (name, text) in
                [("request", &it.request), ("expected", &it.expected), ("came", &it.came)]
            {
                object[name] = json!(text);
            }
        }
    }
    object
}

fn by_promise(items: &[Value]) -> Table {
    let columns = ["section", "promise", "result"].map(|name| (name, ColumnRule::Always)).to_vec();
    let row = |item: &Value| {
        let cell = |name| printable(&text_of(item, name)).into();
        vec![cell("section"), cell("promise"), cell("result")]
    };
    Table { columns, rows: items.iter().map(row).collect() }
}

/// A line for each group, with its sections.
fn by_group(items: &[Value]) -> Table {
    let columns = ["group", "hold", "sections"].map(|name| (name, ColumnRule::Always)).to_vec();
    let mut groups: Vec<&Value> = items.iter().map(|item| &item["group"]).collect();
    groups.dedup();
    let row = |group: &Value| {
        let members: Vec<&Value> = items.iter().filter(|item| item["group"] == *group).collect();
        let holding = members.iter().filter(|item| item["result"] == "holds").count();
        vec![
            text_of(&json!({"group": group}), "group").into(),
            format!("{holding} of {}", members.len()).into(),
            ranges(members.iter().map(|item| text_of(item, "section"))).into(),
        ]
    };
    Table { columns, rows: groups.into_iter().map(row).collect() }
}

/// Sections in order, of each chapter the first and the last one: `2.4 4.2–4.11`.
fn ranges(sections: impl Iterator<Item = String>) -> String {
    let mut sections: Vec<(u32, u32)> = sections
        .filter_map(|it| {
            it.split_once('.').and_then(|(one, two)| Some((one.parse().ok()?, two.parse().ok()?)))
        })
        .collect();
    sections.sort_unstable();
    let chapters = sections
        .chunk_by(|one, two| one.0 == two.0)
        .filter_map(|it| Some((it.first()?, it.last()?)));
    let range = |((chapter, first), (_, last)): (&(u32, u32), &(u32, u32))| match first == last {
        true => format!("{chapter}.{first}"),
        false => format!("{chapter}.{first}–{chapter}.{last}"),
    };
    chapters.map(range).collect::<Vec<_>>().join(" ")
}

/// How many promises are not checked, by group and reason.
fn unchecked(promises: &[Promise]) -> BTreeMap<(&str, &str), usize> {
    let mut numbers = BTreeMap::new();
    for promise in promises {
        if let Some(Miss::NotChecked(reason) | Miss::NoRoom(reason)) = &promise.miss {
            *numbers.entry((promise.group.as_str(), reason.as_str())).or_default() += 1;
        }
    }
    numbers
}

/// The promises that are not kept, each with its request.
fn details(context: &Context, promises: &[Promise]) -> String {
    let styles = &context.output.styles;
    let mut lines = Vec::new();
    for promise in promises {
        let Some(Miss::Differs(it)) = &promise.miss else { continue };
        lines.push((format!("\n§{} {}", promise.section, promise.sentence), Style::Bad));
        for (name, text) in
            [("request", &it.request), ("expected", &it.expected), ("came", &it.came)]
        {
            lines.push((format!("  {name:8}  {}", text), Style::Plain));
        }
    }
    let width = styles.width.unwrap_or(usize::MAX);
    let line = |(text, style): (String, Style)| {
        let (gap, text) = text.strip_prefix('\n').map_or(("", text.as_str()), |text| ("\n", text));
        let folded: Vec<String> =
            fold(&printable(text), width).iter().map(|it| styles.paint(it, style)).collect();
        format!("{gap}{}\n", folded.join("\n"))
    };
    let text: String = lines.into_iter().map(line).collect();
    text + "\n"
}
