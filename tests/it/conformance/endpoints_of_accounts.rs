//! §4 Endpoints: accounts, billing, usage, health.

use super::Row;

pub const ENDPOINTS: &[Row] = &[
    (
        "§4 POST /v1/auth/register",
        "without a key",
        &[
            "registration_answers_the_only_sight_of_the_key",
            "every_endpoint_wants_a_key_but_those_that_are_open",
        ],
    ),
    (
        "§4 POST /v1/auth/register: closed",
        "may be switched off",
        &[
            "closed_registration_admits_nobody_and_says_who_does",
            "by_default_the_first_user_registers_and_closes_the_door",
        ],
    ),
    (
        "§4 POST /v1/auth/register: email",
        "required",
        &["what_cannot_register_is_told_why", "registration_needs_an_address_that_is_new"],
    ),
    (
        "§4 POST /v1/auth/register: response",
        "id, email, api_key",
        &["registration_answers_the_only_sight_of_the_key"],
    ),
    (
        "§4 POST /v1/auth/key/regenerate",
        "no body; a key and a message",
        &[
            "a_new_key_comes_with_a_message_and_ends_the_old_one",
            "regenerating_revokes_the_key_that_calls_and_no_other",
        ],
    ),
    (
        "§4 POST /v1/auth/key/regenerate: old key",
        "revoked at once",
        &[
            "a_new_key_comes_with_a_message_and_ends_the_old_one",
            "one_key_is_replaced_once_even_by_calls_that_came_at_the_same_time",
        ],
    ),
    (
        "§4 GET /v1/auth/me",
        "200 with six fields",
        &["me_shows_the_account_its_limits_and_what_is_used_of_them"],
    ),
    ("§4 GET /v1/auth/me: error", "401", &["without_a_good_key_there_is_nothing"]),
    (
        "§4 GET /v1/auth/webhook-secret",
        "shown on demand",
        &["for_24_hours_after_a_rotation_both_secrets_sign_and_then_the_new_one_alone"],
    ),
    (
        "§4 POST /v1/auth/webhook-secret/regenerate",
        "rotates it",
        &["for_24_hours_after_a_rotation_both_secrets_sign_and_then_the_new_one_alone"],
    ),
    (
        "§4 POST /v1/auth/device-code",
        "exists, open; shape left open",
        &[
            "a_device_gets_its_key_once_after_its_owner_confirmed_the_mailed_link",
            "every_endpoint_wants_a_key_but_those_that_are_open",
        ],
    ),
    (
        "§4 POST /v1/auth/device-code/poll",
        "exists, open; shape left open",
        &[
            "a_device_gets_its_key_once_after_its_owner_confirmed_the_mailed_link",
            "every_endpoint_wants_a_key_but_those_that_are_open",
        ],
    ),
    (
        "§4 POST /v1/auth/device-code/submit-email",
        "exists, open; shape left open",
        &[
            "a_device_gets_its_key_once_after_its_owner_confirmed_the_mailed_link",
            "every_endpoint_wants_a_key_but_those_that_are_open",
        ],
    ),
    (
        "§4 GET /v1/auth/verify",
        "exists, open; shape left open",
        &[
            "a_device_gets_its_key_once_after_its_owner_confirmed_the_mailed_link",
            "a_link_works_once_and_only_the_newest",
        ],
    ),
    (
        "§4 POST /v1/billing/checkout: plan",
        "pro or scale, required",
        &["what_cannot_be_bought_is_refused", "only_pro_and_scale_can_be_bought_monthly_or_annually"],
    ),
    (
        "§4 POST /v1/billing/checkout: interval",
        "monthly or annual, required",
        &["what_cannot_be_bought_is_refused", "only_pro_and_scale_can_be_bought_monthly_or_annually"],
    ),
    (
        "§4 POST /v1/billing/checkout: response",
        "the address of a hosted session",
        &[
            "a_checkout_session_is_asked_for_as_the_api_wants_it",
            "an_upgrade_and_a_cancel_are_in_force_on_the_next_request",
        ],
    ),
    (
        "§4 POST /v1/billing/checkout: error",
        "400 for any other plan",
        &["what_cannot_be_bought_is_refused", "a_plan_that_the_server_does_not_have_cannot_be_bought"],
    ),
    (
        "§4 POST /v1/billing/portal",
        "no body; the address of a hosted session",
        &[
            "who_has_bought_is_known_as_a_customer_to_checkout_and_portal",
            "an_upgrade_and_a_cancel_are_in_force_on_the_next_request",
        ],
    ),
    (
        "§4 POST /v1/billing/portal: error",
        "400 for who never upgraded",
        &["what_cannot_be_bought_is_refused", "who_has_bought_is_known_as_a_customer_to_checkout_and_portal"],
    ),
    (
        "§4 GET /v1/usage: plan.name",
        "a text",
        &["each_plan_has_its_rate_and_its_name", "a_free_account_is_shown_all_fields_and_its_limits"],
    ),
    (
        "§4 GET /v1/usage: plan.interval",
        "null on the free plan",
        &[
            "a_free_account_is_shown_all_fields_and_its_limits",
            "above_the_quota_nothing_remains_and_an_interval_is_shown_where_there_is_one",
        ],
    ),
    ("§4 GET /v1/usage: cues.active", "a number", &["a_free_account_is_shown_all_fields_and_its_limits"]),
    ("§4 GET /v1/usage: cues.limit", "a number", &["a_free_account_is_shown_all_fields_and_its_limits"]),
    (
        "§4 GET /v1/usage: executions.used",
        "a number",
        &["executions_and_outcomes_of_the_month_outlive_their_cues"],
    ),
    (
        "§4 GET /v1/usage: executions.limit",
        "a number",
        &["a_free_account_is_shown_all_fields_and_its_limits"],
    ),
    ("§4 GET /v1/usage: rate_limit.limit", "requests a minute", &["each_plan_has_its_rate_and_its_name"]),
    (
        "§4 GET /v1/usage: outcomes.reported",
        "a number",
        &["executions_and_outcomes_of_the_month_outlive_their_cues"],
    ),
    (
        "§4 GET /v1/usage: outcomes.succeeded",
        "a number",
        &["executions_and_outcomes_of_the_month_outlive_their_cues"],
    ),
    (
        "§4 GET /v1/usage: outcomes.failed",
        "a number",
        &["executions_and_outcomes_of_the_month_outlive_their_cues"],
    ),
    (
        "§4 GET /health",
        "all diagnostics, without a key",
        &["health_shows_every_figure_and_workers_make_no_difference_to_it"],
    ),
    (
        "§4 GET /health: status",
        "healthy; degraded for database, cache or poller only",
        &[
            "a_database_that_cannot_be_read_degrades_health_until_it_can",
            "the_poller_is_down_after_more_than_thirty_seconds_without_a_pass",
            "health_shows_every_figure_and_workers_make_no_difference_to_it",
        ],
    ),
    (
        "§4 GET /health: version",
        "of the service",
        &["health_shows_every_figure_and_workers_make_no_difference_to_it"],
    ),
    (
        "§4 GET /health: timestamp",
        "without a zone",
        &["health_shows_every_figure_and_workers_make_no_difference_to_it"],
    ),
    (
        "§4 GET /health: services",
        "four keys; worker none is no fault",
        &["health_shows_every_figure_and_workers_make_no_difference_to_it"],
    ),
    (
        "§4 GET /health: poller",
        "four figures of the last pass",
        &["health_shows_every_figure_and_workers_make_no_difference_to_it"],
    ),
    (
        "§4 GET /health: workers",
        "how many are active",
        &["health_shows_every_figure_and_workers_make_no_difference_to_it"],
    ),
    (
        "§4 GET /health: queue",
        "four figures",
        &[
            "health_follows_what_waits_for_workers_and_for_another_attempt",
            "the_figures_of_the_queue_follow_every_move_of_an_execution",
            "health_reads_figures_and_counts_only_what_is_under_way",
        ],
    ),
    (
        "§4 GET /status",
        "a light check; shape left open",
        &[
            "health_shows_every_figure_and_workers_make_no_difference_to_it",
            "every_endpoint_wants_a_key_but_those_that_are_open",
        ],
    ),
];
