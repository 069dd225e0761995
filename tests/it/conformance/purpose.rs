//! §1 What the service does.

use super::Row;

pub const PURPOSE: &[Row] = &[
    (
        "§1 preamble: JSON",
        "all bodies are JSON",
        &[
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
            "what_is_no_json_is_told_apart_from_what_is_no_object",
        ],
    ),
    ("§1 item 1", "who registers receives a key", &["registration_answers_the_only_sight_of_the_key"]),
    (
        "§1 item 2: recurring",
        "a cue has a cron expression",
        &["a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted", "every_row_of_the_table_holds"],
    ),
    (
        "§1 item 2: once",
        "or one instant",
        &["a_cue_that_runs_once_is_over_when_its_run_is", "a_schedule_that_runs_once_has_one_run"],
    ),
    (
        "§1 item 2: payload",
        "an optional JSON payload",
        &["a_payload_is_an_object_of_at_most_a_mebibyte", "a_new_cue_has_every_field_and_its_defaults"],
    ),
    (
        "§1 item 2: transport",
        "and a transport",
        &["the_fields_of_a_new_cue_are_checked_one_by_one", "a_new_cue_has_every_field_and_its_defaults"],
    ),
    (
        "§1 item 3",
        "webhook: the payload is delivered to the callback at each time",
        &[
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
            "a_delivery_carries_the_payload_and_says_which_run_it_is",
            "every_due_instant_is_run_once_or_counted_as_missed_once",
        ],
    ),
    (
        "§1 item 4: runs",
        "worker: each time makes a pending execution",
        &[
            "a_cue_that_runs_once_is_over_when_its_run_is",
            "every_due_instant_is_run_once_or_counted_as_missed_once",
        ],
    ),
    (
        "§1 item 4: work",
        "list, claim, process, report",
        &[
            "work_is_listed_claimed_extended_and_reported",
            "the_workers_do_the_work_of_their_tasks_and_report_it",
        ],
    ),
    (
        "§1 item 4: heartbeat",
        "workers announce themselves and their handlers",
        &[
            "a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next",
            "workers_are_listed_with_how_alive_they_are_and_can_be_removed",
        ],
    ),
    (
        "§1 item 5",
        "one outcome per execution",
        &[
            "of_two_outcomes_reported_at_once_the_one_that_was_acknowledged_is_kept",
            "every_refusal_has_its_status_and_its_code",
        ],
    ),
    ("§1 item 6: plans", "free, pro and scale", &["each_plan_has_its_rate_and_its_name"]),
    (
        "§1 item 6: rate limit",
        "a plan sets it",
        &["each_plan_has_its_rate_and_its_name", "a_new_plans_rate_is_in_force_on_the_next_request"],
    ),
    (
        "§1 item 6: cue limit",
        "a plan sets it",
        &[
            "a_downgrade_pauses_the_newest_cues_above_the_limit",
            "an_upgrade_and_a_cancel_are_in_force_on_the_next_request",
        ],
    ),
    (
        "§1 item 6: quota",
        "a plan sets it",
        &[
            "a_plan_change_ends_the_grace_and_lifts_the_block_at_once",
            "above_the_quota_runs_go_on_for_a_day_and_then_are_recorded_and_not_sent_until_the_month_ends",
        ],
    ),
    (
        "§1 item 6: sessions",
        "upgrade and management on hosted pages of a provider",
        &[
            "a_checkout_session_is_asked_for_as_the_api_wants_it",
            "who_has_bought_is_known_as_a_customer_to_checkout_and_portal",
            "an_upgrade_and_a_cancel_are_in_force_on_the_next_request",
        ],
    ),
    ("§1 item 7: usage", "readable", &["a_free_account_is_shown_all_fields_and_its_limits"]),
    ("§1 item 7: health", "readable", &["health_shows_every_figure_and_workers_make_no_difference_to_it"]),
];
