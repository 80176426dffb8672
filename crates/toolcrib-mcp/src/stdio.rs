//! The client's stdio transport: one JSON-RPC message per line over a byte stream, with a reader task and a writer
//! task.
//!
//! The caller starts the process and owns its streams; the bounds on lines and on the queue are kept here. Lines on
//! stdout that are not messages are skipped, since real servers print banners and logs there. stderr is not part of the
//! transport.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::{DispatchOutcome, OutgoingMessage, WireConnection, closed_error, in_flight::SendState},
    error::WireError,
    message,
};

/// Maximum number of messages queued for a server that does not read its stdin; further senders wait, each until its
/// own deadline.
const MAX_QUEUED_MESSAGES: usize = 256;
/// Maximum capacity in bytes that the line buffer keeps between messages. One large result must not hold its memory for
/// the lifetime of the connection.
const MAX_RETAINED_BUFFER: usize = 1024 * 1024;

/// The sending side. Dropping it, or [`StdioTransport::close`], closes the server's stdin.
#[derive(Debug)]
pub(crate) struct StdioTransport {
    /// `None` after `close`.
    queue: Mutex<Option<mpsc::Sender<QueuedMessage>>>,
    /// Fires when the writer task ended.
    writer_finished: CancellationToken,
}

/// Reader and writer of the stream, not yet started as tasks.
pub(crate) struct StdioTasks {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    queue: mpsc::Receiver<QueuedMessage>,
    writer_finished: CancellationToken,
}

/// A message that waits for the writer. It may still be cancelled through `send_state`.
#[derive(Debug)]
struct QueuedMessage {
    text: String,
    send_state: Arc<SendState>,
}

impl StdioTransport {
    /// Splits a stream into the transport and its tasks, which [`StdioTasks::start`] runs once the connection exists.
    pub(crate) fn new(
        reader: Box<dyn AsyncRead + Send + Unpin>,
        writer: Box<dyn AsyncWrite + Send + Unpin>,
    ) -> (StdioTransport, StdioTasks) {
        let (sender, queue) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let writer_finished = CancellationToken::new();
        let transport = StdioTransport { queue: Mutex::new(Some(sender)), writer_finished: writer_finished.clone() };
        (transport, StdioTasks { reader, writer, queue, writer_finished })
    }

    /// Queues a message and waits for room in the queue. The writer marks it as sent.
    pub(crate) async fn send(&self, message: &mut OutgoingMessage<'_>) -> Result<(), WireError> {
        let queued = QueuedMessage { text: std::mem::take(&mut message.text), send_state: message.send_state.clone() };
        let queue = self.queue.lock().clone();
        let closed = || closed_error(false, "its stdin is closed".to_owned());
        queue.ok_or_else(closed)?.send(queued).await.map_err(|_| closed())
    }

    /// Queues a message without waiting; drops it when the queue is full or closed. For callers that cannot wait, such
    /// as `drop`.
    pub(crate) fn try_send(&self, text: String) {
        if let Some(queue) = &*self.queue.lock() {
            // Callers use this for messages that may be lost.
            let _ = queue.try_send(QueuedMessage { text, send_state: Arc::default() });
        }
    }

    /// Lets the writer send the queued messages, closes the server's stdin and waits for that. Most servers exit at the
    /// end of their stdin; those that do not are ended by the owner of the process.
    pub(crate) async fn close(&self) {
        drop(self.queue.lock().take());
        self.writer_finished.cancelled().await;
    }
}

impl StdioTasks {
    /// Starts the reader and the writer. The end of either ends the connection, except for an orderly close.
    pub(crate) fn start(self, connection: &Arc<WireConnection>) {
        let StdioTasks { reader, writer, queue, writer_finished } = self;
        let reading = connection.clone();
        let writing = connection.clone();
        connection.spawn(async move {
            let reason = read_lines(reader, &reading).await;
            reading.end(reason);
        });
        connection.spawn(async move {
            // An orderly end (`Ok`) leaves the reader running: the server may still answer requests that were sent.
            let outcome = write_lines(writer, queue).await;
            writer_finished.cancel();
            if let Err(error) = outcome {
                writing.end(closed_error(true, format!("writing to its stdin failed: {error}")));
            }
        });
    }
}

/// Reads and dispatches lines until the stream ends, fails or exceeds the line limit; returns the reason.
async fn read_lines(reader: Box<dyn AsyncRead + Send + Unpin>, connection: &Arc<WireConnection>) -> WireError {
    let limit = connection.limits().max_line_bytes;
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let mut line = Vec::new();
    let mut skipped: u64 = 0;
    loop {
        let chunk = match reader.fill_buf().await {
            Ok([]) => return closed_error(true, "the server closed its stdout".to_owned()),
            Ok(chunk) => chunk,
            Err(error) => return closed_error(true, format!("reading its stdout failed: {error}")),
        };
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(chunk.len());
        // Checked before the bytes are copied, so memory stays within the limit. The rest of the line cannot be skipped
        // safely, for it may hold a response that a request waits for; the connection ends instead.
        if line.len() + taken > limit {
            return WireError::TooLarge { what: "a line (in bytes) from the server", limit };
        }
        line.extend_from_slice(&chunk[..taken]);
        reader.consume(taken + usize::from(end.is_some()));
        if end.is_none() {
            continue;
        }
        // Invalid UTF-8 inside a string must not lose the response around it.
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() && matches!(connection.dispatch(&text), DispatchOutcome::Ignored) {
            // Some servers print log lines to stdout.
            skipped += 1;
            tracing::debug!(skipped, "skipped a line on stdout that is not a JSON-RPC message");
        }
        line.clear();
        line.shrink_to(MAX_RETAINED_BUFFER);
    }
}

/// Writes queued messages until the queue is closed, then closes the stream.
async fn write_lines(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    mut queue: mpsc::Receiver<QueuedMessage>,
) -> std::io::Result<()> {
    while let Some(queued) = queue.recv().await {
        // Cancelled while it waited in the queue.
        if !queued.send_state.mark_sent() {
            continue;
        }
        if let Err(error) = write_line(&mut writer, &message::to_line(queued.text)).await {
            // Without its line break the message is incomplete, so the server has not acted on it.
            queued.send_state.mark_unsent();
            return Err(error);
        }
    }
    writer.shutdown().await
}

/// Writes and flushes one line.
async fn write_line(writer: &mut (dyn AsyncWrite + Send + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}
