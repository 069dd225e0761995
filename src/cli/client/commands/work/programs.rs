//! Finds the program and the working directory of a task before the first execution needs them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{Access, access};

use crate::worker::task::Task;

/// The reason why the command of a task cannot be run; `None` if its working directory and its program exist.
pub fn command_fault(task: &Task) -> Option<String> {
    if let Some(fault) = task.folder_fault() {
        return Some(fault);
    }
    let program = task.command.first()?;
    if program.as_bytes().contains(&b'/') {
        let path = task.folder.as_deref().unwrap_or_else(|| Path::new("")).join(program);
        return fault_of(&path).map(|fault| format!("cannot run {}: {fault}", path.display()));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&folders).any(|folder| fault_of(&folder.join(program)).is_none()) {
        return None;
    }
    let hint =
        if Path::new(program).exists() { format!("; write ./{}", program.display()) } else { String::new() };
    Some(format!("there is no program {} in PATH{hint}", Path::new(OsStr::new(program)).display()))
}

fn fault_of(path: &Path) -> Option<String> {
    match path.metadata() {
        Err(error) => Some(error.to_string()),
        Ok(metadata) if !metadata.is_file() => Some("it is not a file".to_owned()),
        Ok(_) => access(path, Access::EXEC_OK)
            .err()
            .map(|error| format!("{}; `chmod +x` makes it executable", std::io::Error::from(error))),
    }
}
