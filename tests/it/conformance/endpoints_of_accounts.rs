//! §4 Endpoints: accounts, billing, usage, health.

use super::Row;

pub const ENDPOINTS: &[Row] = &[
    (
        "§4 POST /v1/auth/register",
        "without a key",
        &["registration_returns_the_key_once", "every_endpoint_requires_a_key_except_the_public_ones"],
    ),
    (
        "§4 POST /v1/auth/register: closed",
        "may be switched off",
        &[
            "closed_registration_refuses_and_names_the_operator_command",
            "by_default_registration_closes_after_the_first_user",
        ],
    ),
    (
        "§4 POST /v1/auth/register: email",
        "required",
        &["registration_errors_state_the_reason", "registration_requires_a_new_valid_address"],
    ),
    ("§4 POST /v1/auth/register: response", "id, email, api_key", &["registration_returns_the_key_once"]),
    (
        "§4 POST /v1/auth/key/regenerate",
        "no body; a key and a message",
        &[
            "regenerating_a_key_returns_a_message_and_revokes_the_old_key",
            "regenerating_revokes_only_the_calling_key",
        ],
    ),
    (
        "§4 POST /v1/auth/key/regenerate: old key",
        "revoked at once",
        &[
            "regenerating_a_key_returns_a_message_and_revokes_the_old_key",
            "concurrent_regenerations_replace_a_key_once",
        ],
    ),
    ("§4 GET /v1/auth/me", "200 with six fields", &["me_returns_the_account_its_limits_and_its_usage"]),
    ("§4 GET /v1/auth/me: error", "401", &["a_missing_or_invalid_key_gets_401"]),
    (
        "§4 GET /v1/auth/webhook-secret",
        "shown on demand",
        &["both_secrets_sign_for_24_hours_after_a_rotation"],
    ),
    (
        "§4 POST /v1/auth/webhook-secret/regenerate",
        "rotates it",
        &["both_secrets_sign_for_24_hours_after_a_rotation"],
    ),
    (
        "§4 POST /v1/auth/device-code",
        "exists, open; shape left open",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "every_endpoint_requires_a_key_except_the_public_ones",
        ],
    ),
    (
        "§4 POST /v1/auth/device-code/poll",
        "exists, open; shape left open",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "every_endpoint_requires_a_key_except_the_public_ones",
        ],
    ),
    (
        "§4 POST /v1/auth/device-code/submit-email",
        "exists, open; shape left open",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "every_endpoint_requires_a_key_except_the_public_ones",
        ],
    ),
    (
        "§4 GET /v1/auth/verify",
        "exists, open; shape left open",
        &[
            "a_device_gets_its_key_once_after_the_link_is_confirmed",
            "only_the_newest_link_works_and_only_once",
        ],
    ),
    (
        "§4 POST /v1/billing/checkout: plan",
        "pro or scale, required",
        &["invalid_purchases_are_refused", "only_pro_and_scale_can_be_bought_monthly_or_annually"],
    ),
    (
        "§4 POST /v1/billing/checkout: interval",
        "monthly or annual, required",
        &["invalid_purchases_are_refused", "only_pro_and_scale_can_be_bought_monthly_or_annually"],
    ),
    (
        "§4 POST /v1/billing/checkout: response",
        "the address of a hosted session",
        &[
            "a_checkout_session_request_has_the_form_of_the_stripe_api",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§4 POST /v1/billing/checkout: error",
        "400 for any other plan",
        &["invalid_purchases_are_refused", "a_plan_absent_from_the_table_cannot_be_bought"],
    ),
    (
        "§4 POST /v1/billing/portal",
        "no body; the address of a hosted session",
        &[
            "a_paying_customer_is_recognized_by_checkout_and_portal",
            "an_upgrade_and_a_cancellation_apply_to_the_next_request",
        ],
    ),
    (
        "§4 POST /v1/billing/portal: error",
        "400 for who never upgraded",
        &["invalid_purchases_are_refused", "a_paying_customer_is_recognized_by_checkout_and_portal"],
    ),
    (
        "§4 GET /v1/usage: plan.name",
        "a text",
        &["each_plan_has_its_rate_limit_and_name", "usage_of_a_free_account_has_all_fields_and_limits"],
    ),
    (
        "§4 GET /v1/usage: plan.interval",
        "null on the free plan",
        &[
            "usage_of_a_free_account_has_all_fields_and_limits",
            "usage_shows_zero_remaining_above_the_quota_and_the_billing_interval",
        ],
    ),
    ("§4 GET /v1/usage: cues.active", "a number", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    ("§4 GET /v1/usage: cues.limit", "a number", &["usage_of_a_free_account_has_all_fields_and_limits"]),
    ("§4 GET /v1/usage: executions.used", "a number", &["usage_of_the_month_outlives_deleted_cues"]),
    (
        "§4 GET /v1/usage: executions.limit",
        "a number",
        &["usage_of_a_free_account_has_all_fields_and_limits"],
    ),
    ("§4 GET /v1/usage: rate_limit.limit", "requests a minute", &["each_plan_has_its_rate_limit_and_name"]),
    ("§4 GET /v1/usage: outcomes.reported", "a number", &["usage_of_the_month_outlives_deleted_cues"]),
    ("§4 GET /v1/usage: outcomes.succeeded", "a number", &["usage_of_the_month_outlives_deleted_cues"]),
    ("§4 GET /v1/usage: outcomes.failed", "a number", &["usage_of_the_month_outlives_deleted_cues"]),
    (
        "§4 GET /health",
        "all diagnostics, without a key",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    (
        "§4 GET /health: status",
        "healthy; degraded for database, cache or poller only",
        &[
            "an_unreadable_database_degrades_health_until_it_recovers",
            "the_poller_is_down_after_thirty_seconds_without_a_pass",
            "health_has_every_field_and_ignores_workers_in_its_status",
        ],
    ),
    (
        "§4 GET /health: version",
        "of the service",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    (
        "§4 GET /health: timestamp",
        "without a zone",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    (
        "§4 GET /health: services",
        "four keys; worker none is no fault",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    (
        "§4 GET /health: poller",
        "four figures of the last pass",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    (
        "§4 GET /health: workers",
        "how many are active",
        &["health_has_every_field_and_ignores_workers_in_its_status"],
    ),
    (
        "§4 GET /health: queue",
        "four figures",
        &[
            "health_counts_claimable_and_retrying_executions",
            "the_queue_counters_follow_every_transition_of_an_execution",
            "health_reads_counters_and_counts_only_running_deliveries",
        ],
    ),
    (
        "§4 GET /status",
        "a light check; shape left open",
        &[
            "health_has_every_field_and_ignores_workers_in_its_status",
            "every_endpoint_requires_a_key_except_the_public_ones",
        ],
    ),
];
