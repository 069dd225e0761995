//! A server that is killed, that refuses, or that is not there.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;

use crate::cli::client::work::Workshop;
use crate::support::client_command::ClientHome;
use crate::support::server::{Server, until};

/// An address that stays while the server moves to another port.
struct Relay {
    addr: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
}

impl Relay {
    fn to(server: &Server) -> Self {
        let (listener, target) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(Mutex::new(server.addr())));
        let (addr, to) = (listener.local_addr().unwrap(), Arc::clone(&target));
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                // Without a server the connection closes.
                let Ok(far) = TcpStream::connect(*to.lock().unwrap()) else { continue };
                for (mut from, mut into) in [
                    (near.try_clone().unwrap(), far.try_clone().unwrap()),
                    (far.try_clone().unwrap(), near.try_clone().unwrap()),
                ] {
                    thread::spawn(move || {
                        drop(std::io::copy(&mut from, &mut into));
                        drop(into.shutdown(std::net::Shutdown::Both));
                    });
                }
            }
        });
        Self { addr, target }
    }

    fn follow(&self, server: &Server) {
        *self.target.lock().unwrap() = server.addr();
    }
}

#[test]
fn a_report_is_repeated_until_a_killed_server_is_back() {
    let mut shop = Workshop::new();
    let relay = Relay::to(&shop.server);
    let home = ClientHome::new()
        .env("CUED_URL", format!("http://{}", relay.addr))
        .env("CUED_API_KEY", shop.user.key());
    let execution = shop.execution("t");
    let [begun, go] = ["begun", "go"].map(|name| shop.path(name));
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.02; done; echo kept", begun.display(), go.display());
    let mut worker = shop.start_in(&home, "w", &["--task", "t"], &script);
    until("the command has begun", || begun.exists().then_some(()));
    shop.server.kill();
    fs::write(go, "").unwrap();
    worker.says("the report was not accepted; trying again");
    shop.server.restart();
    shop.user = shop.user.at(shop.server.addr());
    relay.follow(&shop.server);
    let seen = shop.reported(&execution);
    assert_eq!((&seen["outcome"]["result"], &seen["attempts"]), (&json!("kept\n"), &json!(1)));
    // It takes work again.
    let next = shop.execution("t");
    assert_eq!(shop.reported(&next)["status"], "success");
    assert_eq!(worker.stop(), 0);
}

#[test]
fn a_report_that_no_server_takes_is_in_the_log() {
    let mut shop = Workshop::new();
    let execution = shop.execution("t");
    let [begun, go] = ["begun", "go"].map(|name| shop.path(name));
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.02; done; echo kept", begun.display(), go.display());
    let mut worker = shop.start("w", &["--task", "t"], &script);
    until("the command has begun", || begun.exists().then_some(()));
    shop.server.kill();
    fs::write(go, "").unwrap();
    worker.says("the report was not accepted; trying again");
    // Each further signal waits for less; the log says when one has arrived.
    worker.signal("-TERM");
    worker.says("stopping: nothing more is claimed");
    worker.signal("-TERM");
    worker.says("stopping now");
    worker.signal("-TERM");
    assert_eq!(worker.ended(), 1);
    let log = worker.log();
    let line = log.lines().find(|line| line.contains("the report was not recorded")).expect(&log);
    assert!(line.contains(&execution) && line.contains("kept"), "{line}");
    shop.server.restart();
}

#[test]
fn a_revoked_key_ends_the_worker() {
    let shop = Workshop::new();
    let mut worker = shop.start("w", &["--task", "t"], "true");
    until("the worker is listed", || {
        (shop.user.get("/v1/workers").expect(200)["workers"] != json!([])).then_some(())
    });
    shop.user.post("/v1/auth/key/regenerate", &json!({})).expect(200);
    assert_eq!(worker.ended(), 4);
    assert!(worker.log().contains("API key"), "{}", worker.log());
}
