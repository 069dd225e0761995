//! Chapter 4 of the contract: cues and their schedules, §4.1 to §4.6.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§4.1",
        "id is cue_ and 12 characters",
        &[
            "a_new_cue_id_is_well_formed",
            "a_new_cue_has_every_field_with_its_default",
            "other_texts_are_not_cue_ids",
            "missing_resources_and_those_of_other_users_are_indistinguishable",
        ],
    ),
    ("§4.1", "name is required and has at most 255 characters", &["every_field_of_a_new_cue_is_validated"]),
    (
        "§4.1",
        "every other field has its value",
        &[
            "a_new_cue_shows_the_given_values",
            "a_new_cue_has_every_field_with_its_default",
            "every_field_of_a_new_cue_is_validated",
            "failures_are_retried_after_each_backoff_until_attempts_run_out",
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
            "a_cue_can_be_fired_now_or_later_with_another_payload",
        ],
    ),
    ("§4.1", "status is one of four states", &["cues_can_be_filtered_by_status"]),
    ("§4.1", "next_run is null while paused", &["runs_skipped_by_a_pause_are_not_missed"]),
    (
        "§4.1",
        "last_run is the latest run",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
        ],
    ),
    (
        "§4.1",
        "callback is empty for a worker cue",
        &["a_new_cue_has_every_field_with_its_default", "only_absolute_http_urls_are_accepted"],
    ),
    (
        "§4.1",
        "transport is webhook by default",
        &["a_new_cue_has_every_field_with_its_default", "every_field_of_a_new_cue_is_validated"],
    ),
    (
        "§4.1",
        "payload is an object or null",
        &[
            "a_new_cue_has_every_field_with_its_default",
            "a_payload_is_an_object_of_at_most_one_mebibyte",
            "a_new_cue_shows_the_given_values",
        ],
    ),
    (
        "§4.1",
        "executions is present for a single cue only",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "a_new_cue_has_every_field_with_its_default",
            "executions_of_a_cue_are_paged_newest_first",
        ],
    ),
    (
        "§4.2",
        "each run of a worker cue creates a pending execution",
        &["a_once_cue_completes_with_its_execution", "every_due_instant_runs_once_or_is_missed_once"],
    ),
    ("§4.2", "a cue has one of four states", &["cues_can_be_filtered_by_status"]),
    (
        "§4.2",
        "a new cue is active with a next run and no runs",
        &[
            "a_new_cue_has_every_field_with_its_default",
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
        ],
    ),
    (
        "§4.2",
        "creation requires a valid request within the plan limit",
        &["an_upgrade_and_a_cancellation_apply_to_the_next_request", "a_422_lists_every_problem"],
    ),
    ("§4.2", "a pause sets next_run to null", &["runs_skipped_by_a_pause_are_not_missed"]),
    ("§4.2", "a resumed cue continues from now", &["runs_skipped_by_a_pause_are_not_missed"]),
    (
        "§4.2",
        "a once cue ends as its execution does",
        &[
            "a_once_cue_ends_with_its_only_execution",
            "a_once_cue_completes_with_its_execution",
            "unknown_fields_warn_on_create_and_are_refused_on_patch",
        ],
    ),
    (
        "§4.2",
        "a pause skips runs without counting them as missed",
        &["runs_skipped_by_a_pause_are_not_missed"],
    ),
    (
        "§4.2",
        "a due run fires before a pause",
        &[
            "a_due_run_fires_before_on_failure_pauses_its_cue",
            "a_cue_paused_after_its_due_instant_has_run",
            "a_once_cue_that_is_due_runs_although_a_smaller_plan_pauses_the_others",
        ],
    ),
    (
        "§4.2",
        "a recurring cue without a computable run fails",
        &["a_cue_with_an_unusable_schedule_fails_with_its_reason_and_alone"],
    ),
    (
        "§4.3",
        "a recurring cue has a cron expression",
        &[
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
            "every_row_of_the_cron_table_holds",
            "a_cron_error_names_field_and_remedy",
            "random_crons_run_when_the_local_clock_first_reaches_or_passes_their_times",
        ],
    ),
    (
        "§4.3",
        "a once cue has one instant",
        &[
            "a_once_cue_completes_with_its_execution",
            "a_schedule_that_runs_once_has_one_run",
            "a_new_cue_shows_the_given_values",
            "a_bad_or_past_instant_is_an_invalid_schedule",
            "an_instant_without_an_offset_is_local_to_the_zone",
        ],
    ),
    (
        "§4.3",
        "type is recurring or once",
        &["a_new_cue_has_every_field_with_its_default", "a_new_cue_shows_the_given_values"],
    ),
    (
        "§4.3",
        "timezone is UTC by default",
        &["a_new_cue_has_every_field_with_its_default", "only_iana_names_are_zones"],
    ),
    (
        "§4.3",
        "a bad schedule is a 400 or 422 by its cause",
        &[
            "unknown_zones_and_invalid_schedules_have_different_codes",
            "invalid_or_never_matching_crons_are_invalid_schedules",
            "invalid_or_past_instants_are_invalid_schedules",
        ],
    ),
    (
        "§4.4",
        "expressions follow crontab(5)",
        &[
            "every_row_of_the_cron_table_holds",
            "random_crons_run_when_the_local_clock_first_reaches_or_passes_their_times",
        ],
    ),
    (
        "§4.3",
        "an error marks its part of the expression",
        &["a_cron_error_points_at_its_part_in_characters", "a_schedule_error_marks_its_part_on_every_route"],
    ),
    (
        "§4.4",
        "an error names the field",
        &[
            "a_cron_error_names_field_and_remedy",
            "a_cron_error_names_the_field",
            "a_never_matching_cron_is_distinguished_from_a_rare_one",
        ],
    ),
    ("§4.5", "names are those of IANA", &["only_iana_names_are_zones"]),
    (
        "§4.5",
        "a skipped time runs once after the gap",
        &["a_skipped_time_runs_once_when_the_gap_ends", "a_skipped_hour_runs_its_cue_once_after_the_gap"],
    ),
    (
        "§4.5",
        "a repeated time runs once, first",
        &[
            "a_repeated_time_runs_the_first_time_only",
            "a_repeated_hour_runs_a_daily_cue_once_and_an_hourly_cue_each_hour",
        ],
    ),
    (
        "§4.5",
        "an hourly expression keeps its interval",
        &[
            "an_hourly_schedule_keeps_its_cadence_on_both_nights",
            "every_second_hour_runs_twelve_times_on_every_day",
        ],
    ),
    (
        "§4.6",
        "the payload is optional",
        &["a_payload_is_an_object_of_at_most_one_mebibyte", "a_new_cue_has_every_field_with_its_default"],
    ),
    (
        "§4.6",
        "url is the destination",
        &["a_delivery_has_the_payload_and_identifies_its_execution", "only_absolute_http_urls_are_accepted"],
    ),
    (
        "§4.6",
        "method is POST by default",
        &[
            "a_new_cue_has_every_field_with_its_default",
            "the_five_methods_are_read_in_upper_and_lower_case",
            "one_cue_shows_its_last_run_and_its_executions",
        ],
    ),
    (
        "§4.6",
        "headers can be set and changed",
        &["a_patch_changes_only_the_fields_it_names", "unusable_callback_methods_and_headers_are_refused"],
    ),
    (
        "§4.6",
        "a URL is absolute http or https",
        &["only_absolute_http_urls_are_accepted", "an_unusable_url_is_refused", "length_limits_are_exact"],
    ),
    (
        "§4.6",
        "a name beyond ASCII is converted by UTS 46",
        &[
            "a_name_beyond_ascii_is_converted_by_uts_46",
            "a_name_that_uts_46_does_not_allow_is_refused",
            "an_address_in_other_digits_is_that_address",
            "a_name_beyond_ascii_is_stored_shown_and_called_in_its_ascii_form",
        ],
    ),
    (
        "§4.6",
        "reserved and unsafe headers are rejected",
        &[
            "headers_that_the_delivery_sets_are_refused_in_any_case",
            "header_names_and_values_that_could_break_a_request_are_refused",
            "at_most_32_headers_and_each_once",
        ],
    ),
    ("§4.6", "a payload has at most 1,048,576 bytes", &["a_payload_is_an_object_of_at_most_one_mebibyte"]),
    (
        "§4.6",
        "the last backoff repeats",
        &["the_last_pause_repeats", "fractional_backoffs_are_kept_and_410_is_not_retried"],
    ),
];
