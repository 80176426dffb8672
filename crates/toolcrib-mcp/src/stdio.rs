//! One message a line over a byte stream: the reading and the writing task, with bounds on both.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::{DispatchOutcome, OutgoingMessage, WireConnection, in_flight::SendState},
    error::WireError,
};

/// How many messages may wait for a server that does not read.
const MAX_QUEUED_MESSAGES: usize = 256;
/// A line buffer that grew beyond this is given back after use.
const MAX_RETAINED_BUFFER: usize = 1024 * 1024;

/// The writing end. Dropping it, or [`Pipe::close`], closes the server's input.
#[derive(Debug)]
pub(crate) struct StdioTransport {
    queue: Mutex<Option<mpsc::Sender<QueuedMessage>>>,
    writer_finished: CancellationToken,
}

/// The two halves still to be run as tasks.
pub(crate) struct StdioTasks {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    queue: mpsc::Receiver<QueuedMessage>,
    writer_finished: CancellationToken,
}

#[derive(Debug)]
struct QueuedMessage {
    text: String,
    send_state: Arc<SendState>,
}

impl StdioTransport {
    pub(crate) fn new(
        reader: Box<dyn AsyncRead + Send + Unpin>,
        writer: Box<dyn AsyncWrite + Send + Unpin>,
    ) -> (StdioTransport, StdioTasks) {
        let (queue, lines) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let written_out = CancellationToken::new();
        let pipe = StdioTransport { queue: Mutex::new(Some(queue)), writer_finished: written_out.clone() };
        (pipe, StdioTasks { reader, writer, queue: lines, writer_finished: written_out })
    }

    pub(crate) async fn send(&self, mail: &mut OutgoingMessage<'_>) -> Result<(), WireError> {
        let line = QueuedMessage { text: std::mem::take(&mut mail.text), send_state: mail.send_state.clone() };
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let closed = || WireError::Closed { sent: false, reason: "its input is closed".to_owned() };
        queue.ok_or_else(closed)?.send(line).await.map_err(|_| closed())
    }

    /// Sends without waiting, for messages that may as well be lost.
    pub(crate) fn try_send(&self, text: String) {
        if let Some(queue) = &*self.queue.lock().unwrap_or_else(PoisonError::into_inner) {
            let _full_or_closed = queue.try_send(QueuedMessage { text, send_state: Arc::default() });
        }
    }

    /// Lets the writer finish what is queued and close the stream.
    pub(crate) async fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.writer_finished.cancelled().await;
    }
}

impl StdioTasks {
    pub(crate) fn start(self, connection: &Arc<WireConnection>) {
        let StdioTasks { reader, writer, queue: lines, writer_finished: written_out } = self;
        let (for_reading, for_writing) = (connection.clone(), connection.clone());
        connection.spawn(async move {
            let reason = read_lines(reader, &for_reading).await;
            for_reading.end(reason);
        });
        connection.spawn(async move {
            let outcome = write_lines(writer, lines).await;
            written_out.cancel();
            if let Err(error) = outcome {
                for_writing.end(closed_error(format!("its input failed: {error}")));
            }
        });
    }
}

/// Reads until the stream ends or breaks a bound; the reason is the result.
async fn read_lines(reader: Box<dyn AsyncRead + Send + Unpin>, connection: &Arc<WireConnection>) -> WireError {
    let limit = connection.limits().line_bytes;
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let mut line = Vec::new();
    let mut junk: u64 = 0;
    loop {
        let chunk = match reader.fill_buf().await {
            Ok([]) => return closed_error("the server ended its output".to_owned()),
            Ok(chunk) => chunk,
            Err(error) => return closed_error(format!("its output failed: {error}")),
        };
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(chunk.len());
        if line.len() + taken > limit {
            return WireError::TooLarge { what: "a line (in bytes) from the server", limit };
        }
        line.extend_from_slice(&chunk[..taken]);
        reader.consume(taken + usize::from(end.is_some()));
        if end.is_none() {
            continue;
        }
        // A stray byte in a text is no reason to lose the answer around it.
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() && matches!(connection.dispatch(&text), DispatchOutcome::Ignored) {
            junk += 1;
            tracing::debug!(junk, "skipped a line on stdout that is no message");
        }
        line.clear();
        line.shrink_to(MAX_RETAINED_BUFFER);
    }
}

async fn write_lines(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    mut lines: mpsc::Receiver<QueuedMessage>,
) -> std::io::Result<()> {
    while let Some(line) = lines.recv().await {
        if !line.send_state.mark_sent() {
            continue;
        }
        let mut bytes = line.text.into_bytes();
        // Raw JSON may hold line breaks between its tokens (never inside them), where a space means the same.
        for byte in &mut bytes {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        bytes.push(b'\n');
        if let Err(error) = write_line(&mut writer, &bytes).await {
            // Without its end a line is no message: a server that is gone has not acted on it.
            line.send_state.mark_unsent();
            return Err(error);
        }
    }
    writer.shutdown().await
}

async fn write_line(writer: &mut (dyn AsyncWrite + Send + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

fn closed_error(reason: String) -> WireError {
    WireError::Closed { sent: true, reason }
}
