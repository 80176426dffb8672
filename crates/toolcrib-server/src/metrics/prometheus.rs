//! Writer for the Prometheus text exposition format, version 0.0.4.
//!
//! ```text
//! # HELP toolcrib_calls_total Calls that ended, by source and code.
//! # TYPE toolcrib_calls_total counter
//! toolcrib_calls_total{source="git",code="OK"} 17
//! ```

use std::fmt::{Display, Write};

use toolcrib::metrics::{DURATION_BUCKETS, DurationHistogram};

/// Content type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Buffer that metrics are written to.
#[derive(Debug, Default)]
pub(super) struct PrometheusText {
    pub(super) text: String,
}

/// Label names and values. Values are escaped when written.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// One metric with any number of series. Its `HELP` and `TYPE` lines are written with the first sample, so that a metric
/// without samples does not appear.
#[derive(Debug)]
pub(super) struct Metric<'a> {
    output: &'a mut PrometheusText,
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    has_header: bool,
}

impl PrometheusText {
    /// Begins a counter. By convention its name ends in `_total`.
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> Metric<'_> {
        self.metric(name, help, "counter")
    }

    /// Begins a gauge.
    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> Metric<'_> {
        self.metric(name, help, "gauge")
    }

    /// Begins a histogram of durations in seconds. By convention its name ends in `_seconds`.
    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str) -> Metric<'_> {
        self.metric(name, help, "histogram")
    }

    fn metric(&mut self, name: &'static str, help: &'static str, kind: &'static str) -> Metric<'_> {
        Metric { output: self, name, help, kind, has_header: false }
    }
}

impl Metric<'_> {
    /// Writes one sample of a counter or gauge.
    pub(super) fn value(&mut self, labels: Labels<'_>, value: impl Display) {
        self.write_sample("", labels, None, value);
    }

    /// Writes the cumulative buckets, sum and count of a histogram. Prometheus wants each bucket to contain the ones
    /// below it, and `+Inf` to equal the count.
    pub(super) fn durations(&mut self, labels: Labels<'_>, durations: &DurationHistogram) {
        let mut cumulative = 0;
        for (bound, count) in DURATION_BUCKETS.iter().zip(durations.buckets) {
            cumulative += count;
            self.write_sample("_bucket", labels, Some(&bound.to_string()), cumulative);
        }
        self.write_sample("_bucket", labels, Some("+Inf"), durations.count);
        self.write_sample("_sum", labels, None, durations.sum.as_secs_f64());
        self.write_sample("_count", labels, None, durations.count);
    }

    /// Writes one line; `bound` is the `le` label of a bucket.
    fn write_sample(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: impl Display) {
        let Metric { name, help, kind, .. } = *self;
        let text = &mut self.output.text;
        // Writing to a `String` never fails, so all results are ignored.
        if !std::mem::replace(&mut self.has_header, true) {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        let _ = write!(text, "{name}{suffix}");
        let mut separator = '{';
        for (label, value) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            // The three escapes that the format knows for label values.
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(text, "{separator}{label}=\"{value}\"");
            separator = ',';
        }
        if separator == ',' {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}
