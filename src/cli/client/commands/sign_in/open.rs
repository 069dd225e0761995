//! `cued open`: opens the page of the server, signed in.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use clap::Args;
use tempfile::NamedTempFile;
use url::Url;

use crate::cli::client::command::ClientAction;
use crate::cli::client::context::{Context, environment};
use crate::cli::client::live_output::Interrupt;
use crate::cli::error::{Result, usage};
use crate::cli::output::print_note;
use crate::cli::output::table::text_of;
use crate::client::request::ApiRequest;

/// The time that a browser has to show the page.
const LONGEST_START: Duration = Duration::from_secs(30);

/// Between two looks at whether it does.
const LOOK: Duration = Duration::from_secs(3);

/// Open the page of the server in a browser, signed in
///
/// Prints a URL that signs in once, within five minutes, and opens it if there is a browser and the output is a
/// terminal. The session in the browser ends when your key is revoked.
#[derive(Debug, Args)]
pub struct Open {
    /// Screen to show, such as cues or runs/ID [default: the overview]
    screen: Option<String>,
    /// Print only the URL
    #[arg(long)]
    no_browser: bool,
}

impl ClientAction for Open {
    fn run(self, context: &Context) -> Result {
        let screen = self.screen.as_deref().map(screen).transpose()?.unwrap_or_default();
        let answer = context.send(&ApiRequest::post("/v1/auth/session-link"))?;
        let page = |link: &serde_json::Value| format!("{}{screen}", text_of(link, "url"));
        context.output.done(&answer, "url", page)?;
        // Without a terminal the address is for a program.
        if self.no_browser || context.output.format.is_json() || !io::stdout().is_terminal() {
            return Ok(());
        }
        let before = sessions(context);
        let Some(_file) = open_secret(&page(&answer.value()?)) else {
            return print_note("Open this URL in a browser. It works once, for five minutes.");
        };
        print_note("Opened in the browser. The URL works once, for five minutes.")?;
        // A browser that is started now takes a while to read the file.
        let interrupt = Interrupt::listen()?;
        let clock = context.client.clock();
        let deadline = clock.monotonic() + LONGEST_START;
        while clock.monotonic() < deadline && !interrupt.is_requested() {
            if matches!((&before, sessions(context)), (Some(before), Some(now)) if *before != now) {
                break;
            }
            clock.sleep(LOOK);
        }
        Ok(())
    }
}

/// The sessions of the account: there is another one as soon as the link was used. `None` if they cannot be read.
fn sessions(context: &Context) -> Option<Vec<String>> {
    let value = context.fetch(&ApiRequest::get("/v1/auth/sessions")).ok()?.value().ok()?;
    Some(value["sessions"].as_array()?.iter().map(|session| text_of(session, "id")).collect())
}

/// The part of the address that names a screen.
fn screen(text: &str) -> Result<String> {
    let name = text.trim_start_matches(['#', '/']);
    if name.chars().any(|char| char.is_whitespace() || char.is_control()) {
        return Err(usage(format!("{text:?} is no screen: give one such as cues or runs/ID")));
    }
    Ok(if name.is_empty() { String::new() } else { format!("/{name}") })
}

/// Opens a page, if this machine has a browser that the person can see. The page's address comes from the server.
pub fn open(page: &str) -> bool {
    web_address(page).is_some_and(|url| start(url.as_str()))
}

fn web_address(page: &str) -> Option<Url> {
    Url::parse(page).ok().filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// Opens a page by a file that leads to it, because every user of the machine sees the arguments of a process. The file
/// must exist until the browser has read it; `None` if there is no browser, or no home.
fn open_secret(page: &str) -> Option<NamedTempFile> {
    let url = web_address(page)?.as_str().replace('&', "&amp;").replace('"', "&quot;");
    // In the home folder and not hidden: browsers in a sandbox can neither read hidden files nor the system's folder
    // for temporary files.
    let home = environment("HOME").map(PathBuf::from).filter(|home| home.is_absolute())?;
    let mut file =
        tempfile::Builder::new().prefix("cued-open-").suffix(".html").tempfile_in(home).ok()?;
    writeln!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0;url={url}\">"
    )
    .ok()?;
    start(Url::from_file_path(file.path()).ok()?.as_str()).then_some(file)
}

/// Starts the browser with the address of a page.
fn start(url: &str) -> bool {
    // A list of programs; the first is preferred.
    let chosen = environment("BROWSER").and_then(|list| list.split(':').next().map(str::to_owned));
    let has_screen = || environment("DISPLAY").or_else(|| environment("WAYLAND_DISPLAY")).is_some();
    let is_mac = cfg!(target_os = "macos");
    let name = if is_mac { "open" } else { "xdg-open" };
    let usual = || (is_mac || has_screen()).then(|| name.to_owned());
    let Some(program) = chosen.filter(|program| !program.is_empty()).or_else(usual) else {
        return false;
    };
    let mut command = Command::new(program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The result is of no use: the page's address is printed in any case.
    command.spawn().map(|mut child| drop(thread::spawn(move || child.wait()))).is_ok()
}
