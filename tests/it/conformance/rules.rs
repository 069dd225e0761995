//! §5 Authentication, §6 Events, §7 Errors, §8 Limits and §9 Versioning.

use super::Row;

pub const AUTHENTICATION: &[Row] = &[
    (
        "§5 item 1",
        "the key comes in one Bearer header",
        &["the_key_is_read_from_exactly_one_bearer_header", "without_a_good_key_there_is_nothing"],
    ),
    (
        "§5 item 2",
        "keys begin with cue_sk_",
        &["a_key_is_its_prefix_and_32_digits", "registration_answers_the_only_sight_of_the_key"],
    ),
    ("§5 item 3: missing", "401", &["every_endpoint_wants_a_key_but_those_that_are_open"]),
    ("§5 item 3: invalid", "401", &["without_a_good_key_there_is_nothing"]),
    (
        "§5 item 3: revoked",
        "401",
        &[
            "named_keys_work_beside_each_other_until_they_are_revoked",
            "keys_are_added_listed_and_revoked_beside_the_server",
        ],
    ),
    (
        "§5 item 4: health",
        "no key",
        &[
            "every_endpoint_wants_a_key_but_those_that_are_open",
            "health_and_the_test_clock_are_never_refused_do_not_count_and_say_the_truth",
        ],
    ),
    ("§5 item 4: device codes", "no key", &["every_endpoint_wants_a_key_but_those_that_are_open"]),
    ("§5 item 4: register", "shown without a key", &["every_endpoint_wants_a_key_but_those_that_are_open"]),
    (
        "§5 item 5",
        "a key is shown once and never again",
        &[
            "registration_answers_the_only_sight_of_the_key",
            "a_new_key_comes_with_a_message_and_ends_the_old_one",
            "only_the_hash_of_a_key_is_in_the_file_or_beside_it",
        ],
    ),
    (
        "§5 item 6",
        "a new key ends the old one at once",
        &[
            "a_new_key_comes_with_a_message_and_ends_the_old_one",
            "a_key_is_known_until_it_is_replaced_and_the_new_one_from_then_on",
        ],
    ),
    (
        "§5 item 7",
        "a secret per user, read and rotated",
        &[
            "for_24_hours_after_a_rotation_both_secrets_sign_and_then_the_new_one_alone",
            "me_shows_the_account_its_limits_and_what_is_used_of_them",
        ],
    ),
    (
        "§5 item 8",
        "left open: the steps of the login",
        &[
            "a_device_gets_its_key_once_after_its_owner_confirmed_the_mailed_link",
            "codes_and_links_end_after_15_minutes",
        ],
    ),
];

pub const EVENTS: &[Row] = &[
    (
        "§6 item 1: request",
        "the payload, with method and headers as configured",
        &[
            "a_delivery_carries_the_payload_and_says_which_run_it_is",
            "the_request_carries_what_the_parcel_holds_and_nothing_else",
        ],
    ),
    ("§6 item 1: method", "POST unless given", &["one_cue_shows_its_last_run_and_its_executions"]),
    (
        "§6 item 1: timeout",
        "30 seconds",
        &[
            "no_agent_goes_through_a_proxy_or_follows_redirects",
            "a_server_that_only_hangs_is_cut_by_the_timeout",
            "a_server_that_drips_its_body_is_cut_by_the_timeout",
        ],
    ),
    (
        "§6 item 1: http_status",
        "recorded",
        &["a_failed_delivery_is_tried_again_after_each_backoff", "a_success_is_recorded_with_the_answer"],
    ),
    ("§6 item 1: attempts", "recorded", &["a_failed_delivery_is_tried_again_after_each_backoff"]),
    (
        "§6 item 2: pending",
        "each run of a worker cue becomes an execution",
        &[
            "a_worker_execution_becomes_claimable_and_is_never_sent",
            "one_cue_shows_its_last_run_and_its_executions",
        ],
    ),
    (
        "§6 item 2: listed",
        "until it is claimed",
        &[
            "work_is_listed_claimed_extended_and_reported",
            "fifty_workers_claim_each_of_five_hundred_executions_once",
        ],
    ),
    (
        "§6 item 4",
        "left open: headers, signature, body",
        &[
            "a_delivery_has_the_headers_of_the_contract_signed_at_the_time_of_sending",
            "both_signatures_are_over_the_bytes_that_are_sent",
            "the_receivers_verify_real_deliveries",
        ],
    ),
];

pub const ERRORS: &[Row] = &[
    (
        "§7 body",
        "code, message, status",
        &[
            "an_error_has_a_code_a_message_and_its_status_and_nothing_else",
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
        ],
    ),
    ("§7 400 invalid_plan", "neither pro nor scale", &["what_cannot_be_bought_is_refused"]),
    (
        "§7 400 no_billing_customer",
        "no billing account",
        &["what_cannot_be_bought_is_refused", "who_has_bought_is_known_as_a_customer_to_checkout_and_portal"],
    ),
    ("§7 401 invalid_api_key", "invalid or missing", &["without_a_good_key_there_is_nothing"]),
    (
        "§7 403 cue_limit_exceeded",
        "the limit of the plan",
        &["an_upgrade_and_a_cancel_are_in_force_on_the_next_request"],
    ),
    ("§7 404 cue_not_found", "no such cue", &["what_is_not_there_and_what_is_another_users_look_the_same"]),
    (
        "§7 409 already_claimed",
        "claimed or not pending",
        &[
            "what_is_there_in_another_state_is_a_conflict",
            "only_a_pending_worker_execution_may_be_claimed",
            "a_run_for_later_cannot_be_claimed_before_its_time",
        ],
    ),
    ("§7 409 outcome_already_reported", "recorded before", &["what_is_there_in_another_state_is_a_conflict"]),
    ("§7 413", "a body over 2 MB", &["a_body_over_two_megabytes_is_refused"]),
    (
        "§7 422",
        "an unknown field of a PATCH",
        &["unknown_fields_of_a_create_are_warned_of_and_those_of_a_patch_refused"],
    ),
    (
        "§7 429",
        "with Retry-After",
        &["sixty_requests_pass_the_61st_is_refused_and_passes_when_the_window_has_slid"],
    ),
    (
        "§7 422 body",
        "a list of type, msg, input",
        &[
            "unknown_fields_of_a_create_are_warned_of_and_those_of_a_patch_refused",
            "a_422_has_a_detail_next_to_the_error",
        ],
    ),
    (
        "§7 422 unknown field",
        "extra_forbidden, its sentence, the name as input",
        &["unknown_fields_of_a_create_are_warned_of_and_those_of_a_patch_refused"],
    ),
    (
        "§7 other codes",
        "left open",
        &[
            "every_refusal_has_its_status_and_its_code",
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
        ],
    ),
];

pub const LIMITS: &[Row] = &[
    (
        "§8 rate, free",
        "60 a minute, sliding",
        &[
            "sixty_requests_pass_the_61st_is_refused_and_passes_when_the_window_has_slid",
            "any_sixty_seconds_hold_the_limit_and_no_request_more",
        ],
    ),
    (
        "§8 rate, pro",
        "200 a minute",
        &["each_plan_has_its_rate_and_its_name", "a_new_plans_rate_is_in_force_on_the_next_request"],
    ),
    (
        "§8 rate, scale",
        "500 a minute",
        &["each_plan_has_its_rate_and_its_name", "a_plan_that_is_set_beside_the_server_counts_at_once"],
    ),
    (
        "§8 request body",
        "2 MB, else 413",
        &["a_body_over_two_megabytes_is_refused", "a_body_at_the_limit_is_taken"],
    ),
    (
        "§8 webhook timeout",
        "30 seconds",
        &[
            "no_agent_goes_through_a_proxy_or_follows_redirects",
            "a_server_that_only_hangs_is_cut_by_the_timeout",
        ],
    ),
    (
        "§8 outcome metadata",
        "10 KB",
        &[
            "metadata_of_exactly_the_limit_is_kept_and_one_byte_more_is_refused",
            "what_workers_send_is_checked",
        ],
    ),
    ("§8 cue name", "255 characters", &["the_fields_of_a_new_cue_are_checked_one_by_one"]),
    (
        "§8 list limit",
        "1 to 100, default 20",
        &["queries_are_checked", "the_list_shows_twenty_unless_asked_for_others_and_only_the_callers"],
    ),
    (
        "§8 cue limit, free",
        "10 active cues",
        &[
            "a_free_account_is_shown_all_fields_and_its_limits",
            "an_upgrade_and_a_cancel_are_in_force_on_the_next_request",
        ],
    ),
    ("§8 quota, free", "300 executions", &["a_free_account_is_shown_all_fields_and_its_limits"]),
    (
        "§8 headers",
        "limit and remaining on every response",
        &[
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
            "every_answer_counts_and_the_rate_comes_before_the_body",
        ],
    ),
    (
        "§8 Retry-After",
        "in seconds, on 429",
        &[
            "sixty_requests_pass_the_61st_is_refused_and_passes_when_the_window_has_slid",
            "a_rejection_names_the_seconds_until_the_oldest_expires_rounded_up",
        ],
    ),
    (
        "§8 pro and scale",
        "left open: their cues and executions",
        &["an_upgrade_and_a_cancel_are_in_force_on_the_next_request"],
    ),
    ("§8 above the metadata size", "left open: 400", &["every_refusal_has_its_status_and_its_code"]),
    (
        "§8 above the quota",
        "left open: a day of grace",
        &["above_the_quota_runs_go_on_for_a_day_and_then_are_recorded_and_not_sent_until_the_month_ends"],
    ),
];

pub const VERSIONING: &[Row] = &[
    (
        "§9 prefix",
        "/v1/ but for the health checks",
        &[
            "the_version_stands_before_every_path_but_the_health_checks",
            "unknown_paths_and_wrong_methods_are_told_before_the_key_is_looked_at",
        ],
    ),
    ("§9 version", "a text in health", &["health_shows_every_figure_and_workers_make_no_difference_to_it"]),
];
