//! Faults of machines, networks and files, and their visible effect. This list names the tests of each fault, in whichever
//! module they are (a test below checks the names):
//!
//! The disk
//! - full: writes get 503 `storage_unavailable` with `Retry-After`, reads go on, nothing acknowledged is lost, running
//!   deliveries are stored later, and service returns with the space:
//!   `faults::disk::a_full_disk_refuses_writes_serves_reads_and_recovers_with_space`,
//!   `faults::disk::runs_due_while_the_disk_is_full_run_once_there_is_space`,
//!   `faults::disk::a_write_without_changes_does_not_end_the_disk_full_state`,
//!   `faults::disk::recovered_disk_space_is_noticed_without_a_write_request`,
//!   `faults::disk::the_disk_is_probed_only_while_writes_fail_and_by_a_real_write`,
//!   `engine::delivery_faults::an_unstored_result_is_kept_and_nothing_is_claimed_meanwhile`,
//!   `engine::notifications::dispatcher::results_are_kept_while_the_disk_is_full_and_no_notification_repeats`
//! - full or read-only at a start: an error message, exit code 1, the file unchanged:
//!   `faults::disk::a_start_on_a_full_or_read_only_disk_fails_and_changes_nothing`
//! - read-only, for reading commands:
//!   `faults::disk::a_cleanly_closed_file_on_a_read_only_disk_can_be_checked_and_copied`,
//!   `faults::disk::a_wal_on_a_read_only_disk_is_not_ignored`
//! - an error during any write: the final state is the same as without it:
//!   `faults::commits::any_failing_commit_leads_to_the_same_final_state`,
//!   `faults::commits::a_disk_full_at_any_page_leads_to_the_same_final_state`,
//!   `store::writer_and_readers::a_failed_commit_fails_all_its_writes_and_the_next_one_succeeds`
//! - a failing disk is no reason for systemd to restart the program:
//!   `journeys::monitoring::systemd::a_failing_disk_does_not_stop_the_watchdog_notifications`
//!
//! The file
//! - damaged: an error message that asks for a backup, exit code 1, the file unchanged:
//!   `faults::files::a_file_with_any_damaged_page_is_refused_and_left_unchanged`,
//!   `faults::files::a_truncated_file_is_refused_and_left_unchanged`
//! - damaged while the server runs: affected requests get 500, and the damage is reported until the next start:
//!   `faults::files::damage_found_at_run_time_is_reported_until_the_next_start`
//! - an unreadable row, or a result that cannot be recorded: it fails alone, with its reason:
//!   `engine::delivery_faults::an_unreadable_row_fails_alone`,
//!   `engine::delivery_faults::an_unrecordable_result_does_not_block_the_others`,
//!   `engine::scheduler::a_cue_with_an_unusable_schedule_fails_with_its_reason_and_alone`
//! - of another program, or of a later version: `journeys::stops::an_unusable_file_is_refused_and_left_unchanged`,
//!   `cli::administration::an_unusable_file_is_refused_and_left_unchanged`
//! - of another schema than its version says: `faults::files::a_file_with_another_schema_is_refused_whatever_its_version`
//! - of an earlier version that cannot be migrated, or whose migration is cut off: the data is unchanged, with one copy:
//!   `store::migration::a_file_that_cannot_be_migrated_is_refused_and_left_unchanged`,
//!   `store::migration::a_migration_killed_while_it_copies_the_file_is_repeated`,
//!   `store::migration::a_migration_killed_between_its_copy_and_its_commit_is_repeated`,
//!   `store::migration::a_migration_killed_while_it_changes_the_file_is_repeated`,
//!   `store::migration::a_migration_killed_right_after_its_commit_keeps_its_copy`,
//!   `store::migration::a_disk_that_is_full_at_any_moment_of_a_migration_leaves_the_file_unchanged`,
//!   `store::migration::a_copy_of_an_earlier_migration_is_never_replaced`
//! - with a rollback journal that a killed writer left: it is rolled back:
//!   `store::migration::a_file_with_a_rollback_journal_is_rolled_back_and_migrated`
//! - of two names: `faults::files::a_hard_linked_file_is_refused_and_a_symbolic_link_is_accepted`
//! - with a link in the place of its lock file: refused:
//!   `faults::files::a_lock_file_that_is_a_link_is_refused_and_its_target_left_unchanged`
//! - another server has it: `journeys::stops::a_second_server_on_the_same_file_is_refused_and_shown_the_owner`,
//!   `faults::files::a_second_server_is_refused_although_the_lock_file_was_deleted`
//! - another program writes to it: waited for, then 503:
//!   `faults::disk::a_lock_of_another_program_is_awaited_and_then_reported`,
//!   `cli::administration::a_command_waits_for_another_process_that_creates_the_file`
//!
//! The machine
//! - a power cut that tears the end of the log or a checkpoint: every complete commit is present:
//!   `faults::files::a_wal_torn_by_a_power_cut_keeps_every_whole_commit`,
//!   `faults::files::a_checkpoint_torn_by_a_power_cut_is_repeated`,
//!   `store::checkpoints::a_crash_amid_a_checkpoint_loses_nothing`
//! - the process is killed: `journeys::crash::a_kill_loses_no_acknowledged_write_and_no_due_run`,
//!   `journeys::stops::a_delivery_interrupted_by_a_crash_is_repeated`,
//!   `engine::delivery_faults::an_interrupted_delivery_repeats_with_the_same_attempt_number`,
//!   `engine::notifications::webhooks::a_notification_interrupted_by_a_crash_is_sent_again`
//! - SIGTERM during deliveries: `journeys::stops::a_graceful_stop_waits_for_the_running_delivery_and_leaves_one_file`,
//!   `engine::notifications::webhooks::a_stop_waits_for_the_running_notification_and_keeps_the_others`,
//!   `http::wire::timeouts::a_stop_ends_long_polls_and_closes_idle_connections`
//! - the clock is wrong, by twelve hours or by decades: no due instant is lost, `fire` works:
//!   `faults::clock::clock_jumps_of_twelve_hours_lose_no_instant_and_fire_still_works`,
//!   `faults::clock::a_machine_booted_in_1970_runs_manually_and_catches_up_once_its_clock_is_set`,
//!   `faults::clock::a_clock_that_is_far_ahead_for_a_while_deletes_no_history`,
//!   `faults::clock::a_start_at_the_date_of_an_image_loses_no_history`,
//!   `faults::clock::a_clock_that_is_ahead_for_a_while_drops_no_stored_response_and_no_worker`,
//!   `faults::clock::a_jump_of_forty_years_for_twenty_seconds_changes_nothing`,
//!   `faults::clock::a_jump_of_days_is_believed_once_it_has_lasted_for_ten_minutes`,
//!   `faults::clock_accept::a_clock_that_was_ahead_is_told_everywhere_and_accepted_without_a_second_run`,
//!   `faults::clock_accept::a_file_without_a_server_is_accepted_as_well`,
//!   `faults::clock_accept::a_jump_that_is_right_can_be_accepted_at_once`,
//!   `engine::scheduler::a_forward_jump_fires_the_newest_run_and_records_the_others_as_missed`,
//!   `engine::scheduler::nothing_fires_while_the_clock_is_before_the_last_seen_instant`,
//!   `engine::scheduler::runs_due_while_the_clock_was_behind_catch_up_later`
//! - the program hangs: systemd restarts it:
//!   `journeys::monitoring::systemd::a_hanging_writer_stops_the_watchdog_notifications`
//! - a panic: it affects one request or one attempt: `http::wire::http1::a_panic_fails_only_its_request_with_500`,
//!   `engine::delivery::a_panic_of_the_webhook_client_is_a_failed_attempt`,
//!   `store::writer_and_readers::a_failed_write_in_a_batch_rolls_back_alone`
//! - standard output is full or closed: `cli::administration::a_full_or_closed_standard_output_does_not_crash`
//!
//! Receivers: the attempt fails, the execution has the reason, other deliveries continue
//! - resets, invalid HTTP, a gigabyte, unknown names:
//!   `faults::receivers::every_receiver_fault_is_shown_and_delays_no_other_delivery`,
//!   `engine::webhook_client::an_endless_response_body_is_cut_and_its_start_kept`,
//!   `engine::webhook_client::a_response_that_is_not_http_is_reported`,
//!   `engine::webhook_client::a_reset_and_a_close_without_a_response_are_the_same_error`,
//!   `engine::webhook_client::a_truncated_response_body_is_an_error`
//! - a byte a second: `faults::receivers::a_slow_response_is_cut_after_thirty_seconds`,
//!   `engine::webhook_client::slowly_sent_headers_are_cut_by_the_timeout`,
//!   `engine::webhook_client::a_slowly_sent_body_is_cut_by_the_timeout`
//! - silence: `engine::webhook_client::a_silent_server_is_cut_by_the_timeout`,
//!   `engine::delivery_fairness::accounts_whose_hosts_hang_delay_no_other_account`
//! - failed or slow name resolution: `engine::address_guard::an_unknown_name_is_reported_and_resolved_again`,
//!   `engine::address_guard::the_dns_lookup_counts_toward_the_timeout`
//!
//! Clients
//! - ten thousand idle connections: `faults::crowd::ten_thousand_idle_or_incomplete_connections_do_not_block_clients`,
//!   `http::wire::timeouts::at_the_limit_a_new_connection_closes_the_one_that_is_idle_longest`
//! - incomplete heads and bodies, unread responses: `http::wire::timeouts::an_incomplete_head_gets_408`,
//!   `http::wire::timeouts::an_incomplete_body_gets_408`,
//!   `http::wire::timeouts::a_client_that_does_not_read_its_response_is_disconnected`
//! - more than their share of memory and connections: the others are served, and memory is bounded:
//!   `faults::callers::bodies_that_never_come_on_free_routes_hold_no_connection`,
//!   `faults::callers::unfinished_large_bodies_of_one_account_leave_room_for_others`,
//!   `faults::callers::unread_responses_of_one_account_hold_only_its_share`,
//!   `http::wire::shares::a_client_holds_a_part_of_the_connections`
//! - malformed frames: `faults::callers::malformed_http2_frames_do_not_flood_the_log`
//!
//! Other services
//! - the mail server: `http::device_login::mails::temporary_mail_errors_are_retried_and_permanent_ones_are_not`,
//!   `http::device_login::mails::an_unreachable_mail_server_delays_no_response`
//! - the payment provider: `http::billing::stripe::a_hanging_provider_is_cut_by_the_timeout`,
//!   `http::billing::stripe::an_unreachable_provider_is_a_502`
//! - the service manager: `journeys::monitoring::systemd::an_unreachable_notify_socket_does_not_stop_the_server`

mod callers;
mod clock;
mod clock_accept;
mod commits;
mod crowd;
pub mod disk;
mod files;
pub mod mount;
mod receivers;

use std::fs;
use std::path::Path;

#[test]
fn every_test_in_the_list_exists() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let list: String = include_str!("mod.rs").lines().filter(|line| line.starts_with("//!")).collect();
    let named: Vec<&str> = list.split('`').filter(|part| part.contains("::")).collect();
    assert!(named.len() > 40, "the list was not read");
    for name in named {
        let (module, test) = name.rsplit_once("::").unwrap();
        let path = tests.join(module.replace("::", "/")).with_extension("rs");
        let text = fs::read_to_string(&path).unwrap_or_else(|_| panic!("{name}: there is no {path:?}"));
        assert!(text.contains(&format!("fn {test}()")), "{name} is not in {path:?}");
    }
}
