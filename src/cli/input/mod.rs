//! The input of commands besides their flags: values of arguments, variables of the environment, files, standard input.

pub mod placed;
pub mod variables;
pub mod yaml;
mod yaml_fault;

use std::fs::File;
use std::io::{self, BufRead as _, Read as _};

use serde_json::Value;

use crate::cli::error::{Result, usage};

/// The most that is read from a file or standard input. A payload has at most 1 MiB in its compact form.
const MAX_INPUT: u64 = 16 << 20;

/// The most that is read as a line: more than any value that is one.
const MAX_LINE: u64 = 64 << 10;

/// The text of a value, from its file or standard input if the value names one. `name` is that of the argument.
pub fn text(name: &str, value: &str) -> Result<String> {
    let bytes = match value.strip_prefix('@') {
        _ if value == "-" => limited(&mut io::stdin().lock()),
        Some(path) => File::open(path).and_then(|mut file| limited(&mut file)),
        None => return Ok(value.to_owned()),
    };
    let place = value.strip_prefix('@').unwrap_or("standard input");
    let bytes = bytes.map_err(|error| usage(format!("{name}: cannot read {place}: {error}")))?;
    if bytes.len() as u64 > MAX_INPUT {
        return Err(usage(format!("{name}: {place} has more than {} MiB", MAX_INPUT >> 20)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let first = format!("line {line}, character {column}");
        usage(format!(
            "{name}: {place} is no text in UTF-8 ({first} is in another encoding); save it as UTF-8"
        ))
    })
}

/// The next line of standard input, without its end, so that several values can be read. `name` is that of the argument.
pub fn line(name: &str) -> Result<String> {
    let mut line = String::new();
    let read = io::stdin().lock().take(MAX_LINE).read_line(&mut line);
    read.map_err(|error| usage(format!("{name}: cannot read standard input: {error}")))?;
    match line.trim_end_matches(['\n', '\r']) {
        "" => Err(usage(format!("{name} -: standard input has no line for it"))),
        line => Ok(line.to_owned()),
    }
}

pub fn structured(name: &str, value: &str) -> Result<Value> {
    let text = text(name, value)?;
    yaml::read(&text).map_err(|error| usage(format!("{name}: {error}")))
}

/// Reads one byte more than is permitted, so that a longer text is known as such.
fn limited(reader: &mut dyn io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MAX_INPUT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
