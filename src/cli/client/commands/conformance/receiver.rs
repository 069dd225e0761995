//! The receiver of deliveries: `cued sink` in a process of its own, which verifies them and prints each as a line of JSON.

use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::client::commands::conformance::values::{Values, text};
use crate::cli::error::{CliError, cannot, failed};

/// Time for a delivery to come from the process of the receiver.
const ARRIVAL: Duration = Duration::from_secs(1);

/// Where a receiver listens, and how the server reaches it.
pub struct Listener {
    /// The program itself.
    pub program: PathBuf,
    pub listen: SocketAddr,
    /// The base of its URLs, if it is not its address.
    pub url: Option<String>,
}

/// A running receiver. It ends with its owner, and with this process, also if that is killed.
pub struct Receiver {
    child: Child,
    deliveries: mpsc::Receiver<Value>,
    /// A delivery that was looked for, and is the next one.
    found: Option<Value>,
}

impl Listener {
    /// Starts a receiver that responds by a script, and keeps its URL as `receiver`. The secret of the account is `secret`.
    pub fn start(&self, script: &str, values: &mut Values) -> Result<Receiver, CliError> {
        let failed_to = |error| cannot("start the receiver", error);
        let secret =
            values.fill(&json!("{secret}")).map_err(|_| failed("the receiver needs the secret"))?;
        let mut child = Command::new(&self.program)
            .args(["sink", "--json", "--script", script, "--listen", &self.listen.to_string()])
            .env("CUED_WEBHOOK_SECRET", text(&secret))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed_to)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed("the receiver has no output"));
        };
        let (sender, deliveries) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            // Without a reader the rest is not needed.
            lines
                .filter_map(|line| serde_json::from_str(&line).ok())
                .try_for_each(|it| sender.send(it))
        });
        let receiver = Receiver { child, deliveries, found: None };
        let (mut notes, mut first) = (BufReader::new(stderr), String::new());
        notes.read_line(&mut first).map_err(failed_to)?;
        // A full pipe would stop the receiver.
        thread::spawn(move || io::copy(&mut notes, &mut io::sink()));
        let Some(address) = first.trim_end().strip_prefix("listening on ") else {
            return Err(failed(first.trim_end()));
        };
        values.keep(
            "receiver",
            json!(format!("{}/hook", self.url.as_deref().unwrap_or(address).trim_end_matches('/'))),
        );
        Ok(receiver)
    }
}

impl Receiver {
    /// The next delivery, as `cued sink --json` prints it.
    pub fn next(&mut self, patience: Duration) -> Option<Value> {
        self.found.take().or_else(|| self.deliveries.recv_timeout(patience).ok())
    }

    /// Whether a delivery has come that is not read yet.
    pub fn has_delivery(&mut self) -> bool {
        self.found = self.next(ARRIVAL);
        self.found.is_some()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
