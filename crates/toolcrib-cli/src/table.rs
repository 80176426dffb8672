//! Text tables that fit the terminal: the widest columns are truncated first.
//!
//! Cells are measured in terminal columns, not in characters: a CJK character takes two columns, a colour code none.

use console::{measure_text_width, truncate_str};

/// Width in columns when stdout has none, for example a pipe.
const DEFAULT_TABLE_WIDTH: usize = 160;
/// A column is truncated down to this width at most; a table that is still too wide then wraps.
const MIN_COLUMN_WIDTH: usize = 12;

/// A table with a heading row and cells of one line each.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows; headings are printed in upper case.
    pub(crate) fn new(headings: &[&'static str]) -> Table {
        Table { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one cell per heading. Line breaks and runs of white space become single spaces.
    pub(crate) fn add_row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| cell.split_whitespace().collect::<Vec<_>>().join(" ")).collect());
    }

    /// Returns the table as lines with two spaces between columns, without trailing spaces.
    pub(crate) fn render(&self) -> String {
        let width =
            console::Term::stdout().size_checked().map_or(DEFAULT_TABLE_WIDTH, |(_, columns)| usize::from(columns));
        // One width per column for all rows, so the table must be complete before its first line is rendered.
        let widths = self.column_widths(width);
        let mut text = String::new();
        let headings: Vec<String> = self.headings.iter().map(|heading| heading.to_uppercase()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if index > 0 {
                    line.push_str("  ");
                }
                let cell = truncate_str(cell, *width, "…");
                line.push_str(&cell);
                line.push_str(&" ".repeat(width.saturating_sub(measure_text_width(&cell))));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Returns column widths that fit the content; while a row exceeds `available`, the widest column (the last one of
    /// several) loses a character.
    fn column_widths(&self, available: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.headings.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| measure_text_width(cell));
                cells.chain([self.headings[column].len()]).max().unwrap_or(0)
            })
            .collect();
        let gaps = 2 * widths.len().saturating_sub(1);
        let excess = |widths: &[usize]| (widths.iter().sum::<usize>() + gaps).saturating_sub(available);
        // One character at a time, so that the widest columns end up equally wide and narrow ones (status, count) stay
        // whole.
        while excess(&widths) > 0 {
            let Some(widest) = widths.iter_mut().rev().max_by_key(|width| **width) else { break };
            if *widest <= MIN_COLUMN_WIDTH {
                break;
            }
            *widest -= 1;
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_the_widest_column() {
        let mut table = Table::new(&["name", "description"]);
        table.add_row(vec!["git__push".into(), "x".repeat(100)]);
        assert_eq!(table.column_widths(60), [9, 49]);
        assert_eq!(table.column_widths(500), [9, 100]);
    }
}
