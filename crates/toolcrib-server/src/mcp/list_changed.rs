//! Change notifications: `tools/list_changed`, `prompts/list_changed` and `resources/list_changed` exactly when the
//! client's own list changed, and updates of resources that it subscribed to.
//!
//! A changed catalogue is not enough for a notification: in search mode most changes do not touch the list of meta
//! tools. So the list of the client's mode is rendered and its fingerprint compared with that of the list that the
//! client knows.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use http::Extensions;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use toolcrib::config::Expose;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::RegistryNotice;
use toolcrib_mcp::server::{ChangeNotification, McpPeer};

use super::client_state::{ClientList, KnownLists};
use super::listing_cache::ListingMode;
use super::{McpService, reading_principal};

/// Watches for changes on behalf of one client.
struct ChangeWatcher {
    service: McpService,
    peer: Arc<McpPeer>,
    notices: broadcast::Receiver<RegistryNotice>,
    expose: watch::Receiver<Arc<Expose>>,
    /// Extensions of the last request of the client, whose principal may have other rights than the one before.
    extensions: watch::Receiver<Arc<Extensions>>,
    /// Key of the scope of the client at the last comparison.
    scope: Fingerprint,
    /// Lists that were current when the client was last notified, for clients that never listed.
    known_lists: KnownLists,
    /// Notifications that the client has not got yet. One change may concern all three lists.
    pending: VecDeque<ChangeNotification>,
}

/// Returns the change notifications for one client. Subscribes before it compares the lists, so that no change between
/// the two is missed.
pub(super) fn change_stream(service: McpService, peer: Arc<McpPeer>) -> BoxStream<'static, ChangeNotification> {
    let notices = service.registry.subscribe();
    let expose = service.expose.subscribe();
    let known_lists = service.clients.last_lists(&peer);
    let extensions = peer.watch_extensions();
    let scope = service.registry.scope(&reading_principal(&peer.extensions())).key();
    let pending = VecDeque::new();
    let mut watcher = ChangeWatcher { service, peer, notices, expose, extensions, scope, known_lists, pending };
    // Changes since the client's last lists count too.
    let initial = stream::once(async move {
        watcher.check_lists().await;
        watcher
    });
    initial
        .flat_map(|watcher| {
            stream::unfold(
                watcher,
                |mut watcher| async move { watcher.next_change().await.map(|change| (change, watcher)) },
            )
        })
        .boxed()
}

impl ChangeWatcher {
    /// Waits for the next change that concerns the client; `None` when the registry is closed.
    async fn next_change(&mut self) -> Option<ChangeNotification> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Some(change);
            }
            tokio::select! {
                notice = self.notices.recv() => match notice {
                    // Missed notices may have been about the lists, so they are compared in that case too.
                    Ok(
                        RegistryNotice::CatalogChanged | RegistryNotice::FeaturesChanged | RegistryNotice::RulesChanged,
                    )
                    | Err(RecvError::Lagged(_)) => self.check_lists().await,
                    Ok(RegistryNotice::SourceNotification { source, method, params }) => {
                        let change = self.map_notification(&source, &method, params.as_deref()).await;
                        self.pending.extend(change);
                    }
                    Ok(_) => {}
                    Err(RecvError::Closed) => return None,
                },
                changed = self.expose.changed() => {
                    // Does not fail: this watcher holds the service, and so the sender.
                    changed.ok()?;
                    self.check_lists().await;
                }
                changed = self.extensions.changed() => {
                    // Does not fail either: this watcher holds the peer.
                    changed.ok()?;
                    let principal = reading_principal(&self.extensions.borrow_and_update());
                    let scope = self.service.registry.scope(&principal).key();
                    if std::mem::replace(&mut self.scope, scope) != scope {
                        self.check_lists().await;
                    }
                }
            }
        }
    }

    /// Compares the current lists with those that the client knows, and queues a notification for each that differs.
    async fn check_lists(&mut self) {
        let listings = self.service.listings(&self.peer.extensions());
        let mode = self.service.listing_mode(&self.peer, &listings).await;
        let tools = listings.tool_list(mode).await.fingerprint;
        let feature_digest = async |list| {
            let upstream_lists = &self.service.upstream_lists;
            upstream_lists.list_digest(list, mode, &self.peer.extensions()).await
        };
        let current = [
            (ClientList::Tools, Ok(tools), ChangeNotification::Tools),
            (ClientList::Prompts, feature_digest(ClientList::Prompts).await, ChangeNotification::Prompts),
            (ClientList::Resources, feature_digest(ClientList::Resources).await, ChangeNotification::Resources),
        ];
        for (list, fingerprint, notification) in current {
            // While the store cannot be read, nothing is known about the list; the next change checks it again.
            let Ok(fingerprint) = fingerprint else { continue };
            // The list that the client was last sent takes precedence over the one that this watcher last saw.
            let known = self.service.clients.last_lists(&self.peer).get(list).or(self.known_lists.get(list));
            self.known_lists.set(list, fingerprint);
            if known.is_none_or(|known| known == fingerprint) {
                continue;
            }
            // Remembered as known, so that the client is notified once per change even if it does not list again.
            self.service.clients.update_list(&self.peer, list, fingerprint);
            self.pending.push_back(notification);
        }
    }

    /// Translates a notification of a source. Clients in search mode see no resources, so they get none. Changes of
    /// lists are found by `check_lists` when the source was refreshed.
    async fn map_notification(
        &self,
        source: &toolcrib::SourceId,
        method: &str,
        params: Option<&serde_json::value::RawValue>,
    ) -> Option<ChangeNotification> {
        if method != "notifications/resources/updated" {
            return None;
        }
        let listings = self.service.listings(&self.peer.extensions());
        if self.service.listing_mode(&self.peer, &listings).await == ListingMode::Search {
            return None;
        }
        // Rules may have changed since the client subscribed.
        if !self.service.registry.visibility(&reading_principal(&self.peer.extensions())).shows_source(source) {
            return None;
        }
        let uri = serde_json::from_str::<serde_json::Value>(params?.get()).ok()?;
        // The client subscribed with the public URI; other clients of the same source may have subscribed to other
        // resources.
        let uri = self.service.upstream_lists.public_uri(source, uri["uri"].as_str()?).await;
        self.service.clients.is_subscribed(&self.peer, &uri).then_some(ChangeNotification::Resource { uri })
    }
}
