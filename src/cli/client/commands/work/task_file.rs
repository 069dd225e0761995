//! The file of `cued work --file`: several tasks and their commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::cli::client::commands::work::{duration, filter};
use crate::cli::error::CliError;
use crate::cli::input::{values, yaml};
use crate::worker::task::Task;

/// Names in a heartbeat (contract §7.4).
const MAX_TASKS: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskFile {
    tasks: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskEntry {
    run: Vec<String>,
    timeout: Option<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Reads the tasks of a file. `timeout` is that of tasks that have none.
pub fn read_tasks(path: &Path, timeout: Duration) -> Result<Vec<Task>, CliError> {
    let text = values::text("--file", &format!("@{}", path.display()))?;
    parse_tasks(&text, timeout).map_err(|fault| CliError::Usage(format!("{}: {fault}", path.display())))
}

fn parse_tasks(text: &str, timeout: Duration) -> Result<Vec<Task>, String> {
    let text = yaml::read(text).map_err(|error| error.to_string())?;
    let file: TaskFile = serde_json::from_value(text.get().to_value()).map_err(|error| error.to_string())?;
    if file.tasks.is_empty() || file.tasks.len() > MAX_TASKS {
        return Err(format!("`tasks` should have 1 to {MAX_TASKS} tasks; it has {}", file.tasks.len()));
    }
    let task = |(name, entry): (String, Value)| {
        let fault = |fault: &str| format!("tasks.{name}: {fault}");
        let entry: TaskEntry = serde_json::from_value(entry).map_err(|error| fault(&error.to_string()))?;
        filter(&name).map_err(|error| fault(&error))?;
        if entry.run.first().is_none_or(String::is_empty) {
            return Err(fault(
                "`run` should be the program and its arguments, such as [\"./report.sh\", \"weekly\"]",
            ));
        }
        let is_variable = |(name, value): (&String, &String)| {
            !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
        };
        if !entry.env.iter().all(is_variable) || entry.run.iter().any(|word| word.contains('\0')) {
            return Err(fault("`run` and `env` should have no NUL, and names of variables no `=`"));
        }
        let own = entry.timeout.as_deref().map(duration).transpose().map_err(|error| fault(&error))?;
        Ok(Task {
            timeout: own.unwrap_or(timeout),
            command: entry.run.into_iter().map(Into::into).collect(),
            folder: entry.cwd,
            environment: entry.env.into_iter().collect(),
            name: Some(name),
        })
    };
    file.tasks.into_iter().map(task).collect()
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
    fn a_fault_names_its_place_and_what_is_expected() {
        for (text, part) in [
            (r#"{"tasks": {}}"#, "1 to 100 tasks"),
            (r#"{"tasks": {"a": {"run": []}}}"#, "tasks.a: `run` should be the program"),
            (r#"{"tasks": {"a": {"run": "x"}}}"#, "tasks.a: invalid type: string"),
            ("tasks:\n  a: &x 1", "2:6: anchors"),
            ("tsks: {}", "unknown field `tsks`"),
            (r#"{"tasks": {"a": {"run": ["x"], "timeout": "2"}}}"#, "tasks.a: \"2\" is no duration"),
            (r#"{"tasks": {"a": {"run": ["x"], "comand": 1}}}"#, "tasks.a: unknown field `comand`"),
            (r#"{"tasks": {"a": {"run": ["x"], "env": {"A=B": "c"}}}}"#, "tasks.a: `run` and `env`"),
            (r#"{"tasks": {"": {"run": ["x"]}}}"#, "expected 1 to 255 bytes"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }
}
