//! What was done, how long it took and how it ended. Every step runs, so that one run shows everything.

use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct StepReport {
    steps: Vec<StepRecord>,
    skipped_tests: Vec<String>,
}

#[derive(Debug)]
struct StepRecord {
    name: String,
    status: StepStatus,
    duration: Duration,
}

/// How a step ended.
#[derive(Debug)]
pub(crate) enum StepStatus {
    Passed(String),
    Failed(String),
    Skipped(String),
}

impl StepReport {
    /// Runs one step between a line that says so and a line that says how it went.
    pub(crate) fn run_step(&mut self, name: &str, work: impl FnOnce() -> StepStatus) {
        println!("==> {name}");
        let start = Instant::now();
        let end = work();
        let step = StepRecord { name: name.to_owned(), status: end, duration: start.elapsed() };
        println!("{}\n", step.summary_line());
        self.steps.push(step);
    }

    /// A step that was not even tried.
    pub(crate) fn skip_step(&mut self, name: &str, reason: &str) {
        self.run_step(name, || StepStatus::Skipped(reason.to_owned()));
    }

    pub(crate) fn has_last_failed(&self) -> bool {
        self.steps.last().is_some_and(|step| matches!(step.status, StepStatus::Failed(_)))
    }

    pub(crate) fn set_skipped_tests(&mut self, lines: Vec<String>) {
        self.skipped_tests = lines;
    }

    /// Prints the summary and tells whether all is well.
    pub(crate) fn print_summary(&self) -> bool {
        println!("==> summary");
        for step in &self.steps {
            // The rest of a long reason was shown when it happened.
            println!("{}", step.summary_line().lines().next().unwrap_or_default());
        }
        for test in &self.skipped_tests {
            println!("  skipped test  {test}");
        }
        let count = |wanted: fn(&StepStatus) -> bool| self.steps.iter().filter(|step| wanted(&step.status)).count();
        let failed = count(|end| matches!(end, StepStatus::Failed(_)));
        let passed = count(|end| matches!(end, StepStatus::Passed(_)));
        let skipped = count(|end| matches!(end, StepStatus::Skipped(_)));
        let total: Duration = self.steps.iter().map(|step| step.duration).sum();
        println!("\nsteps: {passed} passed, {failed} failed, {skipped} skipped in {}", format_seconds(total));
        failed == 0
    }
}

impl StepRecord {
    fn summary_line(&self) -> String {
        let (word, text) = match &self.status {
            StepStatus::Passed(text) => ("passed", text),
            StepStatus::Failed(text) => ("FAILED", text),
            StepStatus::Skipped(text) => ("skipped", text),
        };
        format!("  {word:<8} {:<28} {:>8}  {text}", self.name, format_seconds(self.duration)).trim_end().to_owned()
    }
}

/// A duration as people read it.
pub(crate) fn format_seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
