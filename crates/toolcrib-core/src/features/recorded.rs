//! [`RecordedFeatures`]: the features of a source as the catalogue holds them.

use std::sync::{Arc, OnceLock};

use super::{FeatureList, FeatureSummary};

/// Summary of a recorded list, and the list itself once it was read. The first reader of the items reads them from the
/// store; a start, a list of tools and a search need the summary alone.
#[derive(Debug)]
pub struct RecordedFeatures {
    pub summary: FeatureSummary,
    list: OnceLock<Arc<FeatureList>>,
}

impl RecordedFeatures {
    /// Creates the state before the list was read.
    pub fn new(summary: FeatureSummary) -> RecordedFeatures {
        RecordedFeatures { summary, list: OnceLock::new() }
    }

    /// Creates the state with a list that is at hand.
    pub fn with_list(list: Arc<FeatureList>) -> RecordedFeatures {
        RecordedFeatures { summary: list.summary.clone(), list: OnceLock::from(list) }
    }

    /// Returns the list if it was read.
    pub fn list(&self) -> Option<&Arc<FeatureList>> {
        self.list.get()
    }

    /// Keeps the list for later readers. A list with another fingerprint is ignored.
    pub fn keep(&self, list: &Arc<FeatureList>) {
        if list.summary.fingerprint == self.summary.fingerprint {
            // Fails if another reader was faster, with the same list.
            let _ = self.list.set(list.clone());
        }
    }
}
