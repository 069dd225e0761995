//! Opens a page in the browser of the person at this machine.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use tempfile::NamedTempFile;
use url::Url;

use crate::cli::client::context::environment;

/// Opens a page, if this machine has a browser that the person can see. The page's address comes from the server.
pub fn open(page: &str) -> bool {
    web_address(page).is_some_and(|url| start(url.as_str()))
}

/// As [`open`], but of a page whose address is secret: every user of the machine sees the arguments of a process. The
/// browser gets a file that leads to the page, to be kept until it has read it. `None` if there is no browser, or no home.
pub fn open_secret(page: &str) -> Option<NamedTempFile> {
    let file = file_that_leads_to(&web_address(page)?).ok()?;
    let url = Url::from_file_path(file.path()).ok()?;
    start(url.as_str()).then_some(file)
}

fn web_address(page: &str) -> Option<Url> {
    Url::parse(page).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// Only its owner can read it. It is in the home folder and not hidden, since browsers in a sandbox can neither read hidden
/// files nor the system's folder for temporary files.
fn file_that_leads_to(url: &Url) -> io::Result<NamedTempFile> {
    let home = environment("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or(io::ErrorKind::NotFound)?;
    let mut file = tempfile::Builder::new().prefix("cued-open-").suffix(".html").tempfile_in(home)?;
    let url = url.as_str().replace('&', "&amp;").replace('"', "&quot;");
    writeln!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={url}\">"
    )?;
    Ok(file)
}

/// Starts the browser with the address of a page.
fn start(url: &str) -> bool {
    let Some(program) = program() else { return false };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => {
            // The result is of no use: the page's address is printed in any case.
            thread::spawn(move || drop(child.wait()));
            true
        }
        Err(_) => false,
    }
}

fn program() -> Option<String> {
    // A list of programs, of which the first is preferred.
    let chosen = environment("BROWSER").and_then(|list| list.split(':').next().map(str::to_owned));
    let has_screen = || environment("DISPLAY").or_else(|| environment("WAYLAND_DISPLAY")).is_some();
    chosen.filter(|program| !program.is_empty()).or_else(|| {
        if cfg!(target_os = "macos") {
            return Some("open".to_owned());
        }
        has_screen().then(|| "xdg-open".to_owned())
    })
}
