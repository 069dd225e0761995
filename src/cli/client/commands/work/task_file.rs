//! The file of `cued work --file`: several tasks and their commands.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::cli::client::commands::work::{duration, filter};
use crate::cli::error::CliError;
use crate::cli::input::{values, yaml};
use crate::worker::settings::Task;

/// Names in a heartbeat (contract §7.4).
const MAX_TASKS: usize = 100;

/// The keys of a task.
const KEYS: [&str; 4] = ["cwd", "env", "run", "timeout"];

const EXPECTED_RUN: &str =
    "should be a list of the program and its arguments, such as [\"./report.sh\", \"weekly\"]";

/// Reads the tasks of a file. `timeout` is that of tasks that have none.
pub fn read_tasks(path: &Path, timeout: Duration) -> Result<Vec<Task>, CliError> {
    let text = values::text("--file", &format!("@{}", path.display()))?;
    parse_tasks(&text, timeout).map_err(|fault| CliError::Usage(format!("{}: {fault}", path.display())))
}

fn parse_tasks(text: &str, timeout: Duration) -> Result<Vec<Task>, String> {
    // Numbers keep their digits: a version 1.10 is another one than 1.1.
    let file = yaml::read(text).map_err(|error| error.to_string())?;
    let file = object(&file, "the file")?;
    known_keys(file, &["tasks"]).map_err(|fault| format!("the file {fault}"))?;
    let tasks = object(file.get("tasks").unwrap_or(&Value::Null), "`tasks`")?;
    if tasks.is_empty() || tasks.len() > MAX_TASKS {
        return Err(format!("`tasks` should have 1 to {MAX_TASKS} tasks; it has {}", tasks.len()));
    }
    tasks.iter().map(|(name, entry)| parse_task(name, entry, timeout)).collect()
}

fn parse_task(name: &str, entry: &Value, timeout: Duration) -> Result<Task, String> {
    let place = format!("tasks.{name}");
    filter(name).map_err(|fault| format!("{place}: {fault}"))?;
    let entry = object(entry, &place)?;
    known_keys(entry, &KEYS).map_err(|fault| format!("{place} {fault}"))?;
    let value = |key: &str| entry.get(key).filter(|value| !value.is_null());
    let expected = |key: &str, expected: &str| format!("{place}.{key} {expected}");
    let words = value("run").and_then(Value::as_array).map(|words| words.iter().map(text_of).collect());
    let command: Vec<String> = words.flatten().ok_or_else(|| expected("run", EXPECTED_RUN))?;
    if command.first().is_none_or(String::is_empty) {
        return Err(expected("run", EXPECTED_RUN));
    }
    let own = match value("timeout") {
        None => None,
        Some(text) => {
            let text =
                text_of(text).ok_or_else(|| expected("timeout", "should be a duration such as 10m"))?;
            Some(duration(&text).map_err(|fault| format!("{place}.timeout: {fault}"))?)
        }
    };
    let folder = match value("cwd") {
        None => None,
        Some(folder) => {
            let folder = folder.as_str().filter(|folder| !folder.is_empty() && !folder.contains('\0'));
            Some(PathBuf::from(folder.ok_or_else(|| expected("cwd", "should be the path of a folder"))?))
        }
    };
    Ok(Task {
        name: Some(name.to_owned()),
        command: command.into_iter().map(Into::into).collect(),
        timeout: own.unwrap_or(timeout),
        folder,
        environment: value("env").map_or(Ok(Vec::new()), |env| environment(env, &format!("{place}.env")))?,
    })
}

fn environment(env: &Value, place: &str) -> Result<Vec<(String, String)>, String> {
    let variable = |(name, value): (&String, &Value)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(format!("{place}: {name:?} should be the name of a variable, without `=` and NUL"));
        }
        match text_of(value) {
            Some(value) => Ok((name.clone(), value)),
            None => Err(format!("{place}.{name} should be a text without NUL, a number, true or false")),
        }
    };
    object(env, place)?.iter().map(variable).collect()
}

/// A text, or a number or boolean as it is written. `None` for another value, and for a text with a NUL, which neither an
/// argument nor a variable can have.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()).filter(|text| !text.contains('\0')),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

fn object<'a>(value: &'a Value, place: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{place} should be an object (`key: value`)"))
}

fn known_keys(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!("has the unknown key `{key}`; known are {}", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Task>, String> {
        parse_tasks(text, Duration::from_secs(600))
    }

    #[test]
    fn a_file_names_tasks_with_their_commands() {
        let tasks = parse(
            "tasks:\n  report:\n    run: [./report.sh, a b]\n    timeout: 2m\n    cwd: /srv\n    env: {A: b}\n  clean: {run: [\"true\"]}\n",
        );
        let clean = Task {
            name: Some("clean".to_owned()),
            command: vec!["true".into()],
            timeout: Duration::from_secs(600),
            folder: None,
            environment: Vec::new(),
        };
        let report = Task {
            name: Some("report".to_owned()),
            command: vec!["./report.sh".into(), "a b".into()],
            timeout: Duration::from_secs(120),
            folder: Some("/srv".into()),
            environment: vec![("A".to_owned(), "b".to_owned())],
        };
        assert_eq!(tasks.unwrap(), [clean, report]);
    }

    #[test]
    fn numbers_and_booleans_are_texts_as_they_are_written() {
        let text = "tasks: {a: {run: [sleep, 0.50], env: {COUNT: 7, RATE: 1.50, DEBUG: true, EMPTY: \"\"}}}";
        let [task] = &parse(text).unwrap()[..] else { panic!() };
        assert_eq!(task.command, ["sleep", "0.50"]);
        let expected = [("COUNT", "7"), ("DEBUG", "true"), ("EMPTY", ""), ("RATE", "1.50")];
        assert_eq!(task.environment, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_fault_names_its_place_and_what_is_expected() {
        for (text, part) in [
            (r#"{"tasks": {}}"#, "1 to 100 tasks"),
            (
                r#"{"tasks": {"a": {"run": []}}}"#,
                "tasks.a.run should be a list of the program and its arguments",
            ),
            (r#"{"tasks": {"a": {"run": "x"}}}"#, "tasks.a.run should be a list"),
            (r#"{"tasks": {"a": {"run": ["x", [1]]}}}"#, "tasks.a.run should be a list"),
            (r#"{"tasks": {"a": {"timeout": "1m"}}}"#, "tasks.a.run should be a list"),
            (r#"{"tasks": {"a": 1}}"#, "tasks.a should be an object"),
            ("tasks: [a]", "`tasks` should be an object"),
            ("tasks:\n  a: &x 1", "2:6: anchors"),
            ("tsks: {}", "the file has the unknown key `tsks`; known are tasks"),
            (r#"{"tasks": {"a": {"run": ["x"], "timeout": "2"}}}"#, "tasks.a.timeout: \"2\" is no duration"),
            (r#"{"tasks": {"a": {"run": ["x"], "timeout": 2}}}"#, "tasks.a.timeout: \"2\" is no duration"),
            (r#"{"tasks": {"a": {"run": ["x"], "cwd": 2}}}"#, "tasks.a.cwd should be the path of a folder"),
            (
                r#"{"tasks": {"a": {"run": ["x"], "comand": 1}}}"#,
                "tasks.a has the unknown key `comand`; known are cwd",
            ),
            (
                r#"{"tasks": {"a": {"run": ["x"], "env": {"A=B": "c"}}}}"#,
                "tasks.a.env: \"A=B\" should be the name",
            ),
            (r#"{"tasks": {"b": {"run": ["x"], "env": {"X": [1]}}}}"#, "tasks.b.env.X should be a text"),
            (
                r#"{"tasks": {"b": {"run": ["x"], "env": {"X": "a\u0000"}}}}"#,
                "tasks.b.env.X should be a text",
            ),
            (r#"{"tasks": {"b": {"run": ["x"], "env": {"X": null}}}}"#, "tasks.b.env.X should be a text"),
            (r#"{"tasks": {"": {"run": ["x"]}}}"#, "expected 1 to 255 bytes"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }
}
