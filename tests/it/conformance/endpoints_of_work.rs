//! §4 Endpoints: cues, executions, workers.

use super::Row;

pub const ENDPOINTS: &[Row] = &[
    (
        "§4 Authentication",
        "a Bearer key unless stated",
        &["every_endpoint_wants_a_key_but_those_that_are_open", "without_a_good_key_there_is_nothing"],
    ),
    (
        "§4 {cue_id}",
        "cue_ and 12 characters",
        &["other_texts_are_not_cue_ids", "what_is_not_there_and_what_is_another_users_look_the_same"],
    ),
    (
        "§4 {execution_id}",
        "a UUID",
        &[
            "only_uuids_with_hyphens_are_execution_ids",
            "what_is_not_there_and_what_is_another_users_look_the_same",
        ],
    ),
    (
        "§4 Success statuses",
        "left open but for me: 200",
        &["me_shows_the_account_its_limits_and_what_is_used_of_them"],
    ),
    ("§4 POST /v1/cues", "makes a cue", &["a_new_cue_has_every_field_and_its_defaults"]),
    (
        "§4 POST /v1/cues: name",
        "required, at most 255 characters",
        &["the_fields_of_a_new_cue_are_checked_one_by_one"],
    ),
    (
        "§4 POST /v1/cues: schedule",
        "required; cron or at by its type, zone optional",
        &[
            "what_is_given_for_a_new_cue_is_what_is_shown",
            "a_new_cue_has_every_field_and_its_defaults",
            "a_422_names_every_problem_at_once",
        ],
    ),
    (
        "§4 POST /v1/cues: callback",
        "url, method, headers; none for workers",
        &[
            "what_is_given_for_a_new_cue_is_what_is_shown",
            "a_new_cue_has_every_field_and_its_defaults",
            "methods_and_headers_that_a_delivery_cannot_carry_are_refused",
        ],
    ),
    (
        "§4 POST /v1/cues: transport",
        "webhook or worker",
        &["a_new_cue_has_every_field_and_its_defaults", "the_fields_of_a_new_cue_are_checked_one_by_one"],
    ),
    (
        "§4 POST /v1/cues: payload",
        "any valid JSON of an object",
        &[
            "a_payload_is_an_object_of_at_most_a_mebibyte",
            "what_is_given_for_a_new_cue_is_what_is_shown",
            "values_that_cannot_be_kept_as_they_are_are_refused",
        ],
    ),
    (
        "§4 POST /v1/cues: description",
        "optional text",
        &["what_is_given_for_a_new_cue_is_what_is_shown", "the_fields_of_a_new_cue_are_checked_one_by_one"],
    ),
    (
        "§4 POST /v1/cues: retry",
        "optional object",
        &["what_is_given_for_a_new_cue_is_what_is_shown", "the_fields_of_a_new_cue_are_checked_one_by_one"],
    ),
    ("§4 POST /v1/cues: response", "the fields of a cue", &["a_new_cue_has_every_field_and_its_defaults"]),
    (
        "§4 POST /v1/cues: error",
        "403 at the limit of the plan",
        &[
            "an_upgrade_and_a_cancel_are_in_force_on_the_next_request",
            "a_downgrade_pauses_the_newest_cues_above_the_limit",
        ],
    ),
    (
        "§4 GET /v1/cues",
        "the caller's own",
        &[
            "the_list_shows_twenty_unless_asked_for_others_and_only_the_callers",
            "what_is_not_there_and_what_is_another_users_look_the_same",
        ],
    ),
    (
        "§4 GET /v1/cues: status",
        "one of four words, none by default",
        &["the_list_can_be_of_one_status", "queries_are_checked"],
    ),
    (
        "§4 GET /v1/cues: limit",
        "1 to 100, default 20",
        &["the_list_shows_twenty_unless_asked_for_others_and_only_the_callers", "queries_are_checked"],
    ),
    (
        "§4 GET /v1/cues: offset",
        "how many to skip, default 0",
        &["the_list_shows_twenty_unless_asked_for_others_and_only_the_callers", "queries_are_checked"],
    ),
    (
        "§4 GET /v1/cues: response",
        "cues, total, limit, offset",
        &["a_new_cue_has_every_field_and_its_defaults"],
    ),
    (
        "§4 GET /v1/cues/{cue_id}",
        "with last run, payload, executions",
        &["one_cue_shows_its_last_run_and_its_executions"],
    ),
    (
        "§4 GET /v1/cues/{cue_id}: error",
        "404",
        &[
            "what_is_not_there_and_what_is_another_users_look_the_same",
            "an_error_has_a_code_a_message_and_its_status_and_nothing_else",
        ],
    ),
    (
        "§4 PATCH /v1/cues/{cue_id}",
        "changes parts; every field is optional",
        &["a_patch_changes_what_it_names_and_nothing_else"],
    ),
    (
        "§4 PATCH: status",
        "active or paused only",
        &[
            "a_pause_skips_runs_without_counting_them_as_missed",
            "unknown_fields_of_a_create_are_warned_of_and_those_of_a_patch_refused",
        ],
    ),
    ("§4 PATCH: name", "a text", &["a_patch_changes_what_it_names_and_nothing_else"]),
    (
        "§4 PATCH: schedule",
        "the changed parts are enough",
        &[
            "a_patch_changes_what_it_names_and_nothing_else",
            "a_changed_schedule_runs_from_now_in_its_own_zone",
        ],
    ),
    ("§4 PATCH: callback", "url, method, headers", &["a_patch_changes_what_it_names_and_nothing_else"]),
    ("§4 PATCH: payload", "an object", &["a_patch_changes_what_it_names_and_nothing_else"]),
    ("§4 PATCH: description", "a text", &["a_patch_changes_what_it_names_and_nothing_else"]),
    (
        "§4 PATCH: other fields",
        "422",
        &["unknown_fields_of_a_create_are_warned_of_and_those_of_a_patch_refused"],
    ),
    (
        "§4 PATCH: response",
        "the cue; next_run is null after a pause",
        &[
            "a_patch_changes_what_it_names_and_nothing_else",
            "a_pause_skips_runs_without_counting_them_as_missed",
        ],
    ),
    (
        "§4 DELETE /v1/cues/{cue_id}",
        "the cue and its executions, without a body",
        &["a_cue_deleted_while_its_delivery_is_under_way_leaves_nothing"],
    ),
    (
        "§4 DELETE /v1/cues/{cue_id}: error",
        "404",
        &[
            "what_is_not_there_and_what_is_another_users_look_the_same",
            "an_error_has_a_code_a_message_and_its_status_and_nothing_else",
        ],
    ),
    (
        "§4 GET /v1/executions/claimable",
        "what waits for workers",
        &["work_is_listed_claimed_extended_and_reported"],
    ),
    (
        "§4 GET /v1/executions/claimable: task",
        "only that task",
        &[
            "filters_apply_before_the_limit_and_the_oldest_comes_first",
            "work_is_listed_claimed_extended_and_reported",
        ],
    ),
    (
        "§4 GET /v1/executions/claimable: response",
        "a list under executions",
        &["work_is_listed_claimed_extended_and_reported"],
    ),
    ("§4 POST claim", "claims what is pending", &["work_is_listed_claimed_extended_and_reported"]),
    (
        "§4 POST claim: worker_id",
        "optional, anonymous-worker",
        &["a_claim_needs_no_body_and_a_missing_payload_is_an_empty_object"],
    ),
    (
        "§4 POST claim: response",
        "claimed, execution_id, payload",
        &["work_is_listed_claimed_extended_and_reported"],
    ),
    ("§4 POST claim: error", "409", &["every_refusal_has_its_status_and_its_code"]),
    (
        "§4 POST outcome",
        "once per execution",
        &[
            "of_two_outcomes_reported_at_once_the_one_that_was_acknowledged_is_kept",
            "of_two_reports_at_once_one_is_recorded_and_one_refused",
        ],
    ),
    ("§4 POST outcome: success", "required, true or false", &["what_workers_send_is_checked"]),
    (
        "§4 POST outcome: result",
        "optional text",
        &["what_workers_send_is_checked", "work_is_listed_claimed_extended_and_reported"],
    ),
    (
        "§4 POST outcome: error",
        "optional text",
        &["what_workers_send_is_checked", "one_cue_shows_its_last_run_and_its_executions"],
    ),
    (
        "§4 POST outcome: metadata",
        "optional object of at most 10 KB",
        &["what_workers_send_is_checked", "every_refusal_has_its_status_and_its_code"],
    ),
    (
        "§4 POST outcome: response",
        "execution_id and outcome, error when given",
        &["one_cue_shows_its_last_run_and_its_executions", "work_is_listed_claimed_extended_and_reported"],
    ),
    ("§4 POST outcome: refusal", "409", &["every_refusal_has_its_status_and_its_code"]),
    (
        "§4 POST /v1/worker/heartbeat",
        "registers or refreshes",
        &["a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next"],
    ),
    (
        "§4 POST /v1/worker/heartbeat: worker_id",
        "required, one per worker",
        &[
            "what_workers_send_is_checked",
            "a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next",
        ],
    ),
    ("§4 POST /v1/worker/heartbeat: handlers", "required list of texts", &["what_workers_send_is_checked"]),
    (
        "§4 POST /v1/worker/heartbeat: response",
        "acknowledged",
        &["workers_are_listed_with_how_alive_they_are_and_can_be_removed"],
    ),
];
