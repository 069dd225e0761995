//! Chapter 9 of the contract: Pages.

use super::Row;

pub const ROWS: &[Row] = &[
    (
        "§9",
        "pages have security headers and escape values",
        &[
            "pages_have_their_security_headers",
            "billing_pages_have_security_headers_and_escape_values",
            "values_in_a_page_are_escaped",
        ],
    ),
    ("§9", "pages work without scripts", &["the_login_pages_work_with_plain_forms"]),
    ("§9", "errors appear as pages", &["an_error_of_a_page_is_a_page_with_its_status"]),
];
