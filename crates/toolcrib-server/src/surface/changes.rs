//! What a client is told of its own accord: that its list changed, when and only when it did.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use toolcrib::core::config::Expose;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::Notice;
use toolcrib_mcp::server::{Change, Peer};

use super::Surface;
use super::resources::shown_uri;
use super::sight::Kind;

struct Watch {
    surface: Surface,
    peer: Arc<Peer>,
    notices: broadcast::Receiver<Notice>,
    expose: watch::Receiver<Arc<Expose>>,
    /// The list as this client knows it.
    known: Option<Fingerprint>,
}

pub(super) fn stream(surface: Surface, peer: Arc<Peer>) -> BoxStream<'static, Change> {
    let (notices, expose) = (surface.registry.subscribe(), surface.expose.subscribe());
    let known = surface.visitors.listed(&peer);
    let watch = Watch { surface, peer, notices, expose, known };
    // What changed between the client's last list and now counts too.
    let begin = stream::once(async move {
        let mut watch = watch;
        let change = watch.compared().await;
        (change, watch)
    });
    begin
        .flat_map(|(first, watch)| {
            let rest =
                stream::unfold(watch, |mut watch| async move { watch.next().await.map(|change| (change, watch)) });
            stream::iter(first).chain(rest)
        })
        .boxed()
}

impl Watch {
    async fn next(&mut self) -> Option<Change> {
        loop {
            let change = tokio::select! {
                notice = self.notices.recv() => match notice {
                    Ok(Notice::CatalogChanged) | Err(RecvError::Lagged(_)) => self.compared().await,
                    Ok(Notice::Said { source, method, params }) => self.said(&source, &method, params.as_deref()).await,
                    Ok(
                        Notice::Recorded(_)
                        | Notice::Discovering(_)
                        | Notice::Progress { .. }
                        | Notice::Discovered(_)
                        | Notice::Called(_),
                    ) => None,
                    Err(RecvError::Closed) => return None,
                },
                changed = self.expose.changed() => {
                    changed.ok()?;
                    self.compared().await
                }
            };
            if change.is_some() {
                return change;
            }
        }
    }

    /// Whether the list is another than the client knows.
    async fn compared(&mut self) -> Option<Change> {
        let sight = self.surface.sight();
        let now = sight.listing(self.surface.kind(&self.peer).await).await.fingerprint;
        let seen = self.surface.visitors.listed(&self.peer).or(self.known);
        self.known = Some(now);
        if seen.is_none_or(|seen| seen == now) {
            return None;
        }
        // Told once; what it lists from here on is compared with this.
        self.surface.visitors.was_told(&self.peer, now);
        Some(Change::Tools)
    }

    async fn said(
        &self,
        source: &toolcrib::SourceId,
        method: &str,
        params: Option<&serde_json::value::RawValue>,
    ) -> Option<Change> {
        if self.surface.kind(&self.peer).await == Kind::Search {
            return None;
        }
        match method {
            "notifications/prompts/list_changed" => Some(Change::Prompts),
            "notifications/resources/list_changed" => Some(Change::Resources),
            "notifications/resources/updated" => {
                let uri = serde_json::from_str::<serde_json::Value>(params?.get()).ok()?;
                let uri = shown_uri(&self.surface, source, uri["uri"].as_str()?);
                self.surface.visitors.watches(&self.peer, &uri).then_some(Change::Resource { uri })
            }
            _ => None,
        }
    }
}
