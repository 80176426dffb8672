//! What was measured, as Markdown: a table of ratios, a table of curves, and a line for what could not be measured.

use std::fmt;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    curves: Vec<Curve>,
    tables: Vec<String>,
    broken: Vec<String>,
}

/// One measurement against another.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) bench: &'static str,
    pub(crate) measured: String,
    pub(crate) against: String,
    pub(crate) ratio: f64,
    pub(crate) bar: Bar,
}

#[derive(Debug)]
pub(crate) enum Bar {
    /// The ratio may not exceed this.
    AtMost(f64, String),
    /// Something else must hold, and does or does not.
    Holds(bool, String),
    /// For information.
    None,
}

/// The cost of one operation at several sizes.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) name: &'static str,
    /// Per tool, or per lookup.
    pub(crate) each: Vec<(usize, Duration)>,
    pub(crate) exponent: f64,
    pub(crate) bar: f64,
}

impl Report {
    pub(crate) fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(crate) fn curve(&mut self, curve: Curve) {
        self.curves.push(curve);
    }

    /// Figures that are more than one ratio.
    pub(crate) fn table(&mut self, table: String) {
        self.tables.push(table);
    }

    pub(crate) fn broken(&mut self, bench: &str, error: &dyn std::error::Error) {
        self.broken.push(format!("`{bench}` could not be measured: {error}"));
    }

    pub(crate) fn all_met(&self) -> bool {
        self.rows.iter().all(|row| row.bar.met(row.ratio) != Some(false))
            && self.curves.iter().all(Curve::met)
            && self.broken.is_empty()
    }
}

impl Bar {
    fn met(&self, ratio: f64) -> Option<bool> {
        match self {
            Bar::AtMost(most, _) => Some(ratio <= *most),
            Bar::Holds(holds, _) => Some(*holds),
            Bar::None => None,
        }
    }
}

impl Curve {
    fn met(&self) -> bool {
        self.exponent <= self.bar
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.rows.is_empty() {
            writeln!(f, "| bench | measured | against | ratio | bar | result |\n|---|---|---|---:|---|---|")?;
        }
        for Row { bench, measured, against, ratio, bar } in &self.rows {
            let text = match bar {
                Bar::AtMost(most, text) => format!("at most {most:.3}: {text}"),
                Bar::Holds(_, text) => text.clone(),
                Bar::None => "none".to_owned(),
            };
            writeln!(f, "| {bench} | {measured} | {against} | {ratio:.3} | {text} | {} |", word(bar.met(*ratio)))?;
        }
        if let Some(first) = self.curves.first() {
            let sizes: String = first.each.iter().map(|(size, _)| format!(" {size} |")).collect();
            let rules = "---:|".repeat(first.each.len());
            writeln!(f, "\n| curve |{sizes} exponent | bar | result |\n|---|{rules}---:|---:|---|")?;
        }
        for curve in &self.curves {
            let each: String = curve.each.iter().map(|(_, time)| format!(" {} |", shown(*time))).collect();
            let Curve { name, exponent, bar, .. } = curve;
            writeln!(f, "| {name} |{each} {exponent:.2} | {bar:.2} | {} |", word(Some(curve.met())))?;
        }
        self.tables.iter().try_for_each(|table| write!(f, "\n{table}"))?;
        self.broken.iter().try_for_each(|line| writeln!(f, "\n{line}"))
    }
}

fn word(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "MISSED",
        None => "–",
    }
}

/// A time with three digits and its unit.
pub(crate) fn shown(time: Duration) -> String {
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
