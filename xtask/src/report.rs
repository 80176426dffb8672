//! What was done, how long it took and how it ended. Every step runs, so that one run shows everything.

use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
    skipped_tests: Vec<String>,
}

#[derive(Debug)]
struct Step {
    name: String,
    end: End,
    took: Duration,
}

/// How a step ended.
#[derive(Debug)]
pub(crate) enum End {
    Passed(String),
    Failed(String),
    Skipped(String),
}

impl Report {
    /// Runs one step between a line that says so and a line that says how it went.
    pub(crate) fn step(&mut self, name: &str, work: impl FnOnce() -> End) {
        println!("==> {name}");
        let start = Instant::now();
        let end = work();
        let step = Step { name: name.to_owned(), end, took: start.elapsed() };
        println!("{}\n", step.line());
        self.steps.push(step);
    }

    /// A step that was not even tried.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        self.step(name, || End::Skipped(reason.to_owned()));
    }

    pub(crate) fn last_failed(&self) -> bool {
        self.steps.last().is_some_and(|step| matches!(step.end, End::Failed(_)))
    }

    pub(crate) fn skipped_tests(&mut self, lines: Vec<String>) {
        self.skipped_tests = lines;
    }

    /// Prints the summary and tells whether all is well.
    pub(crate) fn close(&self) -> bool {
        println!("==> summary");
        for step in &self.steps {
            // The rest of a long reason was shown when it happened.
            println!("{}", step.line().lines().next().unwrap_or_default());
        }
        for test in &self.skipped_tests {
            println!("  skipped test  {test}");
        }
        let count = |wanted: fn(&End) -> bool| self.steps.iter().filter(|step| wanted(&step.end)).count();
        let failed = count(|end| matches!(end, End::Failed(_)));
        let passed = count(|end| matches!(end, End::Passed(_)));
        let skipped = count(|end| matches!(end, End::Skipped(_)));
        let total: Duration = self.steps.iter().map(|step| step.took).sum();
        println!("\nsteps: {passed} passed, {failed} failed, {skipped} skipped in {}", seconds(total));
        failed == 0
    }
}

impl Step {
    fn line(&self) -> String {
        let (word, text) = match &self.end {
            End::Passed(text) => ("passed", text),
            End::Failed(text) => ("FAILED", text),
            End::Skipped(text) => ("skipped", text),
        };
        format!("  {word:<8} {:<28} {:>8}  {text}", self.name, seconds(self.took)).trim_end().to_owned()
    }
}

/// A duration as people read it.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
