//! Chapter 9 of the contract: Pages.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§9",
        "pages have security headers and escape values",
        &[
            "pages_have_their_security_headers",
            "billing_pages_have_security_headers_and_escape_values",
            "every_value_in_a_page_is_escaped",
        ],
    ),
    ("§9", "pages work without scripts", &["the_login_pages_work_with_plain_forms"]),
    ("§9", "errors appear as pages", &["a_refusal_of_a_page_is_a_page_with_its_status"]),
    (
        "§9",
        "the page for browsers and its files",
        &[
            "the_page_is_served_with_its_headers",
            "every_file_of_the_page_is_served_for_ever",
            "a_head_has_the_headers_of_the_get",
            "the_page_over_http2_is_the_same",
        ],
    ),
    ("§9", "a file of another build is not found", &["other_builds_and_odd_paths_are_not_found"]),
    ("§9", "the page can be switched off", &["the_page_can_be_switched_off"]),
    ("§9", "the build is told everywhere", &["the_server_tells_its_build_everywhere_alike"]),
    (
        "§9",
        "tags and encodings of the page",
        &["a_copy_is_confirmed_by_its_tag", "a_client_gets_gzip_only_if_it_accepts_it"],
    ),
    (
        "§9",
        "bounds of the page",
        &["the_page_is_small", "a_first_visit_to_any_screen_takes_few_requests_and_bytes"],
    ),
    (
        "§9",
        "the page loads nothing from another server",
        &["no_file_of_the_page_has_a_banned_text", "the_template_library_is_as_published"],
    ),
];
