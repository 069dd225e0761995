//! §1 What the service does.

use super::Row;

pub const PURPOSE: &[Row] = &[
    (
        "§1 preamble: JSON",
        "all bodies are JSON",
        &[
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
            "invalid_json_and_non_objects_have_different_errors",
        ],
    ),
    ("§1 item 1", "who registers receives a key", &["registration_returns_the_key_once"]),
    (
        "§1 item 2: recurring",
        "a cue has a cron expression",
        &[
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
            "every_row_of_the_cron_table_holds",
        ],
    ),
    (
        "§1 item 2: once",
        "or one instant",
        &["a_once_cue_completes_with_its_execution", "a_schedule_that_runs_once_has_one_run"],
    ),
    (
        "§1 item 2: payload",
        "an optional JSON payload",
        &["a_payload_is_an_object_of_at_most_one_mebibyte", "a_new_cue_has_every_field_with_its_default"],
    ),
    (
        "§1 item 2: transport",
        "and a transport",
        &["every_field_of_a_new_cue_is_validated", "a_new_cue_has_every_field_with_its_default"],
    ),
    (
        "§1 item 3",
        "webhook: the payload is delivered to the callback at each time",
        &[
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
            "a_delivery_has_the_payload_and_identifies_its_execution",
            "every_due_instant_runs_once_or_is_missed_once",
        ],
    ),
    (
        "§1 item 4: runs",
        "worker: each time makes a pending execution",
        &["a_once_cue_completes_with_its_execution", "every_due_instant_runs_once_or_is_missed_once"],
    ),
    (
        "§1 item 4: work",
        "list, claim, process, report",
        &[
            "an_execution_is_listed_claimed_extended_and_reported",
            "the_workers_process_their_tasks_and_report_outcomes",
        ],
    ),
    (
        "§1 item 4: heartbeat",
        "workers announce themselves and their handlers",
        &[
            "a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next",
            "workers_are_listed_with_their_heartbeat_status_and_can_be_deleted",
        ],
    ),
    (
        "§1 item 5",
        "one outcome per execution",
        &[
            "of_two_concurrent_outcomes_the_acknowledged_one_is_kept",
            "every_execution_error_has_its_status_and_code",
        ],
    ),
    ("§1 item 6: plans", "free, pro and scale", &["each_plan_has_its_rate_limit_and_name"]),
    (
        "§1 item 6: rate limit",
        "a plan sets it",
        &["each_plan_has_its_rate_limit_and_name", "the_rate_of_a_new_plan_applies_to_the_next_request"],
    ),
    (
        "§1 item 6: cue limit",
        "a plan sets it",
        &[
            "a_downgrade_pauses_the_newest_cues_above_the_limit",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§1 item 6: quota",
        "a plan sets it",
        &[
            "a_plan_change_ends_the_grace_period_and_the_block",
            "runs_above_the_quota_continue_for_a_day_and_then_fail_until_the_month_ends",
        ],
    ),
    (
        "§1 item 6: sessions",
        "upgrade and management on hosted pages of a provider",
        &[
            "a_checkout_session_request_has_the_form_of_the_stripe_api",
            "a_paying_customer_is_recognized_by_checkout_and_portal",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    ("§1 item 7: usage", "readable", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    ("§1 item 7: health", "readable", &["health_has_every_field_and_ignores_workers_in_its_status"]),
];
