//! Chapter 11 of the contract: Bounds.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§11.1",
        "a larger body than 2 MiB is a 413",
        &["a_body_over_two_megabytes_is_refused", "a_body_at_the_limit_is_accepted"],
    ),
    (
        "§11.1",
        "an incomplete head or body is a 408",
        &[
            "an_incomplete_head_gets_408",
            "an_incomplete_body_gets_408",
            "a_slowly_sent_head_has_the_same_timeout",
        ],
    ),
    ("§11.1", "JSON nesting has 64 levels", &["sixty_four_levels_are_read_and_one_more_is_not"]),
    (
        "§11.1",
        "bodies and responses in memory are bounded together",
        &["the_budget_is_shared_and_returned", "all_callers_together_hold_at_most_the_budget"],
    ),
    (
        "§11.1",
        "one caller holds a quarter of the memory",
        &[
            "a_caller_holds_at_most_a_quarter_of_the_budget",
            "unfinished_bodies_of_one_client_leave_room_for_others",
            "unread_responses_of_one_client_leave_room_for_others",
            "unfinished_large_bodies_of_one_account_leave_room_for_others",
            "unread_responses_of_one_account_hold_only_its_share",
        ],
    ),
    (
        "§11.1",
        "connections and requests of HTTP/2 hold memory",
        &[
            "responses_that_an_http2_client_does_not_take_hold_its_memory",
            "http2_requests_whose_responses_are_not_read_hold_only_the_share_of_one_address",
        ],
    ),
    ("§11.1", "a request has at most 100 headers", &["a_request_of_http2_has_at_most_100_headers"]),
    (
        "§11.1",
        "however much the others hold, a newcomer has room",
        &[
            "a_caller_holds_at_most_half_of_what_the_others_leave",
            "a_caller_that_holds_nothing_has_room_however_much_the_others_hold",
            "unfinished_bodies_of_many_clients_leave_room_for_a_newcomer",
            "unfinished_large_bodies_of_many_accounts_leave_room_for_a_newcomer",
            "the_networks_of_one_site_are_one_caller",
        ],
    ),
    (
        "§11.1",
        "a refused change is not made",
        &[
            "a_change_without_room_for_its_response_is_not_made",
            "a_reservation_gets_the_size_of_its_response",
        ],
    ),
    (
        "§11.1",
        "callers take turns with lists and large bodies",
        &[
            "waiting_callers_take_turns",
            "large_bodies_of_some_accounts_leave_the_http_threads_to_others",
            "stored_payloads_are_answered_as_their_text",
        ],
    ),
    ("§11.1", "a body without a key is small", &["a_body_without_a_key_has_at_most_64_kib"]),
    (
        "§11.1",
        "requests that take no body refuse one",
        &[
            "a_request_that_takes_no_body_is_refused_at_once_with_one",
            "bodies_that_never_come_on_free_routes_hold_no_connection",
        ],
    ),
    (
        "§11.2",
        "idle connections close first",
        &[
            "at_the_limit_a_new_connection_closes_the_least_used_one",
            "ten_thousand_idle_or_incomplete_connections_do_not_block_clients",
            "concurrent_connections_stay_within_the_limit",
            "bodies_that_never_come_give_way_to_other_connections",
        ],
    ),
    (
        "§11.2",
        "idle connections and unread responses end",
        &[
            "an_idle_connection_is_closed_after_the_idle_timeout",
            "an_idle_connection_outlives_the_head_timeout",
            "a_silent_connection_is_closed_without_a_response",
            "a_client_that_does_not_read_its_response_is_disconnected",
            "a_client_that_reads_slowly_gets_its_whole_response",
        ],
    ),
    (
        "§11.2",
        "one address has a quarter of the connections",
        &["a_client_holds_a_quarter_of_the_connections_once_half_are_open"],
    ),
    (
        "§11.2",
        "a connection without memory closes idle ones, waits, and is refused",
        &[
            "idle_connections_give_their_memory_to_new_ones",
            "a_waiting_connection_is_served_when_memory_is_free",
            "a_connection_without_memory_waits_and_then_gets_503",
            "an_http2_connection_without_memory_is_refused",
        ],
    ),
    (
        "§11.2",
        "polls without a body are few",
        &[
            "polls_of_one_network_wait_in_a_limited_number",
            "polls_without_a_valid_body_count_for_the_address",
        ],
    ),
    (
        "§11.2",
        "an account has 20 long polls",
        &["an_account_has_at_most_twenty_long_polls", "without_limits_the_number_of_long_polls_is_free"],
    ),
    (
        "§11.3",
        "lists of large entries are shorter",
        &[
            "a_page_of_very_large_outcomes_is_shorter_and_has_more",
            "a_list_of_large_payloads_is_shorter_than_its_limit_but_never_empty",
            "every_list_ends_before_four_mebibytes_and_says_so",
            "a_list_ends_before_its_bound_but_has_one_entry",
        ],
    ),
    (
        "§11.3",
        "a request takes a few times the size of its texts",
        &[
            "a_large_body_of_small_values_costs_a_few_times_its_size",
            "a_payload_that_grows_sixfold_in_its_stored_form_costs_four_times_that_form",
            "stored_payloads_are_answered_as_their_text",
            "memory_goes_back_to_the_system_after_large_requests",
            "memory_goes_back_to_the_system_after_a_crowd_of_connections",
        ],
    ),
    ("§11.3", "a rejected value is shown in part", &["the_echo_of_an_invalid_value_is_bounded"]),
    (
        "§11.3",
        "echoes use bounded memory",
        &["echoes_use_bounded_memory", "an_echo_has_at_most_one_megabyte"],
    ),
    (
        "§11.3",
        "echoes of one sender drop no other's",
        &[
            "a_sender_has_at_most_a_quarter_of_the_memory",
            "addresses_share_a_quarter_in_which_none_drops_the_echoes_of_one_that_has_less",
            "echoes_without_an_account_use_a_quarter_of_the_memory_in_fair_shares",
            "senders_that_fill_the_memory_do_not_drop_the_echoes_of_smaller_ones",
            "many_echoes_of_one_account_drop_none_of_another",
            "only_a_delivery_of_the_account_to_its_own_echo_takes_from_its_share",
        ],
    ),
    (
        "§11.3",
        "rate windows are bounded",
        &["the_number_of_address_windows_is_bounded_and_the_oldest_are_evicted"],
    ),
    (
        "§11.4",
        "a quarter of the threads is for other accounts",
        &[
            "busy_accounts_that_stall_leave_a_quarter_of_the_threads_to_others",
            "seven_accounts_whose_ten_hosts_hang_delay_no_other_account",
            "four_accounts_whose_hundred_hosts_hang_delay_no_other_account",
            "many_hanging_receivers_leave_a_thread_for_another",
        ],
    ),
    (
        "§11.4",
        "a destination earns most of its account's share",
        &[
            "a_destination_starts_with_few_threads_and_earns_up_to_its_accounts_share",
            "an_account_does_not_change_the_limits_of_another_at_the_same_host",
        ],
    ),
    (
        "§11.4",
        "accounts take turns",
        &[
            "accounts_take_turns_however_many_executions_and_hosts_one_has",
            "accounts_take_turns_and_destinations_take_turns_within_an_account",
        ],
    ),
    (
        "§11.4",
        "hosts that hang hold few threads together",
        &[
            "an_account_whose_hosts_hang_holds_few_threads_whether_it_names_old_or_new_ones",
            "one_dead_host_among_many_does_not_narrow_its_account",
        ],
    ),
    (
        "§11.4",
        "after a timeout a destination has one thread",
        &["a_destination_that_timed_out_gets_one_thread_until_an_attempt_ends_in_time"],
    ),
    (
        "§11.4",
        "receivers that hang leave threads to others, however many accounts call them",
        &[
            "accounts_whose_hosts_hang_in_waves_leave_threads_for_a_new_one",
            "any_number_of_accounts_whose_hosts_hang_leaves_a_quarter_to_those_with_a_good_record",
            "an_account_whose_host_timed_out_once_gets_a_thread_beside_those_that_hold_several",
        ],
    ),
    (
        "§11.4",
        "the bodies of running deliveries are bounded",
        &[
            "large_payloads_under_way_are_bounded_and_hold_up_no_small_one",
            "large_deliveries_to_receivers_that_never_answer_take_bounded_memory",
            "an_account_holds_a_quarter_and_all_accounts_no_more_than_the_bound",
            "a_response_that_is_taken_as_outcome_counts",
            "the_largest_delivery_fits_into_either_half",
            "accounts_without_a_good_record_leave_half_to_the_others",
            "small_deliveries_wait_for_no_large_one",
        ],
    ),
    (
        "§11.5",
        "the engine writes first, and callers take turns",
        &[
            "the_engine_writes_before_all_waiting_callers",
            "a_write_of_the_engine_joins_the_batch_that_runs",
            "callers_get_a_turn_in_every_batch_of_the_engine",
            "users_take_turns_and_the_writes_of_each_stay_in_order",
            "users_take_turns_when_they_change_their_keys",
        ],
    ),
    ("§11.5", "a batch is bounded", &["a_batch_ends_after_512_writes_or_20_ms"]),
    (
        "§11.6",
        "cues in all states are bounded",
        &[
            "cues_in_all_states_are_ten_times_the_active_ones_and_at_least_100",
            "stored_cues_are_ten_times_the_active_ones_and_at_least_100",
            "without_limits_the_bounds_on_cues_and_bytes_are_ten_times_those_of_the_largest_plan",
        ],
    ),
    (
        "§11.6",
        "payloads, headers, results and kept responses share a storage",
        &[
            "payloads_headers_and_kept_responses_share_the_storage_of_the_plan",
            "results_count_and_a_report_without_them_is_never_refused",
            "a_plan_without_storage_has_that_of_the_built_in_plan_of_its_name",
        ],
    ),
    ("§11.6", "an account has at most 100 keys", &["an_account_has_at_most_100_keys"]),
    (
        "§11.6",
        "workers are bounded and forgotten",
        &[
            "at_1000_workers_the_oldest_dead_one_gives_way",
            "a_worker_that_is_silent_for_30_days_and_holds_nothing_is_forgotten",
            "the_handlers_of_a_worker_have_at_most_16_kib",
        ],
    ),
    (
        "§11.7",
        "bounds described elsewhere hold",
        &[
            "the_attempt_after_a_timeout_waits_at_least_five_seconds",
            "a_revoked_key_gets_no_work_from_its_open_long_poll",
        ],
    ),
];
