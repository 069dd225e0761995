//! What goes wrong with machines, networks and files, and what the user then sees. One list of all of it, with the tests
//! that hold it, wherever they stand (a test below reads the list):
//!
//! The disk
//! - full: writes get 503 `storage_unavailable` with `Retry-After`, reads go on, nothing acknowledged is lost, what was
//!   under way is stored later, and service returns with the space:
//!   `faults::disk::on_a_full_disk_writes_are_refused_reads_go_on_and_service_returns_with_the_space`,
//!   `faults::disk::what_falls_due_while_the_disk_is_full_runs_when_there_is_space`,
//!   `faults::disk::a_write_that_changes_nothing_does_not_tell_that_a_full_disk_is_well`,
//!   `faults::disk::a_full_disk_that_has_space_again_is_noticed_though_nobody_writes`,
//!   `faults::disk::the_disk_is_asked_again_only_while_it_takes_nothing_and_by_a_write_that_reaches_it`,
//!   `engine::delivery_faults::a_result_that_cannot_be_stored_is_kept_and_nothing_is_taken_meanwhile`,
//!   `engine::notifications::dispatcher::results_that_the_disk_does_not_take_are_kept_and_nothing_is_told_twice`
//! - full or read-only at a start: a sentence, exit code 1, the file as it was:
//!   `faults::disk::a_start_on_a_disk_that_is_full_or_read_only_says_so_and_changes_nothing`
//! - read-only, and only read: `faults::disk::a_stopped_servers_file_on_a_disk_that_is_read_only_can_be_checked_and_copied`,
//!   `faults::disk::a_log_on_a_disk_that_is_read_only_is_not_passed_over`
//! - an error in the midst of a write, whichever: the end is the same as without it:
//!   `faults::commits::whichever_commit_fails_the_end_is_the_same`,
//!   `faults::commits::whichever_page_the_disk_has_no_room_for_the_end_is_the_same`,
//!   `store::writer_and_readers::when_a_commit_fails_nobody_in_it_is_told_that_it_succeeded_and_the_next_one_goes_through`
//! - no reason for systemd to start the program again: `journeys::monitoring::systemd::a_disk_that_fails_is_no_reason_to_be_started_again`
//!
//! The file
//! - damaged: a sentence that asks for a backup, exit code 1, the file as it was:
//!   `faults::files::a_damaged_file_is_refused_whichever_page_is_damaged_and_left_as_it_was`,
//!   `faults::files::a_file_that_was_cut_off_is_refused_and_left_as_it_was`
//! - damaged while the server runs: who meets it gets 500, and the operator is told until the next start:
//!   `faults::files::damage_that_is_met_while_the_server_runs_is_told_until_it_is_started_again`
//! - a row that cannot be read, or a result that can never be recorded: it fails alone, with its reason:
//!   `engine::delivery_faults::a_row_that_cannot_be_read_fails_alone`,
//!   `engine::delivery_faults::a_result_that_can_never_be_recorded_does_not_hold_up_the_others`,
//!   `engine::scheduler::a_cue_whose_schedule_cannot_be_computed_fails_with_its_reason_and_stops_nobody`
//! - somebody else's, or of a later version: `journeys::stops::a_file_that_is_not_ours_to_use_is_refused_and_left_as_it_was`,
//!   `cli::administration::a_file_that_is_not_ours_to_use_is_refused_and_left_as_it_was`
//! - of another schema than its version says: `faults::files::a_file_of_another_schema_is_refused_whatever_version_it_says`
//! - of an earlier version, which cannot be migrated, or whose migration is cut short: the data as it was, and one copy:
//!   `faults::migration::a_file_that_cannot_be_migrated_is_refused_and_left_as_it_was`,
//!   `faults::migration::a_migration_killed_while_it_copies_the_file_is_made_again`,
//!   `faults::migration::a_migration_killed_between_its_copy_and_its_commit_is_made_again`,
//!   `faults::migration::a_migration_killed_while_it_changes_the_file_is_made_again`,
//!   `faults::migration::a_migration_killed_right_after_its_commit_keeps_its_copy`,
//!   `faults::migration::a_disk_that_is_full_at_any_moment_of_a_migration_leaves_the_file_as_it_was`,
//!   `faults::migration::a_copy_of_an_earlier_migration_is_never_replaced`
//! - with a rollback journal that a killed writer left: it is rolled back:
//!   `faults::migration::a_file_with_a_rollback_journal_is_rolled_back_and_migrated`
//! - of two names: `faults::files::a_file_of_two_names_is_refused_and_a_symbolic_link_is_none`
//! - another server has it: `journeys::stops::a_second_server_on_the_same_file_is_refused_and_told_who_has_it`
//! - another program writes to it: waited for, then 503:
//!   `faults::disk::another_program_that_holds_the_file_is_waited_for_and_then_refused`,
//!   `cli::administration::a_new_file_that_another_process_writes_is_waited_for`
//!
//! The machine
//! - a power cut, with the last of the log torn, or a checkpoint: everything whose commit was whole is there:
//!   `faults::files::a_log_that_a_power_cut_has_torn_holds_everything_before_the_tear_and_nothing_by_half`,
//!   `faults::files::a_checkpoint_that_a_power_cut_has_torn_is_made_again`
//! - the process is killed: `journeys::crash::nothing_acknowledged_is_lost_and_nothing_due_is_left_out_when_the_process_is_killed`,
//!   `journeys::stops::a_delivery_cut_short_by_a_crash_is_delivered_again`,
//!   `engine::delivery_faults::a_delivery_cut_short_is_made_again_with_the_same_number`,
//!   `engine::notifications::webhooks::a_notice_that_a_crash_cut_short_is_told_again_after_it`
//! - SIGTERM amid deliveries: `journeys::stops::a_graceful_stop_lets_the_delivery_under_way_end_and_leaves_one_file`,
//!   `engine::notifications::webhooks::a_stop_lets_the_notice_under_way_end_and_keeps_the_others`,
//!   `http::wire::timeouts::stopping_ends_long_polls_and_closes_idle_connections`
//! - the clock is wrong, by twelve hours or by decades: no instant is unaccounted for, `fire` works:
//!   `faults::clock::twelve_hours_forward_and_back_every_instant_is_accounted_for_and_fire_always_works`,
//!   `faults::clock::a_machine_that_boots_in_1970_serves_runs_by_hand_and_catches_up_when_its_clock_is_set`,
//!   `engine::scheduler::a_jump_forward_fires_the_newest_run_and_accounts_for_the_others`,
//!   `engine::scheduler::while_the_clock_stands_before_what_was_seen_nothing_fires`,
//!   `engine::scheduler::what_came_due_while_the_clock_was_behind_catches_up_when_it_arrives`
//! - the program hangs: systemd starts it again: `journeys::monitoring::systemd::a_writer_that_hangs_is_no_sign_of_life`
//! - a panic: one request or one attempt: `http::wire::http1::a_panic_is_one_requests_500_and_nothing_more`,
//!   `engine::delivery::a_panic_of_the_courier_is_a_failed_attempt`,
//!   `store::writer_and_readers::a_write_that_fails_in_a_batch_takes_nothing_of_its_neighbours_with_it`
//! - standard output is full or closed: `cli::administration::a_full_or_closed_standard_output_is_no_crash`
//!
//! Receivers: the attempt fails, the execution says why, the others get theirs
//! - resets, garbage, a gigabyte, no such name: `faults::receivers::whatever_a_receiver_does_the_user_reads_what_it_was_and_the_others_get_theirs`,
//!   `engine::webhook_client::a_body_without_end_is_cut_and_its_beginning_kept`, `engine::webhook_client::an_answer_that_is_no_http_is_told_so`,
//!   `engine::webhook_client::a_reset_and_a_close_without_an_answer_are_told_alike`, `engine::webhook_client::a_body_that_breaks_off_is_no_complete_answer`
//! - a byte a second: `faults::receivers::a_receiver_that_trickles_is_cut_after_thirty_seconds`,
//!   `engine::webhook_client::a_server_that_drips_its_headers_is_cut_by_the_timeout`,
//!   `engine::webhook_client::a_server_that_drips_its_body_is_cut_by_the_timeout`
//! - silence: `engine::webhook_client::a_server_that_only_hangs_is_cut_by_the_timeout`,
//!   `engine::delivery_fairness::many_receivers_that_hang_leave_room_for_another`
//! - names that are not looked up, or too late: `engine::address_guard::a_name_without_address_is_told_so_and_asked_again`,
//!   `engine::address_guard::the_look_up_counts_into_the_timeout`
//!
//! Callers
//! - ten thousand connections that send nothing: `faults::crowd::ten_thousand_connections_that_say_nothing_or_half_a_head_shut_nobody_out`,
//!   `http::wire::timeouts::a_newcomer_takes_the_place_of_the_connection_that_is_used_least`
//! - heads and bodies that do not end, answers that are not taken: `http::wire::timeouts::a_head_that_does_not_end_is_answered_408`,
//!   `http::wire::timeouts::a_body_that_does_not_end_is_answered_408`,
//!   `http::wire::timeouts::a_peer_that_does_not_take_its_reply_loses_the_connection`
//!
//! Other services
//! - the mail server: `http::device_login::mails::a_passing_fault_of_the_server_costs_no_mail_and_a_lasting_one_is_given_up`,
//!   `http::device_login::mails::a_server_for_mail_that_is_away_holds_up_no_answer`
//! - the payment provider: `http::billing::stripe::a_provider_that_hangs_is_left_when_its_time_is_over`,
//!   `http::billing::stripe::a_provider_that_cannot_be_reached_is_a_bad_gateway`
//! - the service manager: `journeys::monitoring::systemd::a_manager_that_cannot_be_told_anything_stops_nobody`

mod clock;
mod commits;
mod crowd;
pub mod disk;
mod files;
mod migration;
pub mod mount;
mod receivers;

use std::fs;
use std::path::Path;

#[test]
fn every_test_that_the_list_names_is_there() {
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
