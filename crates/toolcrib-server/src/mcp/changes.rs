//! What a client is told of its own accord: that its list changed, when and only when it did.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use toolcrib::core::config::Expose;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::RegistryNotice;
use toolcrib_mcp::server::{ChangeNotification, McpPeer};

use super::McpService;
use super::listing_cache::ListingMode;
use super::resources::public_uri;

struct ChangeWatcher {
    service: McpService,
    peer: Arc<McpPeer>,
    notices: broadcast::Receiver<RegistryNotice>,
    expose: watch::Receiver<Arc<Expose>>,
    /// The list as this client knows it.
    known_list: Option<Fingerprint>,
}

pub(super) fn change_stream(service: McpService, peer: Arc<McpPeer>) -> BoxStream<'static, ChangeNotification> {
    let (notices, expose) = (service.registry.subscribe(), service.expose.subscribe());
    let known = service.clients.last_list(&peer);
    let watch = ChangeWatcher { service: service, peer, notices, expose, known_list: known };
    // What changed between the client's last list and now counts too.
    let begin = stream::once(async move {
        let mut watch = watch;
        let change = watch.check_tool_list().await;
        (change, watch)
    });
    begin
        .flat_map(|(first, watch)| {
            let rest =
                stream::unfold(
                    watch,
                    |mut watch| async move { watch.next_change().await.map(|change| (change, watch)) },
                );
            stream::iter(first).chain(rest)
        })
        .boxed()
}

impl ChangeWatcher {
    async fn next_change(&mut self) -> Option<ChangeNotification> {
        loop {
            let change = tokio::select! {
                notice = self.notices.recv() => match notice {
                    Ok(RegistryNotice::CatalogChanged) | Err(RecvError::Lagged(_)) => self.check_tool_list().await,
                    Ok(RegistryNotice::SourceNotification { source, method, params }) => self.map_notification(&source, &method, params.as_deref()).await,
                    Ok(
                        RegistryNotice::RecordAppended(_)
                        | RegistryNotice::DiscoveryStarted(_)
                        | RegistryNotice::DiscoveryProgress { .. }
                        | RegistryNotice::DiscoveryFinished(_)
                        | RegistryNotice::CallFinished(_),
                    ) => None,
                    Err(RecvError::Closed) => return None,
                },
                changed = self.expose.changed() => {
                    changed.ok()?;
                    self.check_tool_list().await
                }
            };
            if change.is_some() {
                return change;
            }
        }
    }

    /// Whether the list is another than the client knows.
    async fn check_tool_list(&mut self) -> Option<ChangeNotification> {
        let listings = self.service.listings();
        let now = listings.tool_list(self.service.listing_mode(&self.peer).await).await.fingerprint;
        let seen = self.service.clients.last_list(&self.peer).or(self.known_list);
        self.known_list = Some(now);
        if seen.is_none_or(|seen| seen == now) {
            return None;
        }
        // Told once; what it lists from here on is compared with this.
        self.service.clients.update_list(&self.peer, now);
        Some(ChangeNotification::Tools)
    }

    async fn map_notification(
        &self,
        source: &toolcrib::SourceId,
        method: &str,
        params: Option<&serde_json::value::RawValue>,
    ) -> Option<ChangeNotification> {
        if self.service.listing_mode(&self.peer).await == ListingMode::Search {
            return None;
        }
        match method {
            "notifications/prompts/list_changed" => Some(ChangeNotification::Prompts),
            "notifications/resources/list_changed" => Some(ChangeNotification::Resources),
            "notifications/resources/updated" => {
                let uri = serde_json::from_str::<serde_json::Value>(params?.get()).ok()?;
                let uri = public_uri(&self.service, source, uri["uri"].as_str()?);
                self.service.clients.is_subscribed(&self.peer, &uri).then_some(ChangeNotification::Resource { uri })
            }
            _ => None,
        }
    }
}
