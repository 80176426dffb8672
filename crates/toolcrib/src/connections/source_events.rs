//! Where connections tell what their sources said of their own accord. A source that says the same again before it was
//! looked at says it once, so that nothing is dropped however much is said.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::{Notify, broadcast};
use toolcrib_core::SourceId;

use crate::registry::RegistryNotice;

#[derive(Debug, Clone)]
pub struct SourceEvents(Arc<SourceEventsInner>);

#[derive(Debug)]
struct SourceEventsInner {
    /// Sources whose tools changed, until somebody looks at them.
    changed_sources: Mutex<BTreeSet<SourceId>>,
    wake: Notify,
    notices: broadcast::Sender<RegistryNotice>,
}

impl SourceEvents {
    pub(crate) fn new(notices: broadcast::Sender<RegistryNotice>) -> SourceEvents {
        SourceEvents(Arc::new(SourceEventsInner { changed_sources: Mutex::default(), wake: Notify::new(), notices }))
    }

    /// A source says that its tools changed.
    pub fn tools_changed(&self, source: &SourceId) {
        self.changed_sources().insert(source.clone());
        self.0.wake.notify_one();
    }

    /// A source says something that is no one caller's, for whoever subscribed.
    pub fn notify(&self, source: &SourceId, method: &str, params: Option<&RawValue>) {
        let params = params.map(|params| Arc::from(params.to_owned()));
        let notice = RegistryNotice::SourceNotification { source: source.clone(), method: method.to_owned(), params };
        let _ = self.0.notices.send(notice);
    }

    /// The next source whose tools changed.
    pub(crate) async fn next_changed_source(&self) -> SourceId {
        loop {
            let waiting = self.0.wake.notified();
            if let Some(source) = self.changed_sources().pop_first() {
                return source;
            }
            waiting.await;
        }
    }

    fn changed_sources(&self) -> MutexGuard<'_, BTreeSet<SourceId>> {
        self.0.changed_sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of announcements was full when many sources changed at once.
    #[tokio::test]
    async fn nothing_is_dropped_and_nothing_is_heard_twice() {
        let news = SourceEvents::new(broadcast::channel(1).0);
        let sources: Vec<SourceId> =
            (1000..2000).map(|number| SourceId::parse(&format!("s{number}")).unwrap()).collect();
        for source in sources.iter().chain(&sources) {
            news.tools_changed(source);
        }
        for source in &sources {
            assert_eq!(news.next_changed_source().await, *source);
        }
        let nothing = tokio::time::timeout(std::time::Duration::from_millis(1), news.next_changed_source()).await;
        assert!(nothing.is_err());
    }
}
