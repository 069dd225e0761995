//! Chapter 7 of the contract: Workers.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§7.1",
        "workers list, claim, process and report executions",
        &[
            "an_execution_is_listed_claimed_extended_and_reported",
            "the_workers_process_their_tasks_and_report_outcomes",
        ],
    ),
    ("§7.1", "id is a UUID", &["an_execution_is_listed_claimed_extended_and_reported"]),
    ("§7.1", "cue_id is a string", &["an_execution_is_listed_claimed_extended_and_reported"]),
    ("§7.1", "scheduled_for is an instant", &["an_execution_is_listed_claimed_extended_and_reported"]),
    (
        "§7.1",
        "payload is an object",
        &[
            "an_execution_is_listed_claimed_extended_and_reported",
            "a_claim_needs_no_body_and_returns_an_empty_object_for_a_missing_payload",
        ],
    ),
    (
        "§7.1",
        "each run of a worker cue becomes claimable",
        &[
            "a_worker_execution_becomes_claimable_and_is_never_sent",
            "one_cue_shows_its_last_run_and_its_executions",
        ],
    ),
    (
        "§7.1",
        "an execution is listed until it is claimed",
        &[
            "an_execution_is_listed_claimed_extended_and_reported",
            "fifty_clients_claim_each_of_five_hundred_executions_once",
        ],
    ),
    (
        "§7.1",
        "claimable executions are listed, oldest first",
        &["an_execution_is_listed_claimed_extended_and_reported"],
    ),
    (
        "§7.1",
        "task filters by payload.task",
        &[
            "filters_apply_before_the_limit_and_the_oldest_comes_first",
            "an_execution_is_listed_claimed_extended_and_reported",
        ],
    ),
    (
        "§7.1",
        "words of up to 255 characters are filters",
        &[
            "workers_filter_by_words_of_up_to_255_characters",
            "task_and_agent_are_filters_up_to_255_characters",
        ],
    ),
    ("§7.1", "the list is in executions", &["an_execution_is_listed_claimed_extended_and_reported"]),
    (
        "§7.1",
        "wait keeps the request open for matching work",
        &[
            "a_long_poll_returns_only_for_matching_work",
            "a_long_poll_ends_empty_after_its_wait_or_at_shutdown",
        ],
    ),
    (
        "§7.1",
        "a revoked key ends its long polls",
        &[
            "a_revoked_key_gets_no_work_from_its_open_long_poll",
            "a_long_poll_ends_soon_after_its_account_is_disabled",
        ],
    ),
    (
        "§7.2",
        "exactly one worker claims a pending execution",
        &[
            "fifty_clients_claim_each_of_five_hundred_executions_once",
            "only_a_pending_worker_execution_may_be_claimed",
        ],
    ),
    (
        "§7.2",
        "a claim returns claimed and the payload",
        &["an_execution_is_listed_claimed_extended_and_reported"],
    ),
    (
        "§7.2",
        "a second claim is a 409",
        &["a_resource_in_another_state_is_a_conflict", "every_execution_error_has_its_status_and_code"],
    ),
    ("§7.2", "a pending execution can be claimed", &["an_execution_is_listed_claimed_extended_and_reported"]),
    (
        "§7.2",
        "worker_id is optional, default anonymous-worker",
        &["a_claim_needs_no_body_and_returns_an_empty_object_for_a_missing_payload"],
    ),
    (
        "§7.2",
        "a claim needs no body",
        &["a_claim_needs_no_body_and_returns_an_empty_object_for_a_missing_payload"],
    ),
    (
        "§7.3",
        "a heartbeat extends the lease",
        &[
            "an_extended_lease_runs_from_the_extension",
            "only_a_claimed_execution_may_be_extended_and_only_by_its_worker",
        ],
    ),
    (
        "§7.3",
        "an overrun lease ends the claim",
        &[
            "a_claim_without_heartbeats_expires_with_its_lease",
            "a_claim_outlasts_its_lease_while_its_worker_sends_heartbeats",
            "the_last_expired_claim_fails_the_execution_and_its_cue",
        ],
    ),
    (
        "§7.3",
        "a late report is recorded",
        &[
            "a_late_report_ends_a_released_execution",
            "a_late_report_ends_an_execution_claimed_by_another_worker",
        ],
    ),
    (
        "§7.4",
        "workers announce themselves and their tasks",
        &[
            "a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next",
            "workers_are_listed_with_their_heartbeat_status_and_can_be_deleted",
        ],
    ),
    (
        "§7.4",
        "worker_id is a string",
        &[
            "workers_are_listed_with_their_heartbeat_status_and_can_be_deleted",
            "worker_requests_are_validated",
        ],
    ),
    (
        "§7.4",
        "handlers is a list of task names",
        &[
            "workers_are_listed_with_their_heartbeat_status_and_can_be_deleted",
            "worker_requests_are_validated",
        ],
    ),
    (
        "§7.4",
        "a heartbeat registers or refreshes a worker",
        &["a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next"],
    ),
    (
        "§7.4",
        "worker_id is required",
        &[
            "worker_requests_are_validated",
            "a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next",
        ],
    ),
    ("§7.4", "handlers is required", &["worker_requests_are_validated"]),
    (
        "§7.4",
        "the response is acknowledged",
        &["workers_are_listed_with_their_heartbeat_status_and_can_be_deleted"],
    ),
    (
        "§7.5",
        "workers are listed and deleted",
        &[
            "workers_are_listed_with_their_heartbeat_status_and_can_be_deleted",
            "a_worker_is_active_then_stale_then_dead",
        ],
    ),
    (
        "§7.6",
        "an execution that nobody claims for 15 minutes raises an alert, one a cue and hour",
        &[
            "an_alert_follows_exactly_fifteen_minutes_without_a_claim",
            "the_owner_is_told_of_an_execution_that_nobody_claims",
            "a_cue_gets_one_alert_an_hour_about_later_executions",
            "an_hourly_cue_without_a_worker_raises_an_alert_an_hour",
            "an_account_with_a_thousand_alerts_within_the_hour_gets_no_further_ones",
        ],
    ),
    (
        "§7.6",
        "claim_within_minutes is validated",
        &["the_time_for_a_claim_is_a_field_of_worker_cues", "a_webhook_cue_has_no_time_for_a_claim"],
    ),
    (
        "§7.6",
        "an execution that is not claimed in time fails",
        &[
            "an_execution_fails_exactly_when_its_time_for_a_claim_is_over",
            "an_execution_that_is_not_claimed_in_time_fails_and_ends_its_cue",
            "a_failure_for_want_of_a_claim_has_the_consequences_of_any_other",
            "the_time_runs_from_send_at",
            "ten_thousand_unclaimed_executions_are_handled_in_bounded_batches",
        ],
    ),
    ("§7.6", "a lost claim begins the time anew", &["a_claim_ends_the_wait_and_a_lost_claim_begins_another"]),
    (
        "§7.6",
        "a changed time applies to executions that wait",
        &[
            "a_changed_time_for_claims_applies_to_executions_that_wait",
            "a_change_of_the_time_wakes_the_scheduler_for_executions_that_wait",
        ],
    ),
    (
        "§7.6",
        "nothing is told or fails on hold, or for a minute after an outage",
        &[
            "nobody_is_told_of_unclaimed_executions_during_a_hold",
            "workers_have_a_minute_to_come_back_after_an_outage",
            "a_restart_does_not_begin_the_wait_anew",
        ],
    ),
    (
        "§7.6",
        "a new worker cue warns of missing workers",
        &["a_new_worker_cue_warns_if_no_worker_was_seen_lately"],
    ),
    (
        "§7.7",
        "cued work takes work for free slots, of its tasks or its agent",
        &[
            "two_workers_run_each_of_many_executions_exactly_once",
            "no_more_commands_run_at_a_time_than_there_are_jobs",
            "a_worker_that_waits_runs_what_comes",
            "a_file_has_several_tasks_with_their_own_commands",
            "an_agent_takes_its_own_executions_of_any_task",
            "one_run_or_all_that_wait_end_with_the_exit_code_of_the_work",
            "work_that_a_command_makes_is_drained_too",
        ],
    ),
    (
        "§7.7",
        "claims have a name of the process, and a lost one ends its command",
        &[
            "a_worker_that_lives_keeps_its_claim_however_long_the_command_takes",
            "a_lost_claim_ends_the_command_and_its_outcome_is_not_reported",
            "a_worker_that_claims_its_own_lost_execution_again_runs_it_once_at_a_time",
            "what_a_killed_worker_held_is_run_after_the_lease_even_by_a_successor_of_its_name",
        ],
    ),
    (
        "§7.7",
        "a command gets the payload and its environment without the key",
        &[
            "the_payload_is_on_standard_input_whether_or_not_it_is_read",
            "a_command_knows_its_execution_and_not_the_key",
        ],
    ),
    (
        "§7.7",
        "exit code, output and outcome file become the outcome",
        &[
            "the_exit_code_decides_and_the_output_is_reported",
            "an_outcome_file_adds_evidence_and_a_failure_wins",
            "an_unusable_outcome_file_is_noted_in_the_metadata",
            "a_gigabyte_of_output_takes_no_memory_and_its_end_is_kept",
            "a_process_that_keeps_the_output_open_does_not_hold_the_worker",
        ],
    ),
    (
        "§7.7",
        "a time limit and a stop end the whole group",
        &[
            "a_command_that_takes_too_long_is_ended_with_its_children",
            "a_stop_waits_for_the_running_command_and_claims_nothing_more",
            "a_command_that_exceeds_the_grace_time_is_ended_and_reported",
            "a_second_signal_ends_the_commands_at_once_and_a_third_kills_them",
            "an_interrupted_wait_for_one_run_exits_with_130",
            "the_service_manager_learns_of_readiness_life_and_stop",
        ],
    ),
    (
        "§7.7",
        "reports are repeated until the server has them",
        &[
            "a_report_is_repeated_until_a_killed_server_is_back",
            "a_report_that_no_server_takes_is_in_the_log",
            "a_revoked_key_ends_the_worker",
            "each_failure_has_its_exit_code",
        ],
    ),
];
