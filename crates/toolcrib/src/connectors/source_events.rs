//! Announcements of sources that belong to no call: changed tools, and other notifications. Repeated announcements of a
//! source are merged until they are handled, so that none is lost however many there are.
//!
//! The set of changed sources needs no bound, because there are at most as many entries as sources. Other notifications
//! go to subscribers through the registry's broadcast channel, where a slow subscriber misses some.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{Notify, broadcast};
use toolcrib_core::SourceId;

use crate::notice::RegistryNotice;

/// Through this, connectors report the announcements of their sources. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SourceEvents(Arc<SourceEventsInner>);

#[derive(Debug)]
struct SourceEventsInner {
    /// Sources whose tools changed and that are not refreshed yet.
    changed_sources: Mutex<BTreeSet<SourceId>>,
    /// Wakes `next_changed_source`.
    wake: Notify,
    notices: broadcast::Sender<RegistryNotice>,
}

impl SourceEvents {
    /// Creates an empty set; notifications go to `notices`.
    pub(crate) fn new(notices: broadcast::Sender<RegistryNotice>) -> SourceEvents {
        SourceEvents(Arc::new(SourceEventsInner { changed_sources: Mutex::default(), wake: Notify::new(), notices }))
    }

    /// Reports that the tools, prompts or resources of a source changed. Returns at once; the maintenance task of the registry picks the
    /// source up and refreshes it.
    pub fn tools_changed(&self, source: &SourceId) {
        self.0.changed_sources.lock().insert(source.clone());
        // Stores a permit if no task is waiting, so an announcement during a refresh is not lost.
        self.0.wake.notify_one();
    }

    /// Passes a notification of a source that belongs to no call on to subscribers.
    pub fn notify(&self, source: &SourceId, method: &str, params: Option<&RawValue>) {
        let params = params.map(|params| Arc::from(params.to_owned()));
        let notice = RegistryNotice::SourceNotification { source: source.clone(), method: method.to_owned(), params };
        // Fails only without subscribers.
        let _ = self.0.notices.send(notice);
    }

    /// Waits for the next source whose tools changed, and removes it.
    pub(crate) async fn next_changed_source(&self) -> SourceId {
        loop {
            // Registered before the check, so that an announcement in between is not missed.
            let notified = self.0.wake.notified();
            if let Some(source) = self.0.changed_sources.lock().pop_first() {
                return source;
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a bounded queue of announcements overflowed when many sources changed at once.
    #[tokio::test]
    async fn no_announcement_is_lost_or_repeated() {
        let events = SourceEvents::new(broadcast::channel(1).0);
        let sources: Vec<SourceId> =
            (1000..2000).map(|number| SourceId::parse(&format!("s{number}")).unwrap()).collect();
        for source in sources.iter().chain(&sources) {
            events.tools_changed(source);
        }
        for source in &sources {
            assert_eq!(events.next_changed_source().await, *source);
        }
        let next = tokio::time::timeout(std::time::Duration::from_millis(1), events.next_changed_source()).await;
        assert!(next.is_err());
    }
}
