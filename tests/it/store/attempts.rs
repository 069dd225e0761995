//! Kept attempts: their bounds, their deletion, and the check of the file.

use cued::engine::delivery::dispatcher::promote_batch;
use cued::engine::webhook_client::WebhookResponse;
use cued::store::db::counters;
use cued::store::executions::attempts;
use cued::store::maintenance::retention;

use crate::support::delivery_fixture::{DeliveryFixture, RecordingClient};

const URL: &str = "http://127.0.0.1:9/hook";

/// The largest answer of a receiver: bytes that are no text, and long headers.
fn large() -> WebhookResponse {
    let header = |number: usize| (format!("x-{number}"), "\"".repeat(300));
    let headers = (0..5).map(header).collect();
    WebhookResponse { http_status: 500, retry_after: None, headers, body: vec![0xFF; 2_000] }
}

fn rows(fixture: &DeliveryFixture) -> (i64, i64, i64) {
    let sql = "SELECT count(*), coalesce(min(attempt), 0), coalesce(max(octet_length(response_body)
                   + octet_length(response_headers) + octet_length(error_message)), 0) FROM attempts";
    fixture.write(move |tx| tx.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap())
}

#[test]
fn an_execution_keeps_ten_bounded_attempts_which_are_deleted_with_it() {
    let fixture = DeliveryFixture::new(8);
    let cue = fixture.webhook_cue(URL);
    fixture.sql("UPDATE cues SET max_attempts = 14, backoff_minutes = '[0]'");
    let id = fixture.due(cue);
    let webhook_client = RecordingClient::with((0..14).map(|_| Ok(large())));
    for _ in 0..14 {
        fixture.deliver(&webhook_client);
        promote_batch(&fixture.app).unwrap();
    }
    assert_eq!(fixture.state(id), ("failed".to_owned(), 14));
    let (count, oldest, bytes) = rows(&fixture);
    assert_eq!((count, oldest), (10, 4));
    assert!(bytes <= 2_000 + 1_024 + 100, "a row has {bytes} bytes of text");
    let list = fixture.app.store.read(move |read| attempts::list(read, 1, id)).wait().unwrap().unwrap();
    assert_eq!(list.iter().map(|it| it.number).collect::<Vec<_>>(), (4..=14).collect::<Vec<_>>());
    let key: i64 = fixture.field(id, "key");
    assert_eq!(fixture.write(move |tx| retention::delete(tx, &[key]).unwrap()), 1);
    assert_eq!(rows(&fixture).0, 0);
}

#[test]
fn a_check_reports_an_attempt_that_was_never_made() {
    let fixture = DeliveryFixture::new(8);
    let id = fixture.due(fixture.webhook_cue(URL));
    let key: i64 = fixture.field(id, "key");
    let insert =
        "INSERT INTO attempts (execution_key, attempt, is_counted, started_at) VALUES (?1, 1, ?2, 0)";
    let problems = |fixture: &DeliveryFixture| {
        let problems = fixture.write(|tx| counters::discrepancies(tx).unwrap());
        problems.into_iter().filter(|problem| problem.starts_with("attempt")).collect::<Vec<_>>()
    };
    fixture.write(move |tx| tx.execute(insert, [key, 0]).unwrap());
    assert_eq!(problems(&fixture), [""; 0], "one that was cut off is not counted yet");
    fixture.write(move |tx| tx.execute(insert, [key, 1]).unwrap());
    assert_eq!(problems(&fixture), [format!("attempt 1 of execution {key} is kept, but it has had only 0")]);
}
