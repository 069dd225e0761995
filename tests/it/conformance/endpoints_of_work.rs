//! §4 Endpoints: cues, executions, workers.

use super::Row;

pub const ENDPOINTS: &[Row] = &[
    (
        "§4 Authentication",
        "a Bearer key unless stated",
        &["every_endpoint_requires_a_key_except_the_public_ones", "a_missing_or_invalid_key_gets_401"],
    ),
    (
        "§4 {cue_id}",
        "cue_ and 12 characters",
        &[
            "an_invalid_cue_id_is_not_parsed",
            "missing_resources_and_those_of_other_users_are_indistinguishable",
        ],
    ),
    (
        "§4 {execution_id}",
        "a UUID",
        &[
            "only_uuids_with_hyphens_are_execution_ids",
            "missing_resources_and_those_of_other_users_are_indistinguishable",
        ],
    ),
    (
        "§4 Success statuses",
        "left open but for me: 200",
        &["me_returns_the_account_its_limits_and_its_usage"],
    ),
    ("§4 POST /v1/cues", "makes a cue", &["a_new_cue_has_every_field_with_its_default"]),
    (
        "§4 POST /v1/cues: name",
        "required, at most 255 characters",
        &["every_field_of_a_new_cue_is_validated"],
    ),
    (
        "§4 POST /v1/cues: schedule",
        "required; cron or at by its type, zone optional",
        &[
            "a_new_cue_shows_the_given_values",
            "a_new_cue_has_every_field_with_its_default",
            "a_422_lists_every_problem",
        ],
    ),
    (
        "§4 POST /v1/cues: callback",
        "url, method, headers; none for workers",
        &[
            "a_new_cue_shows_the_given_values",
            "a_new_cue_has_every_field_with_its_default",
            "unusable_callback_methods_and_headers_are_refused",
        ],
    ),
    (
        "§4 POST /v1/cues: transport",
        "webhook or worker",
        &["a_new_cue_has_every_field_with_its_default", "every_field_of_a_new_cue_is_validated"],
    ),
    (
        "§4 POST /v1/cues: payload",
        "any valid JSON of an object",
        &[
            "a_payload_is_an_object_of_at_most_one_mebibyte",
            "a_new_cue_shows_the_given_values",
            "values_that_cannot_be_stored_exactly_are_refused",
        ],
    ),
    (
        "§4 POST /v1/cues: description",
        "optional text",
        &["a_new_cue_shows_the_given_values", "every_field_of_a_new_cue_is_validated"],
    ),
    (
        "§4 POST /v1/cues: retry",
        "optional object",
        &["a_new_cue_shows_the_given_values", "every_field_of_a_new_cue_is_validated"],
    ),
    ("§4 POST /v1/cues: response", "the fields of a cue", &["a_new_cue_has_every_field_with_its_default"]),
    (
        "§4 POST /v1/cues: error",
        "403 at the limit of the plan",
        &[
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
            "a_downgrade_pauses_the_newest_cues_above_the_limit",
        ],
    ),
    (
        "§4 GET /v1/cues",
        "the caller's own",
        &[
            "the_cue_list_defaults_to_twenty_and_shows_only_own_cues",
            "missing_resources_and_those_of_other_users_are_indistinguishable",
        ],
    ),
    (
        "§4 GET /v1/cues: status",
        "one of four words, none by default",
        &["cues_can_be_filtered_by_status", "query_parameters_are_validated"],
    ),
    (
        "§4 GET /v1/cues: limit",
        "1 to 100, default 20",
        &["the_cue_list_defaults_to_twenty_and_shows_only_own_cues", "query_parameters_are_validated"],
    ),
    (
        "§4 GET /v1/cues: offset",
        "how many to skip, default 0",
        &["the_cue_list_defaults_to_twenty_and_shows_only_own_cues", "query_parameters_are_validated"],
    ),
    (
        "§4 GET /v1/cues: response",
        "cues, total, limit, offset",
        &["a_new_cue_has_every_field_with_its_default"],
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
            "missing_resources_and_those_of_other_users_are_indistinguishable",
            "an_error_has_exactly_code_message_and_status",
        ],
    ),
    (
        "§4 PATCH /v1/cues/{cue_id}",
        "changes parts; every field is optional",
        &["a_patch_changes_only_the_fields_it_names"],
    ),
    (
        "§4 PATCH: status",
        "active or paused only",
        &["runs_skipped_by_a_pause_are_not_missed", "unknown_fields_warn_on_create_and_are_refused_on_patch"],
    ),
    ("§4 PATCH: name", "a text", &["a_patch_changes_only_the_fields_it_names"]),
    (
        "§4 PATCH: schedule",
        "the changed parts are enough",
        &["a_patch_changes_only_the_fields_it_names", "a_changed_schedule_starts_now_in_its_own_zone"],
    ),
    ("§4 PATCH: callback", "url, method, headers", &["a_patch_changes_only_the_fields_it_names"]),
    ("§4 PATCH: payload", "an object", &["a_patch_changes_only_the_fields_it_names"]),
    ("§4 PATCH: description", "a text", &["a_patch_changes_only_the_fields_it_names"]),
    ("§4 PATCH: other fields", "422", &["unknown_fields_warn_on_create_and_are_refused_on_patch"]),
    (
        "§4 PATCH: response",
        "the cue; next_run is null after a pause",
        &["a_patch_changes_only_the_fields_it_names", "runs_skipped_by_a_pause_are_not_missed"],
    ),
    (
        "§4 DELETE /v1/cues/{cue_id}",
        "the cue and its executions, without a body",
        &["a_cue_deleted_during_its_delivery_leaves_nothing"],
    ),
    (
        "§4 DELETE /v1/cues/{cue_id}: error",
        "404",
        &[
            "missing_resources_and_those_of_other_users_are_indistinguishable",
            "an_error_has_exactly_code_message_and_status",
        ],
    ),
    (
        "§4 GET /v1/executions/claimable",
        "what waits for workers",
        &["an_execution_is_listed_claimed_extended_and_reported"],
    ),
    (
        "§4 GET /v1/executions/claimable: task",
        "only that task",
        &[
            "filters_apply_before_the_limit_and_the_oldest_comes_first",
            "an_execution_is_listed_claimed_extended_and_reported",
        ],
    ),
    (
        "§4 GET /v1/executions/claimable: response",
        "a list under executions",
        &["an_execution_is_listed_claimed_extended_and_reported"],
    ),
    ("§4 POST claim", "claims what is pending", &["an_execution_is_listed_claimed_extended_and_reported"]),
    (
        "§4 POST claim: worker_id",
        "optional, anonymous-worker",
        &["a_claim_needs_no_body_and_returns_an_empty_object_for_a_missing_payload"],
    ),
    (
        "§4 POST claim: response",
        "claimed, execution_id, payload",
        &["an_execution_is_listed_claimed_extended_and_reported"],
    ),
    ("§4 POST claim: error", "409", &["every_execution_error_has_its_status_and_code"]),
    (
        "§4 POST outcome",
        "once per execution",
        &[
            "of_two_concurrent_outcomes_the_acknowledged_one_is_kept",
            "of_two_concurrent_reports_one_is_recorded",
        ],
    ),
    ("§4 POST outcome: success", "required, true or false", &["worker_requests_are_validated"]),
    (
        "§4 POST outcome: result",
        "optional text",
        &["worker_requests_are_validated", "an_execution_is_listed_claimed_extended_and_reported"],
    ),
    (
        "§4 POST outcome: error",
        "optional text",
        &["worker_requests_are_validated", "one_cue_shows_its_last_run_and_its_executions"],
    ),
    (
        "§4 POST outcome: metadata",
        "optional object of at most 10 KB",
        &["worker_requests_are_validated", "every_execution_error_has_its_status_and_code"],
    ),
    (
        "§4 POST outcome: response",
        "execution_id and outcome, error when given",
        &[
            "one_cue_shows_its_last_run_and_its_executions",
            "an_execution_is_listed_claimed_extended_and_reported",
        ],
    ),
    ("§4 POST outcome: refusal", "409", &["every_execution_error_has_its_status_and_code"]),
    (
        "§4 POST /v1/worker/heartbeat",
        "registers or refreshes",
        &["a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next"],
    ),
    (
        "§4 POST /v1/worker/heartbeat: worker_id",
        "required, one per worker",
        &[
            "worker_requests_are_validated",
            "a_worker_is_registered_by_its_first_heartbeat_and_refreshed_by_the_next",
        ],
    ),
    ("§4 POST /v1/worker/heartbeat: handlers", "required list of texts", &["worker_requests_are_validated"]),
    (
        "§4 POST /v1/worker/heartbeat: response",
        "acknowledged",
        &["workers_are_listed_with_their_heartbeat_status_and_can_be_deleted"],
    ),
];
