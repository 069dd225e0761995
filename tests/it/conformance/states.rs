//! §3 States and transitions.

use super::Row;

pub const STATES: &[Row] = &[
    ("§3 Cue: states", "four of them", &["the_list_can_be_of_one_status"]),
    (
        "§3 Cue: created",
        "active, with a next run and no runs",
        &[
            "a_new_cue_has_every_field_and_its_defaults",
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
        ],
    ),
    (
        "§3 Cue: created, condition",
        "a valid request under the limit",
        &["an_upgrade_and_a_cancel_are_in_force_on_the_next_request", "a_422_names_every_problem_at_once"],
    ),
    (
        "§3 Cue: active to paused",
        "next_run becomes null",
        &["a_pause_skips_runs_without_counting_them_as_missed"],
    ),
    ("§3 Cue: paused to active", "runs again", &["a_pause_skips_runs_without_counting_them_as_missed"]),
    (
        "§3 Cue: deleted",
        "gone with its executions",
        &[
            "a_cue_deleted_while_its_delivery_is_under_way_leaves_nothing",
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
        ],
    ),
    (
        "§3 Cue: completed and failed",
        "left open: the end of the only run decides",
        &[
            "the_end_of_its_only_run_ends_a_once_cue",
            "a_cue_that_runs_once_is_over_when_its_run_is",
            "unknown_fields_of_a_create_are_warned_of_and_those_of_a_patch_refused",
        ],
    ),
    (
        "§3 Execution: claimed",
        "pending only, and by one worker",
        &[
            "fifty_workers_claim_each_of_five_hundred_executions_once",
            "only_a_pending_worker_execution_may_be_claimed",
        ],
    ),
    (
        "§3 Execution: claimed, answer",
        "claimed is true, and the payload",
        &["work_is_listed_claimed_extended_and_reported"],
    ),
    (
        "§3 Execution: claimed again",
        "409 and unchanged",
        &["what_is_there_in_another_state_is_a_conflict", "every_refusal_has_its_status_and_its_code"],
    ),
    (
        "§3 Execution: reported",
        "recorded with its instant, in any state",
        &[
            "work_is_listed_claimed_extended_and_reported",
            "a_report_leaves_the_status_of_a_webhook_execution_alone",
            "a_late_report_ends_an_execution_that_waits_again",
            "a_report_ends_every_worker_execution_and_no_webhook_one",
        ],
    ),
    (
        "§3 Execution: reported, state",
        "a report leaves a webhook execution's state alone; it ends a worker's",
        &[
            "a_report_leaves_the_status_of_a_webhook_execution_alone",
            "a_report_ends_every_worker_execution_and_no_webhook_one",
        ],
    ),
    (
        "§3 Execution: reported again",
        "409 and unchanged",
        &[
            "what_is_there_in_another_state_is_a_conflict",
            "of_two_outcomes_reported_at_once_the_one_that_was_acknowledged_is_kept",
        ],
    ),
    (
        "§3 Execution: other states",
        "left open: retries, lost claims, failures",
        &[
            "a_failed_delivery_is_tried_again_after_each_backoff",
            "a_claim_without_heartbeats_is_lost_with_its_lease",
            "a_delivery_that_always_fails_ends_after_its_attempts_and_one_that_is_gone_at_once",
        ],
    ),
];
