//! `cued account sessions`: the browsers that are signed in to the account.

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::cells::text_of;
use crate::cli::output::list::List;
use crate::cli::output::table::{Cell, Column, Table};
use crate::client::request::{ApiRequest, segment};

const PATH: &str = "/v1/auth/sessions";

#[derive(Debug, Args)]
pub struct Sessions {
    #[command(subcommand)]
    action: Option<SessionsAction>,
}

#[derive(Debug, Subcommand)]
enum SessionsAction {
    /// List the sessions
    List,
    /// End a session, at once
    Rm {
        /// Id of the session
        #[arg(required_unless_present = "others")]
        id: Option<String>,
        /// End all sessions, and unused links
        #[arg(long, conflicts_with = "id")]
        others: bool,
    },
}

impl ClientAction for Sessions {
    fn run(self, context: &Context) -> Result<(), CliError> {
        match self.action.unwrap_or(SessionsAction::List) {
            SessionsAction::List => list(context),
            SessionsAction::Rm { id: Some(id), .. } => end(context, &id),
            SessionsAction::Rm { id: None, .. } => end_others(context),
        }
    }
}

fn list(context: &Context) -> Result<(), CliError> {
    let list = List::of(&context.send(&ApiRequest::get(PATH))?, "sessions")?;
    context.output.list(&list, "id", |sessions| Table {
        columns: vec![
            Column::new("ID"),
            Column::new("DEVICE").text(),
            Column::new("ADDRESS"),
            Column::new("BY"),
            Column::new("SINCE"),
            Column::new("SEEN"),
            Column::new("EXPIRES"),
        ],
        rows: sessions.iter().map(|session| row(context, session)).collect(),
    })
}

fn row(context: &Context, session: &Value) -> Vec<Cell> {
    let time = |field: &str| context.output.times.instant(&text_of(session, field)).into();
    vec![
        text_of(session, "id").into(),
        text_of(session, "device").into(),
        text_of(session, "address").into(),
        text_of(session, "via").into(),
        time("created_at"),
        time("seen_at"),
        time("expires_at"),
    ]
}

fn end(context: &Context, id: &str) -> Result<(), CliError> {
    let answer = context.send(&ApiRequest::delete(format!("{PATH}/{}", segment(id))))?;
    context.output.done(&answer, "id", |_| format!("Session {id} is ended."))
}

// "Others" than that of the request, which has a key here: all of them.
fn end_others(context: &Context) -> Result<(), CliError> {
    context.confirm("Every browser that is signed in to the account will be signed out. Do it?")?;
    let answer = context.send(&ApiRequest::delete(PATH))?;
    context.output.done(&answer, "ended", |ended| format!("{} sessions are ended.", text_of(ended, "ended")))
}
