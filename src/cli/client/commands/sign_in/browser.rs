//! Opens a page in the browser of the person at this machine.

use std::process::{Command, Stdio};
use std::thread;

use url::Url;

use crate::cli::client::environment::environment;

/// Opens a page, if this machine has a browser that the person can see. The page's address comes from the server.
pub fn open(page: &str) -> bool {
    let is_web = Url::parse(page).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    let Some(program) = program().filter(|_| is_web) else { return false };
    let mut command = Command::new(program);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
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
