//! `${VAR}` in the texts of a file: the values of variables of the environment, so that no secret stands in the file.

use serde_json::Value;

use crate::cli::client::commands::apply::faults::{At, Faults};
use crate::cli::input::placed::{Node, Placed};

const BEGIN: &str = "${";

/// What stands for [`BEGIN`] itself.
const ESCAPED: &str = "$${";

/// Puts the variables of the environment into all texts. A variable that is not set is a fault.
pub fn expand(value: &mut Placed, at: &At, faults: &mut Faults) {
    match &mut value.node {
        Node::Scalar(Value::String(text)) if text.contains(BEGIN) => {
            match expanded(text, |name| std::env::var(name).ok()) {
                Ok((new, has_variable)) => (*text, value.has_variable) = (new, has_variable),
                Err(reason) => {
                    // So that a secret is not taken for one that stands in the file.
                    value.has_variable = true;
                    faults.add(at.in_file(value.place), reason);
                }
            }
        }
        Node::Scalar(_) => {}
        Node::List(items) => items.iter_mut().for_each(|item| expand(item, at, faults)),
        Node::Object(entries) => {
            entries.iter_mut().for_each(|entry| expand(&mut entry.value, at, faults))
        }
    }
}

/// Whether a text still has a variable that is not set.
pub fn has_unset_variable(value: &Placed) -> bool {
    value.has(&|part| part.has_variable && part.as_str().is_some_and(|text| text.contains(BEGIN)))
}

/// The text with the values of its variables, and whether it has any.
fn expanded(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(String, bool), String> {
    let (mut new, mut rest, mut has_variable) = (String::new(), text, false);
    while let Some(at) = rest.find(BEGIN) {
        let (before, after) = (&rest[..at], &rest[at + BEGIN.len()..]);
        if let Some(before) = before.strip_suffix('$') {
            new += before;
            new += BEGIN;
            rest = after;
            continue;
        }
        new += before;
        let name = after.split_once('}').map(|(name, _)| name);
        if let Some((name, _)) =
            name.and_then(|name| name.split_once(':')).filter(|(name, _)| is_name(name))
        {
            return Err(format!(
                "a variable has no default here; write ${{{name}}}, and set {name}"
            ));
        }
        let name = name.filter(|name| is_name(name));
        let name = name.ok_or(
            "${ begins the name of a variable, as in ${NAS_TOKEN}; write $${ for ${ itself",
        )?;
        let value = variable(name).ok_or_else(|| {
            format!("the variable {name} is not set in the environment; set it, or write $${{ for ${{ itself")
        })?;
        new += &value;
        rest = &after[name.len() + 1..];
        has_variable = true;
    }
    Ok((new + rest, has_variable))
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The value that [`expand`] makes this one of.
pub fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) => text.replace(BEGIN, ESCAPED).into(),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(entries) => {
            Value::Object(entries.into_iter().map(|(key, value)| (key, escaped(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn variables_are_replaced_and_a_doubled_dollar_is_none() {
        let variable = |name: &str| (name == "A_1").then(|| "${B}".to_owned());
        for (text, expected) in [
            ("x ${A_1}y", Ok(("x ${B}y", true))),
            ("$${A_1} $ { $5", Ok(("${A_1} $ { $5", false))),
            ("$$${A_1}", Ok(("$${A_1}", false))),
            ("${B}", Err("the variable B is not set")),
            ("${B:-x}", Err("a variable has no default here; write ${B}, and set B")),
            ("${", Err("${ begins")),
            ("${a b}", Err("${ begins")),
            ("${}", Err("${ begins")),
        ] {
            let read = expanded(text, variable);
            match (&read, expected) {
                (Ok((new, has_variable)), Ok(expected)) => {
                    assert_eq!((new.as_str(), *has_variable), expected)
                }
                (Err(reason), Err(expected)) => assert!(reason.starts_with(expected), "{reason}"),
                _ => panic!("{text}: {read:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn an_escaped_text_reads_back(text in "[${}a]{0,8}") {
            let escaped = escaped(text.as_str().into());
            prop_assert_eq!(expanded(escaped.as_str().unwrap(), |_| None), Ok((text, false)));
        }
    }
}
