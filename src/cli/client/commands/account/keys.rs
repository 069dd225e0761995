//! `cued account keys`: the API keys of the account.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::format::Format;
use crate::cli::output::list::List;
use crate::cli::output::print::print_part;
use crate::cli::output::table::{Column, Table, details};
use crate::cli::printable::printable;
use crate::client::request::{ApiRequest, segment};

const PATH: &str = "/v1/auth/keys";

#[derive(Debug, Args)]
pub struct Keys {
    #[command(subcommand)]
    action: Option<KeysAction>,
}

#[derive(Debug, Subcommand)]
enum KeysAction {
    /// List the keys, without their secret part
    List,
    /// Add a key and print it, this once
    Add {
        /// Name of the key, such as that of the machine that uses it
        name: String,
    },
    /// Revoke a key, at once
    Revoke {
        /// Id, name or beginning of the key; only one key may have it
        key: String,
    },
}

impl ClientAction for Keys {
    fn run(self, context: &Context) -> Result<(), CliError> {
        match self.action.unwrap_or(KeysAction::List) {
            KeysAction::List => list(context),
            KeysAction::Add { name } => add(context, &name),
            KeysAction::Revoke { key } => revoke(context, &key),
        }
    }
}

fn list(context: &Context) -> Result<(), CliError> {
    let list = List::of(&context.send(&ApiRequest::get(PATH))?, "keys")?;
    context.output.list(&list, "id", |keys| Table {
        columns: vec![
            Column::new("ID"),
            Column::new("NAME").text(),
            Column::new("KEY"),
            Column::new("CREATED"),
            Column::new("NOTE"),
        ],
        rows: keys.iter().map(|key| row(context, key)).collect(),
    })
}

fn row(context: &Context, key: &Value) -> Vec<crate::cli::output::table::Cell> {
    vec![
        text_of(key, "id").into(),
        text_of(key, "name").into(),
        format!("{}…", text_of(key, "prefix")).into(),
        context.output.times.instant(&text_of(key, "created_at")).into(),
        if key["current"] == true { "in use here" } else { "" }.into(),
    ]
}

// Without a key of idempotency, whose stored answer would contain the new key.
fn add(context: &Context, name: &str) -> Result<(), CliError> {
    let answer = context.send(&ApiRequest::post(PATH).json(json!({ "name": name })))?;
    let output = &context.output;
    if !matches!(output.format, Format::Table | Format::Wide) {
        return output.object(&answer, "id", |_| Vec::new());
    }
    let key = answer.value()?;
    let id = text_of(&key, "id");
    let lines = [
        ("id", id.as_str().into()),
        ("name", text_of(&key, "name").into()),
        ("key", text_of(&key, "api_key").into()),
    ];
    let is_lost = |reason: &str| {
        CliError::Failed(format!("{reason}. The new key is lost: `cued account keys revoke {id}`"))
    };
    match print_part(&details(&lines, &output.styles)) {
        Ok(true) => {}
        Ok(false) => return Err(is_lost("nobody reads standard output")),
        Err(error) => return Err(is_lost(&error.to_string())),
    }
    output.note("Keep the key now: it is not shown again.")
}

fn revoke(context: &Context, wanted: &str) -> Result<(), CliError> {
    let keys = List::of(&context.look_up(&ApiRequest::get(PATH))?, "keys")?.values()?;
    let key = find(&keys, wanted)?;
    let (id, name) = (text_of(key, "id"), printable(&text_of(key, "name")));
    let is_own = key["current"] == true;
    if is_own {
        context.confirm(&format!("Key {name} is the one that this command uses. Revoke it?"))?;
    }
    let answer = context.send(&ApiRequest::delete(format!("{PATH}/{}", segment(&id))))?;
    context.output.done(&answer, "id", |_| format!("Key {name} ({id}) is revoked."))?;
    if is_own {
        context.output.note("Nothing is signed in with it any more: `cued login`")?;
    }
    Ok(())
}

/// The only key with this id, name or beginning.
fn find<'a>(keys: &'a [Value], wanted: &str) -> Result<&'a Value, CliError> {
    let is = |key: &Value, field: &str| text_of(key, field) == wanted;
    if let Some(key) = keys.iter().find(|key| is(key, "id")) {
        return Ok(key);
    }
    let found: Vec<&Value> = keys.iter().filter(|key| is(key, "name") || is(key, "prefix")).collect();
    match found[..] {
        [key] => Ok(key),
        [] => Err(CliError::NotFound(format!(
            "there is no key {:?}; `cued account keys` lists them",
            shown(wanted)
        ))),
        _ => {
            let ids: Vec<String> = found.iter().map(|key| text_of(key, "id")).collect();
            Err(CliError::Refused(format!("{} keys are named {wanted:?}: {}", found.len(), ids.join(", "))))
        }
    }
}

/// A whole key, given by mistake, is not repeated.
fn shown(wanted: &str) -> String {
    /// The characters by which the server names a key.
    const PREFIX: usize = 12;
    match wanted.char_indices().nth(PREFIX) {
        Some((end, _)) if wanted.starts_with("cue_sk_") => format!("{}…", &wanted[..end]),
        _ => wanted.to_owned(),
    }
}
