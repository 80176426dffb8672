//! Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write};

use toolcrib::metrics::{DURATION_BUCKETS, DurationHistogram};

pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Default)]
pub(super) struct PrometheusText {
    text: String,
}

/// Names and values; the values are ours or bounded, and quoted all the same.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// One metric, of which there may be many series. A metric without any is not mentioned.
#[derive(Debug)]
pub(super) struct Metric<'a> {
    output: &'a mut PrometheusText,
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    has_header: bool,
}

impl PrometheusText {
    /// Its name ends in `_total`.
    pub(super) fn counter(&mut self, name: &'static str, help: &'static str) -> Metric<'_> {
        self.metric(name, help, "counter")
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str) -> Metric<'_> {
        self.metric(name, help, "gauge")
    }

    /// In seconds; its name ends in `_seconds`.
    pub(super) fn histogram(&mut self, name: &'static str, help: &'static str) -> Metric<'_> {
        self.metric(name, help, "histogram")
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn metric(&mut self, name: &'static str, help: &'static str, kind: &'static str) -> Metric<'_> {
        Metric { output: self, name, help, kind, has_header: false }
    }
}

impl Metric<'_> {
    pub(super) fn value(&mut self, labels: Labels<'_>, value: impl Display) {
        self.write_sample("", labels, None, value);
    }

    pub(super) fn durations(&mut self, labels: Labels<'_>, durations: &DurationHistogram) {
        let mut below = 0;
        for (bound, count) in DURATION_BUCKETS.iter().zip(durations.buckets) {
            below += count;
            self.write_sample("_bucket", labels, Some(&bound.to_string()), below);
        }
        self.write_sample("_bucket", labels, Some("+Inf"), durations.count);
        self.write_sample("_sum", labels, None, durations.sum.as_secs_f64());
        self.write_sample("_count", labels, None, durations.count);
    }

    fn write_sample(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: impl Display) {
        let Metric { name, help, kind, .. } = *self;
        let text = &mut self.output.text;
        // Writing to a string does not fail.
        if !std::mem::replace(&mut self.has_header, true) {
            let _written = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        }
        let _written = write!(text, "{name}{suffix}");
        let mut before = '{';
        for (label, value) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _written = write!(text, "{before}{label}=\"{value}\"");
            before = ',';
        }
        if before == ',' {
            text.push('}');
        }
        let _written = writeln!(text, " {value}");
    }
}
