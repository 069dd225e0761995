//! §5 Authentication, §6 Events, §7 Errors, §8 Limits and §9 Versioning.

use super::Row;

pub const AUTHENTICATION: &[Row] = &[
    (
        "§5 item 1",
        "the key comes in one Bearer header",
        &["a_key_is_read_from_one_bearer_header_only", "a_missing_or_invalid_key_gets_401"],
    ),
    (
        "§5 item 2",
        "keys begin with cue_sk_",
        &["a_key_is_its_prefix_and_32_digits", "registration_returns_the_key_once"],
    ),
    ("§5 item 3: missing", "401", &["every_endpoint_requires_a_key_except_the_public_ones"]),
    ("§5 item 3: invalid", "401", &["a_missing_or_invalid_key_gets_401"]),
    (
        "§5 item 3: revoked",
        "401",
        &[
            "named_keys_work_in_parallel_until_revoked",
            "keys_are_added_listed_and_revoked_while_the_server_runs",
        ],
    ),
    (
        "§5 item 4: health",
        "no key",
        &[
            "every_endpoint_requires_a_key_except_the_public_ones",
            "health_and_the_test_clock_are_not_rate_limited",
        ],
    ),
    ("§5 item 4: device codes", "no key", &["every_endpoint_requires_a_key_except_the_public_ones"]),
    ("§5 item 4: register", "shown without a key", &["every_endpoint_requires_a_key_except_the_public_ones"]),
    (
        "§5 item 5",
        "a key is shown once and never again",
        &[
            "registration_returns_the_key_once",
            "regenerating_a_key_returns_a_message_and_revokes_the_old_key",
            "only_the_hash_of_a_key_is_stored",
        ],
    ),
    (
        "§5 item 6",
        "a new key ends the old one at once",
        &[
            "regenerating_a_key_returns_a_message_and_revokes_the_old_key",
            "a_replaced_key_is_unknown_and_the_new_one_is_known",
        ],
    ),
    (
        "§5 item 7",
        "a secret per user, read and rotated",
        &[
            "both_secrets_sign_for_24_hours_after_a_rotation",
            "me_returns_the_account_its_limits_and_its_usage",
        ],
    ),
    (
        "§5 item 8",
        "left open: the steps of the login",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "codes_and_links_expire_after_15_minutes",
        ],
    ),
];

pub const EVENTS: &[Row] = &[
    (
        "§6 item 1: request",
        "the payload, with method and headers as configured",
        &[
            "a_delivery_has_the_payload_and_identifies_its_execution",
            "the_request_has_exactly_the_given_headers_and_body",
        ],
    ),
    ("§6 item 1: method", "POST unless given", &["one_cue_shows_its_last_run_and_its_executions"]),
    (
        "§6 item 1: timeout",
        "30 seconds",
        &[
            "no_agent_goes_through_a_proxy_or_follows_redirects",
            "a_silent_server_is_cut_by_the_timeout",
            "a_slowly_sent_body_is_cut_by_the_timeout",
        ],
    ),
    (
        "§6 item 1: http_status",
        "recorded",
        &["a_failed_delivery_is_retried_after_each_backoff", "a_success_is_recorded_with_the_response"],
    ),
    ("§6 item 1: attempts", "recorded", &["a_failed_delivery_is_retried_after_each_backoff"]),
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
            "an_execution_is_listed_claimed_extended_and_reported",
            "fifty_clients_claim_each_of_five_hundred_executions_once",
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
            "an_error_has_exactly_code_message_and_status",
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
        ],
    ),
    ("§7 400 invalid_plan", "neither pro nor scale", &["invalid_purchases_are_refused"]),
    (
        "§7 400 no_billing_customer",
        "no billing account",
        &["invalid_purchases_are_refused", "a_paying_customer_is_recognized_by_checkout_and_portal"],
    ),
    ("§7 401 invalid_api_key", "invalid or missing", &["a_missing_or_invalid_key_gets_401"]),
    (
        "§7 403 cue_limit_exceeded",
        "the limit of the plan",
        &["an_upgrade_and_a_cancellation_apply_to_the_next_request"],
    ),
    (
        "§7 404 cue_not_found",
        "no such cue",
        &["missing_resources_and_those_of_other_users_are_indistinguishable"],
    ),
    (
        "§7 409 already_claimed",
        "claimed or not pending",
        &[
            "a_resource_in_another_state_is_a_conflict",
            "only_a_pending_worker_execution_may_be_claimed",
            "a_later_execution_cannot_be_claimed_before_its_time",
        ],
    ),
    ("§7 409 outcome_already_reported", "recorded before", &["a_resource_in_another_state_is_a_conflict"]),
    ("§7 413", "a body over 2 MB", &["a_body_over_two_megabytes_is_refused"]),
    ("§7 422", "an unknown field of a PATCH", &["unknown_fields_warn_on_create_and_are_refused_on_patch"]),
    ("§7 429", "with Retry-After", &["the_61st_request_is_refused_until_the_window_slides"]),
    (
        "§7 422 body",
        "a list of type, msg, input",
        &["unknown_fields_warn_on_create_and_are_refused_on_patch", "a_422_has_detail_next_to_error"],
    ),
    (
        "§7 422 unknown field",
        "extra_forbidden, its sentence, the name as input",
        &["unknown_fields_warn_on_create_and_are_refused_on_patch"],
    ),
    (
        "§7 other codes",
        "left open",
        &[
            "every_execution_error_has_its_status_and_code",
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
        ],
    ),
];

pub const LIMITS: &[Row] = &[
    (
        "§8 rate, free",
        "60 a minute, sliding",
        &["the_61st_request_is_refused_until_the_window_slides", "any_sixty_seconds_have_at_most_the_limit"],
    ),
    (
        "§8 rate, pro",
        "200 a minute",
        &["each_plan_has_its_rate_limit_and_name", "the_rate_of_a_new_plan_applies_to_the_next_request"],
    ),
    (
        "§8 rate, scale",
        "500 a minute",
        &["each_plan_has_its_rate_limit_and_name", "a_plan_set_while_the_server_runs_applies_at_once"],
    ),
    (
        "§8 request body",
        "2 MB, else 413",
        &["a_body_over_two_megabytes_is_refused", "a_body_at_the_limit_is_accepted"],
    ),
    (
        "§8 webhook timeout",
        "30 seconds",
        &["no_agent_goes_through_a_proxy_or_follows_redirects", "a_silent_server_is_cut_by_the_timeout"],
    ),
    (
        "§8 outcome metadata",
        "10 KB",
        &["metadata_at_the_limit_is_accepted_and_one_byte_more_is_refused", "worker_requests_are_validated"],
    ),
    ("§8 cue name", "255 characters", &["every_field_of_a_new_cue_is_validated"]),
    (
        "§8 list limit",
        "1 to 100, default 20",
        &["query_parameters_are_validated", "the_cue_list_defaults_to_twenty_and_shows_only_own_cues"],
    ),
    (
        "§8 cue limit, free",
        "10 active cues",
        &[
            "usage_of_a_free_account_has_all_fields_and_limits",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    ("§8 quota, free", "300 executions", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    (
        "§8 headers",
        "limit and remaining on every response",
        &[
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
            "every_request_counts_and_the_rate_is_checked_before_the_body",
        ],
    ),
    (
        "§8 Retry-After",
        "in seconds, on 429",
        &[
            "the_61st_request_is_refused_until_the_window_slides",
            "retry_after_is_in_whole_seconds_rounded_up",
        ],
    ),
    (
        "§8 pro and scale",
        "left open: their cues and executions",
        &["an_upgrade_and_a_cancellation_apply_to_the_next_request"],
    ),
    ("§8 above the metadata size", "left open: 400", &["every_execution_error_has_its_status_and_code"]),
    (
        "§8 above the quota",
        "left open: a day of grace",
        &["runs_above_the_quota_continue_for_a_day_and_then_fail_until_the_month_ends"],
    ),
];

pub const VERSIONING: &[Row] = &[
    (
        "§9 prefix",
        "/v1/ but for the health checks",
        &[
            "every_path_except_the_health_checks_has_the_version_prefix",
            "paths_and_methods_are_checked_before_the_key",
        ],
    ),
    ("§9 version", "a text in health", &["health_has_every_field_and_ignores_workers_in_its_status"]),
];
