//! Progress of a copy: one line on a terminal, nothing elsewhere.

use std::io::Write;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use toolcrib::store::CopyProgress;

use crate::arguments::CommonArguments;
use crate::output;

/// Minimum time between two updates of the line.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);
/// Returns to the start of the line and erases it.
const ERASE_LINE: &str = "\r\x1b[2K";

/// A line on stderr that is overwritten.
pub(crate) struct CopyProgressLine {
    is_visible: bool,
    updated_at: Mutex<Option<Instant>>,
}

impl CopyProgressLine {
    /// Creates the line. Without a terminal, or with `--quiet`, nothing is shown.
    pub(crate) fn new(common: &CommonArguments) -> CopyProgressLine {
        let is_visible = !common.quiet && output::stderr_is_terminal();
        CopyProgressLine { is_visible, updated_at: Mutex::default() }
    }

    /// Replaces the text of the line, unless that was done a moment ago.
    pub(crate) fn show(&self, progress: CopyProgress) {
        let mut updated_at = self.updated_at.lock();
        if !self.is_visible || updated_at.is_some_and(|at| at.elapsed() < UPDATE_INTERVAL) {
            return;
        }
        *updated_at = Some(Instant::now());
        let text = match progress {
            CopyProgress::Reading(records) => format!("read {records} records"),
            CopyProgress::Copying(record, total) => format!("copied {record} of {total} records"),
            CopyProgress::CopyingContent => "copying tool lists and measurements".to_owned(),
            CopyProgress::Comparing(record, total) => format!("compared {record} of {total} records"),
        };
        // Progress that cannot be shown is no failure of the copy.
        let _ = write!(std::io::stderr().lock(), "{ERASE_LINE}{text}");
    }

    /// Erases the line.
    pub(crate) fn clear(&self) {
        if self.is_visible {
            let _ = write!(std::io::stderr().lock(), "{ERASE_LINE}");
        }
    }
}
