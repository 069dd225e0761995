//! The application: sends the invoices of a month when it ends in Berlin, and makes reports on request.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;

use serde_json::{json, Value};

#[derive(Default)]
pub struct Invoices {
    pub cued_url: String,
    pub key: String,
    pub own_url: String,
    pub sent: Mutex<Vec<String>>,
    pub reports: Mutex<Vec<String>>,
}

impl Invoices {
    /// Runs once, when the application is deployed.
    pub fn install(&self) -> io::Result<()> {
        let schedule =
            json!({"type": "recurring", "cron": "0 0 1 * *", "timezone": "Europe/Berlin"});
        let invoices = json!({
            "name": "invoices",
            "schedule": schedule,
            "callback": {"url": format!("{}/invoices", self.own_url)},
            "payload": {"send": "invoices"},
            "retry": {"backoff_minutes": [1, 5]},
        });
        self.call("POST", "/v1/cues", Some(invoices))?;
        let payload = json!({"task": "report"});
        let report = json!({"name": "report", "schedule": schedule, "transport": "worker", "payload": payload});
        self.call("POST", "/v1/cues", Some(report)).map(drop)
    }

    /// The handler of `POST /invoices`.
    pub fn handle(&self, payload: &Value) {
        let what = payload["send"].as_str().expect("the payload says what to send");
        self.sent.lock().unwrap().push(what.to_owned());
    }

    /// One turn of the worker: claims the runs that wait, and reports each.
    pub fn work(&self) -> io::Result<()> {
        let waiting = self.call("GET", "/v1/executions/claimable", None)?;
        for run in waiting["executions"].as_array().into_iter().flatten() {
            let path = format!("/v1/executions/{}", run["id"].as_str().unwrap_or_default());
            let claim =
                self.call("POST", &format!("{path}/claim"), Some(json!({"worker_id": "reports"})))?;
            let task = claim["payload"]["task"].as_str().unwrap_or_default();
            self.reports.lock().unwrap().push(task.to_owned());
            let outcome = json!({"success": true, "result": "1 page"});
            self.call("POST", &format!("{path}/outcome"), Some(outcome))?;
        }
        Ok(())
    }

    /// A real application uses a crate for this.
    fn call(&self, method: &str, path: &str, body: Option<Value>) -> io::Result<Value> {
        let host = self.cued_url.trim_start_matches("http://");
        let body = body.map_or(String::new(), |body| body.to_string());
        let mut connection = TcpStream::connect(host)?;
        write!(
            connection,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.key,
            body.len(),
        )?;
        let mut response = String::new();
        connection.read_to_string(&mut response)?;
        let (head, text) = response.split_once("\r\n\r\n").unwrap_or_default();
        if !head.starts_with("HTTP/1.1 2") {
            return Err(io::Error::other(format!("{method} {path}: {response}")));
        }
        Ok(serde_json::from_str(text)?)
    }
}
