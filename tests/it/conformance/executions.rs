//! Chapter 5 of the contract: Executions.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§5.1",
        "id is a UUID",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "an_execution_id_is_a_uuid_v7_that_starts_with_the_time",
            "only_uuids_with_hyphens_are_execution_ids",
            "missing_resources_and_those_of_other_users_are_indistinguishable",
        ],
    ),
    (
        "§5.1",
        "status is one of the states",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "a_once_cue_completes_with_its_execution",
            "every_variant_and_its_word_convert_into_each_other",
        ],
    ),
    ("§5.1", "scheduled_for is the due instant", &["one_cue_shows_its_last_run_and_its_executions"]),
    (
        "§5.1",
        "attempts counts attempts",
        &["a_failed_delivery_is_retried_after_each_backoff", "one_cue_shows_its_last_run_and_its_executions"],
    ),
    (
        "§5.1",
        "http_status is the status of the last response",
        &[
            "a_failed_delivery_is_retried_after_each_backoff",
            "every_status_is_returned_as_a_response",
            "a_success_is_recorded_with_the_response",
        ],
    ),
    (
        "§5.1",
        "started_at is the first attempt",
        &["one_cue_shows_its_last_run_and_its_executions", "a_success_after_failures_leaves_no_error"],
    ),
    (
        "§5.1",
        "delivered_at is the successful delivery",
        &["one_cue_shows_its_last_run_and_its_executions", "a_success_is_recorded_with_the_response"],
    ),
    (
        "§5.1",
        "outcome is present once reported",
        &["one_cue_shows_its_last_run_and_its_executions", "an_execution_has_an_outcome_only_after_a_report"],
    ),
    (
        "§5.2",
        "retries, expired claims and failures change the status",
        &[
            "a_failed_delivery_is_retried_after_each_backoff",
            "a_claim_without_heartbeats_expires_with_its_lease",
            "a_failing_delivery_ends_after_its_attempts_and_410_ends_it_at_once",
        ],
    ),
    (
        "§5.2",
        "a webhook execution is retried until it succeeds or fails",
        &[
            "failures_are_retried_after_each_backoff_until_attempts_run_out",
            "the_next_step_follows_the_retry_policy",
        ],
    ),
    (
        "§5.3",
        "executions can be filtered",
        &[
            "every_filter_and_page_matches_a_full_scan",
            "executions_can_be_filtered_by_worker_and_several_statuses",
            "executions_can_be_filtered_by_outcome_state",
        ],
    ),
    (
        "§5.1",
        "duration, lateness and cause of the latest attempt are shown",
        &[
            "every_attempt_is_listed_with_its_cause_and_the_answer_of_the_receiver",
            "a_lost_claim_and_a_report_are_attempts_of_their_workers",
            "every_status_but_a_success_is_a_cause",
        ],
    ),
    (
        "§5.3",
        "executions can be filtered by time, cause, original and failing cues",
        &[
            "every_filter_and_page_matches_a_full_scan",
            "lists_are_filtered_by_time_cause_and_failing_cues",
            "replays_are_found_by_the_execution_that_they_repeat",
            "an_instant_may_have_an_offset_with_a_bare_plus",
        ],
    ),
    (
        "§5.8",
        "every attempt is listed with its result",
        &[
            "every_attempt_is_listed_with_its_cause_and_the_answer_of_the_receiver",
            "a_run_that_ends_at_once_writes_no_row_of_an_attempt",
            "a_running_attempt_has_no_result_and_shows_nothing_of_the_one_before",
            "a_lost_claim_and_a_report_are_attempts_of_their_workers",
            "the_last_lost_claim_is_the_last_attempt_even_after_a_late_report",
            "an_attempt_that_was_cut_off_is_listed_once_and_changes_no_other",
            "a_claim_that_ends_with_the_account_has_its_own_duration",
        ],
    ),
    (
        "§5.8",
        "a body is truncated where something of it was cut",
        &["a_body_is_truncated_only_where_something_was_cut"],
    ),
    (
        "§5.8",
        "headers are kept without cookies and in bounds",
        &["headers_are_kept_as_pairs_without_cookies", "headers_that_do_not_fit_are_left_out_whole"],
    ),
    (
        "§5.9",
        "the request of an attempt is built again",
        &[
            "the_request_of_an_attempt_is_built_as_it_was_sent",
            "a_request_without_a_time_is_shown_without_signatures",
            "a_request_that_cannot_be_shown_is_refused",
            "the_request_of_a_run_that_ended_before_its_first_attempt_is_shown",
        ],
    ),
    ("§5.3", "the list has has_more", &["lists_have_has_more"]),
    (
        "§5.3",
        "an unknown execution is a 404",
        &["missing_resources_and_those_of_other_users_are_indistinguishable"],
    ),
    ("§5.4", "a replay has the payload of its execution", &["a_replay_has_the_payload_of_its_execution"]),
    (
        "§5.5",
        "an execution has at most one outcome",
        &[
            "of_two_concurrent_outcomes_the_acknowledged_one_is_kept",
            "every_execution_error_has_its_status_and_code",
            "of_two_concurrent_reports_one_is_recorded",
        ],
    ),
    (
        "§5.5",
        "success is a boolean",
        &["one_cue_shows_its_last_run_and_its_executions", "worker_requests_are_validated"],
    ),
    (
        "§5.5",
        "result is a string",
        &["an_execution_is_listed_claimed_extended_and_reported", "worker_requests_are_validated"],
    ),
    (
        "§5.5",
        "error is a string",
        &[
            "an_execution_has_an_outcome_only_after_a_report",
            "one_cue_shows_its_last_run_and_its_executions",
            "worker_requests_are_validated",
        ],
    ),
    (
        "§5.5",
        "metadata is an object of at most 10,240 bytes",
        &[
            "metadata_at_the_limit_is_accepted_and_one_byte_more_is_refused",
            "worker_requests_are_validated",
            "every_execution_error_has_its_status_and_code",
        ],
    ),
    (
        "§5.5",
        "recorded_at is set by the server",
        &[
            "an_execution_is_listed_claimed_extended_and_reported",
            "one_cue_shows_its_last_run_and_its_executions",
        ],
    ),
    (
        "§5.5",
        "a report is recorded in any state",
        &[
            "an_execution_is_listed_claimed_extended_and_reported",
            "a_report_keeps_the_status_of_a_webhook_execution",
            "a_late_report_ends_a_released_execution",
            "a_report_ends_every_worker_execution_and_no_webhook_one",
        ],
    ),
    (
        "§5.5",
        "a report ends a worker execution only",
        &[
            "a_report_keeps_the_status_of_a_webhook_execution",
            "a_report_ends_every_worker_execution_and_no_webhook_one",
        ],
    ),
    (
        "§5.5",
        "a second report is a 409",
        &[
            "a_resource_in_another_state_is_a_conflict",
            "of_two_concurrent_outcomes_the_acknowledged_one_is_kept",
            "every_execution_error_has_its_status_and_code",
        ],
    ),
    ("§5.5", "larger metadata is metadata_too_large", &["every_execution_error_has_its_status_and_code"]),
    ("§5.5", "success is required", &["worker_requests_are_validated"]),
    (
        "§5.5",
        "the response has execution_id and outcome",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "an_execution_is_listed_claimed_extended_and_reported",
        ],
    ),
    (
        "§5.6",
        "evidence can follow the report",
        &["later_evidence_verifies_a_success", "appended_evidence_extends_or_replaces_fields"],
    ),
    ("§5.6", "blank evidence is no evidence", &["a_blank_text_and_an_empty_list_are_no_evidence"]),
    (
        "§5.6",
        "result_url is a web address",
        &[
            "a_result_url_that_is_no_web_address_is_refused_in_every_mode",
            "a_result_url_is_an_absolute_web_address_of_bounded_length",
        ],
    ),
    (
        "§5.6",
        "the url of an artifact is a web address",
        &["the_url_of_an_artifact_that_is_no_web_address_is_refused"],
    ),
    (
        "§5.5",
        "a reported error is the error message",
        &["a_reported_error_is_the_error_message_of_its_execution"],
    ),
    ("§5.7", "verify says what it recorded", &["verify_says_what_it_recorded"]),
    ("§5.6", "evidence requires a report", &["verdicts_and_evidence_require_a_report"]),
    (
        "§5.7",
        "mode and evidence determine the state",
        &[
            "mode_and_evidence_determine_the_first_outcome_state",
            "mode_and_evidence_determine_the_state_of_a_success",
        ],
    ),
    (
        "§5.7",
        "a verdict is final",
        &["a_verdict_is_final_and_shown_with_its_reason", "every_undecided_report_accepts_a_verdict"],
    ),
    (
        "§5.7",
        "a verdict can be withdrawn",
        &[
            "a_decided_outcome_can_be_reopened_for_verification",
            "every_event_in_every_state_has_the_specified_transition",
        ],
    ),
    (
        "§5.4",
        "many executions are replayed, oldest first",
        &[
            "executions_are_replayed_by_id_oldest_first",
            "a_filter_replays_what_failed_if_the_number_is_the_expected_one",
            "more_executions_than_a_write_takes_are_replayed_in_several",
            "a_limit_that_is_reached_in_the_middle_skips_the_rest",
            "an_interrupted_replay_is_not_repeated_by_its_key",
            "a_write_replays_fewer_executions_with_large_payloads",
            "a_filter_leaves_cancelled_runs_out",
        ],
    ),
    (
        "§5.4",
        "a waiting execution is sent now",
        &[
            "a_retry_is_sent_now_and_the_retry_policy_goes_on",
            "a_run_that_waits_for_its_send_at_is_sent_now",
            "only_a_waiting_execution_may_be_sent_now_or_cancelled",
        ],
    ),
    (
        "§5.4",
        "a waiting execution is cancelled",
        &[
            "a_cancelled_execution_fails_without_the_consequences_of_a_failure",
            "a_once_cue_ends_with_its_cancelled_run",
            "an_attempt_or_a_claim_cannot_be_cancelled",
            "cancel_and_delivery_exclude_each_other",
        ],
    ),
];
