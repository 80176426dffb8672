//! One message a line over a byte stream: the reading and the writing task, with bounds on both.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::{
    connection::{Connection, Mail, Seen, call::Ticket},
    error::WireError,
};

/// How many messages may wait for a server that does not read.
const QUEUE: usize = 256;
/// A line buffer that grew beyond this is given back after use.
const KEPT_BUFFER: usize = 1024 * 1024;

/// The writing end. Dropping it, or [`Pipe::close`], closes the server's input.
#[derive(Debug)]
pub(crate) struct Pipe {
    queue: Mutex<Option<mpsc::Sender<Line>>>,
    written_out: CancellationToken,
}

/// The two halves still to be run as tasks.
pub(crate) struct Halves {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    lines: mpsc::Receiver<Line>,
    written_out: CancellationToken,
}

#[derive(Debug)]
struct Line {
    text: String,
    ticket: Arc<Ticket>,
}

impl Pipe {
    pub(crate) fn new(
        reader: Box<dyn AsyncRead + Send + Unpin>,
        writer: Box<dyn AsyncWrite + Send + Unpin>,
    ) -> (Pipe, Halves) {
        let (queue, lines) = mpsc::channel(QUEUE);
        let written_out = CancellationToken::new();
        let pipe = Pipe { queue: Mutex::new(Some(queue)), written_out: written_out.clone() };
        (pipe, Halves { reader, writer, lines, written_out })
    }

    pub(crate) async fn deliver(&self, mail: &mut Mail<'_>) -> Result<(), WireError> {
        let line = Line { text: std::mem::take(&mut mail.text), ticket: mail.ticket.clone() };
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let closed = || WireError::Closed { sent: false, reason: "its input is closed".to_owned() };
        queue.ok_or_else(closed)?.send(line).await.map_err(|_| closed())
    }

    /// Sends without waiting, for messages that may as well be lost.
    pub(crate) fn deliver_if_room(&self, text: String) {
        if let Some(queue) = &*self.queue.lock().unwrap_or_else(PoisonError::into_inner) {
            let _full_or_closed = queue.try_send(Line { text, ticket: Arc::default() });
        }
    }

    /// Lets the writer finish what is queued and close the stream.
    pub(crate) async fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.written_out.cancelled().await;
    }
}

impl Halves {
    pub(crate) fn start(self, connection: &Arc<Connection>) {
        let Halves { reader, writer, lines, written_out } = self;
        let (for_reading, for_writing) = (connection.clone(), connection.clone());
        connection.spawn(async move {
            let reason = read_lines(reader, &for_reading).await;
            for_reading.end(reason);
        });
        connection.spawn(async move {
            let outcome = write_lines(writer, lines).await;
            written_out.cancel();
            if let Err(error) = outcome {
                for_writing.end(closed(format!("its input failed: {error}")));
            }
        });
    }
}

/// Reads until the stream ends or breaks a bound; the reason is the result.
async fn read_lines(reader: Box<dyn AsyncRead + Send + Unpin>, connection: &Arc<Connection>) -> WireError {
    let limit = connection.limits().line_bytes;
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let mut line = Vec::new();
    let mut junk: u64 = 0;
    loop {
        let chunk = match reader.fill_buf().await {
            Ok([]) => return closed("the server ended its output".to_owned()),
            Ok(chunk) => chunk,
            Err(error) => return closed(format!("its output failed: {error}")),
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
        if !text.trim().is_empty() && matches!(connection.dispatch(&text), Seen::Junk) {
            junk += 1;
            tracing::debug!(junk, "skipped a line on stdout that is no message");
        }
        line.clear();
        line.shrink_to(KEPT_BUFFER);
    }
}

async fn write_lines(
    mut writer: Box<dyn AsyncWrite + Send + Unpin>,
    mut lines: mpsc::Receiver<Line>,
) -> std::io::Result<()> {
    while let Some(line) = lines.recv().await {
        if !line.ticket.depart() {
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
            line.ticket.bounce();
            return Err(error);
        }
    }
    writer.shutdown().await
}

async fn write_line(writer: &mut (dyn AsyncWrite + Send + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

fn closed(reason: String) -> WireError {
    WireError::Closed { sent: true, reason }
}
