//! Progress of discovery: one spinner per source on a terminal, nothing elsewhere.
//!
//! Progress is drawn from the notices of the registry, so it shows every discovery that runs while the command waits,
//! whichever caller started it. Missed notices only make a spinner appear late or stay until the end.

use std::collections::HashMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::sync::broadcast::error::RecvError;
use toolcrib::refresh::RefreshStatus;
use toolcrib::registry::RegistryNotice;
use toolcrib::{RefreshOutcome, Registry, SourceId};

use crate::output;

/// Runs `work`, and while it runs shows on stderr which sources are being discovered.
pub(crate) async fn show_progress<T>(registry: &Registry, quiet: bool, work: impl Future<Output = T>) -> T {
    // Without a terminal, or with `--quiet`, there is nothing to draw.
    if quiet || !output::stderr_is_terminal() {
        return work.await;
    }
    let mut notices = registry.subscribe();
    let bars = ProgressBars::default();
    let watch = async {
        loop {
            match notices.recv().await {
                Ok(RegistryNotice::DiscoveryStarted(id)) => bars.start(&id),
                Ok(RegistryNotice::DiscoveryFinished(outcome)) => bars.finish(&outcome),
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                // The registry was dropped; leave the end to `work`.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    // `watch` never ends by itself; it is dropped together with the spinners when the work is done.
    let result = tokio::select! {
        result = work => result,
        never = watch => never,
    };
    bars.clear();
    result
}

/// The spinners on the terminal, by source.
#[derive(Default)]
struct ProgressBars {
    multi_progress: MultiProgress,
    by_source: parking_lot::Mutex<HashMap<SourceId, ProgressBar>>,
}

impl ProgressBars {
    /// Adds a spinner for a source.
    fn start(&self, id: &SourceId) {
        let bar = self.multi_progress.add(ProgressBar::new_spinner());
        // The style is a constant template; an error would only mean the default style.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.set_message(format!("discovering {id}"));
        // The spinner turns by itself: a discovery sends no notices while it waits for a slow server.
        bar.enable_steady_tick(Duration::from_millis(100));
        self.by_source.lock().insert(id.clone(), bar);
    }

    /// Removes the spinner of a source.
    fn finish(&self, outcome: &RefreshOutcome) {
        let bar = self.by_source.lock().remove(&outcome.source);
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
    }

    /// Removes all spinners, so that output can follow.
    fn clear(&self) {
        // If the terminal cannot be written to, nothing is shown that would have to be cleared.
        let _ = self.multi_progress.clear();
    }
}

/// Prints a warning for each source that failed. Called after the spinners are gone, so that lines do not mix.
pub(crate) fn report_failures(outcomes: &[RefreshOutcome], quiet: bool) {
    for outcome in outcomes.iter().filter(|outcome| outcome.status == RefreshStatus::Failed && !quiet) {
        let reason = outcome.error.as_ref().map_or("unknown reason", |failure| failure.message.as_str());
        output::print_stderr_line(&format!("warning: `{}` failed: {reason}", outcome.source));
    }
}
