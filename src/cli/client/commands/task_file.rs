//! The file of `cued work --file`: tasks, each with its command.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::cli::error::{CliError, usage};
use crate::cli::input;
use crate::cli::input::placed::{Node, Place, Placed};
use crate::cli::input::yaml::{YamlFault, read_with_places};
use crate::cli::nearest::did_you_mean;
use crate::cli::output::table::parse_duration;
use crate::worker::state::Task;

/// Names in a heartbeat (contract §7.4).
const MAX_TASKS: usize = 100;

/// Bytes of a task or agent that the server can filter by (contract §7.1).
const MAX_FILTER: usize = 255;

const FIELDS: [&str; 4] = ["run", "timeout", "cwd", "env"];

/// Reads the tasks of a file. `timeout` is that of tasks that have none.
pub fn read(path: &Path, timeout: Duration) -> Result<Vec<Task>, CliError> {
    let path = path.display().to_string();
    let text = input::text("--file", &format!("@{path}"))?;
    parse(&text, timeout).map_err(|fault| usage(format!("{path}:{fault}")))
}

pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    Duration::try_from(duration).map_err(|error| error.to_string())
}

pub fn filter(text: &str) -> Result<String, String> {
    match text.len() {
        1..=MAX_FILTER => Ok(text.to_owned()),
        _ => Err(format!("expected 1 to {MAX_FILTER} bytes")),
    }
}

fn fault(place: Place, reason: impl Into<String>) -> YamlFault {
    YamlFault { place, reason: reason.into() }
}

/// The tasks in the order of their names. Errors: the first fault.
fn parse(text: &str, timeout: Duration) -> Result<Vec<Task>, YamlFault> {
    let file = read_with_places(text)?;
    check_fields(&file, &["tasks"], "the file")?;
    let tasks = file.get("tasks").unwrap_or(&file);
    if tasks == &file || !tasks.is_object() {
        return Err(fault(
            tasks.place,
            "a file has its tasks by name: tasks: {report: {run: [./report.sh]}}",
        ));
    }
    let count = tasks.entries().len();
    if count == 0 || count > MAX_TASKS {
        return Err(fault(
            tasks.place,
            format!("`tasks` should have 1 to {MAX_TASKS} tasks; it has {count}"),
        ));
    }
    let task = |name: &str, place: Place, value: &Placed| {
        let named = |reason: String| format!("tasks.{name}: {reason}");
        let name =
            filter(name).map_err(|reason| fault(place, named(format!("the name: {reason}"))))?;
        parse_task(&name, value, timeout)
            .map_err(|YamlFault { place, reason }| fault(place, named(reason)))
    };
    let tasks: Result<Vec<Task>, _> =
        tasks.entries().iter().map(|entry| task(&entry.key, entry.place, &entry.value)).collect();
    let mut tasks = tasks?;
    tasks.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(tasks)
}

fn parse_task(name: &str, task: &Placed, timeout: Duration) -> Result<Task, YamlFault> {
    if !task.is_object() {
        return Err(fault(
            task.place,
            "a task is an object of fields, such as {run: [./report.sh, weekly]}",
        ));
    }
    check_fields(task, &FIELDS, "a task")?;
    // As with a field that is left out.
    let field = |name: &str| task.get(name).filter(|value| !value.is_null());
    let command =
        command(field("run").ok_or_else(|| fault(task.place, "`run` is missing: its command"))?)?;
    let timeout = match field("timeout") {
        None => timeout,
        Some(value) => {
            let refused = |reason| fault(value.place, format!("`timeout`: {reason}"));
            duration(&word(value, "timeout")?).map_err(refused)?
        }
    };
    let folder = field("cwd").map(|value| word(value, "cwd")).transpose()?;
    let environment = field("env").map(environment).transpose()?.unwrap_or_default();
    Ok(Task {
        name: Some(name.to_owned()),
        command: command.into_iter().map(Into::into).collect(),
        timeout,
        folder: folder.filter(|folder| !folder.is_empty()).map(Into::into),
        environment,
    })
}

/// Errors: the first field that none of `known` is.
fn check_fields(object: &Placed, known: &[&str], owner: &str) -> Result<(), YamlFault> {
    match object.entries().iter().find(|entry| !known.contains(&entry.key.as_str())) {
        None => Ok(()),
        Some(entry) => {
            let otherwise = format!("{owner} has {}", known.join(", "));
            let advice = did_you_mean(&entry.key, known.iter().copied(), otherwise);
            Err(fault(entry.place, format!("there is no field {:?}; {advice}", entry.key)))
        }
    }
}

fn command(run: &Placed) -> Result<Vec<String>, YamlFault> {
    let rule = "`run` should be a list of the program and its arguments, such as";
    match &run.node {
        Node::List(words) if !words.is_empty() => {
            let words: Vec<String> =
                words.iter().map(|value| word(value, "run")).collect::<Result<_, _>>()?;
            match words.first().is_some_and(|program| !program.is_empty()) {
                true => Ok(words),
                false => Err(fault(run.place, format!("{rule} [./report.sh, weekly]"))),
            }
        }
        Node::Scalar(Value::String(text)) if is_plain(text) => {
            let words: Vec<&str> = text.split_whitespace().collect();
            Err(fault(run.place, format!("{rule} [{}]", words.join(", "))))
        }
        _ => Err(fault(run.place, format!("{rule} [./report.sh, weekly]"))),
    }
}

/// Whether its words mean the same in a list of YAML.
fn is_plain(text: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || " _./-".contains(char);
    text.starts_with(|char: char| char.is_ascii_alphanumeric() || "./".contains(char))
        && text.chars().all(is_plain)
}

/// The variables in the order of their names.
fn environment(variables: &Placed) -> Result<Vec<(String, String)>, YamlFault> {
    if !variables.is_object() {
        return Err(fault(variables.place, "`env` is an object of variables, such as {LANG: C}"));
    }
    let variable = |name: &String, place: Place, value: &Placed| match name.is_empty()
        || name.contains(['=', '\0'])
    {
        true => Err(fault(
            place,
            format!("`env`: {name:?} should be the name of a variable, without `=` and NUL"),
        )),
        false => Ok((name.clone(), word(value, "env")?)),
    };
    let variables =
        variables.entries().iter().map(|entry| variable(&entry.key, entry.place, &entry.value));
    let mut variables: Vec<(String, String)> = variables.collect::<Result<_, _>>()?;
    variables.sort();
    Ok(variables)
}

/// A text, or a number or boolean as written (1.10 is not 1.1).
fn word(value: &Placed, field: &str) -> Result<String, YamlFault> {
    match &value.node {
        Node::Scalar(Value::String(text)) if !text.contains('\0') => Ok(text.clone()),
        Node::Scalar(scalar @ (Value::Number(_) | Value::Bool(_))) => Ok(scalar.to_string()),
        _ => Err(fault(
            value.place,
            format!(
                "`{field}`: {} should be a text without NUL, a number, true or false",
                value.to_value()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Task>, String> {
        parse(text, Duration::from_secs(600)).map_err(|fault| fault.to_string())
    }

    #[test]
    fn a_file_names_tasks_with_their_commands() {
        let tasks = read(
            "tasks:\n  report:\n    run: [./report.sh, a b, 0.50]\n    timeout: 2m\n    cwd: /srv\n\
             \x20   env: {A: b, COUNT: 7, RATE: 1.50, DEBUG: true, EMPTY: \"\"}\n  clean: {run: [\"true\"], cwd: null}\n",
        );
        let clean = Task {
            name: Some("clean".to_owned()),
            command: vec!["true".into()],
            timeout: Duration::from_secs(600),
            folder: None,
            environment: Vec::new(),
        };
        let environment =
            [("A", "b"), ("COUNT", "7"), ("DEBUG", "true"), ("EMPTY", ""), ("RATE", "1.50")];
        let report = Task {
            name: Some("report".to_owned()),
            command: vec!["./report.sh".into(), "a b".into(), "0.50".into()],
            timeout: Duration::from_secs(120),
            folder: Some("/srv".into()),
            environment: environment
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
        };
        assert_eq!(tasks.unwrap(), [clean, report]);
    }

    #[test]
    fn a_fault_names_its_place_and_what_is_expected() {
        for (text, part) in [
            ("tasks: {}", "1:8: `tasks` should have 1 to 100 tasks; it has 0"),
            ("", "1:1: it is empty"),
            ("[]", "1:1: a file has its tasks by name"),
            ("tasks: [a]", "1:8: a file has its tasks by name"),
            ("tsks: {}", "1:1: there is no field \"tsks\"; did you mean \"tasks\"?"),
            ("tasks:\n  a: {run: []}", "2:12: tasks.a: `run` should be a list of the program"),
            ("tasks: {a: {run: [x, [1]]}}", "1:22: tasks.a: `run`: [1] should be a text"),
            (
                "tasks: {a: {run: ./x all}}",
                "1:18: tasks.a: `run` should be a list of the program and its arguments, such as [./x, all]",
            ),
            ("tasks: {a: {run: 'x \"y\"'}}", "such as [./report.sh, weekly]"),
            ("tasks: {a: {run: 1}}", "such as [./report.sh, weekly]"),
            ("tasks: {a: {timeout: 1m}}", "1:12: tasks.a: `run` is missing"),
            ("tasks: {a: 1}", "1:12: tasks.a: a task is an object of fields"),
            (
                "tasks: {a: {run: [x], timeout: 2}}",
                "1:32: tasks.a: `timeout`: \"2\" is no duration",
            ),
            (
                "tasks:\n  a:\n    run: [x]\n    timout: 3",
                "4:5: tasks.a: there is no field \"timout\"; did you mean \"timeout\"?",
            ),
            (
                "tasks: {a: {run: [x], xyz: 1}}",
                "there is no field \"xyz\"; a task has run, timeout, cwd, env",
            ),
            ("tasks: {a: {run: [x], env: {A=B: c}}}", "tasks.a: `env`: \"A=B\" should be the name"),
            ("tasks: {b: {run: [x], env: {X: \"a\\0\"}}}", "tasks.b: `env`"),
            ("tasks: {b: {run: [x], env: {X: null}}}", "tasks.b: `env`: null should be"),
            ("tasks: {b: {run: [x], env: [a]}}", "1:28: tasks.b: `env` is an object"),
            ("tasks: {b: {run: [x], cwd: [a]}}", "tasks.b: `cwd`"),
            ("tasks: {\"\": {run: [x]}}", "expected 1 to 255 bytes"),
            ("a\n  b: c: d", "2:"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }
}
