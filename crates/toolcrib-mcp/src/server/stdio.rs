//! MCP over a byte stream, the server's end: one message a line, both eras on the same stream, one writer for all.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    McpPeer, Service,
    dispatch::{ClientContext, IncomingRequest},
    envelope, handshake,
    options::ServerOptions,
    params::{RequestParams, VERSION_KEY},
    request_state::Sink,
    shared::{ClientRequests, ServerShared},
    subscriptions,
};
use crate::{
    connection::lock,
    era::{Era, MODERN_VERSION},
    error::RpcError,
    message::{self, IncomingMessage},
};

/// A line buffer that grew beyond this is given back after use.
const MAX_RETAINED_BUFFER: usize = 1024 * 1024;

/// Serves one client until its input ends or `stop` fires. Requests in progress may continue for
/// [`ServerOptions::drain_timeout`]; the others get a response that says so. When `stop` fires after the end of the
/// input, they get it at once.
pub async fn serve_stream(
    service: Arc<dyn Service>,
    reader: impl AsyncRead + Send + Unpin,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    options: ServerOptions,
    stop: CancellationToken,
) {
    let shared = ServerShared::new(service, options);
    // Who drops this future ends everything with it.
    let _owner = shared.closing.clone().drop_guard();
    let (lines, queue) = mpsc::channel(shared.options.queued_messages_max);
    let closing = shared.closing.clone();
    let mut writing = tokio::spawn(async move {
        // Whom nothing can be told any more needs no answers either.
        let _all_is_cancelled = closing.drop_guard_ref();
        if let Err(error) = write_lines(writer, queue).await {
            tracing::debug!(%error, "the client's output is closed");
        }
    });
    let conversation = StreamSession {
        shared: shared.clone(),
        outgoing: lines,
        client_requests: Arc::default(),
        legacy: Mutex::default(),
        modern: Mutex::default(),
        notification_cancel: Mutex::default(),
    };
    let end = tokio::select! {
        biased;
        () = shared.closing.cancelled() => StopCause::InputEnded,
        _unreadable = conversation.read_lines(reader) => StopCause::InputEnded,
        () = stop.cancelled() => StopCause::StopRequested,
    };
    conversation.drain(end, &stop).await;
    conversation.disconnect().await;
    drop(conversation);
    let _in_time = timeout(shared.options.cleanup_timeout, &mut writing).await;
    writing.abort();
}

/// Why nothing more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopCause {
    InputEnded,
    StopRequested,
}

struct StreamSession {
    shared: Arc<ServerShared>,
    outgoing: mpsc::Sender<String>,
    client_requests: Arc<ClientRequests>,
    /// The client of the last handshake, and the client as it last described itself with a request.
    legacy: Mutex<Option<Arc<McpPeer>>>,
    modern: Mutex<Option<Arc<McpPeer>>>,
    /// Ends the news for a client that begins anew.
    notification_cancel: Mutex<CancellationToken>,
}

impl StreamSession {
    async fn read_lines(&self, reader: impl AsyncRead + Send + Unpin) -> std::io::Result<()> {
        let limit = self.shared.options.line_bytes;
        let mut reader = BufReader::with_capacity(64 * 1024, reader);
        let (mut line, mut too_long) = (Vec::new(), false);
        loop {
            let chunk = reader.fill_buf().await?;
            let ended = chunk.is_empty();
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(chunk.len());
            too_long |= line.len() + taken > limit;
            if !too_long {
                line.extend_from_slice(&chunk[..taken]);
            }
            reader.consume(taken + usize::from(end.is_some()));
            if end.is_none() && !ended {
                continue;
            }
            if too_long {
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

    async fn handle_line(&self, text: &str) {
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return;
        }
        let parts = message::split_batch(text);
        if parts.is_empty() || parts.len() > self.shared.options.batch_max {
            let error = RpcError::new(RpcError::INVALID_REQUEST, "this is no batch, or one with too many messages");
            return self.send_error(None, error).await;
        }
        for part in parts {
            match message::parse_strict(part) {
                Ok(incoming) => self.handle_message(incoming).await,
                Err((id, error)) => self.send_error(id, error).await,
            }
        }
    }

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

    async fn initialize(&self, id: &RawValue, params: Option<&RawValue>) {
        let peer = Arc::new(handshake::legacy_peer(params, ""));
        let greeted = handshake::initialize_result(&self.shared, &peer).await;
        let welcome = greeted.is_ok();
        let _closed = self.outgoing.send(envelope::encode_response(id, &greeted)).await;
        if welcome {
            self.start_notifications(&peer);
            let before = lock(&self.legacy).replace(peer);
            before.iter().for_each(|before| self.shared.service.on_disconnect(before));
        }
    }

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
            match lock(&self.legacy).clone() {
                Some(peer) => peer,
                // Allowed at any time, by clients that look whether somebody is there.
                None if method == "ping" => Arc::new(handshake::legacy_peer(None, "")),
                None => {
                    let message = format!("begin with `initialize`, or say `{VERSION_KEY}` in `_meta`");
                    return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
                }
            }
        };
        let (desk, ended) = (Some(self.client_requests.clone()), self.shared.closing.clone());
        let sink = Sink::Stdio(self.outgoing.clone());
        let (id, method, extensions) = (id.to_owned(), method.to_owned(), http::Extensions::new());
        let order = IncomingRequest { id, method, params, sink, can_stream: true, extensions };
        self.shared.start_request(ClientContext { peer, client_requests: desk, ended, is_one_shot: false }, order)
    }

    /// On a stream there is one client, though it may describe itself anew with every request.
    fn modern_peer(&self, params: &RequestParams) -> Arc<McpPeer> {
        let capabilities = params.capabilities.clone().unwrap_or_else(handshake::empty_object);
        let mut met = lock(&self.modern);
        if let Some(peer) = &*met
            && peer.capabilities.get() == capabilities.get()
            && peer.name == params.client_name
        {
            return peer.clone();
        }
        let mut peer = McpPeer::new(Era::Modern, params.client_name.clone(), capabilities, "");
        peer.id = met.as_ref().map_or(peer.id, |met| met.id);
        met.insert(Arc::new(peer)).clone()
    }

    /// Tells a client of old what changes from now on.
    fn start_notifications(&self, peer: &Arc<McpPeer>) {
        let until = self.shared.closing.child_token();
        std::mem::replace(&mut *lock(&self.notification_cancel), until.clone()).cancel();
        let mut changes = self.shared.service.changes(peer);
        let (lines, draining) = (self.outgoing.clone(), self.shared.draining.clone());
        let telling = async move {
            while let Some(Some(change)) = draining.run_until_cancelled(changes.next()).await {
                if let Ok(text) = subscriptions::encode_change(&change, None) {
                    let _closed = lines.send(text).await;
                }
            }
        };
        self.shared.tasks.spawn(until.run_until_cancelled_owned(telling));
    }

    async fn send_error(&self, id: Option<&RawValue>, error: RpcError) {
        let _closed = self.outgoing.send(envelope::encode_error(id, error)).await;
    }

    /// Lets requests in progress finish for a while, and responds to the rest that they cannot be finished.
    async fn drain(&self, end: StopCause, stop: &CancellationToken) {
        let shared = &self.shared;
        shared.tasks.close();
        shared.draining.cancel();
        let stopped = async {
            match end {
                StopCause::InputEnded => stop.cancelled().await,
                StopCause::StopRequested => std::future::pending().await,
            }
        };
        tokio::select! {
            _in_time = timeout(shared.options.drain_timeout, shared.tasks.wait()) => {}
            () = stopped => {}
            // Nothing can be written to the client any more.
            () = shared.closing.cancelled() => {}
        }
        shared.stop().await;
    }

    /// Ends what is left, and takes leave.
    async fn disconnect(&self) {
        let shared = &self.shared;
        shared.closing.cancel();
        let _in_time = timeout(shared.options.cleanup_timeout, shared.tasks.wait()).await;
        for peer in [&self.legacy, &self.modern].into_iter().filter_map(|peer| lock(peer).take()) {
            shared.service.on_disconnect(&peer);
        }
    }
}

fn declares_version(params: Option<&RawValue>) -> bool {
    params.is_some_and(|params| params.get().contains(VERSION_KEY))
}

async fn write_lines(
    mut writer: impl AsyncWrite + Send + Unpin,
    mut lines: mpsc::Receiver<String>,
) -> std::io::Result<()> {
    while let Some(line) = lines.recv().await {
        let mut bytes = line.into_bytes();
        // Raw JSON may hold line breaks between its tokens (never inside them), where a space means the same.
        for byte in &mut bytes {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        bytes.push(b'\n');
        writer.write_all(&bytes).await?;
        // Answers that are ready together leave together.
        if lines.is_empty() {
            writer.flush().await?;
        }
    }
    writer.shutdown().await
}
