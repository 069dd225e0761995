//! §3 States and transitions.

use super::Row;

pub const STATES: &[Row] = &[
    ("§3 Cue: states", "four of them", &["cues_can_be_filtered_by_status"]),
    (
        "§3 Cue: created",
        "active, with a next run and no runs",
        &[
            "a_new_cue_has_every_field_with_its_default",
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
        ],
    ),
    (
        "§3 Cue: created, condition",
        "a valid request under the limit",
        &["an_upgrade_and_a_cancellation_apply_to_the_next_request", "a_422_lists_every_problem"],
    ),
    ("§3 Cue: active to paused", "next_run becomes null", &["runs_skipped_by_a_pause_are_not_missed"]),
    ("§3 Cue: paused to active", "runs again", &["runs_skipped_by_a_pause_are_not_missed"]),
    (
        "§3 Cue: deleted",
        "gone with its executions",
        &[
            "a_cue_deleted_during_its_delivery_leaves_nothing",
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
        ],
    ),
    (
        "§3 Cue: completed and failed",
        "left open: the end of the only run decides",
        &[
            "a_once_cue_ends_with_its_only_execution",
            "a_once_cue_completes_with_its_execution",
            "unknown_fields_warn_on_create_and_are_refused_on_patch",
        ],
    ),
    (
        "§3 Execution: claimed",
        "pending only, and by one worker",
        &[
            "fifty_clients_claim_each_of_five_hundred_executions_once",
            "only_a_pending_worker_execution_may_be_claimed",
        ],
    ),
    (
        "§3 Execution: claimed, answer",
        "claimed is true, and the payload",
        &["an_execution_is_listed_claimed_extended_and_reported"],
    ),
    (
        "§3 Execution: claimed again",
        "409 and unchanged",
        &["a_resource_in_another_state_is_a_conflict", "every_execution_error_has_its_status_and_code"],
    ),
    (
        "§3 Execution: reported",
        "recorded with its instant, in any state",
        &[
            "an_execution_is_listed_claimed_extended_and_reported",
            "a_report_keeps_the_status_of_a_webhook_execution",
            "a_late_report_ends_a_released_execution",
            "a_report_ends_every_worker_execution_and_no_webhook_one",
        ],
    ),
    (
        "§3 Execution: reported, state",
        "a report leaves a webhook execution's state alone; it ends a worker's",
        &[
            "a_report_keeps_the_status_of_a_webhook_execution",
            "a_report_ends_every_worker_execution_and_no_webhook_one",
        ],
    ),
    (
        "§3 Execution: reported again",
        "409 and unchanged",
        &[
            "a_resource_in_another_state_is_a_conflict",
            "of_two_concurrent_outcomes_the_acknowledged_one_is_kept",
        ],
    ),
    (
        "§3 Execution: other states",
        "left open: retries, lost claims, failures",
        &[
            "a_failed_delivery_is_retried_after_each_backoff",
            "a_claim_without_heartbeats_expires_with_its_lease",
            "a_failing_delivery_ends_after_its_attempts_and_410_ends_it_at_once",
        ],
    ),
];
