//! Watching resources for clients: what is asked of a server, on whose behalf, and looking after it.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Instant, timeout};
use toolcrib_core::source::Lifecycle;
use toolcrib_core::{Code, Error};
use toolcrib_mcp::{RequestOptions, WireError};

use super::exchange::Exchange;
use super::lines::{Line, Watches};
use super::watched::{ALL_ASKED, ASKED};
use super::{McpConnector, unsaid};
use crate::call::ClientId;
use crate::connector::{CallFailure, Request};

/// Of an address.
const LONGEST: usize = 8 * 1024;

impl Line {
    /// Tells the server on nobody's behalf what is not watched any more, as far as it listens.
    async fn tell_unwatched(&self, uris: &[String]) {
        let Some(live) = self.live.lock().await.clone().filter(|live| live.usable()) else { return };
        // Somebody may have begun to watch it meanwhile.
        for uri in uris.iter().filter(|uri| !self.watched.is_watched(uri)) {
            let Ok(params) = to_raw_value(&json!({ "uri": uri })) else { continue };
            let options = RequestOptions::new(ASKED);
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
    pub(super) async fn watch(&self, mut request: Request) -> Result<Box<RawValue>, CallFailure> {
        let (id, client) = (&self.source.id, request.terms.client);
        let refused = |message: String| CallFailure::Refused(Error::new(Code::ToolInvalidInput, message));
        if self.source.settings.lifecycle() == Lifecycle::Transient {
            let message = format!("`{id}` has a connection for each call alone, over which nothing can be watched");
            return Err(refused(message));
        }
        let uri = uri(&request)?;
        if uri.len() > LONGEST {
            return Err(refused(format!("the address has more than {LONGEST} bytes")));
        }
        let line = self.lines.of(&self.source, &request.terms).map_err(CallFailure::Undecided)?;
        let _turn = self.turn(&line, &mut request).await?;
        let too_many = |many| refused(format!("{many} of `{id}` are watched already; end a subscription first"));
        let adding = line.watched.add(&uri, client).map_err(too_many)?;
        let (answer, live) = self.exchange_over(&Exchange::Request(&request)).await?;
        line.watched.granted(&uri, &live);
        // One that has left meanwhile would watch for ever.
        if request.terms.cancel.is_cancelled() {
            if adding.new && line.watched.remove(&uri, client) {
                line.tell_unwatched(std::slice::from_ref(&uri)).await;
            }
            return Err(CallFailure::cancelled());
        }
        adding.keep();
        Ok(answer)
    }

    /// `resources/unsubscribe`. The server hears of it when nobody else watches the same.
    pub(super) async fn unwatch(&self, mut request: Request) -> Result<Box<RawValue>, CallFailure> {
        let (uri, client) = (uri(&request)?, request.terms.client);
        let line = self.lines.of(&self.source, &request.terms).map_err(CallFailure::Undecided)?;
        let _turn = self.turn(&line, &mut request).await?;
        if !line.watched.remove(&uri, client) {
            return Ok(unsaid());
        }
        let began = Instant::now();
        let standing = timeout(request.terms.timeout.min(ASKED), line.live.lock()).await;
        let stands = standing.is_ok_and(|live| live.as_ref().is_some_and(|live| live.usable()));
        request.terms.timeout = request.terms.timeout.saturating_sub(began.elapsed());
        match stands {
            true => self.exchange(&Exchange::Request(&request)).await,
            false => Ok(unsaid()),
        }
    }

    /// Ends what a client watched that has left: here at once, whatever becomes of telling the server.
    pub(super) async fn unwatch_all(&self, client: ClientId) {
        let line = &self.lines.common;
        let unwatched = line.watched.remove_all(client);
        if unwatched.is_empty() {
            return;
        }
        let telling = async {
            let _turn = line.watched.turn.lock().await;
            line.tell_unwatched(&unwatched).await;
        };
        let _in_time = timeout(ALL_ASKED, telling).await;
    }

    /// Tells who watched what is watched no more that it may have changed: who reads it again finds out.
    pub(super) fn lose(&self, watches: &Watches) {
        for uri in watches.uris() {
            let params = to_raw_value(&json!({ "uri": uri })).ok();
            self.news.said(&self.source.id, "notifications/resources/updated", params.as_deref());
        }
    }

    /// Whether something is watched over a connection that is gone, or not listened to, or not asked for over this one.
    pub(super) fn is_neglected(&self) -> bool {
        self.lines.all().iter().any(|line| line.watched.any() && !line.is_heard())
    }

    /// Makes connections again that are needed for what is watched; and finds out whether a server forgot a session,
    /// which the wire begins anew.
    pub(super) async fn attend(&self) {
        for line in self.lines.all() {
            if !line.watched.any() || line.is_heard() || !line.watched.is_due() {
                continue;
            }
            let mut place = line.live.lock().await;
            // Who watched may have left while another held it.
            if !line.watched.any() {
                continue;
            }
            let stood = place.as_ref().is_some_and(|live| live.usable());
            let standing = self.stand(&line, &mut place, self.source.settings.discovery_timeout()).await;
            drop(place);
            match standing {
                // A new one asks for all of it by itself.
                Ok(_) if !stood => {}
                Ok(live) => {
                    let _either_way = live.client.request("ping", None, &RequestOptions::new(ASKED)).await;
                    line.watched.clone().renew(live, self.source.id.clone(), self.news.clone()).await;
                }
                Err(failure) => {
                    let error = self.redactor.get(&self.source.kind).redact_error(failure.into_error());
                    tracing::debug!(server_name = %self.source.id, %error, "nothing can be watched yet");
                }
            }
        }
    }

    /// Waits for its turn within the time of the request, which has less of it then.
    async fn turn<'a>(
        &self,
        line: &'a Line,
        request: &mut Request,
    ) -> Result<tokio::sync::MutexGuard<'a, ()>, CallFailure> {
        let began = Instant::now();
        let late = || Error::new(Code::ToolUnavailable, format!("`{}` is asked by others", self.source.id));
        let turn = tokio::select! {
            biased;
            turn = line.watched.turn.lock() => turn,
            () = request.terms.cancel.cancelled() => return Err(CallFailure::cancelled()),
            () = tokio::time::sleep(request.terms.timeout) => return Err(CallFailure::Undecided(late())),
        };
        request.terms.timeout = request.terms.timeout.saturating_sub(began.elapsed());
        Ok(turn)
    }
}

fn uri(request: &Request) -> Result<String, CallFailure> {
    #[derive(serde::Deserialize)]
    struct Params {
        uri: String,
    }
    let params = request.params.as_deref().and_then(|params| serde_json::from_str(params.get()).ok());
    let missing = || CallFailure::Refused(Error::new(Code::ToolInvalidInput, "`uri` is missing"));
    params.map(|Params { uri }| uri).ok_or_else(missing)
}
