//! §2 Resources and their fields.

use super::Row;

pub const RESOURCES: &[Row] = &[
    (
        "§2 timestamps: Z",
        "ISO 8601, most end in Z",
        &["instants_end_in_the_zone_of_their_format", "a_new_cue_has_every_field_and_its_defaults"],
    ),
    (
        "§2 timestamps: next_run",
        "carries +00:00",
        &["a_new_cue_has_every_field_and_its_defaults", "instants_end_in_the_zone_of_their_format"],
    ),
    (
        "§2 timestamps: health",
        "carries no zone",
        &["health_shows_every_figure_and_workers_make_no_difference_to_it"],
    ),
    ("§2 User: id", "a UUID", &["me_shows_the_account_its_limits_and_what_is_used_of_them"]),
    (
        "§2 User: email",
        "the address of the registration",
        &[
            "registration_answers_the_only_sight_of_the_key",
            "me_shows_the_account_its_limits_and_what_is_used_of_them",
        ],
    ),
    (
        "§2 User: api_key",
        "shown by register and regenerate only, once",
        &[
            "registration_answers_the_only_sight_of_the_key",
            "a_new_key_comes_with_a_message_and_ends_the_old_one",
            "only_the_hash_of_a_key_is_in_the_file_or_beside_it",
        ],
    ),
    ("§2 User: plan", "one of three words", &["each_plan_has_its_rate_and_its_name"]),
    (
        "§2 User: has_webhook_secret",
        "shown to the user",
        &["me_shows_the_account_its_limits_and_what_is_used_of_them"],
    ),
    (
        "§2 User: active_cues",
        "how many are active",
        &[
            "me_shows_the_account_its_limits_and_what_is_used_of_them",
            "an_upgrade_and_a_cancel_are_in_force_on_the_next_request",
        ],
    ),
    (
        "§2 User: monthly_executions",
        "of the month",
        &[
            "me_shows_the_account_its_limits_and_what_is_used_of_them",
            "executions_are_counted_by_utc_month_and_user",
        ],
    ),
    (
        "§2 Cue: id",
        "cue_ and 12 characters",
        &["a_new_cue_id_has_the_form_of_one", "a_new_cue_has_every_field_and_its_defaults"],
    ),
    ("§2 Cue: name", "required, at most 255 characters", &["the_fields_of_a_new_cue_are_checked_one_by_one"]),
    (
        "§2 Cue: description",
        "optional",
        &["what_is_given_for_a_new_cue_is_what_is_shown", "a_new_cue_has_every_field_and_its_defaults"],
    ),
    ("§2 Cue: status", "one of four words", &["the_list_can_be_of_one_status"]),
    ("§2 Cue: next_run", "null while paused", &["a_pause_skips_runs_without_counting_them_as_missed"]),
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
        &["a_new_cue_has_every_field_and_its_defaults", "what_is_given_for_a_new_cue_is_what_is_shown"],
    ),
    (
        "§2 Cue: callback",
        "not needed by workers",
        &["a_new_cue_has_every_field_and_its_defaults", "what_is_no_absolute_http_url_is_refused"],
    ),
    (
        "§2 Cue: transport",
        "webhook unless worker is asked for",
        &["a_new_cue_has_every_field_and_its_defaults", "the_fields_of_a_new_cue_are_checked_one_by_one"],
    ),
    (
        "§2 Cue: payload",
        "any object; null when none was given",
        &[
            "a_new_cue_has_every_field_and_its_defaults",
            "a_payload_is_an_object_of_at_most_a_mebibyte",
            "what_is_given_for_a_new_cue_is_what_is_shown",
        ],
    ),
    (
        "§2 Cue: retry",
        "accepted on create",
        &[
            "what_is_given_for_a_new_cue_is_what_is_shown",
            "the_fields_of_a_new_cue_are_checked_one_by_one",
            "failures_are_retried_after_each_backoff_and_then_given_up",
        ],
    ),
    (
        "§2 Cue: run_count",
        "runs so far",
        &[
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
            "a_cue_is_fired_by_hand_now_or_later_and_with_another_payload",
        ],
    ),
    ("§2 Cue: created_at", "when it was made", &["a_new_cue_has_every_field_and_its_defaults"]),
    (
        "§2 Cue: executions",
        "the recent ones, in the answer for one cue only",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "a_new_cue_has_every_field_and_its_defaults",
            "executions_of_a_cue_come_newest_first_and_page_by_page",
        ],
    ),
    (
        "§2 Schedule: type",
        "recurring or once",
        &["a_new_cue_has_every_field_and_its_defaults", "what_is_given_for_a_new_cue_is_what_is_shown"],
    ),
    (
        "§2 Schedule: cron",
        "five fields",
        &[
            "every_row_of_the_table_holds",
            "a_bad_cron_is_told_by_field_and_remedy",
            "random_crons_run_when_the_local_clock_first_reaches_or_passes_their_times",
        ],
    ),
    (
        "§2 Schedule: at",
        "the instant of a cue that runs once",
        &[
            "what_is_given_for_a_new_cue_is_what_is_shown",
            "a_bad_or_past_instant_is_an_invalid_schedule",
            "without_an_offset_it_is_the_local_time_of_the_zone",
        ],
    ),
    (
        "§2 Schedule: timezone",
        "UTC unless given",
        &["a_new_cue_has_every_field_and_its_defaults", "only_names_of_zones_are_zones"],
    ),
    (
        "§2 Callback: url",
        "where the delivery goes",
        &[
            "a_delivery_carries_the_payload_and_says_which_run_it_is",
            "what_is_no_absolute_http_url_is_refused",
        ],
    ),
    (
        "§2 Callback: method",
        "POST unless given",
        &["a_new_cue_has_every_field_and_its_defaults", "the_five_methods_are_read_in_upper_and_lower_case"],
    ),
    (
        "§2 Callback: headers",
        "own ones, accepted on update",
        &[
            "a_patch_changes_what_it_names_and_nothing_else",
            "methods_and_headers_that_a_delivery_cannot_carry_are_refused",
        ],
    ),
    (
        "§2 Execution: id",
        "a UUID",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "an_execution_id_is_a_uuid_of_version_7_with_the_time_in_front",
        ],
    ),
    (
        "§2 Execution: status",
        "pending before a claim, success, and others",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "a_cue_that_runs_once_is_over_when_its_run_is",
            "every_variant_and_its_word_convert_into_each_other",
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
        &[
            "a_failed_delivery_is_tried_again_after_each_backoff",
            "one_cue_shows_its_last_run_and_its_executions",
        ],
    ),
    (
        "§2 Execution: http_status",
        "what the callback returned",
        &["a_failed_delivery_is_tried_again_after_each_backoff", "every_status_comes_back_as_a_receipt"],
    ),
    (
        "§2 Execution: started_at",
        "an instant",
        &["one_cue_shows_its_last_run_and_its_executions", "a_success_after_failures_leaves_no_error"],
    ),
    (
        "§2 Execution: delivered_at",
        "an instant",
        &["one_cue_shows_its_last_run_and_its_executions", "a_success_is_recorded_with_the_answer"],
    ),
    (
        "§2 Execution: outcome",
        "there once it is reported",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "an_execution_shows_an_outcome_only_once_there_is_one_and_an_error_only_when_given",
        ],
    ),
    ("§2 Claimable: id", "a UUID", &["work_is_listed_claimed_extended_and_reported"]),
    ("§2 Claimable: cue_id", "a string", &["work_is_listed_claimed_extended_and_reported"]),
    ("§2 Claimable: scheduled_for", "an instant", &["work_is_listed_claimed_extended_and_reported"]),
    (
        "§2 Claimable: payload",
        "an object",
        &[
            "work_is_listed_claimed_extended_and_reported",
            "a_claim_needs_no_body_and_a_missing_payload_is_an_empty_object",
        ],
    ),
    (
        "§2 Outcome: success",
        "true or false",
        &["one_cue_shows_its_last_run_and_its_executions", "what_workers_send_is_checked"],
    ),
    (
        "§2 Outcome: result",
        "a text",
        &["work_is_listed_claimed_extended_and_reported", "what_workers_send_is_checked"],
    ),
    (
        "§2 Outcome: error",
        "a text",
        &[
            "an_execution_shows_an_outcome_only_once_there_is_one_and_an_error_only_when_given",
            "one_cue_shows_its_last_run_and_its_executions",
        ],
    ),
    (
        "§2 Outcome: metadata",
        "an object of at most 10 KB",
        &[
            "metadata_of_exactly_the_limit_is_kept_and_one_byte_more_is_refused",
            "what_workers_send_is_checked",
        ],
    ),
    (
        "§2 Outcome: recorded_at",
        "set by the service",
        &["work_is_listed_claimed_extended_and_reported", "one_cue_shows_its_last_run_and_its_executions"],
    ),
    (
        "§2 Worker: worker_id",
        "a string",
        &["workers_are_listed_with_how_alive_they_are_and_can_be_removed", "what_workers_send_is_checked"],
    ),
    (
        "§2 Worker: handlers",
        "names of tasks",
        &["workers_are_listed_with_how_alive_they_are_and_can_be_removed", "what_workers_send_is_checked"],
    ),
    (
        "§2 Usage and health",
        "shapes as under their endpoints",
        &[
            "a_free_account_is_shown_all_fields_and_its_limits",
            "health_shows_every_figure_and_workers_make_no_difference_to_it",
        ],
    ),
];
