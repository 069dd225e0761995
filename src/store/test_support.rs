//! Helpers for unit tests: an empty in-memory database, and SQLite's query plans on it.

use std::collections::BTreeSet;

use rusqlite::Connection;
use rusqlite::types::Null;

use crate::domain::account::device_login::LoginState;
use crate::domain::account::session::SignInMethod;
use crate::domain::billing::{RequestStatus, SubscriptionState};
use crate::domain::channel::ChannelType;
use crate::domain::cue::Transport;
use crate::domain::notification::alert::AlertType;
use crate::domain::schedule::catch_up::MissReason;
use crate::store::accounts::sessions::LinkKind;
use crate::store::db::counters::QueueName;
use crate::store::db::functions;
use crate::store::db::open::SCHEMA;

pub fn memory_database() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    connection.execute_batch(SCHEMA).unwrap();
    functions::define(&connection).unwrap();
    connection
}

/// The number of texts and blobs in `sql` whose length SQLite reads, but not their content.
pub fn lengths_read(sql: &str) -> usize {
    // OPFLAG_BYTELENARG of SQLite's source: the column is read for `octet_length` alone.
    const LENGTH_ONLY: i64 = 0xC0;
    let connection = memory_database();
    let mut explain = connection.prepare(&format!("EXPLAIN {sql}")).unwrap();
    let nulls = vec![Null; explain.parameter_count()];
    let steps = explain.query_map(rusqlite::params_from_iter(nulls), |row| {
        Ok(row.get::<_, String>("opcode")? == "Column" && row.get::<_, i64>("p5")? == LENGTH_ONLY)
    });
    steps.unwrap().filter(|step| *step.as_ref().unwrap()).count()
}

pub fn plan(sql: &str) -> Vec<String> {
    let connection = memory_database();
    let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let nulls = vec![Null; explain.parameter_count()];
    let steps =
        explain.query_map(rusqlite::params_from_iter(nulls), |row| row.get("detail")).unwrap();
    steps.map(Result::unwrap).collect()
}

/// A step of each contains the given text, nothing is sorted, and each table is read along an index.
pub fn assert_plans(plans: &[(&str, &str)]) {
    for (sql, expected) in plans {
        let steps: Vec<_> = plan(sql).iter().map(|step| step.replace("COVERING ", "")).collect();
        assert!(steps.iter().any(|step| step.contains(expected)), "{sql}: {steps:#?}");
        for step in &steps {
            let is_indexed = !step.starts_with("SCAN ") || step.contains(" INDEX ");
            let is_in_memory = step.contains("CONSTANT ROW") || step.contains("(subquery");
            let is_fine = is_indexed && !step.contains("TEMP B-TREE");
            let is_expected =
                || plans.iter().any(|(other, part)| other == sql && step.contains(part));
            assert!(is_fine || is_in_memory || is_expected(), "{sql}: {step}");
        }
    }
}

macro_rules! plan_test {
    ($name:ident: $($sql:expr => $expected:expr),+ $(,)?) => {
        #[test]
        fn $name() {
            crate::store::test_support::assert_plans(&[$((&$sql, $expected)),+]);
        }
    };
}
pub(in crate::store) use plan_test;

/// The words that a table permits in a column.
fn permitted_words(table: &str, column: &str) -> Vec<String> {
    let after =
        |text: &'static str, start: &str| text.split_once(start).map(|(_, rest)| rest).unwrap();
    let columns = after(SCHEMA, &format!("CREATE TABLE {table} ("));
    let words = after(columns, &format!("CHECK ({column} IN (")).split_once(')').unwrap().0;
    words.split(',').map(|word| word.trim().trim_matches('\'').to_owned()).collect()
}

#[test]
fn the_schema_permits_the_words_of_the_program() {
    let kinds = [&["mail", "failure", "channel"], &AlertType::WORDS[..]].concat();
    let columns: [(&str, &str, &[&str]); 12] = [
        ("sessions", "method", &SignInMethod::WORDS),
        ("links", "kind", &LinkKind::WORDS),
        ("cues", "transport", &Transport::WORDS),
        ("missed_runs", "reason", &MissReason::WORDS),
        ("executions", "transport", &Transport::WORDS),
        ("backlog", "name", &QueueName::WORDS),
        ("device_logins", "state", &LoginState::WORDS),
        ("billing_requests", "status", &RequestStatus::WORDS),
        ("billing_subscriptions", "state", &SubscriptionState::WORDS),
        ("alerts", "alert_type", &AlertType::WORDS),
        ("channels", "type", &ChannelType::WORDS),
        ("outbox", "kind", &kinds),
    ];
    for (table, column, words) in columns {
        let (permitted, words) = (
            BTreeSet::from_iter(permitted_words(table, column)),
            words.iter().map(|word| (*word).to_owned()),
        );
        assert_eq!(permitted, words.collect(), "{table}.{column}");
    }
}
