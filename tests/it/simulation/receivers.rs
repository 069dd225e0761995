//! The receivers of a simulation. The answer of each follows from its kind, the instant of the run and the attempt.

use cued::domain::webhook::delivery::AttemptRef;
use cued::domain::webhook::signature::signature_v1;
use cued::engine::delivery::attempt::{FinishedAttempt, deliver};
use cued::engine::webhook_client::{
    DeliveryError, MAX_KEPT_BODY, WebhookClient, WebhookRequest, WebhookResponse,
};
use cued::store::executions::delivery_queue::LoadedDelivery;

use crate::simulation::model::{Checked, Cue, MINUTE, Model, Ms, Run, SECOND, ensure};
use crate::support::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Fast,
    /// Fails two of three times, and asks for a pause.
    Flaky,
    Gone,
    Refusing,
    /// Answers with as much as is kept, cut inside a character.
    Huge,
    /// Answers when the dispatcher has passed a few more times.
    Slow,
    Hanging,
}

/// Each has a host of its own. Those from [`FIRST_SLOW`] on belong to the slow account.
pub const RECEIVERS: [Kind; 9] = [
    Kind::Fast,
    Kind::Flaky,
    Kind::Gone,
    Kind::Refusing,
    Kind::Huge,
    Kind::Slow,
    Kind::Slow,
    Kind::Hanging,
    Kind::Hanging,
];
pub const FIRST_SLOW: usize = 5;

const RETRY_AFTER: Ms = 150 * SECOND;

/// What follows an attempt, by the rules (contract §6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// With the result that the response reports as the outcome.
    Success(Option<bool>),
    RetryAt(Ms),
    Failed,
}

/// An attempt that has not ended.
pub struct InFlight {
    loaded: LoadedDelivery,
    pub key: i64,
    /// The id of the run; a key is used again once its row is deleted.
    pub id: String,
    pub attempt: u32,
    pub receiver: usize,
    scheduled_for: Ms,
    max_attempts: u32,
    takes_outcome: bool,
    pub user: usize,
    pub flow: Option<&'static str>,
    expires_at: Option<Ms>,
    pub has_deadline: bool,
    backoff: Ms,
    secret: String,
    payload: Value,
    /// Passes of the dispatcher since its claim.
    pub age: u32,
}

struct OneAnswer {
    answer: Result<WebhookResponse, DeliveryError>,
    request: Mutex<Option<WebhookRequest>>,
}

impl WebhookClient for OneAnswer {
    fn send(&self, request: &WebhookRequest) -> Result<WebhookResponse, DeliveryError> {
        *self.request.lock().unwrap() = Some(request.clone());
        self.answer.clone()
    }
}

/// The URL of a receiver.
pub fn url(receiver: usize) -> String {
    format!("https://receiver{receiver}.example/hook")
}

/// Ends the attempt of a run whose cue does not exist: nothing is sent.
pub fn end_unsent(loaded: LoadedDelivery, now: Ms) -> Checked<FinishedAttempt> {
    let answer = Err(DeliveryError::Connection("never called".to_owned()));
    let (client, key) =
        (OneAnswer { answer, request: Mutex::default() }, loaded.claimed.attempt_ref.key);
    let finished = end_at(&client, loaded, now)?;
    let is_sent = client.request.lock().unwrap().is_some();
    ensure!(!is_sent, "run {key} is sent, and its cue does not exist");
    Ok(finished)
}

fn end_at(client: &OneAnswer, loaded: LoadedDelivery, now: Ms) -> Checked<FinishedAttempt> {
    let ended = deliver(client, loaded, || Some(Model::timestamp(now)));
    ended.ok_or_else(|| "an attempt has no end".to_owned())
}

impl InFlight {
    pub fn new(loaded: LoadedDelivery, run: &Run, cue: &Cue, secret: &str) -> Self {
        let AttemptRef { key, attempt, .. } = loaded.claimed.attempt_ref;
        let index = usize::try_from(attempt - 1).unwrap().min(cue.backoff_minutes.len() - 1);
        Self {
            key: key.number(),
            id: run.id.clone(),
            attempt,
            receiver: cue.receiver,
            scheduled_for: run.scheduled_for,
            max_attempts: cue.max_attempts,
            takes_outcome: cue.takes_outcome,
            user: cue.user,
            flow: cue.policies.flow.as_ref().map(|flow| flow.key),
            expires_at: cue.policies.max_age.map(|age| run.scheduled_for + age),
            has_deadline: cue.policies.deadline.is_some(),
            backoff: cue.backoff_minutes[index] * MINUTE,
            secret: secret.to_owned(),
            payload: run.payload.clone(),
            age: 0,
            loaded,
        }
    }

    /// Whether the receiver has answered or the time is up.
    pub fn has_ended(&self) -> bool {
        match RECEIVERS[self.receiver] {
            Kind::Slow => self.age >= 2,
            Kind::Hanging => self.age >= 4,
            _ => true,
        }
    }

    /// Sends it at `now`, checks the request and returns the end of the attempt with what must follow.
    pub fn end(self, now: Ms) -> Checked<(FinishedAttempt, Next)> {
        let (answer, pause) = self.answer();
        let is_success = answer.as_ref().is_ok_and(|response| response.http_status == 200);
        let is_gone = answer.as_ref().is_ok_and(|response| response.http_status == 410);
        let next = match () {
            () if is_success => Next::Success(self.reported()),
            () if is_gone || self.attempt >= self.max_attempts => Next::Failed,
            () if self.expires_at.is_some_and(|end| end <= now) => Next::Failed,
            () => Next::RetryAt(now + self.backoff.max(pause)),
        };
        let client = OneAnswer { answer, request: Mutex::default() };
        let finished = end_at(&client, self.loaded, now)?;
        let request = client.request.lock().unwrap().take();
        let Some(request) = request else { return Err(format!("run {} was not sent", self.key)) };
        let sent =
            |name: &str| header(request.headers.expose(), name).unwrap_or_default().to_owned();
        let sent_to = request.url.expose();
        ensure!(*sent_to == url(self.receiver), "run {} went to {sent_to}", self.key);
        ensure!(sent("x-cueapi-execution-id") == self.id, "run {} has another id", self.key);
        ensure!(
            sent("x-cueapi-attempt") == self.attempt.to_string(),
            "run {} has another attempt",
            self.key
        );
        let body = request.body.unwrap_or_default().into_exposed();
        let is_same = serde_json::from_slice::<Value>(&body).is_ok_and(|body| body == self.payload);
        ensure!(is_same, "run {} has another payload", self.key);
        let signed = signature_v1(&self.secret, now.div_euclid(SECOND), &body);
        ensure!(
            sent("x-cueapi-signature") == signed,
            "run {} is signed with another secret",
            self.key
        );
        Ok((finished, next))
    }

    /// The result that is reported by its response, which is an outcome.
    fn reported(&self) -> Option<bool> {
        let is_report = matches!(RECEIVERS[self.receiver], Kind::Fast | Kind::Slow);
        (is_report && self.takes_outcome).then_some(self.turn() > 0)
    }

    fn turn(&self) -> i64 {
        (self.scheduled_for / SECOND + i64::from(self.attempt)).rem_euclid(3)
    }

    /// The answer, and the pause that it asks for.
    fn answer(&self) -> (Result<WebhookResponse, DeliveryError>, Ms) {
        let status = |http_status, body| {
            Ok(WebhookResponse {
                http_status,
                retry_after: None,
                headers: Vec::new(),
                body,
                note: None,
            })
        };
        let turn = self.turn();
        match RECEIVERS[self.receiver] {
            Kind::Fast | Kind::Slow => {
                (status(200, format!("{{\"success\": {}}}", turn > 0).into()), 0)
            }
            Kind::Flaky if turn == 0 => (status(200, Vec::new()), 0),
            Kind::Flaky if turn == 1 => (status(500, b"later".to_vec()), 0),
            Kind::Flaky => {
                let retry_after = Some((RETRY_AFTER / SECOND).to_string());
                (
                    Ok(WebhookResponse {
                        http_status: 503,
                        retry_after,
                        headers: Vec::new(),
                        body: Vec::new(),
                        note: None,
                    }),
                    RETRY_AFTER,
                )
            }
            Kind::Gone => (status(410, Vec::new()), 0),
            Kind::Refusing => (Err(DeliveryError::Connection("refused".to_owned())), 0),
            Kind::Huge => {
                let body = "x".to_owned() + &"é".repeat(MAX_KEPT_BODY);
                (status(200, body.as_bytes()[..MAX_KEPT_BODY].to_vec()), 0)
            }
            Kind::Hanging => {
                (Err(DeliveryError::Timeout { within: Duration::from_secs(30), status: None }), 0)
            }
        }
    }
}
