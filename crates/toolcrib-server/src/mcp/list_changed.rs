//! Change notifications: `tools/list_changed` exactly when the client's own list changed, and those of sources about
//! prompts and resources.
//!
//! A changed catalogue is not enough for a notification: in search mode most changes do not touch the list of meta
//! tools. So the list of the client's mode is rendered and its fingerprint compared with that of the list that the
//! client knows.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use toolcrib::config::Expose;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::RegistryNotice;
use toolcrib_mcp::server::{ChangeNotification, McpPeer};

use super::McpService;
use super::listing_cache::ListingMode;

/// Watches for changes on behalf of one client.
struct ChangeWatcher {
    service: McpService,
    peer: Arc<McpPeer>,
    notices: broadcast::Receiver<RegistryNotice>,
    expose: watch::Receiver<Arc<Expose>>,
    /// Fingerprint of the list that was current when the client was last notified, for clients that never listed.
    known_list: Option<Fingerprint>,
}

/// Returns the change notifications for one client. Subscribes before it compares the lists, so that no change between
/// the two is missed.
pub(super) fn change_stream(service: McpService, peer: Arc<McpPeer>) -> BoxStream<'static, ChangeNotification> {
    let notices = service.registry.subscribe();
    let expose = service.expose.subscribe();
    let known_list = service.clients.last_list(&peer);
    let mut watcher = ChangeWatcher { service, peer, notices, expose, known_list };
    // Changes since the client's last `tools/list` count too.
    let initial = stream::once(async move {
        let change = watcher.check_tool_list().await;
        (change, watcher)
    });
    initial
        .flat_map(|(first, watcher)| {
            let rest = stream::unfold(watcher, |mut watcher| async move {
                watcher.next_change().await.map(|change| (change, watcher))
            });
            stream::iter(first).chain(rest)
        })
        .boxed()
}

impl ChangeWatcher {
    /// Waits for the next change that concerns the client; `None` when the registry is closed.
    async fn next_change(&mut self) -> Option<ChangeNotification> {
        loop {
            let change = tokio::select! {
                notice = self.notices.recv() => match notice {
                    // Missed notices may have been about the catalogue, so the lists are compared in that case too.
                    Ok(RegistryNotice::CatalogChanged) | Err(RecvError::Lagged(_)) => self.check_tool_list().await,
                    Ok(RegistryNotice::SourceNotification { source, method, params }) => {
                        self.map_notification(&source, &method, params.as_deref()).await
                    }
                    Ok(_) => None,
                    Err(RecvError::Closed) => return None,
                },
                changed = self.expose.changed() => {
                    // Does not fail: this watcher holds the service, and so the sender.
                    changed.ok()?;
                    self.check_tool_list().await
                }
            };
            if change.is_some() {
                return change;
            }
        }
    }

    /// Compares the current tool list with the one that the client knows.
    async fn check_tool_list(&mut self) -> Option<ChangeNotification> {
        let listings = self.service.listings(&self.peer.extensions);
        let current = listings.tool_list(self.service.listing_mode(&self.peer, &listings).await).await.fingerprint;
        // The list that the client was last sent takes precedence over the one that this watcher last saw.
        let known = self.service.clients.last_list(&self.peer).or(self.known_list);
        self.known_list = Some(current);
        if known.is_none_or(|known| known == current) {
            return None;
        }
        // Remembered as known, so that the client is notified once per change even if it does not list again.
        self.service.clients.update_list(&self.peer, current);
        Some(ChangeNotification::Tools)
    }

    /// Translates a notification of a source. Clients in search mode see no prompts and resources, so they get none.
    async fn map_notification(
        &self,
        source: &toolcrib::SourceId,
        method: &str,
        params: Option<&serde_json::value::RawValue>,
    ) -> Option<ChangeNotification> {
        let listings = self.service.listings(&self.peer.extensions);
        if self.service.listing_mode(&self.peer, &listings).await == ListingMode::Search {
            return None;
        }
        match method {
            "notifications/prompts/list_changed" => Some(ChangeNotification::Prompts),
            "notifications/resources/list_changed" => Some(ChangeNotification::Resources),
            "notifications/resources/updated" => {
                let uri = serde_json::from_str::<serde_json::Value>(params?.get()).ok()?;
                // The client subscribed with the public URI; other clients of the same source may have subscribed to
                // other resources.
                let uri = self.service.upstream_lists.public_uri(source, uri["uri"].as_str()?);
                self.service.clients.is_subscribed(&self.peer, &uri).then_some(ChangeNotification::Resource { uri })
            }
            _ => None,
        }
    }
}
