//! Records the beginning of a server's stdout while the wire reads it. A program that is no MCP server often prints
//! what it is, and an error message can quote it.
//!
//! Recording stops for good after [`MAX_SNIFFED_BYTES`], so that a long-lived connection pays for one flag per read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};
use toolcrib_core::text::sanitize_truncated;

/// Characters of the first line that an error message quotes.
const MAX_SHOWN_LINE_CHARS: usize = 200;
/// Recorded bytes: more than are quoted, so that a longer line shows as truncated.
const MAX_SNIFFED_BYTES: usize = 1024;

/// Beginning of the output, shared between the reader and the error path.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstOutput(Arc<Mutex<Vec<u8>>>);

impl FirstOutput {
    /// First non-empty line, unless it looks like a JSON-RPC message.
    pub(super) fn non_protocol_line(&self) -> Option<String> {
        // A character may be cut at the limit, and other programs print other encodings: replace what is not UTF-8.
        let bytes = self.0.lock();
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        (!line.starts_with(['{', '['])).then(|| sanitize_truncated(line, MAX_SHOWN_LINE_CHARS))
    }
}

/// Reader that copies the first bytes it passes on.
#[derive(Debug)]
pub(super) struct OutputSniffer<R> {
    reader: R,
    output: FirstOutput,
    /// False once the limit is reached.
    is_recording: bool,
}

impl<R> OutputSniffer<R> {
    pub(super) fn new(reader: R, output: FirstOutput) -> OutputSniffer<R> {
        OutputSniffer { reader, output, is_recording: true }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for OutputSniffer<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // The buffer may hold bytes of earlier reads; only those that this read adds are new.
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.reader).poll_read(context, buffer);
        if self.is_recording && read.is_ready() {
            let mut output = self.output.0.lock();
            let remaining = MAX_SNIFFED_BYTES.saturating_sub(output.len());
            output.extend(buffer.filled()[before..].iter().take(remaining));
            let is_full = output.len() >= MAX_SNIFFED_BYTES;
            drop(output);
            self.is_recording = !is_full;
        }
        read
    }
}
