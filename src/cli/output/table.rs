//! Tables and details as text.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::cli::output::style::{Style, Styles};
use crate::cli::printable::printable;

/// Between two columns.
const GAP: &str = "  ";

/// A column that is shortened keeps so much.
const MIN_WIDTH: usize = 8;

/// A text of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    pub style: Style,
}

impl Cell {
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Style::Plain)
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    /// Shown only in the wide form.
    pub is_wide: bool,
    /// May be shortened so that the table fits into the terminal. Ids never are.
    pub may_shorten: bool,
}

impl Column {
    pub const fn new(title: &'static str) -> Self {
        Self { title, is_wide: false, may_shorten: false }
    }

    /// A column of the wide form only.
    pub const fn wide(self) -> Self {
        Self { is_wide: true, ..self }
    }

    /// A column of free text.
    pub const fn text(self) -> Self {
        Self { may_shorten: true, ..self }
    }
}

/// Rows of cells under columns.
#[derive(Debug, Clone)]
pub struct Table {
    pub columns: Vec<Column>,
    /// Each with a cell per column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn render(&self, is_wide: bool, styles: &Styles) -> String {
        let shown: Vec<usize> =
            (0..self.columns.len()).filter(|index| is_wide || !self.columns[*index].is_wide).collect();
        let title = |index: &usize| Cell::new(self.columns[*index].title, Style::Title);
        let mut rows: Vec<Vec<Cell>> = vec![shown.iter().map(title).collect()];
        let cell = |row: &Vec<Cell>, index: usize| {
            row.get(index).map(|cell| Cell::new(printable(&cell.text), cell.style)).unwrap_or_default()
        };
        rows.extend(self.rows.iter().map(|row| shown.iter().map(|index| cell(row, *index)).collect()));
        let width = |column: usize| rows.iter().map(|row| row[column].text.width()).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..shown.len()).map(width).collect();
        if let (Some(terminal), false) = (styles.width, is_wide) {
            let may_shorten: Vec<bool> = shown.iter().map(|index| self.columns[*index].may_shorten).collect();
            shorten(&mut widths, &may_shorten, terminal);
        }
        rows.iter().map(|row| line(row, &widths, styles)).collect()
    }
}

/// Lines of a name and a value. Lines without a value are left out.
pub fn details(lines: &[(&str, Cell)], styles: &Styles) -> String {
    let lines: Vec<&(&str, Cell)> = lines.iter().filter(|(_, value)| !value.text.is_empty()).collect();
    let width = lines.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let line = |(name, value): &&(&str, Cell)| {
        // Further lines of a value stand below its first.
        let text = value.text.split('\n').map(printable).collect::<Vec<_>>();
        let indent = format!("\n{:width$}{GAP}", "");
        let text: Vec<String> = text.iter().map(|text| styles.paint(text, value.style)).collect();
        format!("{}{GAP}{}\n", styles.paint(&format!("{name:width$}"), Style::Faint), text.join(&indent))
    };
    lines.iter().map(line).collect()
}

/// Takes width from the widest columns that may be shortened, until the table fits.
fn shorten(widths: &mut [usize], may_shorten: &[bool], terminal: usize) {
    loop {
        let all = widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
        let widest =
            (0..widths.len()).filter(|column| may_shorten[*column]).max_by_key(|column| widths[*column]);
        match widest {
            Some(column) if all > terminal && widths[column] > MIN_WIDTH => widths[column] -= 1,
            _ => return,
        }
    }
}

fn line(row: &[Cell], widths: &[usize], styles: &Styles) -> String {
    let cells: Vec<String> = row
        .iter()
        .zip(widths)
        .enumerate()
        .map(|(index, (cell, width))| {
            let text = cut(&cell.text, *width);
            // No blanks at the end of a line.
            let missing = if index + 1 < row.len() { width.saturating_sub(text.width()) } else { 0 };
            format!("{}{:missing$}", styles.paint(&text, cell.style), "")
        })
        .collect();
    format!("{}\n", cells.join(GAP).trim_end())
}

/// The beginning of a text, with an ellipsis, if it is wider than `width`.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut used = 1;
    let kept: String = text
        .chars()
        .take_while(|char| {
            used += char.width().unwrap_or(0);
            used <= width
        })
        .collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Styles = Styles { has_colour: false, width: None };

    fn table() -> Table {
        Table {
            columns: vec![Column::new("ID"), Column::new("NAME").text(), Column::new("NOTE").wide()],
            rows: vec![
                vec!["cue_1".into(), "日本 nightly backup of everything".into(), "n".into()],
                vec!["cue_22".into(), Cell::new("b\u{1b}[2J", Style::Bad), "".into()],
            ],
        }
    }

    #[test]
    fn columns_are_aligned_by_their_width_on_a_terminal() {
        let text = table().render(false, &PIPE);
        assert_eq!(text, "ID      NAME\ncue_1   日本 nightly backup of everything\ncue_22  b\u{fffd}[2J\n");
        assert!(table().render(true, &PIPE).contains("everything  n\n"));
    }

    #[test]
    fn free_text_is_shortened_to_fit_the_terminal() {
        let narrow = Styles { width: Some(24), ..PIPE };
        assert_eq!(table().render(false, &narrow).lines().nth(1).unwrap(), "cue_1   日本 nightly ba…");
    }

    #[test]
    fn details_leave_out_what_is_empty() {
        let lines = [("id", "x".into()), ("description", "".into()), ("payload", "{\n}".into())];
        assert_eq!(details(&lines, &PIPE), "id       x\npayload  {\n         }\n");
    }

    #[test]
    fn colours_are_left_out_without_a_terminal() {
        assert_eq!(PIPE.paint("x", Style::Bad), "x");
        assert_eq!(Styles { has_colour: true, width: None }.paint("x", Style::Bad), "\u{1b}[31mx\u{1b}[0m");
    }
}
