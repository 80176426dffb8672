//! Server-sent events, cut out of a byte stream with a bound on each.

use std::time::Duration;

use crate::error::WireError;

/// One event; an absent field is `None`, so that the reader can keep the last one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerSentEvent {
    pub(crate) kind: Option<String>,
    pub(crate) data: String,
    pub(crate) id: Option<String>,
    pub(crate) retry: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct EventStreamParser {
    buffer: Vec<u8>,
    /// Where the next line begins, and how far its end was looked for.
    line_start: usize,
    searched: usize,
    /// A line ended in CR, so that a LF coming next belongs to it.
    skip_line_feed: bool,
    event: ServerSentEvent,
    has_data: bool,
    limit: usize,
}

impl EventStreamParser {
    pub(crate) fn new(limit: usize) -> EventStreamParser {
        let (buffer, event) = (Vec::new(), ServerSentEvent::default());
        EventStreamParser { buffer, line_start: 0, searched: 0, skip_line_feed: false, event, has_data: false, limit }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<ServerSentEvent>, WireError> {
        while let Some(line) = self.next_line() {
            if !line.is_empty() {
                self.apply_field(&line);
            } else if self.has_data || self.event != ServerSentEvent::default() {
                self.has_data = false;
                return Ok(Some(std::mem::take(&mut self.event)));
            }
        }
        if self.buffer.len() - self.line_start + self.event.data.len() > self.limit {
            return Err(WireError::TooLarge { what: "an event (in bytes) from the server", limit: self.limit });
        }
        Ok(None)
    }

    fn next_line(&mut self) -> Option<String> {
        if self.skip_line_feed && self.line_start < self.buffer.len() {
            self.skip_line_feed = false;
            self.line_start += usize::from(self.buffer[self.line_start] == b'\n');
            self.searched = self.line_start;
        }
        let found = self.buffer[self.searched..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(found) = found else {
            self.searched = self.buffer.len();
            return None;
        };
        let end = self.searched + found;
        let line = String::from_utf8_lossy(&self.buffer[self.line_start..end]).into_owned();
        self.skip_line_feed = self.buffer[end] == b'\r';
        self.line_start = end + 1;
        self.searched = self.line_start;
        Some(line)
    }

    fn apply_field(&mut self, line: &str) {
        let line = line.strip_prefix('\u{feff}').unwrap_or(line);
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
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
        let mut found = Vec::new();
        for chunk in chunks {
            events.push(chunk.as_bytes());
            while let Some(event) = events.next().unwrap() {
                found.push(event);
            }
        }
        found
    }

    fn data_event(text: &str) -> ServerSentEvent {
        ServerSentEvent { data: text.to_owned(), ..ServerSentEvent::default() }
    }

    #[test]
    fn events_are_cut_wherever_the_chunks_end() {
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
    fn an_event_without_end_is_too_large() {
        let mut events = EventStreamParser::new(10);
        events.push(b"data: 0123456789");
        assert!(matches!(events.next(), Err(WireError::TooLarge { limit: 10, .. })));
    }
}
