//! Chapter 6 of the contract: Webhook delivery.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§6.1",
        "the payload is sent to the callback at each due instant",
        &[
            "a_recurring_cue_runs_at_each_of_its_times_until_it_is_deleted",
            "a_delivery_has_the_payload_and_identifies_its_execution",
            "every_due_instant_runs_once_or_is_missed_once",
        ],
    ),
    (
        "§6.1",
        "the request has the configured method and headers",
        &[
            "a_delivery_has_the_payload_and_identifies_its_execution",
            "the_request_has_exactly_the_given_headers_and_body",
        ],
    ),
    (
        "§6.1",
        "the body equals the output of Python",
        &["the_table_matches_python", "random_documents_match_python", "doubles_at_every_edge_match_python"],
    ),
    (
        "§6.1",
        "a null payload is {} and GET has no body",
        &[
            "a_missing_payload_is_sent_as_an_empty_object_and_get_has_no_body",
            "get_and_delete_carry_no_body_and_sign_the_empty_one",
        ],
    ),
    (
        "§6.2",
        "a delivery has the standard headers",
        &[
            "a_delivery_has_the_headers_of_the_contract_signed_at_the_time_of_sending",
            "both_signatures_are_over_the_bytes_that_are_sent",
            "the_receivers_verify_real_deliveries",
            "the_request_has_the_payload_and_the_attempt_number",
        ],
    ),
    (
        "§6.2",
        "own headers replace two of the standard ones",
        &["custom_headers_replace_two_of_the_standard_ones_and_no_others"],
    ),
    (
        "§6.3",
        "both signatures cover the sent bytes",
        &[
            "a_delivery_has_the_headers_of_the_contract_signed_at_the_time_of_sending",
            "both_signatures_are_over_the_bytes_that_are_sent",
            "the_receivers_verify_real_deliveries",
            "v1_is_keyed_with_the_whole_text_of_the_secret",
            "standard_is_keyed_with_the_decoded_secret",
        ],
    ),
    (
        "§6.4",
        "the timeout is 30 seconds",
        &[
            "no_agent_goes_through_a_proxy_or_follows_redirects",
            "a_silent_server_is_cut_by_the_timeout",
            "a_slowly_sent_body_is_cut_by_the_timeout",
        ],
    ),
    (
        "§6.4",
        "the public authorities and those of --callback-ca are trusted",
        &[
            "a_receiver_with_a_certificate_of_the_callback_ca_is_reached",
            "without_the_callback_ca_its_receiver_gets_no_request",
            "a_certificate_for_another_name_or_time_is_refused",
            "a_private_authority_adds_to_the_public_ones",
        ],
    ),
    ("§6.4", "redirects are not followed", &["a_redirect_is_a_response_and_is_not_followed"]),
    (
        "§6.4",
        "every fault is a failed attempt with its reason",
        &["every_receiver_fault_is_shown_and_delays_no_other_delivery"],
    ),
    (
        "§6.5",
        "the attempt after a timeout waits",
        &["the_attempt_after_a_timeout_waits_at_least_five_seconds"],
    ),
    ("§6.5", "attempts are counted until max_attempts", &["a_failed_delivery_is_retried_after_each_backoff"]),
    (
        "§6.5",
        "Retry-After of 429 and 503 applies if longer",
        &[
            "retry_after_applies_to_429_and_503_only",
            "retry_after_applies_when_it_is_longer_than_the_backoff",
        ],
    ),
    (
        "§6.5",
        "410 ends the execution",
        &["a_failing_delivery_ends_after_its_attempts_and_410_ends_it_at_once"],
    ),
    (
        "§6.6",
        "public addresses only by default",
        &[
            "the_default_allows_only_the_public_internet",
            "every_range_has_its_class_from_the_first_to_the_last_address",
        ],
    ),
    (
        "§6.6",
        "every notation and embedding of an address counts",
        &[
            "every_numeric_notation_is_an_address",
            "an_embedded_address_is_classified_too",
            "non_public_addresses_are_refused_in_every_notation",
        ],
    ),
    (
        "§6.6",
        "names are checked at each delivery",
        &[
            "a_name_that_changes_to_a_blocked_address_gets_no_connection",
            "dns_results_are_cached_but_checked_on_every_use",
            "only_the_allowed_addresses_of_a_mixed_dns_result_are_used",
        ],
    ),
    (
        "§6.6",
        "error messages tell nothing of the operator's names",
        &[
            "the_error_of_a_blocked_name_equals_that_of_an_unknown_one",
            "the_address_of_a_blocked_name_is_logged_and_not_shown",
        ],
    ),
    (
        "§6.7",
        "delivery is at least once",
        &[
            "a_kill_loses_no_acknowledged_write_and_no_due_run",
            "a_delivery_interrupted_by_a_crash_is_repeated",
        ],
    ),
    (
        "§6.7",
        "a slow destination delays no other",
        &[
            "a_hanging_receiver_does_not_delay_another",
            "five_hundred_deliveries_to_a_hanging_host_delay_no_other_host",
        ],
    ),
    (
        "§6.8",
        "a failure is mailed",
        &[
            "the_failure_mail_has_the_commands_to_read_and_replay_the_execution",
            "only_failures_and_expired_claims_are_mailed",
        ],
    ),
    (
        "§6.8",
        "a failure is sent as a signed POST",
        &[
            "the_failure_notification_is_signed_and_sent_before_the_clock_returns",
            "a_notification_is_retried_with_one_id_until_it_is_accepted",
        ],
    ),
    (
        "§6.8",
        "a recurring cue is paused on request",
        &["on_failure_pauses_a_recurring_cue_only_after_its_last_attempt"],
    ),
    ("§6.8", "mails are limited to 10 an hour", &["a_user_gets_ten_mails_an_hour_and_the_number_withheld"]),
    (
        "§6.8",
        "notifications are stored with the failure",
        &[
            "a_notification_is_stored_with_the_failure_and_outlives_process_and_cue",
            "at_most_a_thousand_notifications_of_a_kind_are_queued_per_user",
            "notifications_a_day_old_or_of_a_disabled_user_are_dropped",
        ],
    ),
    (
        "§6.8",
        "executions without an attempt cause no notification",
        &["disabled_users_and_runs_over_quota_cause_no_notification"],
    ),
    (
        "§6.9",
        "an account gets one alert about an outage",
        &["an_account_gets_one_alert_about_the_runs_of_an_outage"],
    ),
    ("§6.9", "three failures in a row raise an alert", &["the_third_consecutive_failure_raises_an_alert"]),
    (
        "§6.9",
        "verification failures and expired claims raise alerts",
        &[
            "a_verification_failure_alert_names_the_missing_evidence",
            "an_expired_claim_raises_an_alert_even_with_attempts_left",
        ],
    ),
    ("§6.9", "an alert is raised at most once in 5 minutes", &["an_alert_is_deduplicated_for_five_minutes"]),
    (
        "§6.9",
        "alerts are listed and filtered",
        &["the_alert_list_is_newest_first_and_filtered", "alert_filters_are_validated"],
    ),
    (
        "§6.9",
        "a test alert is sent as alerts are, and its request tells the result",
        &[
            "a_test_alert_is_signed_marked_and_in_no_list",
            "a_test_alert_that_fails_tells_why_and_is_sent_again",
            "a_test_alert_to_a_blocked_address_fails_in_the_words_of_a_delivery",
            "a_stop_answers_the_request_of_a_test_alert_that_waits",
        ],
    ),
    (
        "§6.9",
        "a test alert is refused without a webhook, beside another one, behind a backlog and on a held copy",
        &[
            "a_test_alert_needs_a_webhook",
            "an_account_sends_one_test_alert_at_a_time",
            "a_test_alert_never_takes_the_place_of_an_alert",
            "a_held_server_sends_no_test_alert",
        ],
    ),
    (
        "§6.10",
        "a 2xx response is the outcome of a cue that asks for it",
        &[
            "the_body_of_a_2xx_response_is_the_outcome_of_the_execution",
            "only_successful_responses_of_cues_that_ask_for_it_are_outcomes",
            "a_worker_cue_has_no_response_to_take",
            "a_response_is_verified_like_a_report",
            "the_event_of_the_outcome_follows_that_of_the_success",
        ],
    ),
    (
        "§6.10",
        "a body that no report may have is no outcome",
        &[
            "a_response_is_an_outcome_if_the_same_body_would_be_accepted_as_a_report",
            "a_response_above_the_limit_is_no_outcome",
        ],
    ),
    ("§6.10", "the first report wins", &["a_report_during_the_delivery_wins_over_the_response"]),
    (
        "§6.10",
        "without room success alone is recorded",
        &["of_a_response_without_room_the_success_alone_is_the_outcome"],
    ),
];
