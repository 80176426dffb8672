//! Where connections tell what their sources said of their own accord. A source that says the same again before it was
//! looked at says it once, so that nothing is dropped however much is said.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::{Notify, broadcast};
use toolcrib_core::SourceId;

use crate::registry::Notice;

#[derive(Debug, Clone)]
pub struct News(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Sources whose tools changed, until somebody looks at them.
    changed: Mutex<BTreeSet<SourceId>>,
    wake: Notify,
    notices: broadcast::Sender<Notice>,
}

impl News {
    pub(crate) fn new(notices: broadcast::Sender<Notice>) -> News {
        News(Arc::new(Inner { changed: Mutex::default(), wake: Notify::new(), notices }))
    }

    /// A source says that its tools changed.
    pub fn tools_changed(&self, source: &SourceId) {
        self.changed().insert(source.clone());
        self.0.wake.notify_one();
    }

    /// A source says something that is no one caller's, for whoever subscribed.
    pub fn said(&self, source: &SourceId, method: &str, params: Option<&RawValue>) {
        let params = params.map(|params| Arc::from(params.to_owned()));
        let notice = Notice::Said { source: source.clone(), method: method.to_owned(), params };
        let _nobody_listens = self.0.notices.send(notice);
    }

    /// The next source whose tools changed.
    pub(crate) async fn changed_source(&self) -> SourceId {
        loop {
            let waiting = self.0.wake.notified();
            if let Some(source) = self.changed().pop_first() {
                return source;
            }
            waiting.await;
        }
    }

    fn changed(&self) -> MutexGuard<'_, BTreeSet<SourceId>> {
        self.0.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of announcements was full when many sources changed at once.
    #[tokio::test]
    async fn nothing_is_dropped_and_nothing_is_heard_twice() {
        let news = News::new(broadcast::channel(1).0);
        let sources: Vec<SourceId> =
            (1000..2000).map(|number| SourceId::parse(&format!("s{number}")).unwrap()).collect();
        for source in sources.iter().chain(&sources) {
            news.tools_changed(source);
        }
        for source in &sources {
            assert_eq!(news.changed_source().await, *source);
        }
        let nothing = tokio::time::timeout(std::time::Duration::from_millis(1), news.changed_source()).await;
        assert!(nothing.is_err());
    }
}
