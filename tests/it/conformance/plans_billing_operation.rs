//! Chapter 8 of the contract: Plans, billing and operation.

use super::Row;

pub const ROWS: &[Row] = &[
    ("§8.1", "the plans are free, pro and scale", &["each_plan_has_its_rate_limit_and_name"]),
    (
        "§8.1",
        "the plan sets the limit of active cues",
        &[
            "a_downgrade_pauses_the_newest_cues_above_the_limit",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§8.1",
        "free has 60 requests per minute",
        &["the_61st_request_is_refused_until_the_window_slides", "any_sixty_seconds_have_at_most_the_limit"],
    ),
    (
        "§8.1",
        "pro has 200 requests per minute",
        &["each_plan_has_its_rate_limit_and_name", "the_rate_of_a_new_plan_applies_to_the_next_request"],
    ),
    (
        "§8.1",
        "scale has 500 requests per minute",
        &["each_plan_has_its_rate_limit_and_name", "a_plan_set_while_the_server_runs_applies_at_once"],
    ),
    (
        "§8.1",
        "free has 10 active cues",
        &[
            "usage_of_a_free_account_has_all_fields_and_limits",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§8.1",
        "pro and scale have their own limits",
        &["an_upgrade_and_a_cancellation_apply_to_the_next_request"],
    ),
    (
        "§8.1",
        "--plans replaces the table",
        &[
            "tables_with_a_misspelt_limit_or_without_free_are_refused",
            "a_plan_absent_from_the_table_counts_as_free",
            "limits_off_lifts_all_three_for_everyone",
        ],
    ),
    (
        "§8.1",
        "a smaller plan pauses the newest cues",
        &[
            "a_downgrade_pauses_the_newest_cues_above_the_limit",
            "due_runs_of_a_cue_fire_before_a_downgrade_pauses_it",
            "due_runs_of_a_cue_paused_by_a_downgrade_of_a_held_database_are_recorded_as_missed",
        ],
    ),
    (
        "§8.2",
        "the plan sets the monthly quota",
        &[
            "a_plan_change_never_restarts_the_grace_period",
            "a_plan_change_within_the_grace_period_does_not_end_it",
            "runs_above_the_quota_continue_for_a_day_and_then_fail_until_the_month_ends",
        ],
    ),
    ("§8.2", "free has 300 executions per month", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    (
        "§8.2",
        "runs above the quota continue for 24 hours",
        &["runs_above_the_quota_continue_for_a_day_and_then_fail_until_the_month_ends"],
    ),
    ("§8.2", "at most twice the quota runs in them", &["within_the_day_at_most_twice_the_quota_runs"]),
    (
        "§8.2",
        "responses warn from 80 % of the quota on",
        &["responses_warn_from_80_percent_of_the_quota_on", "eighty_percent_is_nearly_used_up"],
    ),
    ("§8.3", "the user can read the usage", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    ("§8.3", "every field is present", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    (
        "§8.3",
        "plan.name is the name of the plan",
        &["each_plan_has_its_rate_limit_and_name", "usage_of_a_free_account_has_all_fields_and_limits"],
    ),
    (
        "§8.3",
        "plan.interval is null without a paid plan",
        &[
            "usage_of_a_free_account_has_all_fields_and_limits",
            "usage_shows_zero_remaining_above_the_quota_and_the_billing_interval",
        ],
    ),
    ("§8.3", "cues.active counts active cues", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    ("§8.3", "cues.limit is the plan limit", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    ("§8.3", "executions.used counts the month", &["usage_of_the_month_outlives_deleted_cues"]),
    ("§8.3", "executions.limit is the plan limit", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    ("§8.3", "rate_limit.limit is requests per minute", &["each_plan_has_its_rate_limit_and_name"]),
    ("§8.3", "outcomes.reported counts the month", &["usage_of_the_month_outlives_deleted_cues"]),
    ("§8.3", "outcomes.succeeded counts the month", &["usage_of_the_month_outlives_deleted_cues"]),
    ("§8.3", "outcomes.failed counts the month", &["usage_of_the_month_outlives_deleted_cues"]),
    (
        "§8.4",
        "upgrades and plan management use hosted pages",
        &[
            "a_checkout_session_request_has_the_form_of_the_stripe_api",
            "a_paying_customer_is_recognized_by_checkout_and_portal",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§8.4",
        "checkout requires plan",
        &["invalid_purchases_are_refused", "only_pro_and_scale_can_be_bought_monthly_or_annually"],
    ),
    (
        "§8.4",
        "checkout requires interval",
        &["invalid_purchases_are_refused", "only_pro_and_scale_can_be_bought_monthly_or_annually"],
    ),
    (
        "§8.4",
        "checkout returns a hosted page",
        &[
            "a_checkout_session_request_has_the_form_of_the_stripe_api",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§8.4",
        "another plan is invalid_plan",
        &["invalid_purchases_are_refused", "a_plan_absent_from_the_table_cannot_be_bought"],
    ),
    (
        "§8.4",
        "portal returns a hosted page",
        &[
            "a_paying_customer_is_recognized_by_checkout_and_portal",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§8.4",
        "portal without an upgrade is no_billing_customer",
        &["invalid_purchases_are_refused", "a_paying_customer_is_recognized_by_checkout_and_portal"],
    ),
    (
        "§8.5",
        "the user requests and the operator decides",
        &[
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
            "a_request_is_decided_once",
            "a_later_request_replaces_a_pending_one",
        ],
    ),
    (
        "§8.5",
        "links last 24 hours",
        &["a_checkout_link_works_once_within_a_day", "a_link_to_the_plan_lasts_a_day"],
    ),
    (
        "§8.6",
        "events are signed and processed once",
        &["unsigned_or_stale_stripe_events_are_refused", "each_stripe_event_is_processed_once"],
    ),
    (
        "§8.6",
        "the plan follows the most expensive live subscription",
        &[
            "of_several_subscriptions_the_most_expensive_live_one_counts",
            "plan_and_interval_follow_the_price_and_the_status_of_the_subscription",
            "older_updates_never_override_newer_ones",
        ],
    ),
    ("§8.6", "the flags are given together", &["an_incomplete_stripe_configuration_refuses_to_start"]),
    ("§8.7", "the diagnostics are public", &["health_has_every_field_and_ignores_workers_in_its_status"]),
    ("§8.7", "every field is present", &["health_has_every_field_and_ignores_workers_in_its_status"]),
    (
        "§8.7",
        "status is degraded by database or poller only",
        &[
            "an_unreadable_database_degrades_health_until_it_recovers",
            "the_poller_is_down_after_more_than_thirty_seconds_without_a_pass",
            "health_has_every_field_and_ignores_workers_in_its_status",
        ],
    ),
    (
        "§8.7",
        "version is the version of the program",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    ("§8.7", "timestamp has no zone", &["health_has_every_field_and_ignores_workers_in_its_status"]),
    (
        "§8.7",
        "services has four entries; worker does not affect status",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    ("§8.7", "poller has four fields", &["health_has_every_field_and_ignores_workers_in_its_status"]),
    (
        "§8.7",
        "workers.active_count counts active workers",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    (
        "§8.7",
        "queue has four counters",
        &[
            "health_counts_claimable_and_retrying_executions",
            "the_queue_counters_follow_every_transition_of_an_execution",
            "health_reads_counters_and_counts_only_running_deliveries",
        ],
    ),
    (
        "§8.7",
        "lateness, uptime and the disk",
        &[
            "health_shows_lateness_uptime_and_the_disk",
            "a_quantile_lies_in_the_bucket_of_its_value_and_below_the_maximum",
            "an_unreadable_database_degrades_health_until_it_recovers",
        ],
    ),
    (
        "§8.8",
        "/status is a light check",
        &[
            "health_has_every_field_and_ignores_workers_in_its_status",
            "every_endpoint_requires_a_key_except_the_public_ones",
        ],
    ),
    ("§8.9", "the settings are shown without secrets", &["info_returns_the_settings_without_secrets"]),
    (
        "§8.10",
        "an echo is stored for 5 minutes",
        &["an_echo_is_available_for_five_minutes", "a_later_post_replaces_an_earlier_one"],
    ),
    (
        "§8.10",
        "callbacks may always reach the echo",
        &[
            "callbacks_reach_the_echo_path_under_every_address_policy",
            "the_echo_exemption_covers_no_other_path_or_port",
        ],
    ),
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
            "a_file_of_version_3_keeps_every_row",
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
            "streams_are_served_over_http2_and_cut_off_when_the_window_stays_closed",
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
