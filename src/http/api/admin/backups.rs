//! `/v1/admin/backups`: copies of the whole database in the folder of `--backup-dir`.

use std::fs::File;
use std::io::Read as _;

use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use serde_json::{Value, json};

use crate::domain::api_error::ErrorCode;
use crate::domain::time::instant;
use crate::error::{Error, Result};
use crate::http::list::ListBody;
use crate::http::message::{BodyStream, Request, Response, run_blocking};
use crate::service::operator::{back_up, unusable_folder};
use crate::store::maintenance::backup_folder as stored;
use crate::store::maintenance::backup_folder::StoredBackup;

/// Bytes of a file that are read at a time.
const PART: usize = 64 << 10;

/// `POST /v1/admin/backups`: returns when the copy is complete. It is made also if the client disconnects.
pub async fn create(request: Request) -> Result<Response> {
    let (app, now, stopping) = (request.app, request.now, request.stopping);
    let job = move || back_up(&app, now, Box::new(move || *stopping.borrow()));
    let (made, took) = run_blocking(job).await?;
    let mut body = render(&made);
    body["took_ms"] = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into();
    Ok(Response::created(&body))
}

/// `GET /v1/admin/backups`, newest first.
pub async fn list(request: Request) -> Result<Response> {
    let Some(folder) = request.app.config.backup_dir.clone() else {
        return Ok(ListBody::new("backups", [0; 0])?.with_more(false).into_response());
    };
    let read = move || stored::list(&folder).map_err(|error| unusable_folder(&folder, error));
    let backups = run_blocking(read).await?;
    Ok(ListBody::new("backups", backups.iter().map(render))?.with_more(false).into_response())
}

/// `GET /v1/admin/backups/{name}`: the file.
pub async fn download(request: Request) -> Result<Response> {
    let (app, name) = (request.app.clone(), request.param("name").to_owned());
    let opened = run_blocking(move || {
        let folder = app.config.backup_dir.as_deref().ok_or_else(not_found)?;
        let file = stored::open(folder, &name).map_err(|error| unusable_folder(folder, error))?;
        file.map(|(file, bytes)| (name, file, bytes)).ok_or_else(not_found)
    });
    let (name, file, bytes) = opened.await?;
    request.reserve_response(2 * PART)?;
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{name}\""))
        .map_err(|error| Error::fault_from("a header cannot hold the name of a backup", error))?;
    Ok(Response::stream("application/octet-stream", parts(file, bytes))
        .with(header::CONTENT_LENGTH, bytes.into())
        .with(header::CONTENT_DISPOSITION, disposition))
}

pub async fn delete(request: Request) -> Result<Response> {
    let (app, name) = (request.app.clone(), request.param("name").to_owned());
    let deleted = run_blocking(move || {
        let folder = app.config.backup_dir.as_deref().ok_or_else(not_found)?;
        stored::delete(folder, &name).map_err(|error| unusable_folder(folder, error))
    });
    if deleted.await? { Ok(Response::no_content()) } else { Err(not_found()) }
}

/// The next `left` bytes of the file. A body that ends early makes the connection end, so that the client notices.
fn parts(mut file: File, left: u64) -> BodyStream {
    BodyStream::new(async move {
        let read = run_blocking(move || {
            let mut part = Vec::new();
            let limit = left.min(PART as u64);
            let read = file.by_ref().take(limit).read_to_end(&mut part);
            read.map_err(|error| Error::fault_from("a backup cannot be read", error))?;
            Ok((part, file))
        });
        match read.await {
            Ok((part, file)) if !part.is_empty() => {
                let rest = left.saturating_sub(part.len() as u64);
                Some((Bytes::from(part), parts(file, rest)))
            }
            Ok(_) => None,
            Err(error) => {
                tracing::error!(%error, "the download of a backup was cut off");
                None
            }
        }
    })
}

fn render(backup: &StoredBackup) -> Value {
    json!({"name": backup.name, "bytes": backup.bytes, "created_at": instant(backup.created_at)})
}

fn not_found() -> Error {
    Error::refused(ErrorCode::BackupNotFound, "Backup not found")
}
