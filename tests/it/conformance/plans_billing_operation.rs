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
];
