//! Memory of the rate windows: a million requests of ten thousand users over HTTP.

use std::thread;
use std::time::Instant;

use cued::domain::account::credentials::ApiKey;
use rusqlite::{Connection, params};

use crate::footprint::{megabytes, resident};
use crate::row;
use crate::support::server::Server;

const USERS: usize = 10_000;
const ROUNDS: usize = 100;
const CALLERS: usize = 4;
/// The limit on the memory of the rate limiter.
const BOUND: u64 = 20 << 20;

pub fn limiter() {
    let mut server = Server::start(&["--dev", "--default-plan", "scale"]);
    assert_eq!(server.stop(), Some(0));
    let keys = insert_users(&server.sqlite());
    server.restart();
    // Memory of serving without windows: the keys have been read, and the page cache is full.
    let unknown = server.client().with_key("cue_sk_00000000000000000000000000000000");
    for _ in 0..20_000 {
        unknown.get("/v1/workers");
    }
    let (before, began) = (resident(server.pid()), Instant::now());
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (keys, client) = (&keys, server.client());
            scope.spawn(move || call(&client, keys.iter().skip(caller).step_by(CALLERS)));
        }
    });
    let (took, grown) = (began.elapsed(), resident(server.pid()).saturating_sub(before));
    row("limiter: requests a second of 10,000 users", (USERS * ROUNDS) as u64 / took.as_secs().max(1));
    row("limiter: memory after a million requests of 10,000 users", megabytes(grown));
    assert!(grown < BOUND, "{grown} bytes");
}

fn call<'a>(client: &crate::support::client::Client, keys: impl Iterator<Item = &'a String> + Clone) {
    for _ in 0..ROUNDS {
        for key in keys.clone() {
            let bearer = format!("Bearer {key}");
            let response = client.call("GET", "/v1/workers", &[("Authorization", &bearer)], b"").unwrap();
            assert_eq!(response.status, 200);
        }
    }
}

/// Users on the largest plan, each with a key.
fn insert_users(file: &Connection) -> Vec<String> {
    file.execute_batch("BEGIN").unwrap();
    let keys = (0..USERS).map(|number| {
        let mut random = [0; 16];
        random[..8].copy_from_slice(&(number as u64 + 1).to_be_bytes());
        let (key, name) = (ApiKey::from_random(random), format!("user{number}@example.com"));
        file.execute(
            "INSERT INTO users (id, email, plan, webhook_secret, alert_webhook_secret, active_cues, created_at) VALUES (?1, ?1, 'scale', '', '', 0, 0)",
            [&name],
        )
        .unwrap();
        file.execute(
            "INSERT INTO api_keys (id, user_key, name, prefix, key_hash, created_at)
             VALUES (?1, ?2, '', '', ?3, 0)",
            params![name, file.last_insert_rowid(), key.hash()],
        )
        .unwrap();
        key.reveal().to_owned()
    });
    let keys = keys.collect();
    file.execute_batch("COMMIT").unwrap();
    keys
}
