//! Chapter 1 of the contract: The program.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§1.1",
        "users can be added before the first start",
        &[
            "the_first_user_can_be_added_before_the_first_start",
            "many_commands_at_once_on_a_new_file_all_succeed",
        ],
    ),
    ("§1.1", "users are listed with plan and state", &["users_are_listed_with_plan_and_state_one_per_line"]),
    (
        "§1.1",
        "keys are added, listed and revoked",
        &[
            "keys_are_added_listed_and_revoked_while_the_server_runs",
            "an_unknown_address_or_key_error_names_the_list_command",
        ],
    ),
    ("§1.1", "set-plan applies at once", &["a_plan_set_while_the_server_runs_applies_at_once"]),
    (
        "§1.1",
        "a command on a missing file creates none",
        &[
            "commands_on_a_missing_file_report_it_and_create_none",
            "a_command_that_needs_a_database_creates_none",
        ],
    ),
    (
        "§1.2",
        "every switch has an environment variable",
        &["environment_switches_accept_the_usual_spellings", "a_switch_turned_off_conflicts_with_no_flag"],
    ),
    (
        "§1.2",
        "explicit flags override --dev",
        &["explicit_flags_override_dev", "dev_is_refused_on_a_non_loopback_address"],
    ),
    (
        "§1.2",
        "--ephemeral leaves no file",
        &["an_ephemeral_server_leaves_no_file_behind", "an_ephemeral_server_uses_an_explicit_listen_address"],
    ),
    (
        "§1.2",
        "a mistyped variable is named, and so is that of a wrong value",
        &[
            "a_mistyped_variable_is_warned_of_with_the_name_that_was_meant",
            "a_wrong_value_of_a_variable_is_said_to_come_from_it",
        ],
    ),
    ("§1.2", "--listen takes localhost", &["localhost_is_a_valid_listen_address"]),
    (
        "§1.3",
        "a graceful stop waits for running deliveries",
        &[
            "a_graceful_stop_waits_for_the_running_delivery_and_leaves_one_file",
            "a_stop_ends_long_polls_and_closes_idle_connections",
            "a_stop_beside_a_reader_without_an_end_leaves_everything_in_the_file_and_its_log",
        ],
    ),
    (
        "§1.3",
        "an interrupted delivery is repeated",
        &[
            "a_delivery_interrupted_by_a_crash_is_repeated",
            "an_interrupted_delivery_repeats_with_the_same_attempt_number",
        ],
    ),
    (
        "§1.3",
        "systemd gets readiness and watchdog notifications",
        &[
            "readiness_and_stopping_are_reported_with_the_state_of_the_socket",
            "the_watchdog_is_notified_while_running_and_while_stopping",
            "a_hanging_writer_stops_the_watchdog_notifications",
        ],
    ),
    (
        "§1.4",
        "wrong usage exits with 2",
        &[
            "wrong_flags_are_wrong_usage",
            "wrong_usage_exits_with_2_and_creates_no_file",
            "impossible_flags_are_wrong_usage_with_a_remedy",
        ],
    ),
    (
        "§1.4",
        "a failure exits with 1",
        &[
            "an_unusable_file_is_refused_and_left_unchanged",
            "a_start_on_a_full_or_read_only_disk_fails_and_changes_nothing",
        ],
    ),
    (
        "§1.4",
        "a start that cannot succeed says what to do",
        &[
            "a_port_in_use_is_named_with_the_way_out",
            "a_place_that_cannot_have_a_database_is_named_with_the_way_out",
            "a_volume_of_another_user_is_named_with_the_user_that_needs_it",
            "a_downgrade_is_refused_with_the_way_back",
        ],
    ),
    (
        "§1.5",
        "the file is readable by its owner only",
        &[
            "the_database_and_its_side_files_are_readable_by_their_owner_only",
            "an_empty_world_readable_file_becomes_private_before_the_first_write",
        ],
    ),
    (
        "§1.5",
        "one server at a time uses the file",
        &[
            "a_second_server_on_the_same_file_is_refused_and_shown_the_owner",
            "a_second_server_is_refused_although_the_lock_file_was_deleted",
        ],
    ),
    (
        "§1.5",
        "a newer, foreign or damaged file is refused",
        &[
            "an_unusable_file_is_refused_and_left_unchanged",
            "a_file_with_any_damaged_page_is_refused_and_left_unchanged",
            "a_truncated_file_is_refused_and_left_unchanged",
            "a_file_with_another_schema_is_refused_whatever_its_version",
        ],
    ),
    (
        "§1.5",
        "a hard-linked file is refused",
        &["a_hard_linked_file_is_refused_and_a_symbolic_link_is_accepted"],
    ),
    (
        "§1.5",
        "a lock file that is a link is refused",
        &["a_lock_file_that_is_a_link_is_refused_and_its_target_left_unchanged"],
    ),
    ("§1.5", "a write-ahead log without its database is kept", &["a_wal_without_its_database_is_kept"]),
    (
        "§1.5",
        "an older schema is upgraded and a copy kept",
        &[
            "every_step_is_applied_and_a_copy_of_the_file_is_kept",
            "a_step_that_fails_leaves_the_file_unchanged",
        ],
    ),
    (
        "§1.5",
        "a full disk refuses writes and recovers",
        &[
            "a_full_disk_refuses_writes_serves_reads_and_recovers_with_space",
            "recovered_disk_space_is_noticed_without_a_write_request",
            "an_unstored_result_is_kept_and_nothing_is_claimed_meanwhile",
        ],
    ),
    (
        "§1.5",
        "damage found at run time is reported until the next start",
        &["damage_found_at_run_time_is_reported_until_the_next_start"],
    ),
    (
        "§1.6",
        "a backup is consistent and complete",
        &[
            "a_backup_under_load_has_every_earlier_acknowledged_write",
            "a_backup_is_one_private_file_and_leaves_no_other",
            "a_backup_contains_the_wal_left_by_a_crash",
        ],
    ),
    (
        "§1.6",
        "a failed backup keeps existing files",
        &[
            "a_failed_backup_reports_why_and_keeps_existing_files",
            "a_backup_that_fills_the_disk_reports_it_and_leaves_no_file",
        ],
    ),
    (
        "§1.6",
        "check reports contents and problems",
        &[
            "check_names_inconsistencies",
            "check_reports_overdue_work_and_a_wrong_clock",
            "check_reads_the_file_of_a_running_stopped_or_killed_server_without_changes",
            "check_identifies_foreign_and_newer_files",
        ],
    ),
    (
        "§1.6",
        "restore checks the backup and keeps an existing file",
        &[
            "a_damaged_or_missing_backup_is_not_restored",
            "restore_keeps_an_existing_file_and_moves_it_aside_with_replace",
            "a_file_in_use_by_a_server_is_not_replaced",
        ],
    ),
    (
        "§1.6",
        "a held server serves requests and starts no work",
        &[
            "a_held_server_serves_reads_but_fires_sends_and_assigns_nothing",
            "a_held_server_logs_mails_and_sends_none",
        ],
    ),
    (
        "§1.6",
        "serve --held holds a file that a replica tool restored, and no other",
        &[
            "a_start_with_held_fires_and_sends_nothing_until_promoted",
            "a_start_with_held_ends_the_sessions_of_a_file_that_was_not_on_hold",
            "a_start_with_held_needs_a_database",
        ],
    ),
    (
        "§1.6",
        "the tables of Litestream are passed over",
        &[
            "the_tables_of_litestream_are_passed_over_in_a_file_its_backup_and_a_restored_copy",
            "only_the_exact_tables_of_litestream_are_passed_over",
        ],
    ),
    (
        "§1.6",
        "promote releases the file",
        &[
            "a_promoted_server_resumes_without_a_restart_and_records_missed_runs",
            "a_stopped_copy_can_be_promoted_and_catches_up_at_its_next_start",
            "a_running_server_on_the_system_clock_notices_a_promotion",
        ],
    ),
    (
        "§1.7",
        "old executions are deleted by age and number",
        &[
            "old_executions_are_deleted_and_missed_runs_stay",
            "the_oldest_finished_executions_are_deleted_above_the_number",
        ],
    ),
    (
        "§1.7",
        "--retain takes an age, a number, both or off",
        &[
            "an_age_a_number_and_both_are_parsed",
            "an_invalid_retention_is_wrong_usage",
            "a_smaller_retention_applies_from_the_next_start_and_off_keeps_everything",
        ],
    ),
    ("§1.7", "unfinished executions are never deleted", &["unfinished_executions_are_never_deleted"]),
    (
        "§1.7",
        "a wrong clock deletes no history",
        &[
            "a_clock_that_is_far_ahead_for_a_while_deletes_no_history",
            "a_clock_that_disagrees_for_a_day_of_running_is_followed",
            "the_trusted_time_survives_a_restart",
            "the_newest_trusted_instant_never_goes_back",
            "history_made_while_the_clock_was_behind_ages_from_the_next_trusted_instant",
            "a_cue_whose_predecessor_was_deleted_keeps_the_history_made_while_the_clock_was_behind",
            "a_start_at_the_date_of_an_image_loses_no_history",
        ],
    ),
    (
        "§1.7",
        "stored responses and workers expire by the trusted time",
        &["a_clock_that_is_ahead_for_a_while_drops_no_stored_response_and_no_worker"],
    ),
    (
        "§1.7",
        "wrong dates are judged by the order of creation",
        &[
            "dates_that_no_clock_can_have_shown_are_judged_by_the_order_of_creation",
            "executions_with_wrong_dates_stay_until_a_later_one_expires",
            "executions_after_those_with_wrong_dates_expire_as_well",
        ],
    ),
    ("§1.7", "freed space returns gradually", &["freed_space_returns_to_the_file_system_gradually"]),
    (
        "§1.8",
        "a healthy server logs only notable events",
        &["at_info_a_healthy_server_logs_only_its_shutdown"],
    ),
    (
        "§1.8",
        "requests and attempts log one line each",
        &[
            "a_request_logs_one_json_line_with_fixed_field_names",
            "an_attempt_logs_one_json_line_with_its_result",
            "the_text_format_has_the_same_names_and_values",
        ],
    ),
    (
        "§1.8",
        "the log has no secrets",
        &[
            "secrets_never_reach_the_log_at_any_level_or_format",
            "no_link_token_key_or_password_reaches_the_log_at_any_level",
        ],
    ),
    ("§1.8", "malformed requests do not fill the log", &["malformed_http2_frames_do_not_flood_the_log"]),
    (
        "§1.9",
        "metrics have a separate address",
        &[
            "metrics_are_off_by_default_and_never_on_the_port_of_the_api",
            "metrics_remain_available_until_all_deliveries_end",
        ],
    ),
    (
        "§1.9",
        "every metric is exposed from the start",
        &["a_new_server_exposes_every_metric_in_the_prometheus_format"],
    ),
    (
        "§1.9",
        "deliveries, claims and requests are counted",
        &[
            "deliveries_are_counted_by_result_and_cause",
            "claims_and_expired_claims_are_counted",
            "requests_are_labelled_by_route_and_never_by_their_path",
        ],
    ),
    (
        "§1.10",
        "the machine is measured",
        &["every_figure_is_measured_and_no_file_is_left", "a_benchmark_that_cannot_run_reports_why"],
    ),
    (
        "§1.10",
        "an interrupted benchmark removes its files",
        &["an_interrupted_benchmark_leaves_no_process_and_no_file"],
    ),
];
