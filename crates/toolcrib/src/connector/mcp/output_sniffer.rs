//! The first words on a server's stdout, remembered in passing: a program that is no MCP server says there what it is.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use toolcrib_core::text::sanitize_truncated;

/// Characters of the first line that are told.
const MAX_SHOWN_LINE_CHARS: usize = 200;
/// Bytes that are remembered: more than are told, so that it shows where the line was cut.
const MAX_SNIFFED_BYTES: usize = 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct FirstOutput(Arc<Mutex<Vec<u8>>>);

impl FirstOutput {
    /// The first line, unless it looks like a message.
    pub(super) fn non_protocol_line(&self) -> Option<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        (!line.starts_with(['{', '['])).then(|| sanitize_truncated(line, MAX_SHOWN_LINE_CHARS))
    }
}

/// Reads what is behind it, and listens to the beginning.
#[derive(Debug)]
pub(super) struct OutputSniffer<R> {
    reader: R,
    output: FirstOutput,
    is_recording: bool,
}

impl<R> OutputSniffer<R> {
    pub(super) fn new(reader: R, words: FirstOutput) -> OutputSniffer<R> {
        OutputSniffer { reader, output: words, is_recording: true }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for OutputSniffer<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.reader).poll_read(context, buffer);
        if self.is_recording && read.is_ready() {
            let mut words = self.output.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = MAX_SNIFFED_BYTES.saturating_sub(words.len());
            words.extend(buffer.filled()[before..].iter().take(room));
            let enough = words.len() >= MAX_SNIFFED_BYTES;
            drop(words);
            self.is_recording = !enough;
        }
        read
    }
}
