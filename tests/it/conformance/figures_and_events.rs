//! Chapter 8: figures, the overview, live events, the description of the API.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§8.11",
        "an execution counts once, in the hour in which it ends",
        &[
            "each_end_of_an_execution_and_each_retry_counts_in_its_hour",
            "a_worker_execution_counts_with_its_report_or_its_last_lost_claim",
            "runs_that_fail_without_an_attempt_count_without_times",
            "no_rule_is_violated_in_any_order_of_steps",
        ],
    ),
    (
        "§8.11",
        "missed runs count when they are recorded",
        &["missed_runs_count_in_the_hour_in_which_they_are_recorded"],
    ),
    (
        "§8.11",
        "steps are whole hours and days of UTC, at most 1,000",
        &[
            "a_span_is_read_in_whole_steps_of_utc",
            "a_wrong_span_is_refused_with_what_to_do",
            "a_grid_has_every_step_that_the_span_touches",
            "a_grid_has_between_one_and_a_thousand_steps",
        ],
    ),
    (
        "§8.11",
        "figures are kept for 400 days, those of a cue as long as its history",
        &[
            "hours_are_deleted_in_batches_when_they_are_older_than_400_days",
            "the_figures_of_a_cue_say_when_its_history_is_cut",
        ],
    ),
    (
        "§8.12",
        "the overview is one object",
        &[
            "the_overview_of_a_new_account_has_every_field",
            "the_overview_shows_what_needs_attention_first",
            "every_query_of_the_overview_begins_with_the_user_or_a_cue_of_it",
        ],
    ),
    (
        "§8.13",
        "events come in the order of the commits, and none of a write that is rolled back",
        &[
            "events_come_in_the_order_of_the_commits_of_concurrent_writers",
            "a_write_that_is_rolled_back_emits_nothing",
            "an_event_that_cannot_be_built_does_not_fail_its_write",
        ],
    ),
    (
        "§8.13",
        "a stream begins with hello and has its headers",
        &[
            "a_stream_begins_with_a_greeting",
            "a_stream_over_http2_whose_window_stays_closed_is_reset_and_no_other_one",
        ],
    ),
    (
        "§8.13",
        "bad types, cues and ids are refused",
        &["bad_input_gets_a_clear_error", "an_unknown_type_is_refused_by_its_name"],
    ),
    (
        "§8.13",
        "types and cue_id filter",
        &[
            "a_filter_takes_types_and_their_groups",
            "a_filter_by_cue_keeps_the_events_of_the_server",
            "a_stream_of_one_cue_has_the_events_of_that_cue",
        ],
    ),
    (
        "§8.13",
        "a stream resumes after an id, or is reset",
        &[
            "a_client_resumes_where_it_has_stopped",
            "a_stream_resumes_after_any_event_without_loss_or_repetition",
            "after_a_restart_a_stream_is_reset",
            "an_id_of_another_start_or_of_the_future_resets_the_stream",
            "a_stream_that_is_too_slow_is_moved_to_the_present",
        ],
    ),
    (
        "§8.13",
        "a user sees the own events and those of the server",
        &[
            "two_users_see_their_own_events_and_those_of_the_server",
            "a_stream_has_the_events_of_its_user_only",
        ],
    ),
    (
        "§8.13",
        "executions have their events",
        &[
            "a_run_that_succeeds_at_the_third_attempt_shows_each_step",
            "the_work_of_a_worker_is_seen_claimed_reported_verified_and_lost",
        ],
    ),
    (
        "§8.13",
        "cues, missed runs, alerts, workers and quotas have their events",
        &[
            "changes_of_a_cue_by_request_are_events",
            "failures_of_a_cue_lead_to_an_alert_and_a_pause",
            "a_failure_pauses_the_cue_that_asks_for_it",
            "missed_runs_are_an_event",
            "a_quota_is_reported_when_it_is_near_and_when_it_is_exceeded",
        ],
    ),
    ("§8.13", "the state of the server is an event", &["a_hold_and_its_end_are_events_for_everybody"]),
    (
        "§8.13",
        "many events become a burst",
        &[
            "more_than_32_events_in_a_commit_end_in_a_burst",
            "more_than_200_events_in_a_second_end_in_a_burst",
            "a_burst_is_one_event_of_a_herd",
            "a_filter_selects_the_part_of_a_burst",
        ],
    ),
    (
        "§8.13",
        "a stream beats, and ends with its key and with the server",
        &[
            "a_quiet_stream_beats_and_brings_its_position",
            "a_stream_ends_when_its_key_is_revoked_or_its_account_disabled",
            "a_stop_ends_streams_at_once",
            "an_open_stream_delays_neither_the_test_clock_nor_the_end_of_the_program",
        ],
    ),
    (
        "§8.13",
        "streams are limited, and slow readers are cut off",
        &[
            "a_sixth_stream_is_refused_until_another_ends",
            "the_number_of_streams_of_a_server_is_a_flag",
            "at_the_limit_accounts_and_addresses_share_the_streams",
            "a_stream_counts_as_one_request",
            "a_client_that_reads_nothing_is_cut_off",
            "a_stream_outlives_the_time_of_a_request",
        ],
    ),
    (
        "§8.14",
        "the description is served with a tag, to pages of any site",
        &[
            "the_description_is_served_to_everybody",
            "the_description_is_compressed_for_clients_that_accept_gzip",
            "a_copy_of_the_description_is_confirmed_by_its_tag",
            "the_description_counts_in_no_rate_window",
        ],
    ),
    (
        "§8.14",
        "the description has every endpoint with its responses and error codes",
        &[
            "the_document_describes_every_route_and_nothing_else",
            "every_response_lists_codes_of_its_status",
            "examples_are_valid",
            "an_undocumented_field_fails",
        ],
    ),
    ("§8.14", "nothing of a released API is removed", &["nothing_of_the_released_api_is_gone"]),
];
