//! A table of a documentation page as text: as in Markdown, its columns under each other and its cells folded to fit the
//! width. Words stay whole, because they are copied: a table whose words do not fit becomes a list.

use unicode_width::UnicodeWidthStr as _;

use crate::cli::width::{fill, fold};

/// `| ` before each cell, a blank after it, and the last `|`.
const AROUND_CELL: usize = 3;

pub fn table(rows: &[Vec<String>], width: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest_of = |size: fn(&str) -> usize| -> Vec<usize> {
        let cells = |column| rows.iter().filter_map(move |row| row.get(column));
        (0..columns).map(|column| cells(column).map(|cell| size(cell)).max().unwrap_or(0)).collect()
    };
    let longest_word = |cell: &str| cell.split(' ').map(|word| word.width()).max().unwrap_or(0);
    let room = width.saturating_sub(AROUND_CELL * columns + 1);
    let least = widest_of(longest_word);
    if least.iter().sum::<usize>() > room {
        return list(rows, width);
    }
    let widths = shared(least, &widest_of(|cell| cell.width()), room);
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<Vec<String>> =
            row.iter().zip(&widths).map(|(cell, width)| fold(cell, *width)).collect();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            for (cell, width) in cells.iter().zip(&widths) {
                let text = cell.get(line).map_or("", String::as_str);
                out += &format!("| {text}{:1$} ", "", width.saturating_sub(text.width()));
            }
            out += "|\n";
        }
        if number == 0 {
            let lines = widths.iter().map(|width| "-".repeat(*width));
            out += &format!("| {} |\n", lines.collect::<Vec<_>>().join(" | "));
        }
    }
    out
}

/// Each row as an item, with its further cells below the first.
fn list(rows: &[Vec<String>], width: usize) -> String {
    let Some((head, rows)) = rows.split_first() else { return String::new() };
    let item = |row: &Vec<String>| -> String {
        let cells = row.iter().zip(head).enumerate().filter(|(_, (cell, _))| !cell.is_empty());
        let line = |(column, (cell, name)): (usize, (&String, &String))| {
            let (mark, name) = if column == 0 { ("- ", "") } else { ("  ", name.as_str()) };
            let colon = if name.is_empty() { "" } else { ": " };
            fill(format!("{name}{colon}{cell}").split(' '), mark.to_owned(), 2, width) + "\n"
        };
        cells.map(line).collect()
    };
    rows.iter().map(item).collect()
}

/// The width of each column, from `least` up to `most`. Those that need least have theirs first; the others share the
/// rest of `room`.
fn shared(least: Vec<usize>, most: &[usize], room: usize) -> Vec<usize> {
    let mut left = room.saturating_sub(least.iter().sum());
    let mut widths = least;
    let mut columns: Vec<usize> = (0..widths.len()).collect();
    columns.sort_by_key(|column| most[*column] - widths[*column]);
    for (number, column) in columns.iter().enumerate() {
        let share = left / (columns.len() - number);
        let more = share.min(most[*column] - widths[*column]);
        widths[*column] += more;
        left -= more;
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_folded_to_the_width_and_words_stay_whole() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["Event", "Consequence"]),
            row(["the disk is full", "writes get a 503, reads go on"]),
        ];
        let wide = "| Event            | Consequence                   |\n\
                    | ---------------- | ----------------------------- |\n\
                    | the disk is full | writes get a 503, reads go on |\n";
        assert_eq!(table(&rows, 80), wide);
        assert_eq!(table(&rows, 52), wide);
        let folded = "| Event            | Consequence            |\n\
                      | ---------------- | ---------------------- |\n\
                      | the disk is full | writes get a 503,      |\n\
                      |                  | reads go on            |\n";
        assert_eq!(table(&rows, 45), folded);
        let link = row(["a", "https://example.com/a b"]);
        assert_eq!(
            table(&[row(["Name", "At"]), link.clone()], 10),
            "- a\n  At:\n  https://example.com/a\n  b\n"
        );
        assert_eq!(table(&[row(["", ""]), link], 10), "- a\n  https://example.com/a\n  b\n");
    }
}
