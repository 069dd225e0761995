//! Files that `cued apply` and `cued diff` refuse: each fault has its place, and says what to do.

use crate::cli::client::apply::{FILE, write};
use crate::support::*;

/// Each of these is found before any request.
#[test]
fn a_fault_of_a_file_is_named_with_its_place() {
    let home = ClientHome::without_server();
    let mut wrong = Vec::new();
    for row in include_str!("../../../data/file-faults.tsv").lines() {
        let [name, text, fault] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        write(&home, FILE, &text.replace("\\n", "\n"));
        let expected = (2, String::new(), format!("cued: {FILE}:{fault} (nothing was sent)\n"));
        for command in ["apply", "diff"] {
            let ClientRun { code, stdout, stderr } = home.run(&[command, "-f", FILE]);
            let found = (code, stdout, stderr);
            if found != expected {
                wrong.push((name, command, found));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
