//! §2 Resources and their fields.

use super::Row;

pub const RESOURCES: &[Row] = &[
    (
        "§2 timestamps: Z",
        "ISO 8601, most end in Z",
        &["instants_end_with_the_suffix_of_their_field", "a_new_cue_has_every_field_with_its_default"],
    ),
    (
        "§2 timestamps: next_run",
        "carries +00:00",
        &["a_new_cue_has_every_field_with_its_default", "instants_end_with_the_suffix_of_their_field"],
    ),
    (
        "§2 timestamps: health",
        "carries no zone",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    ("§2 User: id", "a UUID", &["me_returns_the_account_its_limits_and_its_usage"]),
    (
        "§2 User: email",
        "the address of the registration",
        &["registration_returns_the_key_once", "me_returns_the_account_its_limits_and_its_usage"],
    ),
    (
        "§2 User: api_key",
        "shown by register and regenerate only, once",
        &[
            "registration_returns_the_key_once",
            "regenerating_a_key_returns_a_message_and_revokes_the_old_key",
            "only_the_hash_of_a_key_is_stored",
        ],
    ),
    ("§2 User: plan", "one of three words", &["each_plan_has_its_rate_limit_and_name"]),
    (
        "§2 User: has_webhook_secret",
        "shown to the user",
        &["me_returns_the_account_its_limits_and_its_usage"],
    ),
    (
        "§2 User: active_cues",
        "how many are active",
        &[
            "me_returns_the_account_its_limits_and_its_usage",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§2 User: monthly_executions",
        "of the month",
        &["me_returns_the_account_its_limits_and_its_usage", "executions_are_counted_by_utc_month_and_user"],
    ),
    (
        "§2 Cue: id",
        "cue_ and 12 characters",
        &["a_new_cue_id_is_well_formed", "a_new_cue_has_every_field_with_its_default"],
    ),
    ("§2 Cue: name", "required, at most 255 characters", &["every_field_of_a_new_cue_is_validated"]),
    (
        "§2 Cue: description",
        "optional",
        &["a_new_cue_shows_the_given_values", "a_new_cue_has_every_field_with_its_default"],
    ),
    ("§2 Cue: status", "one of four words", &["cues_can_be_filtered_by_status"]),
    ("§2 Cue: next_run", "null while paused", &["runs_skipped_by_a_pause_are_not_missed"]),
    (
        "§2 Cue: last_run",
        "in the answer for one cue",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
        ],
    ),
    (
        "§2 Cue: schedule",
        "an object of its own",
        &["a_new_cue_has_every_field_with_its_default", "a_new_cue_shows_the_given_values"],
    ),
    (
        "§2 Cue: callback",
        "not needed by workers",
        &["a_new_cue_has_every_field_with_its_default", "only_absolute_http_urls_are_accepted"],
    ),
    (
        "§2 Cue: transport",
        "webhook unless worker is asked for",
        &["a_new_cue_has_every_field_with_its_default", "every_field_of_a_new_cue_is_validated"],
    ),
    (
        "§2 Cue: payload",
        "any object; null when none was given",
        &[
            "a_new_cue_has_every_field_with_its_default",
            "a_payload_is_an_object_of_at_most_one_mebibyte",
            "a_new_cue_shows_the_given_values",
        ],
    ),
    (
        "§2 Cue: retry",
        "accepted on create",
        &[
            "a_new_cue_shows_the_given_values",
            "every_field_of_a_new_cue_is_validated",
            "failures_are_retried_after_each_backoff_until_attempts_run_out",
        ],
    ),
    (
        "§2 Cue: run_count",
        "runs so far",
        &[
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
            "a_cue_can_be_fired_now_or_later_with_another_payload",
        ],
    ),
    ("§2 Cue: created_at", "when it was made", &["a_new_cue_has_every_field_with_its_default"]),
    (
        "§2 Cue: executions",
        "the recent ones, in the answer for one cue only",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "a_new_cue_has_every_field_with_its_default",
            "executions_of_a_cue_are_paged_newest_first",
        ],
    ),
    (
        "§2 Schedule: type",
        "recurring or once",
        &["a_new_cue_has_every_field_with_its_default", "a_new_cue_shows_the_given_values"],
    ),
    (
        "§2 Schedule: cron",
        "five fields",
        &[
            "every_row_of_the_cron_table_holds",
            "a_cron_error_names_field_and_remedy",
            "random_crons_run_when_the_local_clock_first_reaches_or_passes_their_times",
        ],
    ),
    (
        "§2 Schedule: at",
        "the instant of a cue that runs once",
        &[
            "a_new_cue_shows_the_given_values",
            "a_bad_or_past_instant_is_an_invalid_schedule",
            "an_instant_without_an_offset_is_local_to_the_zone",
        ],
    ),
    (
        "§2 Schedule: timezone",
        "UTC unless given",
        &["a_new_cue_has_every_field_with_its_default", "only_iana_names_are_zones"],
    ),
    (
        "§2 Callback: url",
        "where the delivery goes",
        &["a_delivery_has_the_payload_and_identifies_its_execution", "only_absolute_http_urls_are_accepted"],
    ),
    (
        "§2 Callback: method",
        "POST unless given",
        &["a_new_cue_has_every_field_with_its_default", "the_five_methods_are_read_in_either_case"],
    ),
    (
        "§2 Callback: headers",
        "own ones, accepted on update",
        &["a_patch_changes_only_the_fields_it_names", "unusable_callback_methods_and_headers_are_refused"],
    ),
    (
        "§2 Execution: id",
        "a UUID",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "an_execution_id_is_a_uuid_v7_that_starts_with_the_time",
        ],
    ),
    (
        "§2 Execution: status",
        "pending before a claim, success, and others",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "a_once_cue_completes_with_its_execution",
            "statuses_round_trip_through_text",
        ],
    ),
    (
        "§2 Execution: scheduled_for",
        "the instant it was due",
        &["one_cue_shows_its_last_run_and_its_executions"],
    ),
    (
        "§2 Execution: attempts",
        "delivery attempts",
        &["a_failed_delivery_is_retried_after_each_backoff", "one_cue_shows_its_last_run_and_its_executions"],
    ),
    (
        "§2 Execution: http_status",
        "what the callback answered",
        &["a_failed_delivery_is_retried_after_each_backoff", "every_status_is_returned_as_a_response"],
    ),
    (
        "§2 Execution: started_at",
        "an instant",
        &["one_cue_shows_its_last_run_and_its_executions", "a_success_after_failures_leaves_no_error"],
    ),
    (
        "§2 Execution: delivered_at",
        "an instant",
        &["one_cue_shows_its_last_run_and_its_executions", "a_success_is_recorded_with_the_response"],
    ),
    (
        "§2 Execution: outcome",
        "there once it is reported",
        &["one_cue_shows_its_last_run_and_its_executions", "an_execution_has_an_outcome_only_after_a_report"],
    ),
    ("§2 Claimable: id", "a UUID", &["an_execution_is_listed_claimed_extended_and_reported"]),
    ("§2 Claimable: cue_id", "a string", &["an_execution_is_listed_claimed_extended_and_reported"]),
    ("§2 Claimable: scheduled_for", "an instant", &["an_execution_is_listed_claimed_extended_and_reported"]),
    (
        "§2 Claimable: payload",
        "an object",
        &[
            "an_execution_is_listed_claimed_extended_and_reported",
            "a_claim_needs_no_body_and_returns_an_empty_object_for_a_missing_payload",
        ],
    ),
    (
        "§2 Outcome: success",
        "true or false",
        &["one_cue_shows_its_last_run_and_its_executions", "worker_requests_are_validated"],
    ),
    (
        "§2 Outcome: result",
        "a text",
        &["an_execution_is_listed_claimed_extended_and_reported", "worker_requests_are_validated"],
    ),
    (
        "§2 Outcome: error",
        "a text",
        &["an_execution_has_an_outcome_only_after_a_report", "one_cue_shows_its_last_run_and_its_executions"],
    ),
    (
        "§2 Outcome: metadata",
        "an object of at most 10 KB",
        &["metadata_at_the_limit_is_accepted_and_one_byte_more_is_refused", "worker_requests_are_validated"],
    ),
    (
        "§2 Outcome: recorded_at",
        "set by the service",
        &[
            "an_execution_is_listed_claimed_extended_and_reported",
            "one_cue_shows_its_last_run_and_its_executions",
        ],
    ),
    (
        "§2 Worker: worker_id",
        "a string",
        &[
            "workers_are_listed_with_their_heartbeat_status_and_can_be_deleted",
            "worker_requests_are_validated",
        ],
    ),
    (
        "§2 Worker: handlers",
        "names of tasks",
        &[
            "workers_are_listed_with_their_heartbeat_status_and_can_be_deleted",
            "worker_requests_are_validated",
        ],
    ),
    (
        "§2 Usage and health",
        "shapes as under their endpoints",
        &[
            "usage_of_a_free_account_has_all_fields_and_limits",
            "health_has_every_field_and_ignores_workers_in_its_status",
        ],
    ),
];
