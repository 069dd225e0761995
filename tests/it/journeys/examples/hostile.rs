//! The examples against peers that mislead them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::{Example, RECEIVERS, finished, secret, that_run, verifying, work};
use crate::journeys::{cron, id, webhook};
use crate::support::client::Client;
use crate::support::receiver::{Reaction, Receiver};
use crate::support::server::{DEV_UNLIMITED, HANG_TIMEOUT, Server, until};

#[test]
fn the_shell_worker_claims_a_payload_that_resembles_an_empty_list() {
    for file in that_run(&["worker.sh"]) {
        let server = Server::start(DEV_UNLIMITED);
        let user = server.user();
        let payload = json!({"task": "copy", "executions": [], "more": {"executions": []}});
        let execution = work(&user, &payload);
        let environment = [("CUED_API_KEY", user.key()), ("CUED_URL", &server.url())];
        let mut example = Example::start(file, &["copy", "cat"], &environment);
        let done = finished(&user, &execution);
        let copied = done["outcome"]["result"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(copied).unwrap(), payload);
        assert_eq!(example.stop(), Some(0));
    }
}

#[test]
fn the_receivers_refuse_a_body_without_a_valid_length_at_once() {
    for file in that_run(&RECEIVERS) {
        let mut example = verifying(file, "whsec_00");
        let addr = example.addr();
        for length in ["-1", "+5", "1e3", "0x10", "five", "99999999999999999999999"] {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
            write!(stream, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n").unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            assert!(first.starts_with(b"HTTP/1.1 4"), "{file} {length}: {first:?}");
        }
    }
}

#[test]
fn a_repeat_under_another_unsigned_id_is_ignored() {
    for file in that_run(&["receiver.js"]) {
        let server = Server::start(&[DEV_UNLIMITED, &["--test-clock"]].concat());
        let (user, recorder) = (server.user(), Receiver::start());
        let cue = user.create(&webhook(&recorder, cron("0 9 * * *")));
        user.post(&format!("/v1/cues/{}/fire", id(&cue)), &json!({})).expect(200);
        user.settle();
        let sent = recorder.deliveries().remove(0);
        let mut example = verifying(file, &secret(&user));
        let client = Client::new(example.addr());
        for unsigned in [sent.execution_id.as_str(), "another"] {
            let mut headers = vec![("X-CueAPI-Execution-Id", unsigned)];
            for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
                headers.push((name, sent.header(name).unwrap()));
            }
            assert_eq!(client.call("POST", "/", &headers, &sent.body).unwrap().status, 200);
        }
        assert!(example.line().starts_with(&format!("{} {{", sent.execution_id)));
        assert_eq!(example.line(), format!("{} again, ignored", sent.execution_id));
    }
}

#[test]
fn the_workers_read_a_bounded_part_of_an_endless_response() {
    // The bound of 8 MiB, and what the buffers of the two sockets hold.
    const MOST: usize = 32 << 20;
    for file in that_run(&["worker.py", "worker.js", "worker.sh"]) {
        let (poured, cut) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (pouring, cutting) = (Arc::clone(&poured), Arc::clone(&cut));
        let server = Receiver::with(Reaction::script(move |stream| {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"));
            let mut total = 0;
            while total < 2 * MOST && stream.write_all(&[b' '; 65_536]).is_ok() {
                total += 65_536;
            }
            pouring.fetch_max(total, Ordering::SeqCst);
            cutting.fetch_add(1, Ordering::SeqCst);
        }));
        let arguments: &[&str] = if file == "worker.sh" { &["wait", "true"] } else { &[] };
        let environment = [("CUED_API_KEY", "cue_sk_"), ("CUED_URL", &server.url())];
        let _example = Example::start(file, arguments, &environment);
        // The heartbeat, a poll, and a poll after the error.
        until(file, || (cut.load(Ordering::SeqCst) >= 3).then_some(()));
        let most = poured.load(Ordering::SeqCst);
        assert!(most < MOST, "{file} took {most} bytes");
    }
}
