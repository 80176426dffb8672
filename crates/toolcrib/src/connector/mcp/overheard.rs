//! The first words on a server's stdout, remembered in passing: a program that is no MCP server says there what it is.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use toolcrib_core::text::shown_short;

/// Characters of the first line that are told.
const MAX_SHOWN: usize = 200;
/// Bytes that are remembered: more than are told, so that it shows where the line was cut.
const ENOUGH: usize = 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct FirstWords(Arc<Mutex<Vec<u8>>>);

impl FirstWords {
    /// The first line, unless it looks like a message.
    pub(super) fn strange(&self) -> Option<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&bytes);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        (!line.starts_with(['{', '['])).then(|| shown_short(line, MAX_SHOWN))
    }
}

/// Reads what is behind it, and listens to the beginning.
#[derive(Debug)]
pub(super) struct Overheard<R> {
    reader: R,
    words: FirstWords,
    listening: bool,
}

impl<R> Overheard<R> {
    pub(super) fn new(reader: R, words: FirstWords) -> Overheard<R> {
        Overheard { reader, words, listening: true }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Overheard<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.reader).poll_read(context, buffer);
        if self.listening && read.is_ready() {
            let mut words = self.words.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = ENOUGH.saturating_sub(words.len());
            words.extend(buffer.filled()[before..].iter().take(room));
            let enough = words.len() >= ENOUGH;
            drop(words);
            self.listening = !enough;
        }
        read
    }
}
