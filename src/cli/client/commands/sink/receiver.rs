//! Verifies, counts and prints deliveries, and decides their answers.

use tokio::sync::mpsc::Sender;

use crate::cli::client::commands::sink::delivery::Delivery;
use crate::cli::client::commands::sink::report::Report;
use crate::cli::client::commands::sink::script::{Script, Step};
use crate::cli::client::commands::sink::secrets::Secrets;
use crate::cli::client::context::Context;
use crate::cli::error::CliError;
use crate::cli::output::print::print_part;
use crate::locks::Mutex;

/// The end of a sink.
pub type End = Result<(), CliError>;

pub struct Receiver {
    pub context: Context,
    pub secrets: Secrets,
    pub script: Script,
    /// The body of answers of success.
    pub reply: Option<String>,
    pub exit_after: Option<u64>,
    pub has_body: bool,
    /// Held while a line is printed, which takes as long as its reader wants.
    pub printing: Mutex<()>,
    /// Held for moments only: the thread that answers needs it.
    pub counts: Mutex<Counts>,
    /// Ends the sink.
    pub end: Sender<End>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    received: u64,
    verified: u64,
    /// Deliveries with an answer, or whose sender has given up.
    finished: u64,
}

impl Receiver {
    /// Takes a delivery; `None` if the sink is at its end.
    pub fn receive(&self, delivery: &Delivery) -> Option<Step> {
        let verification = self.secrets.verify(&self.context, delivery);
        // The lines are in the order of the script.
        let _printing = self.printing.lock();
        let index = self.counts.lock().received;
        if self.exit_after.is_some_and(|limit| index >= limit) {
            return None;
        }
        let step = self.script.step(index);
        let report = Report { delivery, verification, step, has_body: self.has_body };
        match report.text(&self.context.output).and_then(|text| print_part(&text)) {
            Ok(true) => {}
            // Nobody reads any more.
            Ok(false) => return self.end_with(Ok(())),
            Err(error) => return self.end_with(Err(error)),
        }
        let mut counts = self.counts.lock();
        counts.received += 1;
        counts.verified += u64::from(verification.is_verified());
        Some(step)
    }

    /// Counts a delivery as finished.
    pub fn finish(&self) {
        let mut counts = self.counts.lock();
        counts.finished += 1;
        if self.exit_after == Some(counts.finished) {
            self.end_with(Ok(()));
        }
    }

    /// The deliveries so far, as a sentence.
    pub fn summary(&self) -> String {
        let Counts { received, verified, .. } = *self.counts.lock();
        let noun = if received == 1 { "delivery" } else { "deliveries" };
        format!("{received} {noun}, {verified} verified")
    }

    fn end_with(&self, end: End) -> Option<Step> {
        // One end is enough; a second finds the place taken.
        drop(self.end.try_send(end));
        None
    }
}
