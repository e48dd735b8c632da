//! Texts in Markdown on a terminal: paragraphs and tables at its width.

use crate::table::{Align, Table};

/// Returns the Markdown `text` with paragraphs and tables in lines of at most `width` columns. Code and headings do not
/// change, and in a pipe (`None`) nothing does.
pub fn fit(text: &str, width: Option<u16>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut fitted = String::new();
    let mut lines = text.lines().peekable();
    let mut is_fenced = false;
    while let Some(line) = lines.next() {
        is_fenced ^= is_fence(line);
        if is_fenced || is_fence(line) || is_verbatim(line) {
            fitted.push_str(line);
        } else if is_row(line) && lines.peek().is_some_and(|next| next.starts_with("|-")) {
            let mut rows = vec![line];
            rows.extend(std::iter::from_fn(|| lines.next_if(|next| is_row(next))));
            fitted.push_str(table(&rows, width).trim_end());
        } else {
            let mut paragraph = line.to_owned();
            while let Some(next) = lines.next_if(|next| continues(next)) {
                paragraph.push(' ');
                paragraph.push_str(next.trim());
            }
            fitted.push_str(&wrap(&paragraph, 0, indent(line), Some(width)));
        }
        fitted.push('\n');
    }
    fitted
}

/// Breaks `text` at spaces into lines of at most `width` columns. `taken` columns of the first line are in use already,
/// and further lines begin with `indent` spaces. A word that is longer than a line has a line of its own.
pub fn wrap(text: &str, taken: usize, indent: usize, width: Option<u16>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let start = text.len() - text.trim_start().len();
    let mut wrapped = text[..start].to_owned();
    let mut columns = taken + start;
    for (number, word) in text.split_whitespace().enumerate() {
        let length = word.chars().count();
        if number > 0 && columns + 1 + length > usize::from(width) {
            wrapped.push('\n');
            wrapped.push_str(&" ".repeat(indent));
            columns = indent;
        } else if number > 0 {
            wrapped.push(' ');
            columns += 1;
        }
        wrapped.push_str(word);
        columns += length;
    }
    wrapped
}

/// Blank lines, headings, and indented code.
fn is_verbatim(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#') || line.starts_with("    ")
}

/// The first or last line of a block of code.
fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

/// A row of a table.
fn is_row(line: &str) -> bool {
    line.starts_with('|')
}

/// Columns of the marker of a list item, as in `- text`, `* text` or `1. text`; 0 for other lines.
fn marker(line: &str) -> usize {
    let text = line.trim_start();
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = text.len() - number.len();
    match digits {
        0 if ["- ", "* ", "+ "].iter().any(|marker| text.starts_with(marker)) => 2,
        1.. if number.starts_with(". ") || number.starts_with(") ") => digits + 2,
        _ => 0,
    }
}

/// Columns before the text of `line`.
fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len() + marker(line)
}

/// Whether `line` belongs to the paragraph of the line before it.
fn continues(line: &str) -> bool {
    let is_apart = line.trim().is_empty() || line.starts_with(['#', '>']) || is_row(line);
    !is_apart && !is_fence(line) && marker(line) == 0
}

/// The table with these rows, of which the second one separates the heading.
fn table(rows: &[&str], width: u16) -> String {
    let aligns = rows.get(1).map(|row| cells(row)).unwrap_or_default();
    let aligns =
        aligns.iter().map(|dashes| if dashes.ends_with(':') { Align::Right } else { Align::Left });
    let columns: Vec<(String, Align)> = cells(rows[0]).into_iter().zip(aligns).collect();
    let mut table = Table::with_width(false, columns, Some(width));
    for row in rows.iter().skip(2) {
        table.row(cells(row));
    }
    table.finish()
}

/// The cells of a row; `\|` is a character of a cell.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().replace("\\|", "\0");
    let row = row.strip_prefix('|').unwrap_or(&row);
    let row = row.strip_suffix('|').unwrap_or(row);
    row.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_and_lists_fit_the_width_and_code_stays() {
        let text = "# A heading that is longer than the lines\n\nOne sentence of a text.\nAnother one.\n\n\
                    - an item of a list\n  with a second line\n10. another numbered item\n* a\n2) b\n\n> one\n> two\n\n    code that is not broken\n\n\
                    ```yaml\n# a comment in a flowgraph\n```\nThe end.\n";
        let expected = "# A heading that is longer than the lines\n\nOne sentence of a\ntext. Another one.\n\n\
                        - an item of a list\n  with a second line\n10. another numbered\n    item\n* a\n2) b\n\n> one\n> two\n\n    code that is not broken\n\n\
                        ```yaml\n# a comment in a flowgraph\n```\nThe end.\n";
        assert_eq!(fit(text, Some(20)), expected);
        assert_eq!(fit(text, None), text);
    }

    #[test]
    fn tables_become_columns_that_fit_the_width() {
        let text =
            "| name | value |\n|---|---:|\n| `a` | 10 |\n| `x\\|y` of a long text | 2 |\n\nText.\n";
        let expected =
            "name        value\n`a`            10\n`x|y` of a      2\nlong text\n\nText.\n";
        assert_eq!(fit(text, Some(19)), expected);
        assert_eq!(fit("|x| is no table\n", Some(12)), "|x| is no\ntable\n");
    }

    #[test]
    fn wrap_counts_the_columns_in_use_and_keeps_long_words() {
        assert_eq!(wrap("one two three", 4, 2, Some(12)), "one two\n  three");
        assert_eq!(wrap("1234567890123 x", 0, 2, Some(12)), "1234567890123\n  x");
        assert_eq!(wrap("  one  two", 0, 2, None), "  one  two");
    }
}
