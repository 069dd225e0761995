//! Chapter 10 of the contract: Test clock.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§10",
        "everything due fires in order before the response",
        &[
            "the_failure_notification_is_signed_and_sent_before_the_clock_returns",
            "a_failed_delivery_is_retried_after_each_backoff",
        ],
    ),
    (
        "§10",
        "without a test clock its endpoints do not exist",
        &["the_path_of_the_test_clock_exists_only_with_a_test_clock"],
    ),
    (
        "§10",
        "people wait for a test clock no longer than in reality",
        &["people_wait_for_a_test_clock_no_longer_than_in_reality"],
    ),
    ("§10", "a stop does not wait for a moving clock", &["a_stop_does_not_wait_for_a_moving_test_clock"]),
    ("§10", "the newest instant is kept in the file", &["a_file_with_a_later_last_seen_time_logs_a_warning"]),
];
