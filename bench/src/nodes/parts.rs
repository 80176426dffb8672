//! Table of measured parts, from which docs/scale.md computes larger clusters.

use std::fmt::Write;

use crate::report::BenchReport;

/// Rows of the table, in the order in which they were measured.
#[derive(Debug, Default)]
pub(super) struct PartsTable {
    rows: Vec<(String, String)>,
}

impl PartsTable {
    pub(super) fn add(&mut self, part: impl Into<String>, measured: impl Into<String>) {
        self.rows.push((part.into(), measured.into()));
    }

    /// Adds the table to the report.
    pub(super) fn print(self, report: &mut BenchReport) {
        let mut table = "| part | measured |\n|---|---|\n".to_owned();
        for (part, measured) in self.rows {
            // Writing to a string does not fail.
            let _ = writeln!(table, "| {part} | {measured} |");
        }
        report.add_table(table);
    }
}
