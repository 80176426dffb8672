//! Results too large for one response, stored for a while so that they can be read page by page. Reading a page does
//! not call the tool again. Splitting is in [`split`].
//!
//! A cursor is `NODE-page-ID-NUMBER`, where the node is the process that can serve it and the id is 128 random bits.
//! Results of a client with a session can be read by that client alone and end with it; others by any caller that knows
//! the cursor. Everything is in memory and bounded: ten minutes, 256 results, 64 MiB.

mod split;

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, SourceId};

use crate::call::{CallOutput, ClientId, ResultOwner, ResultPage};
use crate::connector::ToolResult;
use crate::node::{HandleOrigin, NODE_ID_LEN, NodeId};

/// Time during which the pages of a result can be read.
const RESULT_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum size of all stored results together; the oldest are removed first. A single result beyond it cannot be
/// stored, and its call fails.
const MAX_STORED_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of stored results; the oldest are removed first. Bounds the search for a cursor, which looks at all
/// of them.
const MAX_STORED_RESULTS: usize = 256;
/// Part of a cursor between the node and its id, by which cursors are told apart from arguments of a tool.
const CURSOR_MARK: &str = "-page-";

/// Requirement on pages besides the size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageShape {
    /// No constraint: content that does not fit is omitted.
    Free,
    /// The tool's output schema: every page carries the whole structured content, which has a limit of its own. If that
    /// is too large, the pages are marked as errors, which need no structured content.
    Declared,
}

/// Stored results, oldest first.
#[derive(Debug)]
pub(crate) struct PageStore {
    results: Mutex<Vec<StoredResult>>,
    max_bytes: usize,
    /// Cursors begin with it.
    node: NodeId,
}

/// One result with its pages.
#[derive(Debug)]
struct StoredResult {
    /// Random, because all clients of a principal may have the same owner.
    id: String,
    owner: ResultOwner,
    source: SourceId,
    pages: Vec<ToolResult>,
    total_bytes: u64,
    expires_at: Instant,
}

impl PageStore {
    pub(crate) fn new(node: NodeId) -> PageStore {
        PageStore { results: Mutex::default(), max_bytes: MAX_STORED_BYTES, node }
    }

    /// Splits a result, stores its pages and returns the first one.
    pub(crate) fn store(
        &self,
        source: SourceId,
        owner: ResultOwner,
        result: ToolResult,
        limit: u64,
        shape: PageShape,
    ) -> Result<CallOutput> {
        let total_bytes = result.raw.get().len() as u64;
        let structured = result.layout.structured(&result.raw).map_or(0, str::len) as u64;
        if shape == PageShape::Declared && structured <= limit && total_bytes - structured <= limit {
            // Content and structured content have separate limits; a result within both needs no pages.
            return Ok(CallOutput::new(source, result, None));
        }
        let id = format!("{}{CURSOR_MARK}{:032x}", self.node.as_str(), rand::random::<u128>());
        // All pages are made now: reading one later needs no work, and the original is not kept as well.
        let pages = split::split_into_pages(&result, limit, shape, |number| format_cursor(&id, number));
        let stored =
            StoredResult { id, owner, source, pages, total_bytes, expires_at: Instant::now() + RESULT_LIFETIME };
        if stored.bytes() > self.max_bytes {
            let message = format!("the result has {total_bytes} bytes, more than can be stored; request less data");
            let details = json!({ "bytes": total_bytes, "limit": self.max_bytes });
            return Err(Error::new(Code::ToolExecutionFailed, message).with_details(details));
        }
        let split_failed = || Error::new(Code::Internal, "a result could not be split");
        let first = stored.output_page(1).ok_or_else(split_failed)?;
        // A result that fits into one page, with parts left out, has no further page to ask for.
        if stored.pages.len() > 1 {
            self.insert(stored);
        }
        Ok(first)
    }

    /// Adds a result; removes expired ones, and the oldest while a limit is exceeded.
    fn insert(&self, stored: StoredResult) {
        let mut results = self.results.lock();
        // Expired ones first, so that they do not push out a result that is still valid.
        results.retain(|other| other.expires_at > Instant::now());
        results.push(stored);
        let mut bytes: usize = results.iter().map(StoredResult::bytes).sum();
        while results.len() > MAX_STORED_RESULTS || bytes > self.max_bytes {
            bytes -= results.remove(0).bytes();
        }
    }

    /// Returns the page of a cursor, if the reader owns the result. Unknown, expired and foreign cursors get the same
    /// error, so that it reveals nothing; the pages of another process are lost here.
    pub(crate) fn read_page(&self, reader: &ResultOwner, cursor: &str) -> Result<CallOutput> {
        let results = self.results.lock();
        let page = cursor.rsplit_once('-').and_then(|(id, number)| {
            let stored = results.iter().find(|stored| stored.id == id).filter(|stored| stored.owner == *reader)?;
            (stored.expires_at > Instant::now()).then(|| stored.output_page(number.parse().ok()?))?
        });
        page.ok_or_else(|| {
            if self.node.classify(cursor) == HandleOrigin::OtherProcess {
                let message = "the pages of this result were stored in another process and are lost; call the tool again";
                return Error::new(Code::ToolUnavailable, message);
            }
            let message = format!(
                "unknown or expired cursor `{}`: a cursor is valid for {} minutes, for the client that made the call; call the tool again",
                sanitize_truncated(cursor, 60),
                RESULT_LIFETIME.as_secs() / 60
            );
            Error::new(Code::ToolInvalidInput, message)
        })
    }

    /// Removes the results of a client that has disconnected.
    pub(crate) fn remove_client(&self, client: ClientId) {
        self.results.lock().retain(|stored| stored.owner != ResultOwner::Session(client));
    }

    /// Removes expired results.
    pub(crate) fn remove_expired(&self) {
        self.results.lock().retain(|stored| stored.expires_at > Instant::now());
    }
}

impl StoredResult {
    /// Memory used by the pages.
    fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.raw.get().len()).sum()
    }

    /// Page by number, counted from one.
    fn output_page(&self, number: usize) -> Option<CallOutput> {
        let result = self.pages.get(number.checked_sub(1)?)?.clone();
        let next = (number < self.pages.len()).then(|| format_cursor(&self.id, number + 1));
        let page = ResultPage { number, page_count: self.pages.len(), next, total_bytes: self.total_bytes };
        Some(CallOutput::new(self.source.clone(), result, Some(page)))
    }
}

/// Cursor of a page.
fn format_cursor(id: &str, number: usize) -> String {
    format!("{id}-{number}")
}

/// Whether a text has the form of a cursor, known or not. Lets callers tell a cursor that expired from an argument of
/// the tool.
pub fn is_cursor(text: &str) -> bool {
    let is_hex = |text: &str, len| text.len() == len && text.chars().all(|digit| digit.is_ascii_hexdigit());
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|digit| digit.is_ascii_digit());
    let parts = text.split_once(CURSOR_MARK).and_then(|(node, rest)| Some((node, rest.split_once('-')?)));
    parts.is_some_and(|(node, (id, number))| is_hex(node, NODE_ID_LEN) && is_hex(id, 32) && is_number(number))
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn the_oldest_results_are_removed_when_the_limit_is_exceeded() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let results = PageStore { max_bytes: 20_000, ..PageStore::new(NodeId::random(&[0; 32])) };
        let owner = ResultOwner::Session(ClientId(1));
        let hold = |bytes: usize| {
            let result = json!({ "content": [{ "type": "text", "text": "x".repeat(bytes) }] });
            let result = ToolResult::parse(to_raw_value(&result).unwrap()).unwrap();
            results
                .store(SourceId::parse("s").unwrap(), owner.clone(), result, 2_000, PageShape::Free)
                .map(|output| output.page.unwrap().next.unwrap())
        };
        let cursors: Vec<String> = (0..5).map(|_| hold(5_000).unwrap()).collect();
        let readable: Vec<bool> = cursors.iter().map(|cursor| results.read_page(&owner, cursor).is_ok()).collect();
        assert_eq!(readable, [false, false, true, true, true]);
        assert!(cursors.iter().all(|cursor| is_cursor(cursor) && cursor.starts_with(results.node.as_str())));
        assert!(!is_cursor(&cursors[0][1..]) && !is_cursor("page-7-2") && !is_cursor(""));
        let restarted = PageStore::new(NodeId::random(&[0; 32]));
        let lost = restarted.read_page(&owner, &cursors[4]).unwrap_err();
        assert_eq!((lost.code, lost.is_retryable()), (Code::ToolUnavailable, true), "{}", lost.message);
        let other_store = PageStore::new(NodeId::random(&[1; 32]));
        assert_eq!(other_store.read_page(&owner, &cursors[4]).unwrap_err().code, Code::ToolInvalidInput);
        let error = hold(30_000).unwrap_err();
        assert_eq!((error.code, results.results.lock().len()), (Code::ToolExecutionFailed, 3), "{}", error.message);
    }
}
