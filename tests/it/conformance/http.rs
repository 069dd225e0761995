//! Chapter 2 of the contract: HTTP.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§2.1",
        "request and response bodies are JSON",
        &[
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
            "invalid_json_and_non_objects_have_different_errors",
        ],
    ),
    ("§2.1", "HTTP/2 is served like HTTP/1.1", &["http2_is_served_like_http1"]),
    ("§2.1", "HEAD is GET without a body", &["head_returns_the_headers_of_get_without_a_body"]),
    (
        "§2.1",
        "values are strictly typed",
        &[
            "integers_are_strict_and_of_any_length",
            "null_is_absent_for_an_optional_field_and_a_wrong_type_for_a_required_one",
        ],
    ),
    (
        "§2.1",
        "the last value of a repeated query parameter counts",
        &["values_are_decoded_and_the_last_of_a_repeated_name_counts"],
    ),
    (
        "§2.2",
        "every response has the rate limit headers",
        &[
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
            "every_request_counts_and_the_rate_is_checked_before_the_body",
        ],
    ),
    ("§2.2", "a success that creates nothing is a 200", &["me_returns_the_account_its_limits_and_its_usage"]),
    ("§2.2", "a safe request id of the client is kept", &["a_client_request_id_is_kept_only_if_it_is_safe"]),
    (
        "§2.2",
        "every response has the same headers",
        &["every_response_carries_the_same_headers_and_every_error_the_same_body"],
    ),
    (
        "§2.3",
        "an error has code, message and status",
        &[
            "an_error_has_exactly_code_message_and_status",
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
        ],
    ),
    (
        "§2.3",
        "an unknown field of a PATCH is a 422",
        &["unknown_fields_warn_on_create_and_are_refused_on_patch"],
    ),
    (
        "§2.3",
        "an entry of detail has type, loc, msg and input",
        &["unknown_fields_warn_on_create_and_are_refused_on_patch", "a_422_has_a_detail_next_to_the_error"],
    ),
    (
        "§2.3",
        "a rejected unknown field is extra_forbidden",
        &["unknown_fields_warn_on_create_and_are_refused_on_patch"],
    ),
    (
        "§2.3",
        "a 422 lists every problem, at most 100",
        &["a_422_lists_every_problem", "the_number_of_errors_is_bounded"],
    ),
    (
        "§2.3",
        "types and messages follow Pydantic",
        &["messages_are_those_of_pydantic", "every_error_is_reported_in_the_format_of_pydantic"],
    ),
    ("§2.4", "invalid_plan for a plan that is not for sale", &["invalid_purchases_are_refused"]),
    (
        "§2.4",
        "no_billing_customer for an account that never upgraded",
        &["invalid_purchases_are_refused", "a_paying_customer_is_recognized_by_checkout_and_portal"],
    ),
    ("§2.4", "invalid_api_key for a missing or invalid key", &["a_missing_or_invalid_key_gets_401"]),
    (
        "§2.4",
        "cue_limit_exceeded at the plan limit",
        &["an_upgrade_and_a_cancellation_apply_to_the_next_request"],
    ),
    (
        "§2.4",
        "cue_not_found for an unknown cue",
        &["missing_resources_and_those_of_other_users_are_indistinguishable"],
    ),
    (
        "§2.4",
        "already_claimed for an execution that is not pending",
        &[
            "a_resource_in_another_state_is_a_conflict",
            "only_a_pending_worker_execution_may_be_claimed",
            "a_later_execution_cannot_be_claimed_before_its_time",
        ],
    ),
    ("§2.4", "too_many_streams for a sixth stream", &["a_sixth_stream_is_refused_until_another_ends"]),
    ("§2.4", "outcome_already_reported for a second report", &["a_resource_in_another_state_is_a_conflict"]),
    (
        "§2.4",
        "every other code has its condition",
        &[
            "every_execution_error_has_its_status_and_code",
            "every_response_carries_the_same_headers_and_every_error_the_same_body",
        ],
    ),
    (
        "§2.5",
        "invalid JSON is rejected with its position",
        &["errors_have_their_reason_and_position", "sixty_four_levels_are_read_and_one_more_is_not"],
    ),
    ("§2.5", "integers keep their digits", &["integers_keep_their_digits_and_other_numbers_their_double"]),
    ("§2.5", "the last value of a repeated key counts", &["the_last_value_of_a_repeated_key_counts"]),
    ("§2.5", "a NUL character is a 422", &["a_nul_character_is_rejected"]),
    (
        "§2.6",
        "responses give UTC with Z",
        &["instants_end_in_the_zone_of_their_format", "a_new_cue_has_every_field_with_its_default"],
    ),
    (
        "§2.6",
        "next_run ends in +00:00",
        &["a_new_cue_has_every_field_with_its_default", "instants_end_in_the_zone_of_their_format"],
    ),
    (
        "§2.6",
        "timestamp of /health has no zone",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    (
        "§2.6",
        "requests take any offset; without one the time is local",
        &[
            "an_offset_decides_and_the_zone_does_not",
            "an_instant_without_an_offset_is_local_to_the_zone",
            "a_fraction_is_kept_to_the_millisecond",
            "an_invalid_instant_is_refused",
        ],
    ),
    (
        "§2.6",
        "a leap second is the second after it",
        &["a_leap_second_is_the_second_after_it", "a_leap_second_is_taken_wherever_an_instant_is"],
    ),
    (
        "§2.7",
        "the plan sets the rate",
        &["each_plan_has_its_rate_limit_and_name", "the_rate_of_a_new_plan_applies_to_the_next_request"],
    ),
    (
        "§2.7",
        "a rejection is a 429 with Retry-After in seconds",
        &[
            "the_61st_request_is_refused_until_the_window_slides",
            "a_rejection_names_the_seconds_until_the_oldest_expires_rounded_up",
        ],
    ),
    (
        "§2.7",
        "the window slides and rejected requests do not count",
        &[
            "any_sixty_seconds_have_at_most_the_limit",
            "a_refused_request_does_not_count",
            "the_61st_request_is_refused_until_the_window_slides",
        ],
    ),
    (
        "§2.7",
        "requests without a valid key share a window per address",
        &[
            "requests_without_a_valid_key_share_sixty_a_minute_per_address",
            "an_ipv6_network_of_64_bits_is_one_client",
            "an_ipv6_site_counts_as_at_most_sixteen_clients",
        ],
    ),
    (
        "§2.7",
        "health and the test clock are not limited",
        &["health_and_the_test_clock_are_not_rate_limited"],
    ),
    (
        "§2.7",
        "polls of a known device code count in no window",
        &["polls_of_a_known_code_do_not_count_for_the_address"],
    ),
    ("§2.7", "without limits the shown limit is a billion", &["without_limits_the_shown_limit_is_a_billion"]),
    (
        "§2.8",
        "X-Forwarded-For counts behind a trusted proxy only",
        &[
            "behind_a_trusted_proxy_each_client_has_its_own_rate_window",
            "without_a_trusted_proxy_the_header_is_ignored",
            "behind_a_trusted_peer_the_last_untrusted_hop_counts",
            "empty_entries_of_a_proxy_do_not_count_and_unreadable_ones_are_not_skipped",
        ],
    ),
    ("§2.9", "path and method come before the key", &["paths_and_methods_are_checked_before_the_key"]),
    (
        "§2.9",
        "the rate comes before the body",
        &["every_request_counts_and_the_rate_is_checked_before_the_body"],
    ),
    (
        "§2.10",
        "the key is a Bearer token",
        &["the_key_is_read_from_exactly_one_bearer_header", "a_missing_or_invalid_key_gets_401"],
    ),
    ("§2.10", "a request without a key is a 401", &["every_endpoint_requires_a_key_except_the_public_ones"]),
    (
        "§2.10",
        "a session of the account that the request names",
        &["a_page_of_one_account_makes_no_request_by_the_session_of_another"],
    ),
    ("§2.10", "an unknown key is a 401", &["a_missing_or_invalid_key_gets_401"]),
    (
        "§2.10",
        "a revoked key is a 401",
        &[
            "named_keys_work_in_parallel_until_revoked",
            "keys_are_added_listed_and_revoked_while_the_server_runs",
        ],
    ),
    (
        "§2.10",
        "the health checks need no key",
        &[
            "every_endpoint_requires_a_key_except_the_public_ones",
            "health_and_the_test_clock_are_not_rate_limited",
        ],
    ),
    ("§2.10", "device login needs no key", &["every_endpoint_requires_a_key_except_the_public_ones"]),
    ("§2.10", "registration needs no key", &["every_endpoint_requires_a_key_except_the_public_ones"]),
    (
        "§2.10",
        "every other endpoint requires a key",
        &["every_endpoint_requires_a_key_except_the_public_ones", "a_missing_or_invalid_key_gets_401"],
    ),
    (
        "§2.11",
        "every path except the health checks starts with /v1/",
        &[
            "every_path_except_the_health_checks_has_the_version_prefix",
            "paths_and_methods_are_checked_before_the_key",
        ],
    ),
    ("§2.11", "/health returns the version", &["health_has_every_field_and_ignores_workers_in_its_status"]),
    (
        "§2.12",
        "every endpoint of the table exists",
        &[
            "every_endpoint_requires_a_key_except_the_public_ones",
            "the_endpoints_of_the_contract_are_the_routes",
        ],
    ),
    (
        "§2.13",
        "a developer's server answers only to names of its machine",
        &[
            "a_developers_server_answers_only_to_names_of_its_machine",
            "an_operator_may_allow_further_hosts",
            "a_server_with_a_public_url_answers_to_every_name",
        ],
    ),
    (
        "§2.13",
        "pages of other sites change nothing without a key",
        &[
            "a_page_of_another_site_cannot_change_anything_without_a_key",
            "the_forms_of_the_own_pages_pass_and_those_of_sandboxed_frames_do_not",
        ],
    ),
    (
        "§2.13",
        "a request names exactly one host",
        &["a_request_without_exactly_one_host_is_refused_and_closed", "a_request_names_exactly_one_host"],
    ),
    ("§2.7", "sessions have a window of their own", &["sessions_have_a_window_of_240_requests_of_their_own"]),
    (
        "§2.10",
        "a key wins over a session",
        &["an_authorization_header_wins_over_the_cookie", "routes_without_a_key_do_not_look_at_the_cookie"],
    ),
    (
        "§2.13",
        "no page of another site makes a request by session, or signs in",
        &[
            "a_page_of_another_site_makes_no_request_by_session",
            "a_page_of_another_site_takes_nothing_from_the_window_of_the_session",
            "a_page_of_another_site_does_not_prolong_a_session",
            "behind_a_trusted_proxy_the_forwarded_host_is_an_origin",
            "a_sign_in_needs_json_and_no_other_site",
        ],
    ),
];
