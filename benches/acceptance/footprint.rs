//! Footprint: memory, bytes written while idle, time to the first response.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};

use crate::support::server::{DEV_UNLIMITED, Server};
use crate::{median, milliseconds, row};

const CUES: usize = 100_000;
const IDLE: Duration = Duration::from_secs(60);

pub fn footprint() {
    let mut server = Server::start(DEV_UNLIMITED);
    server.user();
    row("footprint: resident after start", megabytes(resident(server.pid())));
    assert_eq!(server.stop(), Some(0));
    insert_cues(&server.sqlite());

    let mut first_responses = Vec::new();
    for round in 0..3 {
        let began = Instant::now();
        server.restart();
        let health = server.client().get("/health").expect(200);
        first_responses.push(began.elapsed());
        assert_eq!(health["status"], "healthy", "{health}");
        if round < 2 {
            assert_eq!(server.stop(), Some(0));
        }
    }
    row(
        "footprint: start to first response with 100,000 active cues",
        milliseconds(median(&first_responses)),
    );
    row("footprint: resident with 100,000 active cues", megabytes(resident(server.pid())));
    let before = written(server.pid());
    wait(IDLE);
    row("footprint: bytes written in an idle minute", written(server.pid()) - before);
    row("footprint: resident after the idle minute", megabytes(resident(server.pid())));
}

/// Rows as the API writes them, in one transaction. None is due for months.
fn insert_cues(file: &Connection) {
    let user: i64 = file.query_row("SELECT key FROM users LIMIT 1", [], |row| row.get(0)).unwrap();
    file.execute_batch("BEGIN").unwrap();
    let mut cue = file
        .prepare(
            "INSERT INTO cues (id, user_key, status, next_run, run_count, missed_count, transport, \
             destination_hash, cron, timezone, catch_up, max_attempts, backoff_minutes, on_failure, verification, \
             callback_url, callback_method, callback_headers, name, description, created_at, updated_at) \
             VALUES (?1, ?2, 'active', ?3, 0, 0, 'webhook', ?4, '30 6 1 * *', 'Europe/Berlin', 'latest', 4, '[1,5,15]', \
             '{\"email\":true,\"webhook\":null,\"pause\":false}', 'none', ?5, 'POST', \
             '{\"Authorization\":\"Bearer 0123456789abcdef0123456789abcdef\"}', ?6, ?7, ?8, ?8)",
        )
        .unwrap();
    let mut payload =
        file.prepare("INSERT INTO payloads (cue_key, is_single_use, body) VALUES (?1, 0, ?2)").unwrap();
    let mut link = file.prepare("UPDATE cues SET payload_key = ?1 WHERE key = ?2").unwrap();
    let now = jiff::Timestamp::now().as_millisecond();
    for number in 0..CUES {
        let due = now + 180 * 86_400_000 + i64::try_from(number).unwrap() * 60_000;
        let url = format!("https://hooks{}.example.com/v1/tenants/{number}/cues", number % 200);
        let name = format!("Monthly statement for customer {number}");
        let description = "Collects the month's bookings and sends the statement";
        let destination = i64::try_from(number % 200).unwrap();
        cue.execute(params![
            format!("cue_{number:012}"),
            user,
            due,
            destination,
            url,
            name,
            description,
            now
        ])
        .unwrap();
        let key = file.last_insert_rowid();
        let body = format!(
            r#"{{"task":"statement","customer":{number},"format":"pdf","locale":"de-DE","copies":["archive","mail"]}}"#
        );
        payload.execute(params![key, body]).unwrap();
        link.execute([file.last_insert_rowid(), key]).unwrap();
    }
    file.execute("UPDATE users SET active_cues = active_cues + ?1", [i64::try_from(CUES).unwrap()]).unwrap();
    file.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}

/// Resident memory in bytes.
pub fn resident(pid: u32) -> u64 {
    figure(&format!("/proc/{pid}/status"), "VmRSS:") * 1_024
}

/// Bytes that the process has written to storage.
fn written(pid: u32) -> u64 {
    figure(&format!("/proc/{pid}/io"), "write_bytes:")
}

fn figure(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[allow(clippy::cast_precision_loss)]
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Waits: the benchmark measures an idle minute.
fn wait(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}
