//! Results too large to be given at once, held for a while so that they can be read page by page. Nothing is called
//! again for a page. How a result is split is in [`pages`].

mod split;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::{Code, Error, Result, SourceId};

use crate::call::{CallOutput, ClientId, ResultPage};
use crate::connector::ToolResult;

/// For how long a result can be read.
const RESULT_LIFETIME: Duration = Duration::from_secs(600);
/// What all results held may take, and how many there may be; the oldest give way.
const MAX_STORED_BYTES: usize = 64 * 1024 * 1024;
const MAX_STORED_RESULTS: usize = 256;
/// How cursors begin, so that none is taken for an argument of a tool.
const CURSOR_PREFIX: &str = "held-";

/// What a page must be besides short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageShape {
    /// Nothing: what has no room is left out.
    Free,
    /// As the tool's output schema says: with all of the structured content, which counts apart. Where that is too
    /// large it is called an error, for an error needs none.
    Declared,
}

/// The results that can be read further, oldest first.
#[derive(Debug)]
pub(crate) struct PageStore {
    results: Mutex<Vec<StoredResult>>,
    max_bytes: usize,
}

impl Default for PageStore {
    fn default() -> PageStore {
        PageStore { results: Mutex::default(), max_bytes: MAX_STORED_BYTES }
    }
}

#[derive(Debug)]
struct StoredResult {
    /// Not to be guessed: whoever knows it may read a result that belongs to no lasting client.
    id: String,
    owner: Option<ClientId>,
    source: SourceId,
    pages: Vec<ToolResult>,
    total_bytes: u64,
    expires_at: Instant,
}

impl PageStore {
    /// Splits a result and gives its first page.
    pub(crate) fn store(
        &self,
        source: SourceId,
        keeper: Option<ClientId>,
        answer: ToolResult,
        limit: u64,
        shape: PageShape,
    ) -> Result<CallOutput> {
        let total_bytes = answer.raw.get().len() as u64;
        let structured = answer.layout.structured(&answer.raw).map_or(0, str::len) as u64;
        if shape == PageShape::Declared && structured <= limit && total_bytes - structured <= limit {
            return Ok(CallOutput::new(source, answer, None));
        }
        let id = format!("{CURSOR_PREFIX}{:032x}", rand::random::<u128>());
        let pages = split::split_into_pages(&answer, limit, shape, |number| format_cursor(&id, number));
        let kept = StoredResult {
            id,
            owner: keeper,
            source,
            pages,
            total_bytes,
            expires_at: Instant::now() + RESULT_LIFETIME,
        };
        if kept.bytes() > self.max_bytes {
            let message = format!("the result has {total_bytes} bytes, more than can be held; ask for less");
            let details = json!({ "bytes": total_bytes, "limit": self.max_bytes });
            return Err(Error::new(Code::ToolExecutionFailed, message).with_details(details));
        }
        let broken = || Error::new(Code::Internal, "a result could not be split");
        let first = kept.output_page(1).ok_or_else(broken)?;
        if kept.pages.len() > 1 {
            self.insert(kept);
        }
        Ok(first)
    }

    fn insert(&self, kept: StoredResult) {
        let mut held = self.lock_results();
        held.retain(|other| other.expires_at > Instant::now());
        held.push(kept);
        let mut bytes: usize = held.iter().map(StoredResult::bytes).sum();
        while held.len() > MAX_STORED_RESULTS || bytes > self.max_bytes {
            bytes -= held.remove(0).bytes();
        }
    }

    pub(crate) fn read_page(&self, client: Option<ClientId>, wanted: &str) -> Result<CallOutput> {
        let held = self.lock_results();
        let found = wanted.rsplit_once('-').and_then(|(id, number)| {
            let may_read = |kept: &&StoredResult| kept.owner.is_none() || kept.owner == client;
            let kept = held.iter().find(|kept| kept.id == id).filter(may_read)?;
            (kept.expires_at > Instant::now()).then(|| kept.output_page(number.parse().ok()?))?
        });
        found.ok_or_else(|| {
            let message = format!(
                "no result is held under `{}`: a cursor holds for {} minutes, for the client that made the call; call the tool again",
                sanitize_truncated(wanted, 60),
                RESULT_LIFETIME.as_secs() / 60
            );
            Error::new(Code::ToolInvalidInput, message)
        })
    }

    /// A client has left, and nobody else may read what was held for it.
    pub(crate) fn remove_client(&self, client: ClientId) {
        self.lock_results().retain(|kept| kept.owner != Some(client));
    }

    /// Lets go of what nobody can read any more.
    pub(crate) fn remove_expired(&self) {
        self.lock_results().retain(|kept| kept.expires_at > Instant::now());
    }

    fn lock_results(&self) -> MutexGuard<'_, Vec<StoredResult>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoredResult {
    fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.raw.get().len()).sum()
    }

    /// Pages count from one.
    fn output_page(&self, number: usize) -> Option<CallOutput> {
        let answer = self.pages.get(number.checked_sub(1)?)?.clone();
        let next = (number < self.pages.len()).then(|| format_cursor(&self.id, number + 1));
        let page = ResultPage { number, page_count: self.pages.len(), next, total_bytes: self.total_bytes };
        Some(CallOutput::new(self.source.clone(), answer, Some(page)))
    }
}

fn format_cursor(id: &str, number: usize) -> String {
    format!("{id}-{number}")
}

/// Whether a text has the form of a cursor, held or not.
pub(crate) fn is_cursor(text: &str) -> bool {
    let digits = |text: &str, base| !text.is_empty() && text.chars().all(|digit| digit.is_digit(base));
    let parts = text.strip_prefix(CURSOR_PREFIX).and_then(|rest| rest.split_once('-'));
    parts.is_some_and(|(id, number)| id.len() == 32 && digits(id, 16) && digits(number, 10))
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    #[test]
    fn the_oldest_gives_way_when_there_is_too_much() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _entered = runtime.enter();
        let held = PageStore { max_bytes: 20_000, ..PageStore::default() };
        let hold = |bytes: usize| {
            let result = json!({ "content": [{ "type": "text", "text": "x".repeat(bytes) }] });
            let answer = ToolResult::parse(to_raw_value(&result).unwrap()).unwrap();
            held.store(SourceId::parse("s").unwrap(), None, answer, 2_000, PageShape::Free)
                .map(|output| output.page.unwrap().next.unwrap())
        };
        let cursors: Vec<String> = (0..5).map(|_| hold(5_000).unwrap()).collect();
        let readable: Vec<bool> = cursors.iter().map(|cursor| held.read_page(None, cursor).is_ok()).collect();
        assert_eq!(readable, [false, false, true, true, true]);
        let error = hold(30_000).unwrap_err();
        assert_eq!((error.code, held.lock_results().len()), (Code::ToolExecutionFailed, 3), "{}", error.message);
    }
}
