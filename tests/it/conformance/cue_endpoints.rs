//! Chapter 4 of the contract: the endpoints of cues, §4.7 to §4.14.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§4.7",
        "the transport is webhook or worker",
        &["every_field_of_a_new_cue_is_validated", "a_new_cue_has_every_field_with_its_default"],
    ),
    ("§4.7", "the endpoint creates a cue", &["a_new_cue_has_every_field_with_its_default"]),
    ("§4.7", "name is required", &["every_field_of_a_new_cue_is_validated"]),
    (
        "§4.7",
        "schedule is required",
        &[
            "a_new_cue_shows_the_given_values",
            "a_new_cue_has_every_field_with_its_default",
            "a_422_lists_every_problem",
        ],
    ),
    (
        "§4.7",
        "callback has url, method and headers",
        &[
            "a_new_cue_shows_the_given_values",
            "a_new_cue_has_every_field_with_its_default",
            "unusable_callback_methods_and_headers_are_refused",
        ],
    ),
    (
        "§4.7",
        "payload is an object",
        &[
            "a_payload_is_an_object_of_at_most_one_mebibyte",
            "a_new_cue_shows_the_given_values",
            "values_that_cannot_be_stored_exactly_are_refused",
        ],
    ),
    (
        "§4.7",
        "description is optional",
        &["a_new_cue_shows_the_given_values", "every_field_of_a_new_cue_is_validated"],
    ),
    (
        "§4.7",
        "retry is optional",
        &["a_new_cue_shows_the_given_values", "every_field_of_a_new_cue_is_validated"],
    ),
    ("§4.7", "the response is the cue", &["a_new_cue_has_every_field_with_its_default"]),
    (
        "§4.7",
        "cue_limit_exceeded at the plan limit",
        &[
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
            "a_downgrade_pauses_the_newest_cues_above_the_limit",
        ],
    ),
    (
        "§4.7",
        "unknown fields are named in warning",
        &[
            "unknown_fields_warn_on_create_and_are_refused_on_patch",
            "ignored_fields_of_a_create_are_named_at_every_level",
        ],
    ),
    (
        "§4.8",
        "limit is 1 to 100, default 20",
        &["query_parameters_are_validated", "the_cue_list_defaults_to_twenty_and_shows_only_own_cues"],
    ),
    (
        "§4.8",
        "the list has only the cues of the user",
        &[
            "the_cue_list_defaults_to_twenty_and_shows_only_own_cues",
            "missing_resources_and_those_of_other_users_are_indistinguishable",
        ],
    ),
    (
        "§4.8",
        "status filters by one of four states",
        &["cues_can_be_filtered_by_status", "query_parameters_are_validated"],
    ),
    (
        "§4.8",
        "offset skips cues, default 0",
        &["the_cue_list_defaults_to_twenty_and_shows_only_own_cues", "query_parameters_are_validated"],
    ),
    ("§4.8", "the list has cues, total, limit and offset", &["a_new_cue_has_every_field_with_its_default"]),
    (
        "§4.8",
        "filters, sorts and cursors",
        &[
            "every_sort_and_filter_pages_by_cursor_and_by_offset_alike",
            "a_text_is_searched_in_name_description_host_and_the_beginning_of_the_id",
            "query_parameters_are_validated",
        ],
    ),
    (
        "§4.8",
        "a cursor belongs to one list and outlives changes of the cues",
        &[
            "a_cursor_goes_on_after_the_page_before_it_while_cues_come_and_go",
            "a_cursor_is_refused_with_another_list_and_when_it_is_none",
        ],
    ),
    (
        "§4.8",
        "recent has a letter for each run and the newest execution",
        &["recent_runs_are_letters_newest_last", "the_last_run_has_its_latest_attempt"],
    ),
    ("§4.8", "payload=text returns the text that is sent", &["the_payload_of_a_cue_can_be_read_as_text"]),
    (
        "§4.8",
        "a single cue has last_run, payload and executions",
        &["one_cue_shows_its_last_run_and_its_executions"],
    ),
    (
        "§4.8",
        "an unknown cue is a 404",
        &[
            "missing_resources_and_those_of_other_users_are_indistinguishable",
            "an_error_has_exactly_code_message_and_status",
        ],
    ),
    (
        "§4.8",
        "executions inside a cue are paged",
        &["the_executions_inside_a_cue_are_paged", "executions_of_a_cue_are_paged_newest_first"],
    ),
    ("§4.9", "only the given fields change", &["a_patch_changes_only_the_fields_it_names"]),
    (
        "§4.9",
        "status pauses or resumes",
        &["runs_skipped_by_a_pause_are_not_missed", "unknown_fields_warn_on_create_and_are_refused_on_patch"],
    ),
    (
        "§4.9",
        "parts of the schedule can be changed",
        &["a_patch_changes_only_the_fields_it_names", "a_changed_schedule_starts_now_in_its_own_zone"],
    ),
    ("§4.9", "an unknown field is a 422", &["unknown_fields_warn_on_create_and_are_refused_on_patch"]),
    (
        "§4.9",
        "the response is the cue",
        &["a_patch_changes_only_the_fields_it_names", "runs_skipped_by_a_pause_are_not_missed"],
    ),
    (
        "§4.9",
        "a due run fires before the change",
        &["a_due_run_fires_before_a_patch_applies", "a_cue_paused_after_its_due_instant_has_run"],
    ),
    ("§4.9", "a past instant cannot be resumed", &["a_paused_cue_rejects_a_past_instant"]),
    (
        "§4.10",
        "a deleted cue is removed with its executions",
        &[
            "a_cue_deleted_during_its_delivery_leaves_nothing",
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
        ],
    ),
    (
        "§4.10",
        "an unknown cue is a 404",
        &[
            "missing_resources_and_those_of_other_users_are_indistinguishable",
            "an_error_has_exactly_code_message_and_status",
        ],
    ),
    (
        "§4.10",
        "a running delivery is discarded",
        &[
            "a_cue_deleted_during_its_delivery_leaves_nothing",
            "the_rows_of_a_deleted_cue_are_invisible_before_their_deletion",
            "queued_deliveries_of_a_deleted_cue_are_not_sent",
        ],
    ),
    (
        "§4.11",
        "a cue is fired now or later with another payload",
        &["a_cue_can_be_fired_now_or_later_with_another_payload"],
    ),
    (
        "§4.11",
        "send_at without an offset uses the zone of the schedule",
        &["send_at_without_an_offset_uses_the_zone_of_the_schedule"],
    ),
    (
        "§4.12",
        "every due instant runs or is recorded",
        &[
            "every_due_instant_runs_once_or_is_missed_once",
            "runs_missed_during_downtime_follow_the_catch_up_policy",
            "a_restart_fires_due_runs_and_records_why_others_were_missed",
        ],
    ),
    (
        "§4.12",
        "catch-up is spread, and runs that fall due meanwhile come first",
        &[
            "a_transaction_creates_at_most_500_executions_and_the_next_one_continues",
            "a_cue_that_falls_due_during_the_catch_up_is_in_the_next_transaction",
            "runs_that_fall_due_now_are_sent_before_those_of_an_outage",
        ],
    ),
    (
        "§4.12",
        "latest, all and none",
        &[
            "latest_fires_the_newest_and_records_the_others_as_missed",
            "all_fires_the_newest_hundred_oldest_first",
            "none_fires_nothing_and_records_all_as_missed",
            "a_once_cue_fires_under_every_catch_up_policy",
        ],
    ),
    (
        "§4.12",
        "a forward jump of over a minute is a gap",
        &[
            "only_a_difference_of_over_a_minute_is_a_clock_jump",
            "a_forward_jump_fires_the_newest_run_and_records_the_others_as_missed",
        ],
    ),
    (
        "§4.12",
        "nothing fires before the newest known instant",
        &[
            "nothing_fires_while_the_clock_is_before_the_last_seen_instant",
            "clock_jumps_of_twelve_hours_lose_no_instant_and_fire_still_works",
        ],
    ),
    (
        "§4.12",
        "a jump ahead of over a day is believed only once it lasts, or where the clock was not set",
        &[
            "a_jump_of_forty_years_for_twenty_seconds_changes_nothing",
            "a_jump_of_days_is_believed_once_it_has_lasted_for_ten_minutes",
            "a_jump_that_lasts_or_that_a_time_service_has_made_is_believed",
            "a_clock_that_is_behind_or_was_never_set_may_jump",
        ],
    ),
    (
        "§4.12",
        "a clock that was ahead is reported, and accepted without a second run",
        &[
            "a_clock_that_was_ahead_is_told_everywhere_and_accepted_without_a_second_run",
            "a_file_without_a_server_is_accepted_as_well",
            "a_jump_that_is_right_can_be_accepted_at_once",
            "a_server_whose_file_has_seen_the_future_is_degraded_until_its_clock_is_accepted",
        ],
    ),
    (
        "§4.13",
        "upcoming and preview list the next runs",
        &["a_schedule_can_be_previewed", "a_preview_validates_like_a_create"],
    ),
    ("§4.13", "another date can be looked at", &["the_runs_of_another_date_can_be_previewed"]),
    (
        "§4.13",
        "a schedule is described in words",
        &[
            "a_cron_expression_reads_as_english",
            "a_schedule_in_words_names_its_zone_and_the_instant_of_a_single_run",
            "equal_crons_have_equal_words_and_different_crons_different_words",
        ],
    ),
    (
        "§4.13",
        "notes and transitions tell what a clock change does",
        &[
            "a_run_after_a_gap_says_which_time_does_not_exist",
            "a_run_at_a_repeated_time_says_how_often_it_runs",
            "transitions_are_changes_of_the_offset_within_the_span",
        ],
    ),
    ("§4.13", "the runs of a month are counted", &["the_runs_of_31_days_are_counted"]),
    (
        "§4.14",
        "a repeated key returns the first response",
        &[
            "a_repeated_idempotency_key_creates_one_cue",
            "a_repeated_create_returns_the_first_response_though_its_payload_is_not_kept",
        ],
    ),
    (
        "§4.11",
        "an override is merged into the payload of that instant",
        &["an_override_is_merged_into_the_payload_of_its_instant"],
    ),
    ("§4.14", "the key of a fire may be in the body", &["the_key_of_a_fire_is_taken_from_the_body_too"]),
    (
        "§4.15",
        "many cues are changed by id",
        &[
            "cues_are_paused_resumed_fired_and_deleted_by_id",
            "five_hundred_ids_are_taken_and_unknown_ones_answered",
        ],
    ),
    (
        "§4.15",
        "a filter must match the expected number",
        &[
            "a_filter_takes_what_it_matches_if_the_number_is_the_expected_one",
            "q_is_found_in_name_description_host_and_the_beginning_of_the_id",
            "every_bad_body_names_its_field",
        ],
    ),
    (
        "§4.15",
        "each cue has the rules of its own endpoint",
        &[
            "each_cue_has_the_rules_of_its_own_route",
            "a_resume_above_the_limit_of_active_cues_leaves_the_rest_paused",
            "a_part_that_fails_changes_nothing_and_the_others_stay",
        ],
    ),
    ("§4.15", "many cues take several writes", &["more_cues_than_a_write_takes_are_changed_in_several"]),
    (
        "§4.15",
        "a repetition with the key does nothing",
        &[
            "a_repeated_request_with_its_key_is_answered_and_does_nothing",
            "a_key_without_room_for_its_answer_is_refused_before_anything_is_done",
        ],
    ),
    (
        "§4.15",
        "a later write that fails is told of what is left",
        &[
            "a_fault_after_the_first_write_is_told_of_what_is_left",
            "a_fault_after_the_first_write_of_fires_names_the_cues_that_were_not_fired",
            "a_disk_that_is_full_after_the_first_write_is_told_of_what_is_left",
        ],
    ),
    (
        "§4.15",
        "a client that disconnects stops nothing",
        &["a_client_that_disconnects_stops_nothing_and_a_repetition_gets_the_answer"],
    ),
    ("§4.15", "bulk-delete returns lists of ids", &["bulk_delete_answers_with_the_ids"]),
];
