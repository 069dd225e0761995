//! The file of `cued work --file`: several tasks and their commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::cli::client::commands::work::{duration, filter};
use crate::cli::error::CliError;
use crate::cli::input::values;
use crate::worker::settings::Task;

/// Names in a heartbeat (contract §7.4).
const MAX_TASKS: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    tasks: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    run: Vec<Value>,
    timeout: Option<Value>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, Value>,
}

/// Reads the tasks of a file. `timeout` is that of tasks that have none.
pub fn read_tasks(path: &Path, timeout: Duration) -> Result<Vec<Task>, CliError> {
    let path = path.display().to_string();
    let file = values::structured(&path, &format!("@{path}"))?;
    parse_tasks(file, timeout).map_err(|fault| CliError::Usage(format!("{path}: {fault}")))
}

fn parse_tasks(file: Value, timeout: Duration) -> Result<Vec<Task>, String> {
    let TaskFile { tasks } = serde_json::from_value(file).map_err(|error| error.to_string())?;
    if tasks.is_empty() || tasks.len() > MAX_TASKS {
        return Err(format!("`tasks` should have 1 to {MAX_TASKS} tasks; it has {}", tasks.len()));
    }
    let task = |(name, entry): (String, Value)| {
        parse_task(&name, entry, timeout).map_err(|fault| format!("tasks.{name}{fault}"))
    };
    tasks.into_iter().map(task).collect()
}

fn parse_task(name: &str, entry: Value, timeout: Duration) -> Result<Task, String> {
    let place = |fault| format!(": {fault}");
    filter(name).map_err(place)?;
    let entry: Entry = serde_json::from_value(entry).map_err(|error| place(error.to_string()))?;
    let command: Option<Vec<String>> = entry.run.iter().map(text_of).collect();
    let command = command.filter(|command| command.first().is_some_and(|program| !program.is_empty()));
    let command = command.ok_or_else(|| {
        ".run should be a list of the program and its arguments, such as [\"./report.sh\", \"weekly\"]"
            .to_owned()
    })?;
    if entry.cwd.as_ref().is_some_and(|folder| folder.as_os_str().is_empty()) {
        return Err(".cwd should be the path of a folder".to_owned());
    }
    let own = entry.timeout.map(|text| {
        let text = text_of(&text).unwrap_or_default();
        duration(&text).map_err(|fault| format!(".timeout: {fault}"))
    });
    let variable = |(name, value): (String, Value)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(format!(".env: {name:?} should be the name of a variable, without `=` and NUL"));
        }
        let fault = format!(".env.{name} should be a text without NUL, a number, true or false");
        Ok((name, text_of(&value).ok_or(fault)?))
    };
    Ok(Task {
        name: Some(name.to_owned()),
        command: command.into_iter().map(Into::into).collect(),
        timeout: own.transpose()?.unwrap_or(timeout),
        folder: entry.cwd,
        environment: entry.env.into_iter().map(variable).collect::<Result<_, _>>()?,
    })
}

/// A text, or a number or boolean as it is written: a version 1.10 is another one than 1.1. `None` for another value, and for
/// a text with a NUL, which neither an argument nor a variable can have.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.contains('\0')),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::input::yaml;

    fn parse(text: &str) -> Result<Vec<Task>, String> {
        parse_tasks(yaml::read(text).unwrap(), Duration::from_secs(600))
    }

    #[test]
    fn a_file_names_tasks_with_their_commands() {
        let tasks = parse(
            "tasks:\n  report:\n    run: [./report.sh, a b, 0.50]\n    timeout: 2m\n    cwd: /srv\n\
             \x20   env: {A: b, COUNT: 7, RATE: 1.50, DEBUG: true, EMPTY: \"\"}\n  clean: {run: [\"true\"]}\n",
        );
        let clean = Task {
            name: Some("clean".to_owned()),
            command: vec!["true".into()],
            timeout: Duration::from_secs(600),
            folder: None,
            environment: Vec::new(),
        };
        let environment = [("A", "b"), ("COUNT", "7"), ("DEBUG", "true"), ("EMPTY", ""), ("RATE", "1.50")];
        let report = Task {
            name: Some("report".to_owned()),
            command: vec!["./report.sh".into(), "a b".into(), "0.50".into()],
            timeout: Duration::from_secs(120),
            folder: Some("/srv".into()),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        };
        assert_eq!(tasks.unwrap(), [clean, report]);
    }

    #[test]
    fn a_fault_names_its_place_and_what_is_expected() {
        for (text, part) in [
            ("tasks: {}", "1 to 100 tasks"),
            ("tasks: {a: {run: []}}", "tasks.a.run should be a list of the program and its arguments"),
            ("tasks: {a: {run: [x, [1]]}}", "tasks.a.run should be a list"),
            ("tasks: {a: {run: x}}", "tasks.a: invalid type: string \"x\""),
            ("tasks: {a: {timeout: 1m}}", "tasks.a: missing field `run`"),
            ("tasks: {a: 1}", "tasks.a: invalid type"),
            ("tasks: [a]", "invalid type: sequence"),
            ("tsks: {}", "unknown field `tsks`, expected `tasks`"),
            ("tasks: {a: {run: [x], timeout: 2}}", "tasks.a.timeout: \"2\" is no duration"),
            ("tasks: {a: {run: [x], cwd: \"\"}}", "tasks.a.cwd should be the path of a folder"),
            ("tasks: {a: {run: [x], comand: 1}}", "tasks.a: unknown field `comand`, expected one of"),
            ("tasks: {a: {run: [x], env: {A=B: c}}}", "tasks.a.env: \"A=B\" should be the name"),
            ("tasks: {b: {run: [x], env: {X: [1]}}}", "tasks.b.env.X should be a text"),
            ("tasks: {b: {run: [x], env: {X: \"a\\0\"}}}", "tasks.b.env.X should be a text"),
            ("tasks: {b: {run: [x], env: {X: null}}}", "tasks.b.env.X should be a text"),
            ("tasks: {\"\": {run: [x]}}", "expected 1 to 255 bytes"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }
}
