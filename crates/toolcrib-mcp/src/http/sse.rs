//! Incremental parser for server-sent events, with a bound on the size of one event.
//!
//! An event is a block of `field: value` lines that ends with an empty line:
//!
//! ```text
//! id: 3-17
//! event: message
//! data: {"jsonrpc":"2.0","id":1,"result":{}}
//!
//! ```
//!
//! Chunks may end anywhere, also inside a character or between CR and LF, so the parser works on bytes and decodes
//! whole lines only. It knows nothing of JSON-RPC.

use std::time::Duration;

use crate::error::WireError;

/// One event. An absent field is `None`, so that the reader keeps the last value it saw.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerSentEvent {
    /// The field `event`.
    pub(crate) kind: Option<String>,
    /// All `data` lines, joined with line feeds.
    pub(crate) data: String,
    /// Position of the event, for `Last-Event-ID`.
    pub(crate) id: Option<String>,
    /// Reconnection delay that the server requests.
    pub(crate) retry: Option<Duration>,
}

/// Parser state. Call [`EventStreamParser::push`] for each chunk, then [`EventStreamParser::next`] until it returns
/// `None`.
#[derive(Debug)]
pub(crate) struct EventStreamParser {
    buffer: Vec<u8>,
    /// Offset in `buffer` where the next line begins.
    line_start: usize,
    /// Offset up to which no line end was found, so that no byte is scanned twice.
    searched: usize,
    /// The last line ended with CR; an LF that follows belongs to the same line end.
    skip_line_feed: bool,
    /// The event being assembled.
    event: ServerSentEvent,
    /// Whether `event` has a `data` field; an empty one counts too.
    has_data: bool,
    /// Maximum size of one event in bytes.
    limit: usize,
}

impl EventStreamParser {
    /// Creates a parser for events of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> EventStreamParser {
        EventStreamParser {
            buffer: Vec::new(),
            line_start: 0,
            searched: 0,
            skip_line_feed: false,
            event: ServerSentEvent::default(),
            has_data: false,
            limit,
        }
    }

    /// Appends a chunk, which may end anywhere, and discards the lines that were parsed.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete event, or `None` when more bytes are needed. Fails when the event being assembled
    /// exceeds the limit; the stream cannot be used any further then.
    pub(crate) fn next(&mut self) -> Result<Option<ServerSentEvent>, WireError> {
        while let Some(line) = self.next_line() {
            if !line.is_empty() {
                self.apply_field(&line);
            // The standard drops events without data. They are returned here, because an event with only an id or a
            // retry delay moves the position of the stream.
            } else if self.has_data || self.event != ServerSentEvent::default() {
                self.has_data = false;
                return Ok(Some(std::mem::take(&mut self.event)));
            }
        }
        // Checked when no complete event is left, so the buffer holds at most the limit and one chunk.
        if self.buffer.len() - self.line_start + self.event.data.len() > self.limit {
            return Err(WireError::TooLarge { what: "an event (in bytes) from the server", limit: self.limit });
        }
        Ok(None)
    }

    /// Returns the next complete line. SSE lines end with LF, CR or CRLF.
    fn next_line(&mut self) -> Option<String> {
        if self.skip_line_feed && self.line_start < self.buffer.len() {
            self.skip_line_feed = false;
            self.line_start += usize::from(self.buffer[self.line_start] == b'\n');
            self.searched = self.line_start;
        }
        let line_end = self.buffer[self.searched..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(line_end) = line_end else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + line_end;
        let line = String::from_utf8_lossy(&self.buffer[self.line_start..end]).into_owned();
        self.skip_line_feed = self.buffer[end] == b'\r';
        self.line_start = end + 1;
        self.searched = self.line_start;
        Some(line)
    }

    /// Adds one line to the event. Comments and unknown fields are ignored, as the standard requires.
    fn apply_field(&mut self, line: &str) {
        // A byte order mark may precede the first line.
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        // One space belongs to the separator, further ones to the value.
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.has_data = true;
                self.event.data.push_str(value);
            }
            "event" => self.event.kind = Some(value.to_owned()),
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok().map(Duration::from_millis),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_all(chunks: &[&str]) -> Vec<ServerSentEvent> {
        let mut events = EventStreamParser::new(1000);
        let mut parsed = Vec::new();
        for chunk in chunks {
            events.push(chunk.as_bytes());
            while let Some(event) = events.next().unwrap() {
                parsed.push(event);
            }
        }
        parsed
    }

    fn data_event(text: &str) -> ServerSentEvent {
        ServerSentEvent { data: text.to_owned(), ..ServerSentEvent::default() }
    }

    #[test]
    fn events_are_parsed_wherever_the_chunks_end() {
        let text = ": hello\r\n\r\ndata: a\rdata:b\r\n\nevent: x\nid: 7\nretry: 500\ndata\n\n";
        let expected = vec![
            data_event("a\nb"),
            ServerSentEvent {
                kind: Some("x".into()),
                data: String::new(),
                id: Some("7".into()),
                retry: Some(Duration::from_millis(500)),
            },
        ];
        assert_eq!(parse_all(&[text]), expected);
        let bytes: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(parse_all(&bytes.iter().map(String::as_str).collect::<Vec<_>>()), expected);
    }

    #[test]
    fn an_event_that_never_ends_is_too_large() {
        let mut events = EventStreamParser::new(10);
        events.push(b"data: 0123456789");
        assert!(matches!(events.next(), Err(WireError::TooLarge { limit: 10, .. })));
    }
}
