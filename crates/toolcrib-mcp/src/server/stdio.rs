//! The server's stdio transport: one message per line over a byte stream, with one client, which may use both eras, and
//! one writer task for all requests.
//!
//! Requests run concurrently and are answered in the order in which they finish; only `initialize` is answered before
//! the next line is read. The era of each request follows from the request itself, so a client may probe with
//! `server/discover` and fall back to `initialize` on the same stream.
//!
//! Order of the end: stop reading, drain, shutdown responses, cancel, report the disconnect, flush the writer.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    McpPeer, Service,
    change_notifications::send_changes,
    client_requests::ClientRequests,
    envelope, handshake,
    options::ServerOptions,
    params::{RequestParams, VERSION_KEY},
    request::{ClientContext, IncomingRequest},
    shared::ServerShared,
    sink::Sink,
};
use crate::{
    era::{Era, MODERN_VERSION},
    error::RpcError,
    message::{self, IncomingMessage},
};

/// Maximum capacity in bytes that the line buffer keeps between messages, so that one large message does not hold its
/// memory for the lifetime of the stream.
const MAX_RETAINED_BUFFER: usize = 1024 * 1024;

/// Serves one client until its input ends or `stop` fires. Requests in progress may continue for
/// [`ServerOptions::drain_timeout`]; unfinished ones then get [`Service::shutdown_response`]. If `stop` fires after the
/// end of the input, they get it at once. Dropping the future cancels everything.
pub async fn serve_stream(
    service: Arc<dyn Service>,
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    options: ServerOptions,
    stop: CancellationToken,
) {
    let shared = ServerShared::new(service, options);
    // Ends all tasks when this future is dropped.
    let _guard = shared.closing.clone().drop_guard();
    let (outgoing, queue) = mpsc::channel(shared.options.max_queued_messages);
    let closing = shared.closing.clone();
    let mut writing = tokio::spawn(async move {
        // When responses cannot be written any more, all requests are cancelled.
        let _guard = closing.drop_guard_ref();
        if let Err(error) = write_lines(writer, queue).await {
            tracing::debug!(%error, "writing to the client failed");
        }
    });
    let session = StreamSession {
        shared: shared.clone(),
        outgoing,
        client_requests: Arc::default(),
        legacy: Mutex::default(),
        modern: Mutex::default(),
        notification_cancel: Mutex::default(),
    };
    let cause = tokio::select! {
        biased;
        () = shared.closing.cancelled() => StopCause::InputEnded,
        // A read error ends the input too.
        _ = session.read_lines(reader) => StopCause::InputEnded,
        () = stop.cancelled() => StopCause::StopRequested,
    };
    session.drain(cause, &stop).await;
    session.disconnect().await;
    // Drops the last sender, so that the writer sends what is queued and ends.
    drop(session);
    let _ = timeout(shared.options.cleanup_timeout, &mut writing).await;
    writing.abort();
}

/// Why the server stopped reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopCause {
    /// The client closed its end, or the writer failed.
    InputEnded,
    /// The caller asked to stop while the client is still connected.
    StopRequested,
}

/// State of one byte stream and its client.
struct StreamSession {
    shared: Arc<ServerShared>,
    /// Queue of the writer task.
    outgoing: mpsc::Sender<String>,
    client_requests: Arc<ClientRequests>,
    /// The client as described by its last `initialize`.
    legacy: Mutex<Option<Arc<McpPeer>>>,
    /// The client as described by its last request of 2026-07-28.
    modern: Mutex<Option<Arc<McpPeer>>>,
    /// Stops the change notifications of the previous handshake when the client sends `initialize` again.
    notification_cancel: Mutex<CancellationToken>,
}

impl StreamSession {
    /// Reads and handles lines until the end of the input. A line over the limit is skipped and answered with an error.
    async fn read_lines(&self, reader: impl AsyncRead + Send + Unpin) -> std::io::Result<()> {
        let limit = self.shared.options.max_line_bytes;
        let mut reader = BufReader::with_capacity(64 * 1024, reader);
        let mut line = Vec::new();
        let mut too_long = false;
        loop {
            // Read in chunks and not line by line, so that a line over the limit is never held in memory.
            let chunk = reader.fill_buf().await?;
            let ended = chunk.is_empty();
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(chunk.len());
            too_long |= line.len() + taken > limit;
            if !too_long {
                line.extend_from_slice(&chunk[..taken]);
            }
            reader.consume(taken + usize::from(end.is_some()));
            // The last line may lack its line break.
            if end.is_none() && !ended {
                continue;
            }
            if too_long {
                // Its id is unknown, because the message was not parsed.
                let message = format!("a message is longer than {limit} bytes");
                self.send_error(None, RpcError::new(RpcError::INVALID_REQUEST, message)).await;
            } else {
                self.handle_line(&String::from_utf8_lossy(&line)).await;
            }
            if ended {
                return Ok(());
            }
            too_long = false;
            line.clear();
            line.shrink_to(MAX_RETAINED_BUFFER);
        }
    }

    /// Handles one line: a message, or a batch of messages.
    async fn handle_line(&self, text: &str) {
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return;
        }
        let messages = message::split_batch(text);
        let batch_max = self.shared.options.max_batch_messages;
        if messages.is_empty() || messages.len() > batch_max {
            let message = format!("a batch must have 1 to {batch_max} messages");
            return self.send_error(None, RpcError::new(RpcError::INVALID_REQUEST, message)).await;
        }
        // Responses to a batch are sent one by one, as they finish.
        for message in messages {
            match message::parse_strict(message) {
                Ok(incoming) => self.handle_message(incoming).await,
                Err((id, error)) => self.send_error(id, error).await,
            }
        }
    }

    /// Handles one message. Requests run in their own tasks; only `initialize` is answered here, in order.
    async fn handle_message(&self, incoming: IncomingMessage<'_>) {
        match incoming {
            IncomingMessage::Request { id, method, params } if method == "initialize" && !declares_version(params) => {
                self.initialize(id, params).await;
            }
            IncomingMessage::Request { id, method, params } => {
                if let Err(error) = self.handle_request(id, &method, params) {
                    self.send_error(Some(id), error).await;
                }
            }
            other @ (IncomingMessage::Notification { .. }
            | IncomingMessage::Response { .. }
            | IncomingMessage::ErrorWithoutId(_)) => {
                self.client_requests.handle_message(other);
            }
        }
    }

    /// Answers `initialize`. A second one replaces the client of the first.
    async fn initialize(&self, id: &RawValue, params: Option<&RawValue>) {
        let peer = Arc::new(handshake::legacy_peer(params, ""));
        let result = handshake::initialize_result(&self.shared, &peer).await;
        let succeeded = result.is_ok();
        // Fails when the writer ended; `closing` fires then.
        let _ = self.outgoing.send(envelope::encode_response(id, &result)).await;
        if succeeded {
            // After the response: the client must not get a notification before its handshake has succeeded.
            self.start_notifications(&peer);
            let previous = self.legacy.lock().replace(peer);
            previous.iter().for_each(|previous| self.shared.service.on_disconnect(previous));
        }
    }

    /// Starts a request. Its era follows from the request itself: one of 2026-07-28 declares its version in `_meta`.
    fn handle_request(&self, id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<(), RpcError> {
        let params = RequestParams::parse(method, params)?;
        let peer = if params.protocol_version.is_some() || method == "server/discover" {
            params.require_meta()?;
            let version = params.protocol_version.as_deref().unwrap_or_default();
            if version != MODERN_VERSION {
                return Err(handshake::unsupported_version(version));
            }
            self.modern_peer(&params)
        } else {
            match self.legacy.lock().clone() {
                Some(peer) => peer,
                // Clients may ping before the handshake to check that the server runs.
                None if method == "ping" => Arc::new(handshake::legacy_peer(None, "")),
                None => {
                    let message = format!("begin with `initialize`, or set `{VERSION_KEY}` in `_meta`");
                    return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
                }
            }
        };
        let client = ClientContext {
            peer,
            client_requests: Some(self.client_requests.clone()),
            ended: self.shared.closing.clone(),
            is_one_shot: false,
        };
        let request = IncomingRequest {
            id: id.to_owned(),
            method: method.to_owned(),
            params,
            sink: Sink::Stdio(self.outgoing.clone()),
            can_stream: true,
            extensions: Arc::default(),
        };
        self.shared.start_request(client, request)
    }

    /// Returns the peer of a request of 2026-07-28. A stream has one client, so its id stays the same even when a
    /// request declares another name or other capabilities.
    fn modern_peer(&self, params: &RequestParams) -> Arc<McpPeer> {
        let capabilities = params.capabilities.clone().unwrap_or_else(message::empty_object);
        let mut known = self.modern.lock();
        if let Some(peer) = &*known
            && peer.capabilities.get() == capabilities.get()
            && peer.name == params.client_name
        {
            return peer.clone();
        }
        let mut peer = McpPeer::new(Era::Modern, params.client_name.clone(), capabilities, "");
        peer.id = known.as_ref().map_or(peer.id, |known| known.id);
        known.insert(Arc::new(peer)).clone()
    }

    /// Starts sending change notifications to a legacy client, in place of those of an earlier handshake.
    fn start_notifications(&self, peer: &Arc<McpPeer>) {
        let cancel = self.shared.closing.child_token();
        std::mem::replace(&mut *self.notification_cancel.lock(), cancel.clone()).cancel();
        let changes = self.shared.service.changes(peer);
        let notifying = send_changes(changes, Sink::Stdio(self.outgoing.clone()), self.shared.draining.clone());
        self.shared.tasks.spawn(cancel.run_until_cancelled_owned(notifying));
    }

    /// Sends an error response.
    async fn send_error(&self, id: Option<&RawValue>, error: RpcError) {
        // Fails when the writer ended; `closing` fires then.
        let _ = self.outgoing.send(envelope::encode_error(id, error)).await;
    }

    /// Lets requests in progress finish for the drain timeout, then sends the others their shutdown response.
    async fn drain(&self, cause: StopCause, stop: &CancellationToken) {
        let shared = &self.shared;
        // `wait` returns only after `close`.
        shared.tasks.close();
        shared.draining.cancel();
        let stop_requested = async {
            match cause {
                StopCause::InputEnded => stop.cancelled().await,
                StopCause::StopRequested => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = timeout(shared.options.drain_timeout, shared.tasks.wait()) => {}
            () = stop_requested => {}
            // The writer ended, so no response can be sent.
            () = shared.closing.cancelled() => {}
        }
        shared.stop().await;
    }

    /// Cancels the remaining tasks and reports the disconnect of the client to the service.
    async fn disconnect(&self) {
        let shared = &self.shared;
        shared.closing.cancel();
        // A service that does not return in time is abandoned.
        let _ = timeout(shared.options.cleanup_timeout, shared.tasks.wait()).await;
        for peer in [&self.legacy, &self.modern].into_iter().filter_map(|peer| peer.lock().take()) {
            shared.service.on_disconnect(&peer);
        }
    }
}

/// Whether the parameters contain the version key of 2026-07-28; then even `initialize` is a request of that era.
fn declares_version(params: Option<&RawValue>) -> bool {
    params.is_some_and(|params| params.get().contains(VERSION_KEY))
}

/// Writes queued messages until all senders are dropped, then closes the stream.
async fn write_lines(
    mut writer: impl AsyncWrite + Send + Unpin,
    mut queue: mpsc::Receiver<String>,
) -> std::io::Result<()> {
    while let Some(line) = queue.recv().await {
        writer.write_all(&message::to_line(line)).await?;
        // One flush for messages that are queued together.
        if queue.is_empty() {
            writer.flush().await?;
        }
    }
    writer.shutdown().await
}
