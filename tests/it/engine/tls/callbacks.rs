//! `--callback-ca`: deliveries to an HTTPS receiver.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::ServerConfig;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::authority::{Authority, secure};
use crate::support::client::{header, read_head};
use crate::support::server::{DEV_UNLIMITED, Server, cued};

/// Answers every request with 200, one per connection. Its threads end with the test process.
struct HttpsReceiver {
    addr: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl HttpsReceiver {
    fn start(config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let bodies = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let received = Arc::clone(&bodies);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(secure(stream, &config));
                // A client that does not trust the certificate ends the handshake.
                let Ok(Some((_, headers))) = read_head(&mut reader) else { continue };
                let length = header(&headers, "content-length").map_or(0, |length| length.parse().unwrap());
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                received.lock().unwrap().push(body);
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                reader.get_mut().write_all(response).unwrap();
                reader.get_mut().conn.send_close_notify();
                reader.get_mut().flush().unwrap();
            }
        });
        Self { addr, bodies }
    }

    fn count(&self) -> usize {
        self.bodies.lock().unwrap().len()
    }
}

/// A server with `flags`, and the execution of a cue that it delivers to `https://localhost`.
fn deliver(flags: &[&str], receiver: &HttpsReceiver) -> Value {
    let server = Server::start(&[DEV_UNLIMITED, &["--test-clock"], flags].concat());
    let user = server.user();
    let cue = user.create(&json!({
        "name": "secure", "schedule": {"type": "recurring", "cron": "* * * * *"}, "payload": {"a": 1},
        "callback": {"url": format!("https://localhost:{}/", receiver.addr.port())}, "retry": {"max_attempts": 1},
    }));
    user.advance("PT1M");
    user.only_execution(cue["id"].as_str().unwrap())
}

/// The file of `--callback-ca`.
fn file_of(authorities: &[&Authority]) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let text: Vec<String> = authorities.iter().map(|authority| authority.pem()).collect();
    fs::write(file.path(), text.concat()).unwrap();
    file
}

#[test]
fn a_receiver_with_a_certificate_of_the_callback_ca_is_reached() {
    let (own, other) = (Authority::new(), Authority::new());
    // Several authorities in one file, in any order.
    let file = file_of(&[&other, &own]);
    let receiver = HttpsReceiver::start(own.server("localhost"));
    let execution = deliver(&["--callback-ca", file.path().to_str().unwrap()], &receiver);
    assert_eq!(
        (&execution["status"], &execution["http_status"]),
        (&json!("success"), &json!(200)),
        "{execution}"
    );
    assert_eq!(*receiver.bodies.lock().unwrap(), [b"{\"a\": 1}"]);
}

#[test]
fn without_the_callback_ca_its_receiver_gets_no_request() {
    let (own, other) = (Authority::new(), Authority::new());
    let file = file_of(&[&other]);
    let receiver = HttpsReceiver::start(own.server("localhost"));
    for flags in [&[][..], &["--callback-ca", file.path().to_str().unwrap()]] {
        let execution = deliver(flags, &receiver);
        let message = execution["error_message"].as_str().unwrap();
        assert_eq!(execution["status"], "failed");
        assert!(
            message.contains("issuer that is not trusted") && message.contains("--callback-ca"),
            "{message}"
        );
    }
    assert_eq!(receiver.count(), 0);
}

#[test]
fn a_certificate_for_another_name_or_time_is_refused() {
    let own = Authority::new();
    let file = file_of(&[&own]);
    for (config, says) in [
        (own.server("other.example"), "not valid for name"),
        (own.server_until("localhost", 2020), "expired"),
    ] {
        let receiver = HttpsReceiver::start(config);
        let execution = deliver(&["--callback-ca", file.path().to_str().unwrap()], &receiver);
        let message = execution["error_message"].as_str().unwrap();
        assert!(message.starts_with("no encrypted connection") && message.contains(says), "{message}");
        assert_eq!((&execution["status"], receiver.count()), (&json!("failed"), 0));
    }
}

#[test]
fn a_callback_ca_that_cannot_be_read_ends_the_start() {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), "no certificate").unwrap();
    for path in [file.path().to_str().unwrap(), "/nonexistent/ca.pem"] {
        let output = cued(&["serve", "--ephemeral", "--callback-ca", path]).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{stderr}");
        assert!(stderr.contains("--callback-ca") || stderr.contains(path), "{stderr}");
    }
}
