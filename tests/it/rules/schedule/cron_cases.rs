//! Every row of `tests/data/cron-cases.tsv`, which was computed minute by minute.

use cued::domain::schedule::cron::CronExpr;
use jiff::Timestamp;
use jiff::tz::Offset;

const TABLE: &str = include_str!("../../../data/cron-cases.tsv");

fn response(expression: &str, after: &str) -> String {
    let Ok(cron) = CronExpr::parse(expression) else { return "error".to_owned() };
    if !cron.ever_matches() {
        return "never".to_owned();
    }
    let after: Timestamp = after.parse().unwrap();
    let next = cron.next_civil(Offset::UTC.to_datetime(after)).unwrap();
    Offset::UTC.to_timestamp(next).unwrap().to_string()
}

#[test]
fn every_row_of_the_cron_table_holds() {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let mut count = 0;
    let mut wrong = Vec::new();
    for row in rows {
        let [expression, after, expected] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three columns: {row}")
        };
        count += 1;
        let found = response(expression, after);
        if found != expected {
            wrong.push(format!("{row}: {found}"));
        }
    }
    assert_eq!(count, 4000);
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}
