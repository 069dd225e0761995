//! Chapter 1 of the contract, the clients of a server: signing in, commands, exit codes.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§1.11",
        "a key comes from standard input, registration or device login, and is stored after a check",
        &[
            "a_key_from_standard_input_is_verified_before_it_is_stored",
            "a_new_address_has_an_account_at_once_on_a_server_without_mail",
            "a_known_address_confirms_by_the_link_in_the_log",
            "the_address_is_entered_on_the_page_when_nobody_can_be_asked",
            "the_address_is_asked_for_and_the_link_is_taken",
        ],
    ),
    (
        "§1.11",
        "keys are stored for their owner only, sent to their server only, and never shown",
        &[
            "a_credentials_file_that_others_can_read_is_refused",
            "a_lock_that_is_a_link_is_refused_and_what_it_leads_to_is_kept",
            "the_key_of_a_profile_goes_to_no_other_server",
            "a_key_as_an_argument_is_refused_and_not_repeated",
            "no_output_and_no_log_has_the_key",
            "the_browser_gets_the_link_in_a_file_and_not_as_an_argument",
        ],
    ),
    (
        "§1.11",
        "signing out revokes the key, or changes nothing",
        &[
            "the_key_is_revoked_and_the_profile_removed",
            "without_the_server_nothing_is_removed",
            "the_only_key_of_an_account_is_kept_unless_only_the_profile_goes",
        ],
    ),
    (
        "§1.11",
        "flags count before the environment, before the profile",
        &["flags_count_before_the_environment_before_the_profile", "a_bad_address_is_wrong_usage"],
    ),
    (
        "§1.4",
        "each failure of a client has its exit code",
        &[
            "the_table_has_every_command_of_the_client",
            "a_command_that_reached_a_limit_exits_with_6",
            "a_command_with_a_wrong_key_exits_with_4",
            "a_command_whose_thing_is_unknown_exits_with_3",
            "a_command_that_the_server_refuses_exits_with_5",
            "a_command_whose_server_cannot_write_exits_with_1",
            "an_ended_run_is_shown_and_its_result_is_the_exit_code",
        ],
    ),
    (
        "§1.12",
        "results are on standard output in the chosen form, and nothing else is",
        &[
            "cues_are_listed_by_filters_and_in_every_form",
            "other_forms_are_json_or_ids_and_nothing_else",
            "control_characters_of_names_do_not_reach_the_terminal",
            "nothing_of_a_server_controls_what_reads_a_pipe",
            "nothing_of_a_server_controls_the_terminal",
            "nothing_of_a_stream_or_a_delivery_controls_the_terminal",
            "a_terminal_shows_a_question_and_a_bar",
        ],
    ),
    (
        "§1.12",
        "health --local checks the server of this machine",
        &[
            "a_local_check_finds_the_server_by_its_own_settings_and_prints_one_word",
            "a_local_check_that_fails_exits_with_1_and_one_sentence",
            "a_local_check_of_a_held_server_says_so",
            "a_local_check_of_no_address_fails_and_says_so",
            "each_state_that_is_not_healthy_has_a_sentence",
        ],
    ),
    (
        "§1.12",
        "a request is repeated if that is safe",
        &["a_request_is_repeatable_by_its_method_or_its_key", "pauses_double_and_end_after_three_retries"],
    ),
    (
        "§1.12",
        "tail loses and repeats nothing",
        &[
            "restarts_of_the_server_lose_nothing_and_repeat_nothing",
            "the_past_comes_first_in_its_order_and_is_not_repeated",
        ],
    ),
    (
        "§1.12",
        "sink shows deliveries and answers by a script",
        &[
            "a_delivery_is_a_line_and_its_body",
            "an_unverified_delivery_has_its_reason",
            "the_answers_follow_the_script_and_its_last_step_repeats",
        ],
    ),
];
