//! Chapter 3 of the contract: Accounts.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§3.9",
        "a replaced key or secret is mailed",
        &[
            "a_replaced_key_or_secret_is_mailed_without_the_secret",
            "a_stored_mail_is_read_back_and_is_no_other_mail",
        ],
    ),
    ("§3.1", "id is a UUID", &["me_returns_the_account_its_limits_and_its_usage"]),
    (
        "§3.1",
        "email is the registered address",
        &["registration_returns_the_key_once", "me_returns_the_account_its_limits_and_its_usage"],
    ),
    (
        "§3.1",
        "api_key is returned once",
        &[
            "registration_returns_the_key_once",
            "regenerating_a_key_returns_a_message_and_revokes_the_old_key",
            "only_the_hash_of_a_key_is_stored",
        ],
    ),
    ("§3.1", "plan is the name of a plan", &["each_plan_has_its_rate_limit_and_name"]),
    ("§3.1", "has_webhook_secret is shown", &["me_returns_the_account_its_limits_and_its_usage"]),
    (
        "§3.1",
        "active_cues counts active cues",
        &[
            "me_returns_the_account_its_limits_and_its_usage",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§3.1",
        "monthly_executions counts the month",
        &["me_returns_the_account_its_limits_and_its_usage", "executions_are_counted_by_utc_month_and_user"],
    ),
    (
        "§3.1",
        "an address is trimmed and lower-cased",
        &["an_address_is_trimmed_and_lower_cased", "an_invalid_address_has_its_reason"],
    ),
    ("§3.2", "registration returns an API key", &["registration_returns_the_key_once"]),
    (
        "§3.2",
        "registration needs no key",
        &["registration_returns_the_key_once", "every_endpoint_requires_a_key_except_the_public_ones"],
    ),
    (
        "§3.2",
        "registration can be closed",
        &[
            "closed_registration_refuses_and_names_the_operator_command",
            "by_default_registration_closes_after_the_first_user",
        ],
    ),
    (
        "§3.2",
        "email is required",
        &["registration_errors_state_the_reason", "registration_requires_a_new_valid_address"],
    ),
    ("§3.2", "the response has id, email and api_key", &["registration_returns_the_key_once"]),
    (
        "§3.2",
        "an address is registered once",
        &["an_address_is_registered_once_in_any_spelling", "registration_requires_a_new_valid_address"],
    ),
    (
        "§3.2",
        "first-user closes registration after the first",
        &[
            "of_many_concurrent_first_users_exactly_one_registers",
            "by_default_registration_closes_after_the_first_user",
        ],
    ),
    (
        "§3.2",
        "an address registers ten users in an hour",
        &[
            "ten_accounts_an_hour_are_registered_from_one_address",
            "the_11th_waits_until_the_first_has_left_the_window",
        ],
    ),
    (
        "§3.3",
        "a key starts with cue_sk_",
        &["a_key_is_its_prefix_and_32_digits", "registration_returns_the_key_once"],
    ),
    (
        "§3.3",
        "a key is shown once",
        &[
            "registration_returns_the_key_once",
            "regenerating_a_key_returns_a_message_and_revokes_the_old_key",
            "only_the_hash_of_a_key_is_stored",
        ],
    ),
    (
        "§3.3",
        "a regenerated key ends the old one at once",
        &[
            "regenerating_a_key_returns_a_message_and_revokes_the_old_key",
            "a_replaced_key_is_unknown_and_the_new_one_is_known",
            "concurrent_regenerations_replace_a_key_once",
        ],
    ),
    (
        "§3.3",
        "regenerate returns a key and a message",
        &[
            "regenerating_a_key_returns_a_message_and_revokes_the_old_key",
            "regenerating_revokes_only_the_calling_key",
        ],
    ),
    (
        "§3.3",
        "keys have names and work in parallel",
        &["named_keys_work_in_parallel_until_revoked", "a_keys_name_has_1_to_255_characters"],
    ),
    (
        "§3.3",
        "only the hash of a key is stored",
        &["only_the_hash_of_a_key_is_stored", "a_key_is_stored_as_the_sha256_of_its_whole_text"],
    ),
    ("§3.3", "the last key cannot be revoked", &["a_user_revokes_only_own_keys_and_never_the_last_one"]),
    ("§3.4", "the response is the user", &["me_returns_the_account_its_limits_and_its_usage"]),
    ("§3.4", "a missing key is a 401", &["a_missing_or_invalid_key_gets_401"]),
    ("§3.4", "an empty text removes the alert URL", &["an_empty_text_removes_the_alert_webhook_url"]),
    (
        "§3.4",
        "PATCH sets and removes alert_webhook_url",
        &["the_alert_webhook_can_be_set_shown_and_removed", "account_changes_are_validated"],
    ),
    (
        "§3.5",
        "the secret can be read and rotated",
        &[
            "both_secrets_sign_for_24_hours_after_a_rotation",
            "me_returns_the_account_its_limits_and_its_usage",
        ],
    ),
    (
        "§3.5",
        "the old secret signs for 24 hours",
        &[
            "standard_carries_both_signatures_after_a_rotation",
            "a_rotated_secret_keeps_signing_until_it_expires",
        ],
    ),
    (
        "§3.6",
        "the alert secret is separate and rotates at once",
        &[
            "the_alert_secret_is_separate_and_a_new_one_signs_at_once",
            "alerts_and_the_alert_secret_require_a_key",
        ],
    ),
    (
        "§3.7",
        "a device receives its own key after confirmation",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "codes_and_links_expire_after_15_minutes",
        ],
    ),
    (
        "§3.7",
        "device-code starts a login",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "every_endpoint_requires_a_key_except_the_public_ones",
        ],
    ),
    (
        "§3.7",
        "poll returns the state",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "every_endpoint_requires_a_key_except_the_public_ones",
        ],
    ),
    (
        "§3.7",
        "submit-email requests the mail",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "every_endpoint_requires_a_key_except_the_public_ones",
        ],
    ),
    (
        "§3.7",
        "verify approves the login",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "only_the_newest_link_works_and_only_once",
        ],
    ),
    ("§3.7", "codes and links last 15 minutes", &["codes_and_links_expire_after_15_minutes"]),
    (
        "§3.7",
        "known and unknown addresses get the same response",
        &["closed_registration_gives_an_unknown_address_the_same_responses_and_no_mail"],
    ),
    (
        "§3.7",
        "a link works once",
        &["only_the_newest_link_works_and_only_once", "of_concurrent_polls_exactly_one_gets_the_key"],
    ),
    (
        "§3.7",
        "the code that people see does not poll",
        &[
            "whoever_sees_the_code_on_a_page_or_in_the_mail_cannot_poll",
            "a_device_code_cannot_stand_in_for_the_code_that_another_device_shows",
        ],
    ),
    (
        "§3.7",
        "the confirmation shows the other keys",
        &[
            "the_owner_of_an_unconfirmed_address_revokes_the_keys_of_whoever_registered_it",
            "an_owner_who_revokes_the_keys_of_a_stranger_shares_nothing_with_them",
            "whoever_did_not_register_is_told_to_revoke_the_keys_and_can_after_a_confirmation",
            "a_login_keeps_or_revokes_the_other_keys_as_asked",
            "at_100_keys_a_login_has_to_revoke_them",
        ],
    ),
    (
        "§3.7",
        "the mail names the address and the time of the request",
        &["the_login_mail_names_the_address_and_the_time_of_the_request"],
    ),
    (
        "§3.7",
        "codes, mails and polls are limited",
        &[
            "a_client_address_gets_5_codes_an_hour",
            "an_address_gets_3_mails_an_hour_with_identical_responses",
            "one_code_cannot_mail_many_addresses",
            "one_client_address_cannot_use_up_the_mails_for_logins",
            "a_code_can_be_polled_30_times_a_minute",
        ],
    ),
    (
        "§3.8",
        "keys, cues and executions end at once",
        &[
            "a_disabled_users_keys_cues_and_deliveries_stop",
            "keys_of_a_disabled_user_get_401_at_once_and_its_cues_stop",
            "a_disabled_user_has_no_queued_work",
        ],
    ),
    (
        "§3.8",
        "enable returns the keys and leaves the cues paused",
        &["an_enabled_user_has_its_keys_again_and_its_cues_stay_paused"],
    ),
    ("§3.8", "a running delivery is not retried", &["a_running_attempt_of_a_disabled_user_is_not_retried"]),
    (
        "§3.9",
        "a password is sent only over TLS or to this machine",
        &[
            "a_server_on_this_machine_is_recognized",
            "a_url_is_parsed_with_defaults_and_escapes",
            "smtps_sends_nothing_outside_tls",
            "starttls_comes_before_the_login_and_the_mail",
            "a_server_without_starttls_gets_no_password",
        ],
    ),
    (
        "§3.9",
        "TLS is required unless the URL says otherwise",
        &[
            "a_server_without_starttls_gets_a_mail_only_where_the_url_says_so",
            "the_log_says_whether_mail_is_sent_over_tls",
        ],
    ),
    (
        "§3.9",
        "a wrong certificate is a temporary failure",
        &[
            "a_wrong_certificate_gets_neither_password_nor_mail",
            "a_mail_stays_in_the_queue_until_the_certificate_is_right",
            "the_log_says_why_a_mail_server_is_not_trusted",
        ],
    ),
    (
        "§3.9",
        "a temporary error is retried",
        &[
            "temporary_mail_errors_are_retried_and_permanent_ones_are_not",
            "mails_waiting_for_a_retry_are_tried_once_more_at_shutdown",
        ],
    ),
    (
        "§3.9",
        "without a mail server the log has the link",
        &["without_a_mail_server_the_link_is_logged_and_printed_under_dev"],
    ),
    (
        "§3.9",
        "all mails together are limited",
        &["all_mails_together_have_an_hourly_limit", "any_hour_has_at_most_the_limit"],
    ),
    (
        "§3.9",
        "half of the mails are for sign-ins",
        &[
            "failures_of_many_accounts_leave_half_of_the_mails_for_logins",
            "half_of_the_mails_are_for_sign_ins_and_a_quarter_of_these_for_one_client",
        ],
    ),
    (
        "§3.10",
        "an unconfirmed address gets one fixed mail",
        &[
            "an_unconfirmed_address_gets_one_fixed_mail_until_it_is_confirmed",
            "the_first_user_an_added_user_and_one_who_signed_in_are_confirmed",
        ],
    ),
    (
        "§3.10",
        "an unconfirmed account is bounded until it confirms",
        &[
            "an_unconfirmed_account_stores_one_mebibyte",
            "unconfirmed_accounts_together_store_a_quarter_of_the_free_disk",
            "the_runs_of_an_unconfirmed_account_call_60_times_an_hour",
            "attempts_count_as_calls_and_wait_like_them",
        ],
    ),
    (
        "§3.10",
        "an idle unconfirmed account is removed",
        &[
            "an_unconfirmed_account_without_a_run_for_7_days_is_removed",
            "accounts_of_a_server_that_trusts_them_are_not_removed",
        ],
    ),
    (
        "§3.11",
        "a session stands in for a key",
        &[
            "a_session_stands_in_for_its_key",
            "exactly_one_credential_is_given",
            "a_value_that_a_client_has_chosen_never_becomes_a_session",
            "the_first_account_is_made_and_signed_in_over_http",
        ],
    ),
    (
        "§3.11",
        "a one-time link, a mail or development mode begins a session",
        &[
            "a_one_time_link_works_once_within_five_minutes",
            "a_link_leads_to_the_public_url_if_there_is_one",
            "an_operator_makes_a_link_with_the_file_alone",
            "a_mailed_link_begins_a_session_and_makes_no_key",
            "in_development_mode_the_machine_of_the_server_signs_in_without_a_credential",
            "no_other_name_and_no_proxy_reaches_the_sign_in_of_development_mode",
        ],
    ),
    (
        "§3.11",
        "the cookie has a name of its own and attributes that fit the address",
        &[
            "the_attributes_of_the_cookie_follow_from_the_address_of_the_server",
            "a_header_of_a_proxy_that_is_not_trusted_changes_no_cookie",
            "two_servers_on_one_host_do_not_sign_each_other_out",
            "a_cookie_of_another_program_on_the_host_signs_nobody_out",
            "a_restored_copy_has_no_sessions_and_a_cookie_of_its_own",
        ],
    ),
    (
        "§3.11",
        "a session is valid where it began, and of two accounts none is chosen",
        &[
            "a_session_is_of_no_use_at_another_port_or_name_or_scheme",
            "of_the_sessions_of_two_accounts_none_is_chosen",
        ],
    ),
    (
        "§3.11",
        "a session ends",
        &[
            "a_cookie_is_of_no_use_after_the_sign_out",
            "a_user_ends_single_sessions_and_all_others",
            "a_session_ends_with_its_key",
            "a_link_ends_with_the_session_that_made_it",
            "a_stream_ends_within_a_beat_of_the_end_of_its_session",
            "a_session_is_moved_on_once_a_day_and_ends_after_30_days_or_90",
            "the_21st_session_ends_the_oldest",
            "expired_sessions_and_links_are_deleted",
            "a_session_that_began_while_the_clock_was_ahead_is_cut_once_it_is_right",
            "a_disabled_user_has_no_sessions_until_enabled_again",
        ],
    ),
    (
        "§3.11",
        "an idle page writes nothing, and a full disk keeps nobody out",
        &["an_idle_page_writes_nothing", "while_the_file_cannot_be_written_a_key_begins_a_session_in_memory"],
    ),
    (
        "§3.11",
        "failed sign-ins are limited",
        &["after_ten_failed_sign_ins_an_address_has_no_more_for_15_minutes"],
    ),
    (
        "§3.11",
        "a link changes the account of a browser only if that is asked for",
        &["a_link_changes_the_account_of_a_browser_only_if_that_is_asked_for"],
    ),
];
