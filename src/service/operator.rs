//! What an operator manages over HTTP: users, registration, backups and the hold (contract §13).

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::app::App;
use crate::domain::account::user::{RegistrationPolicy, User};
use crate::domain::api_error::ErrorCode;
use crate::error::{Error, Result};
use crate::service::accounts::{change_plan, disable};
use crate::service::fire::CueFirer;
use crate::store::accounts::users;
use crate::store::db::meta::{self, OverdueCounts};
use crate::store::maintenance::backup::CopyError;
use crate::store::maintenance::backup_folder::{self, StoredBackup};
use crate::store::{Pending, ReadTx};

#[derive(Debug, Clone, Default)]
pub struct UserChange {
    /// A plan that exists.
    pub plan: Option<String>,
    pub is_disabled: Option<bool>,
    pub is_operator: Option<bool>,
}

/// Errors: `user_not_found`; `invalid_state` if no enabled operator would remain.
pub fn update_user(app: &App, id: String, change: UserChange, now: Timestamp) -> Pending<()> {
    let (plans, firer) = (app.config.plans.clone(), CueFirer::new(app, now));
    app.store.write(move |tx| {
        let user = find_user(tx, &id)?;
        if let Some(plan) = &change.plan {
            change_plan(tx, user.key, plan, plans.limits(plan), &firer)?;
        }
        match change.is_disabled {
            Some(true) if user.disabled_at.is_none() => disable(tx, user.key, now)?,
            Some(false) => drop(users::enable(tx, user.key)?),
            _ => {}
        }
        if let Some(is_operator) = change.is_operator {
            users::set_operator(tx, user.key, is_operator)?;
        }
        // The error rolls the change back.
        if users::has_enabled_operator(tx)? { Ok(()) } else { Err(last_operator()) }
    })
}

/// Errors: `user_not_found`.
pub fn find_user(read: &ReadTx<'_>, id: &str) -> Result<User> {
    users::find_by_id(read, id)?
        .ok_or_else(|| Error::refused(ErrorCode::UserNotFound, "User not found"))
}

/// Errors: `invalid_state` if the flags of the server fix it.
pub fn set_registration(app: &App, registration: RegistrationPolicy) -> Result<Pending<()>> {
    if app.config.registration.is_some() {
        let flag = if app.config.dev { "--dev or --registration" } else { "--registration" };
        let message = format!(
            "Registration is fixed where the server is started: remove {flag} (or CUED_REGISTRATION) there, and start \
             it again"
        );
        return Err(Error::refused(ErrorCode::InvalidState, message));
    }
    Ok(app.store.write(move |tx| meta::set_registration(tx, registration)))
}

/// Returns since when the file was on hold, and what is overdue. The engine begins at once. Errors: `invalid_state`.
pub fn promote(app: &App, now: Timestamp) -> Pending<(Timestamp, OverdueCounts)> {
    let notifiers = Arc::clone(&app.notifiers);
    app.store.write(move |tx| {
        let since = meta::promote(tx)?.ok_or_else(|| {
            Error::refused(
                ErrorCode::InvalidState,
                "This server is not on hold: there is nothing to promote",
            )
        })?;
        tx.on_commit(move || notifiers.notify_all());
        Ok((since, meta::overdue(tx, now)?))
    })
}

/// Blocks while the file is copied. Returns how long that took. Errors: `invalid_state` without a usable folder, while
/// another backup is made or in the second of the last one; `storage_unavailable` if the disk is full or the server
/// stops.
pub fn back_up(
    app: &App,
    now: Timestamp,
    is_stopping: StopFlag,
) -> Result<(StoredBackup, Duration)> {
    let folder = backup_folder(app)?;
    let Some(_running) = app.backups.try_lock() else {
        let message = "Another backup is being made: wait until it is done";
        return Err(Error::refused(ErrorCode::InvalidState, message));
    };
    let began = app.clock.monotonic();
    let progress =
        move |_, _| if is_stopping() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let made =
        backup_folder::create(&app.config.db, folder, now, Box::new(progress)).map_err(refusal)?;
    Ok((made, app.clock.monotonic().saturating_sub(began)))
}

pub type StopFlag = Box<dyn Fn() -> bool + Send>;

/// Errors: `invalid_state` without `--backup-dir`.
fn backup_folder(app: &App) -> Result<&Path> {
    app.config.backup_dir.as_deref().ok_or_else(|| {
        let message =
            "Backups over HTTP are off: start cued with --backup-dir FOLDER (or CUED_BACKUP_DIR)";
        Error::refused(ErrorCode::InvalidState, message)
    })
}

/// What an operator can do about a folder that cannot be used.
pub fn unusable_folder(folder: &Path, error: impl std::fmt::Display) -> Error {
    let message = format!(
        "The folder {} cannot be used: {error}; create it so that the server can write to it, or start cued with \
         another --backup-dir",
        folder.display()
    );
    Error::refused(ErrorCode::InvalidState, message)
}

fn refusal(error: CopyError) -> Error {
    match error {
        CopyError::Exists(_) | CopyError::LeftoverFiles(_) => Error::refused(
            ErrorCode::InvalidState,
            format!("{error}; wait a second, and try again"),
        ),
        CopyError::Full { .. } => Error::refused(ErrorCode::StorageUnavailable, error.to_string()),
        CopyError::Stopped(_) => {
            let message = "The server stops: make the backup when it has started again";
            Error::refused(ErrorCode::StorageUnavailable, message)
        }
        CopyError::Failed { path, source } => {
            unusable_folder(&path.parent().map(PathBuf::from).unwrap_or_default(), source)
        }
        other => Error::fault_from("the backup could not be made", other),
    }
}

fn last_operator() -> Error {
    let message = "This is the last enabled operator of the server: make another user an operator first (`is_operator`)";
    Error::refused(ErrorCode::InvalidState, message)
}
