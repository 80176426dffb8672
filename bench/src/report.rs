//! Report in Markdown: a table of ratios, a table of growth curves, further tables, and a line per failed benchmark.
//!
//! The tables are pasted into docs/benchmarks.md as they are. The threshold of a row is called its bar there.

use std::fmt;
use std::time::Duration;

/// Results of all benchmarks.
#[derive(Debug, Default)]
pub(crate) struct BenchReport {
    rows: Vec<RatioRow>,
    curves: Vec<GrowthCurve>,
    /// Tables in Markdown, printed as they are.
    tables: Vec<String>,
    /// One line per benchmark that ended with an error.
    failures: Vec<String>,
}

/// Measurement compared with a baseline.
#[derive(Debug)]
pub(crate) struct RatioRow {
    /// Name of the benchmark.
    pub(crate) bench: &'static str,
    /// Description and value of the measurement.
    pub(crate) measured: String,
    /// Description and value of the baseline.
    pub(crate) baseline: String,
    /// Measurement divided by baseline, or another number that the threshold is compared with.
    pub(crate) ratio: f64,
    pub(crate) threshold: Threshold,
}

/// Condition for a row to pass, with a description.
#[derive(Debug)]
pub(crate) enum Threshold {
    /// Maximum ratio.
    AtMost(f64, String),
    /// Another condition, and whether it is met.
    Condition(bool, String),
    /// For information only.
    None,
}

/// Cost of one operation at several sizes.
#[derive(Debug)]
pub(crate) struct GrowthCurve {
    pub(crate) name: &'static str,
    /// Size, and time per tool or per lookup.
    pub(crate) per_item: Vec<(usize, Duration)>,
    /// Growth between the judged sizes, by [`growth_exponent`](crate::measure::growth_exponent).
    pub(crate) exponent: f64,
    /// Threshold of the exponent.
    pub(crate) max_exponent: f64,
}

impl BenchReport {
    /// Adds a row of the table of ratios, in the order of the calls.
    pub(crate) fn add_row(&mut self, row: RatioRow) {
        self.rows.push(row);
    }

    /// Adds a row of the table of curves. All curves have the same sizes; the first one names the columns.
    pub(crate) fn add_curve(&mut self, curve: GrowthCurve) {
        self.curves.push(curve);
    }

    /// Adds a table in Markdown.
    pub(crate) fn add_table(&mut self, table: String) {
        self.tables.push(table);
    }

    /// Adds a benchmark that failed with an error.
    pub(crate) fn add_failure(&mut self, bench: &str, error: &dyn std::error::Error) {
        self.failures.push(format!("`{bench}` could not be measured: {error}"));
    }

    /// Whether all thresholds are met and no benchmark failed.
    pub(crate) fn is_all_met(&self) -> bool {
        self.rows.iter().all(|row| row.threshold.is_met(row.ratio) != Some(false))
            && self.curves.iter().all(GrowthCurve::is_met)
            && self.failures.is_empty()
    }
}

impl Threshold {
    /// Whether the threshold is met; `None` if there is none.
    fn is_met(&self, ratio: f64) -> Option<bool> {
        match self {
            Threshold::AtMost(max_ratio, _) => Some(ratio <= *max_ratio),
            Threshold::Condition(holds, _) => Some(*holds),
            Threshold::None => None,
        }
    }
}

impl GrowthCurve {
    /// Whether the growth is within its threshold.
    fn is_met(&self) -> bool {
        self.exponent <= self.max_exponent
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.rows.is_empty() {
            writeln!(f, "| bench | measured | against | ratio | bar | result |\n|---|---|---|---:|---|---|")?;
        }
        for RatioRow { bench, measured, baseline: against, ratio, threshold } in &self.rows {
            let text = match threshold {
                Threshold::AtMost(max_ratio, text) => format!("at most {max_ratio:.3}: {text}"),
                Threshold::Condition(_, text) => text.clone(),
                Threshold::None => "none".to_owned(),
            };
            writeln!(
                f,
                "| {bench} | {measured} | {against} | {ratio:.3} | {text} | {} |",
                result_word(threshold.is_met(*ratio))
            )?;
        }
        if let Some(first) = self.curves.first() {
            let sizes: String = first.per_item.iter().map(|(size, _)| format!(" {size} |")).collect();
            let rules = "---:|".repeat(first.per_item.len());
            writeln!(f, "\n| curve |{sizes} exponent | bar | result |\n|---|{rules}---:|---:|---|")?;
        }
        for curve in &self.curves {
            let times: String =
                curve.per_item.iter().map(|(_, time)| format!(" {} |", format_duration(*time))).collect();
            let GrowthCurve { name, exponent, max_exponent, .. } = curve;
            writeln!(
                f,
                "| {name} |{times} {exponent:.2} | {max_exponent:.2} | {} |",
                result_word(Some(curve.is_met()))
            )?;
        }
        self.tables.iter().try_for_each(|table| write!(f, "\n{table}"))?;
        self.failures.iter().try_for_each(|line| writeln!(f, "\n{line}"))
    }
}

/// Word for the last column. `MISSED` in capitals is easy to find in a long report.
fn result_word(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "–",
    }
}

/// Formats a time with three significant digits and its unit.
pub(crate) fn format_duration(time: Duration) -> String {
    let nanos = time.as_secs_f64() * 1e9;
    let (value, unit) = match nanos {
        small if small < 1e3 => (nanos, "ns"),
        small if small < 1e6 => (nanos / 1e3, "µs"),
        small if small < 1e9 => (nanos / 1e6, "ms"),
        _ => (nanos / 1e9, "s"),
    };
    match value {
        large if large >= 100.0 => format!("{value:.0} {unit}"),
        large if large >= 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}
