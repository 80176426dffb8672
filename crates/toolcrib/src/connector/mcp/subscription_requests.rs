//! Watching resources for clients: what is asked of a server, on whose behalf, and looking after it.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Instant, timeout};
use toolcrib_core::source::Lifecycle;
use toolcrib_core::{Code, Error};
use toolcrib_mcp::{RequestOptions, WireError};

use super::connection_pool::{PooledConnection, SourceSubscriptions};
use super::subscriptions::{RESUBSCRIBE_TIMEOUT, SUBSCRIPTION_REQUEST_TIMEOUT};
use super::upstream_request::UpstreamRequest;
use super::{McpConnector, empty_object};
use crate::call::ClientId;
use crate::connector::{CallFailure, SourceRequest};

/// Of an address.
const MAX_URI_LEN: usize = 8 * 1024;

impl PooledConnection {
    /// Tells the server on nobody's behalf what is not watched any more, as far as it listens.
    async fn send_unsubscribes(&self, uris: &[String]) {
        let Some(live) = self.connection.lock().await.clone().filter(|live| live.is_usable()) else { return };
        // Somebody may have begun to watch it meanwhile.
        for uri in uris.iter().filter(|uri| !self.subscriptions.contains(uri)) {
            let Ok(params) = to_raw_value(&json!({ "uri": uri })) else { continue };
            let options = RequestOptions::new(SUBSCRIPTION_REQUEST_TIMEOUT);
            let told = live.client.request("resources/unsubscribe", Some(&params), &options).await;
            // Others wait for their turn.
            if matches!(told, Err(WireError::Timeout { .. })) {
                return;
            }
        }
    }
}

impl McpConnector {
    /// `resources/subscribe`.
    pub(super) async fn subscribe(&self, mut request: SourceRequest) -> Result<Box<RawValue>, CallFailure> {
        let id = &self.source.id;
        let client = request.context.client;
        let refused = |message: String| CallFailure::Rejected(Error::new(Code::ToolInvalidInput, message));
        if self.source.settings.lifecycle() == Lifecycle::Transient {
            let message = format!("`{id}` has a connection for each call alone, over which nothing can be watched");
            return Err(refused(message));
        }
        let uri = parse_uri(&request)?;
        if uri.len() > MAX_URI_LEN {
            return Err(refused(format!("the address has more than {MAX_URI_LEN} bytes")));
        }
        let line = self.pool.select(&self.source, &request.context).map_err(CallFailure::Inconclusive)?;
        let _turn = self.lock_subscriptions(&line, &mut request).await?;
        let too_many = |many| refused(format!("{many} of `{id}` are watched already; end a subscription first"));
        let adding = line.subscriptions.add(&uri, client).map_err(too_many)?;
        let (answer, live) = self.send_request_with_connection(&UpstreamRequest::Request(&request)).await?;
        line.subscriptions.mark_established(&uri, &live);
        // One that has left meanwhile would watch for ever.
        if request.context.cancel.is_cancelled() {
            if adding.is_new && line.subscriptions.remove(&uri, client) {
                line.send_unsubscribes(std::slice::from_ref(&uri)).await;
            }
            return Err(CallFailure::cancelled());
        }
        adding.commit();
        Ok(answer)
    }

    /// `resources/unsubscribe`. The server hears of it when nobody else watches the same.
    pub(super) async fn unsubscribe(&self, mut request: SourceRequest) -> Result<Box<RawValue>, CallFailure> {
        let uri = parse_uri(&request)?;
        let client = request.context.client;
        let line = self.pool.select(&self.source, &request.context).map_err(CallFailure::Inconclusive)?;
        let _turn = self.lock_subscriptions(&line, &mut request).await?;
        if !line.subscriptions.remove(&uri, client) {
            return Ok(empty_object());
        }
        let began = Instant::now();
        let standing = timeout(request.context.timeout.min(SUBSCRIPTION_REQUEST_TIMEOUT), line.connection.lock()).await;
        let stands = standing.is_ok_and(|live| live.as_ref().is_some_and(|live| live.is_usable()));
        request.context.timeout = request.context.timeout.saturating_sub(began.elapsed());
        match stands {
            true => self.send_request(&UpstreamRequest::Request(&request)).await,
            false => Ok(empty_object()),
        }
    }

    /// Ends what a client watched that has left: here at once, whatever becomes of telling the server.
    pub(super) async fn unsubscribe_client(&self, client: ClientId) {
        let line = &self.pool.shared;
        let unwatched = line.subscriptions.remove_client(client);
        if unwatched.is_empty() {
            return;
        }
        let telling = async {
            let _turn = line.subscriptions.change_lock.lock().await;
            line.send_unsubscribes(&unwatched).await;
        };
        let _in_time = timeout(RESUBSCRIBE_TIMEOUT, telling).await;
    }

    /// Tells who watched what is watched no more that it may have changed: who reads it again finds out.
    pub(super) fn notify_lost(&self, watches: &SourceSubscriptions) {
        for uri in watches.uris() {
            let params = to_raw_value(&json!({ "uri": uri })).ok();
            self.source_events.notify(&self.source.id, "notifications/resources/updated", params.as_deref());
        }
    }

    /// Whether something is watched over a connection that is gone, or not listened to, or not asked for over this one.
    pub(super) fn has_outdated_subscriptions(&self) -> bool {
        self.pool.connections().iter().any(|line| line.subscriptions.has_any() && !line.is_receiving_updates())
    }

    /// Makes connections again that are needed for what is watched; and finds out whether a server forgot a session,
    /// which the wire begins anew.
    pub(super) async fn restore_connections(&self) {
        for line in self.pool.connections() {
            if !line.subscriptions.has_any() || line.is_receiving_updates() || !line.subscriptions.is_due() {
                continue;
            }
            let mut place = line.connection.lock().await;
            // Who watched may have left while another held it.
            if !line.subscriptions.has_any() {
                continue;
            }
            let stood = place.as_ref().is_some_and(|live| live.is_usable());
            let standing =
                self.get_or_connect_locked(&line, &mut place, self.source.settings.discovery_timeout()).await;
            drop(place);
            match standing {
                // A new one asks for all of it by itself.
                Ok(_) if !stood => {}
                Ok(live) => {
                    let _either_way =
                        live.client.request("ping", None, &RequestOptions::new(SUBSCRIPTION_REQUEST_TIMEOUT)).await;
                    line.subscriptions
                        .clone()
                        .resubscribe(live, self.source.id.clone(), self.source_events.clone())
                        .await;
                }
                Err(failure) => {
                    let error = self.redactor.get(&self.source.kind).redact_error(failure.into_error());
                    tracing::debug!(server_name = %self.source.id, %error, "nothing can be watched yet");
                }
            }
        }
    }

    /// Waits for its turn within the time of the request, which has less of it then.
    async fn lock_subscriptions<'a>(
        &self,
        line: &'a PooledConnection,
        request: &mut SourceRequest,
    ) -> Result<tokio::sync::MutexGuard<'a, ()>, CallFailure> {
        let began = Instant::now();
        let late = || Error::new(Code::ToolUnavailable, format!("`{}` is asked by others", self.source.id));
        let turn = tokio::select! {
            biased;
            turn = line.subscriptions.change_lock.lock() => turn,
            () = request.context.cancel.cancelled() => return Err(CallFailure::cancelled()),
            () = tokio::time::sleep(request.context.timeout) => return Err(CallFailure::Inconclusive(late())),
        };
        request.context.timeout = request.context.timeout.saturating_sub(began.elapsed());
        Ok(turn)
    }
}

fn parse_uri(request: &SourceRequest) -> Result<String, CallFailure> {
    #[derive(serde::Deserialize)]
    struct UriParams {
        uri: String,
    }
    let params = request.params.as_deref().and_then(|params| serde_json::from_str(params.get()).ok());
    let missing = || CallFailure::Rejected(Error::new(Code::ToolInvalidInput, "`uri` is missing"));
    params.map(|UriParams { uri }| uri).ok_or_else(missing)
}
