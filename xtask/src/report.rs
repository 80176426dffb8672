//! The steps of a run with their status and duration. A failed step does not end the run, so that one run shows
//! everything that is wrong.

use std::time::{Duration, Instant};

/// Collects the steps of a run and prints them as they happen.
#[derive(Debug, Default)]
pub(crate) struct StepReport {
    steps: Vec<StepRecord>,
    skipped_tests: Vec<String>,
}

/// A step that ended.
#[derive(Debug)]
struct StepRecord {
    name: String,
    status: StepStatus,
    duration: Duration,
}

/// How a step ended, with a detail for the summary: a count, a path, or the reason. The first line of the detail is
/// shown in the summary.
#[derive(Debug)]
pub(crate) enum StepStatus {
    Passed(String),
    /// Makes the run fail.
    Failed(String),
    /// Could not be tried, for example because a program is not installed. Does not fail the run.
    Skipped(String),
}

impl StepReport {
    /// Runs one step and prints a line before it and its result after it.
    pub(crate) fn run_step(&mut self, name: &str, work: impl FnOnce() -> StepStatus) {
        // Before the work: a step that hangs is the last line of the output.
        println!("==> {name}");
        let start = Instant::now();
        let status = work();
        let step = StepRecord { name: name.to_owned(), status, duration: start.elapsed() };
        println!("{}\n", step.summary_line());
        self.steps.push(step);
    }

    /// Records a step that could not be tried.
    pub(crate) fn skip_step(&mut self, name: &str, reason: &str) {
        self.run_step(name, || StepStatus::Skipped(reason.to_owned()));
    }

    /// Whether the step that ended last has failed, so that steps which depend on it can be skipped.
    pub(crate) fn has_last_failed(&self) -> bool {
        self.steps.last().is_some_and(|step| matches!(step.status, StepStatus::Failed(_)))
    }

    /// Whether any step has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.status, StepStatus::Failed(_)))
    }

    /// Sets the lines that single tests wrote when they skipped themselves, for the summary.
    pub(crate) fn set_skipped_tests(&mut self, lines: Vec<String>) {
        self.skipped_tests = lines;
    }

    /// Prints the summary and returns whether no step failed.
    pub(crate) fn print_summary(&self) -> bool {
        println!("==> summary");
        for step in &self.steps {
            // Only the first line: the whole reason was printed when the step ended.
            println!("{}", step.summary_line().lines().next().unwrap_or_default());
        }
        for test in &self.skipped_tests {
            println!("  skipped test  {test}");
        }
        let count = |matches: fn(&StepStatus) -> bool| self.steps.iter().filter(|step| matches(&step.status)).count();
        let failed = count(|status| matches!(status, StepStatus::Failed(_)));
        let passed = count(|status| matches!(status, StepStatus::Passed(_)));
        let skipped = count(|status| matches!(status, StepStatus::Skipped(_)));
        let total: Duration = self.steps.iter().map(|step| step.duration).sum();
        println!("\nsteps: {passed} passed, {failed} failed, {skipped} skipped in {}", format_seconds(total));
        failed == 0
    }
}

impl StepRecord {
    /// Formats `  passed   lints                          12.3 s  detail`.
    fn summary_line(&self) -> String {
        let (word, text) = match &self.status {
            StepStatus::Passed(text) => ("passed", text),
            StepStatus::Failed(text) => ("FAILED", text),
            StepStatus::Skipped(text) => ("skipped", text),
        };
        format!("  {word:<8} {:<28} {:>8}  {text}", self.name, format_seconds(self.duration)).trim_end().to_owned()
    }
}

/// Formats a duration in seconds with one decimal.
pub(crate) fn format_seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
