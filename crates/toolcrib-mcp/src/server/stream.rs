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
    Peer, Service, envelope,
    exchange::Sink,
    greet,
    job::{Client, Order},
    listen,
    options::ServerOptions,
    params::{Params, VERSION_KEY},
    shared::{Desk, Shared},
};
use crate::{
    connection::lock,
    era::{Era, MODERN},
    error::RpcError,
    message::{self, Incoming},
};

/// A line buffer that grew beyond this is given back after use.
const KEPT_BUFFER: usize = 1024 * 1024;

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
    let shared = Shared::new(service, options);
    // Who drops this future ends everything with it.
    let _owner = shared.closing.clone().drop_guard();
    let (lines, queue) = mpsc::channel(shared.options.queue);
    let closing = shared.closing.clone();
    let mut writing = tokio::spawn(async move {
        // Whom nothing can be told any more needs no answers either.
        let _all_is_cancelled = closing.drop_guard_ref();
        if let Err(error) = write_lines(writer, queue).await {
            tracing::debug!(%error, "the client's output is closed");
        }
    });
    let conversation = Conversation {
        shared: shared.clone(),
        lines,
        desk: Arc::default(),
        legacy: Mutex::default(),
        modern: Mutex::default(),
        renewed: Mutex::default(),
    };
    let end = tokio::select! {
        biased;
        () = shared.closing.cancelled() => End::Input,
        _unreadable = conversation.read(reader) => End::Input,
        () = stop.cancelled() => End::Stop,
    };
    conversation.drain(end, &stop).await;
    conversation.part().await;
    drop(conversation);
    let _in_time = timeout(shared.options.farewell, &mut writing).await;
    writing.abort();
}

/// Why nothing more is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Input,
    Stop,
}

struct Conversation {
    shared: Arc<Shared>,
    lines: mpsc::Sender<String>,
    desk: Arc<Desk>,
    /// The client of the last handshake, and the client as it last described itself with a request.
    legacy: Mutex<Option<Arc<Peer>>>,
    modern: Mutex<Option<Arc<Peer>>>,
    /// Ends the news for a client that begins anew.
    renewed: Mutex<CancellationToken>,
}

impl Conversation {
    async fn read(&self, reader: impl AsyncRead + Send + Unpin) -> std::io::Result<()> {
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
                self.refuse(None, RpcError::new(RpcError::INVALID_REQUEST, message)).await;
            } else {
                self.hear(&String::from_utf8_lossy(&line)).await;
            }
            if ended {
                return Ok(());
            }
            too_long = false;
            line.clear();
            line.shrink_to(KEPT_BUFFER);
        }
    }

    async fn hear(&self, text: &str) {
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() {
            return;
        }
        let parts = message::parts(text);
        if parts.is_empty() || parts.len() > self.shared.options.batch_max {
            let error = RpcError::new(RpcError::INVALID_REQUEST, "this is no batch, or one with too many messages");
            return self.refuse(None, error).await;
        }
        for part in parts {
            match message::read_strictly(part) {
                Ok(incoming) => self.take_in(incoming).await,
                Err((id, error)) => self.refuse(id, error).await,
            }
        }
    }

    async fn take_in(&self, incoming: Incoming<'_>) {
        match incoming {
            Incoming::Request { id, method, params } if method == "initialize" && !has_version(params) => {
                self.initialize(id, params).await;
            }
            Incoming::Request { id, method, params } => {
                if let Err(error) = self.request(id, &method, params) {
                    self.refuse(Some(id), error).await;
                }
            }
            other @ (Incoming::Notification { .. } | Incoming::Answer { .. } | Incoming::Refusal(_)) => {
                self.desk.take_in(other);
            }
        }
    }

    async fn initialize(&self, id: &RawValue, params: Option<&RawValue>) {
        let peer = Arc::new(greet::newcomer(params, ""));
        let greeted = greet::initialize(&self.shared, &peer).await;
        let welcome = greeted.is_ok();
        let _closed = self.lines.send(envelope::response(id, &greeted)).await;
        if welcome {
            self.listen(&peer);
            let before = lock(&self.legacy).replace(peer);
            before.iter().for_each(|before| self.shared.service.gone(before));
        }
    }

    fn request(&self, id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<(), RpcError> {
        let params = Params::read(method, params)?;
        let peer = if params.version.is_some() || method == "server/discover" {
            params.require_meta()?;
            let version = params.version.as_deref().unwrap_or_default();
            if version != MODERN {
                return Err(greet::unsupported(version));
            }
            self.modern_peer(&params)
        } else {
            match lock(&self.legacy).clone() {
                Some(peer) => peer,
                // Allowed at any time, by clients that look whether somebody is there.
                None if method == "ping" => Arc::new(greet::newcomer(None, "")),
                None => {
                    let message = format!("begin with `initialize`, or say `{VERSION_KEY}` in `_meta`");
                    return Err(RpcError::new(RpcError::INVALID_REQUEST, message));
                }
            }
        };
        let (desk, ended) = (Some(self.desk.clone()), self.shared.closing.clone());
        let sink = Sink::Line(self.lines.clone());
        let (id, method, extensions) = (id.to_owned(), method.to_owned(), http::Extensions::new());
        let order = Order { id, method, params, sink, talks: true, extensions };
        self.shared.begin(Client { peer, desk, ended, single: false }, order)
    }

    /// On a stream there is one client, though it may describe itself anew with every request.
    fn modern_peer(&self, params: &Params) -> Arc<Peer> {
        let capabilities = params.capabilities.clone().unwrap_or_else(greet::nothing);
        let mut met = lock(&self.modern);
        if let Some(peer) = &*met
            && peer.capabilities.get() == capabilities.get()
            && peer.name == params.client
        {
            return peer.clone();
        }
        let mut peer = Peer::new(Era::Modern, params.client.clone(), capabilities, "");
        peer.id = met.as_ref().map_or(peer.id, |met| met.id);
        met.insert(Arc::new(peer)).clone()
    }

    /// Tells a client of old what changes from now on.
    fn listen(&self, peer: &Arc<Peer>) {
        let until = self.shared.closing.child_token();
        std::mem::replace(&mut *lock(&self.renewed), until.clone()).cancel();
        let mut changes = self.shared.service.changes(peer);
        let (lines, draining) = (self.lines.clone(), self.shared.draining.clone());
        let telling = async move {
            while let Some(Some(change)) = draining.run_until_cancelled(changes.next()).await {
                if let Ok(text) = listen::notification(&change, None) {
                    let _closed = lines.send(text).await;
                }
            }
        };
        self.shared.tasks.spawn(until.run_until_cancelled_owned(telling));
    }

    async fn refuse(&self, id: Option<&RawValue>, error: RpcError) {
        let _closed = self.lines.send(envelope::refusal(id, error)).await;
    }

    /// Lets requests in progress finish for a while, and responds to the rest that they cannot be finished.
    async fn drain(&self, end: End, stop: &CancellationToken) {
        let shared = &self.shared;
        shared.tasks.close();
        shared.draining.cancel();
        let stopped = async {
            match end {
                End::Input => stop.cancelled().await,
                End::Stop => std::future::pending().await,
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
    async fn part(&self) {
        let shared = &self.shared;
        shared.closing.cancel();
        let _in_time = timeout(shared.options.farewell, shared.tasks.wait()).await;
        for peer in [&self.legacy, &self.modern].into_iter().filter_map(|peer| lock(peer).take()) {
            shared.service.gone(&peer);
        }
    }
}

fn has_version(params: Option<&RawValue>) -> bool {
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
