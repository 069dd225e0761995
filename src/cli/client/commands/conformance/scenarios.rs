//! Runs the promises of the API, which are data (`scenarios`), against a server.
//!
//! A group has `values` for all its promises, and steps that come `first`. A step is a list: the request, its body if it has
//! one, what must come (`404 cue_not_found`, `422 missing body.name`), and an object with the rest:
//!
//! - `send`, headers of the request, and `text`, a body as it is
//! - `headers`, `has` (a part of the JSON) and `body` (the text) of the response
//! - `keep`, names for parts and headers of the response: what was created stays until the end of the group
//! - `undo`, the path of what was created, unless the response has its id
//! - `until`, a part of the JSON: the request is repeated until it comes
//! - `unless`, a response after which the promise, or the group, is not checked, if no delivery has come
//!
//! `each` of a promise has values of `{it}`, each with a round of the steps; of a list the items are `{a}`, `{b}` and `{c}`.
//! Instead of a request, `LISTEN` starts the receiver, `RECEIVE` is its next delivery, and `RECEIVED` the same one again.
//! What is under `always` holds for all responses, or those with the status `of`.

use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use serde_json::{Map, Value, json};

use crate::cli::client::commands::conformance::receiver::{Listener, Receiver};
use crate::cli::client::commands::conformance::step::{
    Miss, PATIENCE, SHOWN, Step, Stop, body_of, shown,
};
use crate::cli::client::commands::conformance::values::{Values, difference, is_like, text};
use crate::cli::error::{CliError, cannot, failed};
use crate::client::request::{ApiRequest, ApiResponse, segment};

static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/conformance.deflate"));

/// Requests of one step that are refused for the rate.
const MAX_REFUSALS: u32 = 5;

const DEFAULT_RETRY_AFTER: u64 = 60;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Between two requests with `until`.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Requests in a row without a response after which the server counts as gone.
const MAX_SILENCE: u32 = 3;

/// Lists that have what the run has created, with their query and their field.
const LISTS: [(&str, &str, &str); 2] =
    [("/v1/cues", "?limit=100", "cues"), ("/v1/auth/keys", "", "keys")];

/// The server as the promises see it.
pub trait Server {
    /// The time of this machine.
    fn now(&self) -> Timestamp;

    /// Errors: if there is no response.
    fn call(&self, request: &ApiRequest) -> Result<ApiResponse, CliError>;

    /// Errors: if the command ends, which waits for a deletion.
    fn pause(&self, duration: Duration, is_deleting: bool) -> Result<(), CliError>;

    /// Called before each group and each promise. Errors: if the command ends.
    fn begin(&self, _sentence: &str) -> Result<(), CliError> {
        Ok(())
    }
}

/// A promise with what became of it.
#[derive(Debug)]
pub struct Promise {
    pub group: String,
    pub section: String,
    pub sentence: String,
    /// `None` if it holds.
    pub miss: Option<Miss>,
}

impl Promise {
    pub fn result(&self) -> &'static str {
        match self.miss {
            None => "holds",
            Some(Miss::Differs(_)) => "differs",
            Some(Miss::NotChecked(_) | Miss::NoRoom(_)) => "not checked",
        }
    }
}

pub struct Runner<'a> {
    server: &'a dyn Server,
    listener: Listener,
    receiver: Option<Receiver>,
    delivery: Value,
    values: Values,
    /// What every response must have, not checked before the first response of the kind.
    always: Vec<(Value, Option<Miss>)>,
    /// The name of what the run creates, and the key that no difference shows.
    name: String,
    key: String,
    /// The paths of what the run has created, and deletes.
    made: Vec<String>,
    /// A response was lost that may have named something else.
    is_unsure: bool,
    is_deleting: bool,
    no_room: Option<String>,
    silence: u32,
    pub requests: u32,
    /// Time that the rate limit has cost.
    pub waited: Duration,
    pub promises: Vec<Promise>,
}

/// The groups, as the files have them.
fn groups() -> Result<Vec<Value>, CliError> {
    let text = miniz_oxide::inflate::decompress_to_vec(COMPRESSED)
        .map_err(|error| cannot("read the promises", error))?;
    serde_json::from_slice(&text).map_err(|error| cannot("read the promises", error))
}

fn items<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A section, with the sections below it, or a word selects a promise.
fn is_selected(promise: &Value, group: &str, only: &str) -> bool {
    let (section, wanted) = (text(&promise["section"]), only.trim_start_matches('§'));
    if wanted.starts_with(|char: char| char.is_ascii_digit()) {
        return section
            .strip_prefix(wanted)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    }
    format!("{group} {}", text(&promise["promise"])).to_lowercase().contains(&only.to_lowercase())
}

impl<'a> Runner<'a> {
    /// `name` is that of everything that the run creates, and `key` that of its account.
    pub fn new(server: &'a dyn Server, listener: Listener, name: &str, key: &str) -> Self {
        let mut values = Values::new(server.now());
        values.keep("name", json!(name));
        values.keep("key", json!(key));
        Self {
            server,
            listener,
            receiver: None,
            delivery: Value::Null,
            values,
            always: Vec::new(),
            name: name.to_owned(),
            key: key.to_owned(),
            made: Vec::new(),
            is_unsure: false,
            is_deleting: false,
            no_room: None,
            silence: 0,
            requests: 0,
            waited: Duration::ZERO,
            promises: Vec::new(),
        }
    }

    /// Runs the groups with a selected promise, and deletes what they have created, also after an error. Without `all`
    /// the long tables are left out.
    /// Errors: if the server is gone, the command was interrupted, or something could not be deleted. The promises so far
    /// are known then, too.
    pub fn run(&mut self, only: Option<&str>, all: bool) -> Result<(), CliError> {
        let (mut end, mut left) = (Ok(()), Vec::new());
        for group in groups()? {
            let name = text(&group["group"]);
            let is_wanted = |it: &Value| only.is_none_or(|only| is_selected(it, &name, only));
            let always = items(&group, "always").iter().filter(|it| is_wanted(it));
            let unseen = |it| Miss::NotChecked(format!("no response with {} came", text(it)));
            self.always.extend(always.map(|it| (it.clone(), Some(unseen(&it["of"])))));
            if items(&group, "promises")
                .iter()
                .any(|it| is_wanted(it) && (all || it["long"] != true))
            {
                end = self.run_group(&group, &name, &is_wanted, all);
                // What fails is tried again after the next group.
                left = self.delete_all();
                if end.is_err() {
                    break;
                }
            }
        }
        for (promise, miss) in std::mem::take(&mut self.always) {
            self.add("Every response", &promise, miss);
        }
        if left.is_empty() {
            return end;
        }
        let left = format!("not deleted from the server: {}", left.join(", "));
        Err(match end {
            Ok(()) => failed(left),
            Err(CliError::Interrupted(_)) => CliError::Interrupted(format!("interrupted; {left}")),
            Err(error) => failed(format!("{error}; {left}")),
        })
    }

    fn add(&mut self, group: &str, promise: &Value, miss: Option<Miss>) {
        let (section, sentence) = (text(&promise["section"]), text(&promise["promise"]));
        self.promises.push(Promise { group: group.to_owned(), section, sentence, miss });
    }

    /// Later promises of a group need what earlier ones have done: all of them run, and those that are wanted count.
    fn run_group(
        &mut self,
        group: &Value,
        name: &str,
        is_wanted: &dyn Fn(&Value) -> bool,
        all: bool,
    ) -> Result<(), CliError> {
        self.server.begin(name)?;
        for (name, value) in group["values"].as_object().into_iter().flatten() {
            let value = self.values.fill(value).map_err(|name| failed(no_value(&name)))?;
            self.values.keep(name, value);
        }
        let mut first = miss(self.run_steps(items(group, "first")))?;
        for promise in items(group, "promises").iter().filter(|it| all || it["long"] != true) {
            self.server.begin(&text(&promise["promise"]))?;
            let missed = match &first {
                None => miss(self.run_promise(promise))?,
                known => known.clone(),
            };
            if is_wanted(promise) {
                if let Some(Miss::Differs(it)) = &first {
                    first = Some(Miss::NotChecked(format!("{} has failed", it.request)));
                }
                self.add(name, promise, missed);
            }
        }
        Ok(())
    }

    fn run_promise(&mut self, promise: &Value) -> Result<(), Stop> {
        if items(promise, "each").is_empty() {
            return self.run_steps(items(promise, "steps"));
        }
        for value in items(promise, "each") {
            let value = self.values.fill(value).map_err(|name| self.no_value(&name))?;
            let parts = value.as_array().map(Vec::as_slice).unwrap_or_default();
            for (name, part) in ["a", "b", "c"].into_iter().zip(parts) {
                self.values.keep(name, part.clone());
            }
            self.values.keep("it", value);
            self.run_steps(items(promise, "steps"))?;
        }
        Ok(())
    }

    fn run_steps(&mut self, steps: &[Value]) -> Result<(), Stop> {
        let key = self.key.clone();
        for line in steps {
            let (before, mut refusals) = (self.made.len(), 0);
            loop {
                // Also after a pause for the rate: an instant that was soon is past.
                let filled = self.values.fill(line).map_err(|name| self.no_value(&name))?;
                let step = Step::read(&filled, &key)?;
                let is_run = self.run_step(&step, &mut refusals);
                if step.rest.get("keep").is_none() {
                    // What fails here is tried once more at the end of the group.
                    self.delete_from(before);
                }
                if is_run? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns false if the server has refused the request for the rate, and the pause is over.
    fn run_step(&mut self, step: &Step<'_>, refusals: &mut u32) -> Result<bool, Stop> {
        match step.request {
            "LISTEN" => self.listen(step)?,
            "RECEIVE" | "RECEIVED" => self.receive(step)?,
            _ => {
                let request = step.api_request()?;
                let response = self.request(&request, step)?;
                if self.pause_for_rate(&response, refusals)? {
                    return Ok(false);
                }
                self.accept(&request, &response, step)?;
            }
        }
        Ok(true)
    }

    /// Sends a request, with `until` again and again, except for the rate.
    fn request(&mut self, request: &ApiRequest, step: &Step<'_>) -> Result<ApiResponse, Stop> {
        let (mut spent, mut pause) = (Duration::ZERO, FIRST_PAUSE);
        loop {
            let response = self.exchange(request, step)?;
            let body = body_of(&response);
            let is_there = |it: &Value| difference(it, Some(&body), "").is_none();
            if let Some(true) = step.rest.get("unless").map(is_there) {
                let has_delivered = self.receiver.as_mut().is_some_and(Receiver::has_delivery);
                return Err(match has_delivered {
                    true => step.differs(
                        "the status that the receiver has sent".to_owned(),
                        shown(&response),
                    ),
                    false => Miss::NotChecked(step.reason(&response, &body)),
                }
                .into());
            }
            if response.status == 429 || step.rest.get("until").is_none_or(is_there) {
                return Ok(response);
            }
            if spent >= PATIENCE {
                let expected = format!("within {} s {}", PATIENCE.as_secs(), step.rest["until"]);
                return Err(step.differs(expected, shown(&response)).into());
            }
            self.server.pause(pause, false)?;
            (spent, pause) = (spent + pause, (pause * 2).min(LONGEST_PAUSE));
        }
    }

    /// Keeps what later steps need, and checks a response.
    fn accept(
        &mut self,
        request: &ApiRequest,
        response: &ApiResponse,
        step: &Step<'_>,
    ) -> Result<(), Stop> {
        self.note_creation(request, response, step);
        // Before the check: other promises may hold if this one does not.
        let (body, mut kept) = (body_of(response), Ok(()));
        for (name, place) in step.fields("keep") {
            let place = text(place);
            match body.pointer(&place).cloned().or_else(|| response.header(&place).map(Value::from))
            {
                Some(value) => self.values.keep(name, value),
                None => kept = Err(step.differs(format!("a value at {place}"), shown(response))),
            }
        }
        let checked = step.check(response).and(kept);
        if let Err(Miss::NoRoom(reason)) = &checked {
            self.no_room = Some(reason.clone());
        }
        Ok(checked?)
    }

    fn listen(&mut self, step: &Step<'_>) -> Result<(), Stop> {
        self.receiver = Some(self.listener.start(step.expected, &mut self.values)?);
        Ok(())
    }

    fn exchange(&mut self, request: &ApiRequest, step: &Step<'_>) -> Result<ApiResponse, Stop> {
        let response = match self.server.call(request) {
            Ok(response) => response,
            Err(error) => {
                // The server may have done it.
                self.is_unsure |= request.method == "POST";
                self.note_made(step.rest.get("undo").map(text));
                self.silence += 1;
                if self.silence >= MAX_SILENCE || !matches!(error, CliError::Client(_)) {
                    return Err(error.into());
                }
                return Err(step
                    .differs(step.expected.to_owned(), format!("no response: {error}"))
                    .into());
            }
        };
        (self.silence, self.requests) = (0, self.requests + 1);
        self.is_unsure |= request.method == "POST" && response.status >= 500;
        let date =
            response.header("date").and_then(|it| DateTimeParser::new().parse_timestamp(it).ok());
        self.values.now = date.unwrap_or_else(|| self.server.now());
        for (promise, miss) in &mut self.always {
            let is_meant =
                promise.get("of").is_none_or(|of| is_like(&text(of), &response.status.to_string()));
            if is_meant && !matches!(miss, Some(Miss::Differs(_))) {
                *miss = step.with(promise).check_parts(&response).err();
            }
        }
        Ok(response)
    }

    /// Pauses for as long as a response with 429 asks for. Returns false if it is another one, or one too many.
    fn pause_for_rate(
        &mut self,
        response: &ApiResponse,
        refusals: &mut u32,
    ) -> Result<bool, CliError> {
        if response.status != 429 || *refusals == MAX_REFUSALS {
            return Ok(false);
        }
        *refusals += 1;
        let seconds = response.header("retry-after").and_then(|it| it.parse().ok());
        let pause = Duration::from_secs(
            seconds.unwrap_or(DEFAULT_RETRY_AFTER).min(2 * DEFAULT_RETRY_AFTER),
        );
        self.server.pause(pause, self.is_deleting)?;
        self.waited += pause;
        self.values.now = self.values.now.checked_add(pause).unwrap_or(self.values.now);
        Ok(true)
    }

    fn note_creation(&mut self, request: &ApiRequest, response: &ApiResponse, step: &Step<'_>) {
        let id = body_of(response)["id"].as_str().map(segment);
        let made = match (request.method, response.status, id) {
            ("POST", 201, Some(id)) => Some(format!("{}/{id}", request.path)),
            ("POST", 200..300, _) if LISTS.iter().any(|(path, ..)| request.path == *path) => {
                self.is_unsure = true;
                None
            }
            _ => step.rest.get("undo").map(text),
        };
        self.note_made(made);
        if request.method == "DELETE" && response.status == 204 {
            self.made.retain(|path| *path != request.path);
        }
    }

    fn note_made(&mut self, path: Option<String>) {
        self.made.extend(path.filter(|path| !self.made.contains(path)));
    }

    /// Deletes what a group has created. Returns what could not be deleted.
    fn delete_all(&mut self) -> Vec<String> {
        let mut left = self.find_lost();
        left.extend(self.delete_from(0));
        left
    }

    /// After a lost response: adds what the lists have with the name of the run. Returns the lists that failed.
    fn find_lost(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        let is_unsure = std::mem::take(&mut self.is_unsure);
        for (path, query, field) in LISTS.iter().filter(|_| is_unsure) {
            match self.exchange_to_delete("GET", &format!("{path}{query}"), &[200]) {
                Ok(body) => {
                    let is_made = |item: &&Value| text(&item["name"]).starts_with(&self.name);
                    let ids = items(&body, field)
                        .iter()
                        .filter(is_made)
                        .filter_map(|it| it["id"].as_str());
                    let paths: Vec<String> =
                        ids.map(|id| format!("{path}/{}", segment(id))).collect();
                    paths.into_iter().for_each(|path| self.note_made(Some(path)));
                }
                Err(failure) => {
                    self.is_unsure = true;
                    failures.push(failure);
                }
            }
        }
        failures
    }

    /// Deletes what was created last. Returns what could not be deleted, which stays in `made`.
    fn delete_from(&mut self, first: usize) -> Vec<String> {
        let mut left = Vec::new();
        for path in self.made.split_off(first.min(self.made.len())).into_iter().rev() {
            if let Err(failure) = self.exchange_to_delete("DELETE", &path, &[204, 404]) {
                self.made.push(path);
                left.push(failure);
            }
        }
        left
    }

    /// Returns the body. Errors: the path and what came.
    fn exchange_to_delete(
        &mut self,
        method: &'static str,
        path: &str,
        statuses: &[u16],
    ) -> Result<Value, String> {
        let (line, key) = (format!("{method} {path}"), self.key.clone());
        let step =
            Step { request: &line, body: &Value::Null, expected: "", rest: Map::new(), key: &key };
        self.is_deleting = true;
        let end = self.exchange_at_rate(&ApiRequest::new(method, path).timeout(PATIENCE), &step);
        self.is_deleting = false;
        let came = match end {
            Ok(response) if statuses.contains(&response.status) => return Ok(body_of(&response)),
            Ok(response) => step.brief(&shown(&response), SHOWN),
            Err(Stop::Failed(error)) => error.to_string(),
            Err(Stop::Missed(Miss::Differs(it))) => it.came,
            Err(Stop::Missed(Miss::NotChecked(reason) | Miss::NoRoom(reason))) => reason,
        };
        Err(format!("{path} ({came})"))
    }

    fn exchange_at_rate(
        &mut self,
        request: &ApiRequest,
        step: &Step<'_>,
    ) -> Result<ApiResponse, Stop> {
        let mut refusals = 0;
        loop {
            let response = self.exchange(request, step)?;
            if !self.pause_for_rate(&response, &mut refusals)? {
                return Ok(response);
            }
        }
    }

    /// An earlier step has kept no value of this name.
    fn no_value(&self, name: &str) -> Miss {
        self.no_room.clone().map_or_else(|| Miss::NotChecked(no_value(name)), Miss::NoRoom)
    }

    fn receive(&mut self, step: &Step<'_>) -> Result<(), Stop> {
        if step.request == "RECEIVE" {
            let delivery = self.receiver.as_mut().and_then(|receiver| receiver.next(PATIENCE));
            let late = || {
                step.differs(
                    format!("a delivery within {} s", PATIENCE.as_secs()),
                    "none".to_owned(),
                )
            };
            self.delivery = delivery.ok_or_else(late)?;
        }
        let expected = step.rest.get("has").unwrap_or(&Value::Null);
        match difference(expected, Some(&self.delivery), "") {
            None => Ok(()),
            Some((at, expected, came)) => {
                Err(step.differs(format!("{at} {expected}"), came).into())
            }
        }
    }
}

/// Errors: those that end the command.
fn miss(end: Result<(), Stop>) -> Result<Option<Miss>, CliError> {
    match end {
        Ok(()) => Ok(None),
        Err(Stop::Missed(miss)) => Ok(Some(miss)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

fn no_value(name: &str) -> String {
    format!("an earlier request has failed, whose response has {name}")
}
