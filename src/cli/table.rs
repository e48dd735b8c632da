//! Tables without lines: a heading, columns, numbers to the right.

use crate::terminal::{Paint, paint};
use comfy_table::{CellAlignment, ContentArrangement, presets};
use std::io::stdout;

/// A table under construction.
pub struct Table {
    rows: comfy_table::Table,
    columns: Vec<Align>,
    coloured: bool,
    headings: Vec<String>,
}

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// Columns of the terminal that results go to; `None` in a pipe.
pub fn width() -> Option<u16> {
    terminal_size::terminal_size_of(stdout()).map(|(terminal_size::Width(width), _)| width)
}

impl Table {
    /// Creates a table with these columns, for the terminal or pipe that results go to.
    pub fn new(coloured: bool, columns: &[(&str, Align)]) -> Self {
        let columns = columns.iter().map(|(name, align)| ((*name).to_owned(), *align));
        Self::with_width(coloured, columns, width())
    }

    /// Creates a table with these columns, for a terminal of `width` columns or a pipe (`None`).
    pub fn with_width(
        coloured: bool,
        columns: impl IntoIterator<Item = (String, Align)>,
        width: Option<u16>,
    ) -> Self {
        let mut rows = comfy_table::Table::new();
        rows.load_preset(presets::NOTHING);
        rows.set_content_arrangement(ContentArrangement::Disabled);
        // In a pipe every row is one line; on a terminal long texts wrap within their column.
        if let Some(width) = width {
            rows.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        let (headings, columns) = columns.into_iter().unzip();
        Self { rows, columns, coloured, headings }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.add_row(cells.into_iter().collect::<Vec<_>>());
    }

    /// Returns the table as lines without trailing spaces.
    pub fn finish(mut self) -> String {
        self.rows.set_header(self.headings);
        for (index, align) in self.columns.iter().enumerate() {
            if let Some(column) = self.rows.column_mut(index) {
                column.set_padding((0, 2));
                column.set_cell_alignment(match align {
                    Align::Left => CellAlignment::Left,
                    Align::Right => CellAlignment::Right,
                });
            }
        }
        let mut text = String::new();
        for (index, line) in self.rows.lines().enumerate() {
            let line = line.trim_end();
            // The line is painted as a whole, so that escape codes do not change column widths.
            let heading = index == 0;
            text.push_str(&if heading {
                paint(self.coloured, Paint::Bold, line)
            } else {
                line.to_owned()
            });
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_aligns_numbers_right_and_trims_lines() {
        let mut table = Table::new(false, &[("block", Align::Left), ("frames", Align::Right)]);
        table.row(["a".to_owned(), "12".to_owned()]);
        table.row(["longer".to_owned(), "3".to_owned()]);
        assert_eq!(table.finish(), "block   frames\na           12\nlonger       3\n");
    }
}
