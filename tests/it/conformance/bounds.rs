//! Chapter 11 of the contract: Bounds.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§11.1",
        "a larger body than 2 MiB is a 413",
        &["a_body_over_two_megabytes_is_refused", "a_body_at_the_limit_is_accepted"],
    ),
    (
        "§11.1",
        "an incomplete head or body is a 408",
        &[
            "an_incomplete_head_gets_408",
            "an_incomplete_body_gets_408",
            "a_slowly_sent_head_has_the_same_timeout",
        ],
    ),
    ("§11.1", "JSON nesting has 64 levels", &["sixty_four_levels_are_read_and_one_more_is_not"]),
    ("§11.1", "bodies in memory are bounded together", &["the_memory_budget_is_shared_and_returned"]),
    (
        "§11.2",
        "idle connections close first",
        &[
            "at_the_limit_a_new_connection_closes_the_least_used_one",
            "ten_thousand_idle_or_incomplete_connections_do_not_block_clients",
            "concurrent_connections_stay_within_the_limit",
        ],
    ),
    (
        "§11.2",
        "idle connections and unread responses end",
        &[
            "an_idle_connection_is_closed_after_the_idle_timeout",
            "an_idle_connection_outlives_the_head_timeout",
            "a_silent_connection_is_closed_without_a_response",
            "a_client_that_does_not_read_its_response_is_disconnected",
        ],
    ),
    (
        "§11.3",
        "lists of large entries are shorter",
        &[
            "a_page_of_very_large_outcomes_is_shorter_and_has_more",
            "a_list_of_large_payloads_is_shorter_than_its_limit_but_never_empty",
        ],
    ),
    ("§11.3", "a rejected value is shown in part", &["the_shown_part_of_a_rejected_value_is_bounded"]),
    (
        "§11.3",
        "echoes use bounded memory",
        &["echoes_use_bounded_memory", "an_echo_has_at_most_one_megabyte"],
    ),
    ("§11.3", "rate windows are bounded", &["address_windows_are_bounded_and_the_oldest_are_evicted"]),
    (
        "§11.4",
        "a quarter of the threads is for new destinations",
        &[
            "stalled_destinations_leave_a_quarter_for_new_ones",
            "many_hanging_receivers_leave_a_thread_for_another",
        ],
    ),
    (
        "§11.4",
        "a destination earns at most half of the threads",
        &["a_destination_starts_with_few_threads_and_can_earn_half"],
    ),
    (
        "§11.4",
        "after a timeout a destination has one thread",
        &["a_destination_that_timed_out_has_one_thread_until_it_responds"],
    ),
];
