//! `resources/subscribe` and `resources/unsubscribe` on behalf of clients, and restoring connections that subscriptions
//! depend on.
//!
//! One subscription at the server serves all clients of a connection: each `subscribe` is forwarded, an `unsubscribe`
//! only when the last client of a resource has left. All changes of one connection are made under its change lock, so
//! that the server receives them in order.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;
use toolcrib_connector::SourceSubscriptions;
use toolcrib_core::source::Lifecycle;
use toolcrib_core::{Code, Error};
use toolcrib_mcp::{RequestOptions, WireError};

use super::connection_pool::PooledConnection;
use super::subscriptions::{RESUBSCRIBE_TIMEOUT, SUBSCRIPTION_REQUEST_TIMEOUT};
use super::{McpConnector, UpstreamRequest, empty_object, send_once};
use crate::connector::{CallFailure, ClientId, SourceRequest};

/// Maximum length of a resource URI in bytes.
const MAX_URI_LEN: usize = 8 * 1024;

impl PooledConnection {
    /// Unsubscribes at the server, on behalf of Toolcrib itself, if a connection is open.
    async fn send_unsubscribes(&self, uris: &[String]) {
        let Some(connection) = self.connection.lock().await.clone().filter(|connection| connection.is_usable()) else {
            return;
        };
        // Another client may have subscribed meanwhile.
        for uri in uris.iter().filter(|uri| !self.subscriptions.contains(uri)) {
            let Ok(params) = to_raw_value(&json!({ "uri": uri })) else { continue };
            let options = RequestOptions::new(SUBSCRIPTION_REQUEST_TIMEOUT);
            let response = connection.client.request("resources/unsubscribe", Some(&params), &options).await;
            // A server that does not respond would keep other changes waiting for the lock.
            if matches!(response, Err(WireError::Timeout { .. })) {
                return;
            }
        }
    }
}

impl McpConnector {
    /// Handles `resources/subscribe`.
    pub(super) async fn subscribe(&self, request: &SourceRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        let id = &self.source.id;
        let client = request.context.client;
        let rejected = |message: String| CallFailure::Rejected(Error::new(Code::ToolInvalidInput, message));
        if self.source.settings.lifecycle() == Lifecycle::Transient {
            let message = format!(
                "`{id}` opens a connection for each call (`lifecycle: transient`), so it cannot keep subscriptions"
            );
            return Err(rejected(message));
        }
        let uri = parse_uri(request)?;
        if uri.len() > MAX_URI_LEN {
            return Err(rejected(format!("`uri` is longer than {MAX_URI_LEN} bytes")));
        }
        let pooled = self.pool.select(&self.source, request.context).map_err(CallFailure::Inconclusive)?;
        // The subscription belongs to the connection of the client's era, if the server speaks it.
        let connecting = self.connection_for(&pooled, request.context.era, request.deadline.remaining());
        let (pooled, _) = self.connect_in_time(request.context, request.deadline, connecting).await?;
        let _change_guard = self.lock_subscriptions(&pooled, request).await?;
        let too_many = |many| rejected(format!("`{id}` has {many} already, the maximum; unsubscribe from one first"));
        // Stored before it is sent: a reconnect during the request then renews it. Dropping `pending` on any error
        // removes it again.
        let pending = pooled.subscriptions.add(&uri, client).map_err(too_many)?;
        let (result, connection) = self.send_request_with_connection(&UpstreamRequest::Request(request)).await?;
        pooled.subscriptions.mark_established(&uri, &connection);
        // A client that cancelled or disconnected meanwhile would stay subscribed for ever.
        if request.context.cancel.is_cancelled() {
            if pending.is_new && pooled.subscriptions.remove(&uri, client) {
                pooled.send_unsubscribes(std::slice::from_ref(&uri)).await;
            }
            return Err(CallFailure::cancelled());
        }
        pending.commit();
        Ok(result)
    }

    /// Handles `resources/unsubscribe`. The request is forwarded only when no other client is subscribed to the
    /// resource.
    pub(super) async fn unsubscribe(&self, request: &SourceRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        let uri = parse_uri(request)?;
        let client = request.context.client;
        let mut pooled = self.pool.select(&self.source, request.context).map_err(CallFailure::Inconclusive)?;
        let other_era = &self.pool.other_era;
        if Arc::ptr_eq(&pooled, &self.pool.shared) && other_era.subscriptions.has_client(&uri, client) {
            pooled = other_era.clone();
        }
        let _change_guard = self.lock_subscriptions(&pooled, request).await?;
        // Other clients are still subscribed, or this one never was: nothing to tell the server.
        if !pooled.subscriptions.remove(&uri, client) {
            return Ok(empty_object());
        }
        // Do not connect just to unsubscribe: the server has forgotten the subscription with its connection.
        let locking = request.deadline.remaining().min(SUBSCRIPTION_REQUEST_TIMEOUT);
        let connection = timeout(locking, pooled.connection.lock()).await.ok().and_then(|slot| slot.clone());
        let Some(connection) = connection.filter(|connection| connection.is_usable()) else {
            return Ok(empty_object());
        };
        let request = UpstreamRequest::Request(request);
        match send_once(&connection, &request).await {
            Ok(result) => Ok(result),
            Err(attempt) => Err(self.to_call_failure(&attempt, &request, &connection).await),
        }
    }

    /// Removes all subscriptions of a client that has disconnected. They end here at once, whether or not the server
    /// can be reached.
    pub(super) async fn unsubscribe_client(&self, client: ClientId) {
        for pooled in [&self.pool.shared, &self.pool.other_era] {
            self.unsubscribe_client_from(pooled, client).await;
        }
    }

    /// As [`McpConnector::unsubscribe_client`], for one pool entry.
    async fn unsubscribe_client_from(&self, pooled: &PooledConnection, client: ClientId) {
        let orphaned = pooled.subscriptions.remove_client(client);
        if orphaned.is_empty() {
            return;
        }
        let unsubscribing = async {
            // Wait for changes in progress, so that the server receives the requests in order.
            let _change_guard = pooled.subscriptions.change_lock.lock().await;
            pooled.send_unsubscribes(&orphaned).await;
        };
        // Best effort: an update that still arrives has no subscriber.
        let _ = timeout(RESUBSCRIBE_TIMEOUT, unsubscribing).await;
    }

    /// Sends a final update notification for subscriptions that end with this connector, so that clients read the
    /// resource again and notice.
    pub(super) fn notify_lost(&self, subscriptions: &SourceSubscriptions) {
        for uri in subscriptions.uris() {
            let params = to_raw_value(&json!({ "uri": uri })).ok();
            self.source_events.notify(&self.source.id, "notifications/resources/updated", params.as_deref());
        }
    }

    /// Whether some subscriptions have no open, listening connection, or are not confirmed over it.
    pub(super) fn has_outdated_subscriptions(&self) -> bool {
        self.pool.connections().iter().any(|pooled| pooled.subscriptions.has_any() && !pooled.is_receiving_updates())
    }

    /// Reopens connections that subscriptions need, and renews the subscriptions. The ping makes the wire notice an
    /// HTTP session that the server has forgotten.
    pub(super) async fn restore_connections(&self) {
        for pooled in self.pool.connections() {
            if !pooled.subscriptions.has_any()
                || pooled.is_receiving_updates()
                || !pooled.subscriptions.begin_check_if_due()
            {
                continue;
            }
            let mut slot = pooled.connection.lock().await;
            // The last subscriber may have disconnected while another task held the lock.
            if !pooled.subscriptions.has_any() {
                continue;
            }
            // An open connection may have lost its session or its notifications; a closed one is replaced.
            let was_open = slot.as_ref().is_some_and(|connection| connection.is_usable());
            let timeout = self.source.settings.discovery_timeout();
            let connected = self.get_or_connect_locked(&pooled, &mut slot, pooled.era(), timeout, None).await;
            drop(slot);
            match connected {
                // A new connection renews its subscriptions by itself.
                Ok(_) if !was_open => {}
                Ok(connection) => {
                    // Whatever the outcome, the subscriptions are renewed next.
                    let _ = connection
                        .client
                        .request("ping", None, &RequestOptions::new(SUBSCRIPTION_REQUEST_TIMEOUT))
                        .await;
                    pooled
                        .subscriptions
                        .clone()
                        .resubscribe(connection, self.source.id.clone(), self.source_events.clone())
                        .await;
                }
                Err(failure) => {
                    let error = self.references.redactor().redact_error(failure.into_error());
                    tracing::debug!(server_name = %self.source.id, %error, "cannot reconnect for resource subscriptions yet");
                }
            }
        }
    }

    /// Waits for the change lock until the deadline of the request.
    async fn lock_subscriptions<'a>(
        &self,
        pooled: &'a PooledConnection,
        request: &SourceRequest<'_>,
    ) -> Result<tokio::sync::MutexGuard<'a, ()>, CallFailure> {
        let busy = || {
            let message = format!("`{}` is busy with subscription changes of other clients; try again", self.source.id);
            Error::new(Code::ToolUnavailable, message)
        };
        let change_guard = tokio::select! {
            biased;
            change_guard = pooled.subscriptions.change_lock.lock() => change_guard,
            () = request.context.cancel.cancelled() => return Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(request.deadline.at) => return Err(CallFailure::Inconclusive(busy())),
        };
        Ok(change_guard)
    }
}

/// Reads `params.uri`.
fn parse_uri(request: &SourceRequest<'_>) -> Result<String, CallFailure> {
    #[derive(serde::Deserialize)]
    struct UriParams {
        uri: String,
    }
    let params = request.params.and_then(|params| serde_json::from_str(params.get()).ok());
    let missing = || CallFailure::Rejected(Error::new(Code::ToolInvalidInput, "`uri` is missing"));
    params.map(|UriParams { uri }| uri).ok_or_else(missing)
}
