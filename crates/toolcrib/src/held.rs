//! Results too large to be given at once, held for a while so that they can be read page by page. Nothing is called
//! again for a page. How a result is split is in [`pages`].

mod pages;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use toolcrib_core::text::shown_short;
use toolcrib_core::{Code, Error, Result, SourceId};

use crate::call::{ClientId, Output, Page};
use crate::connector::Answer;

/// For how long a result can be read.
const TIME: Duration = Duration::from_secs(600);
/// What all results held may take, and how many there may be; the oldest give way.
const BYTES: usize = 64 * 1024 * 1024;
const RESULTS: usize = 256;
/// How cursors begin, so that none is taken for an argument of a tool.
const MARK: &str = "held-";

/// What a page must be besides short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing: what has no room is left out.
    Free,
    /// As the tool's output schema says: with all of the structured content, which counts apart. Where that is too
    /// large it is called an error, for an error needs none.
    Declared,
}

/// The results that can be read further, oldest first.
#[derive(Debug)]
pub(crate) struct Held {
    kept: Mutex<Vec<Kept>>,
    most_bytes: usize,
}

impl Default for Held {
    fn default() -> Held {
        Held { kept: Mutex::default(), most_bytes: BYTES }
    }
}

#[derive(Debug)]
struct Kept {
    /// Not to be guessed: whoever knows it may read a result that belongs to no lasting client.
    id: String,
    keeper: Option<ClientId>,
    source: SourceId,
    pages: Vec<Answer>,
    total_bytes: u64,
    until: Instant,
}

impl Held {
    /// Splits a result and gives its first page.
    pub(crate) fn hold(
        &self,
        source: SourceId,
        keeper: Option<ClientId>,
        answer: Answer,
        limit: u64,
        shape: Shape,
    ) -> Result<Output> {
        let total_bytes = answer.raw.get().len() as u64;
        let structured = answer.layout.structured(&answer.raw).map_or(0, str::len) as u64;
        if shape == Shape::Declared && structured <= limit && total_bytes - structured <= limit {
            return Ok(Output::new(source, answer, None));
        }
        let id = format!("{MARK}{:032x}", rand::random::<u128>());
        let pages = pages::split(&answer, limit, shape, |number| cursor(&id, number));
        let kept = Kept { id, keeper, source, pages, total_bytes, until: Instant::now() + TIME };
        if kept.bytes() > self.most_bytes {
            let message = format!("the result has {total_bytes} bytes, more than can be held; ask for less");
            let details = json!({ "bytes": total_bytes, "limit": self.most_bytes });
            return Err(Error::new(Code::ToolExecutionFailed, message).with_details(details));
        }
        let broken = || Error::new(Code::Internal, "a result could not be split");
        let first = kept.page(1).ok_or_else(broken)?;
        if kept.pages.len() > 1 {
            self.keep(kept);
        }
        Ok(first)
    }

    fn keep(&self, kept: Kept) {
        let mut held = self.held();
        held.retain(|other| other.until > Instant::now());
        held.push(kept);
        let mut bytes: usize = held.iter().map(Kept::bytes).sum();
        while held.len() > RESULTS || bytes > self.most_bytes {
            bytes -= held.remove(0).bytes();
        }
    }

    pub(crate) fn page(&self, client: Option<ClientId>, wanted: &str) -> Result<Output> {
        let held = self.held();
        let found = wanted.rsplit_once('-').and_then(|(id, number)| {
            let may_read = |kept: &&Kept| kept.keeper.is_none() || kept.keeper == client;
            let kept = held.iter().find(|kept| kept.id == id).filter(may_read)?;
            (kept.until > Instant::now()).then(|| kept.page(number.parse().ok()?))?
        });
        found.ok_or_else(|| {
            let message = format!(
                "no result is held under `{}`: a cursor holds for {} minutes, for the client that made the call; call the tool again",
                shown_short(wanted, 60),
                TIME.as_secs() / 60
            );
            Error::new(Code::ToolInvalidInput, message)
        })
    }

    /// A client has left, and nobody else may read what was held for it.
    pub(crate) fn forget(&self, client: ClientId) {
        self.held().retain(|kept| kept.keeper != Some(client));
    }

    /// Lets go of what nobody can read any more.
    pub(crate) fn sweep(&self) {
        self.held().retain(|kept| kept.until > Instant::now());
    }

    fn held(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.raw.get().len()).sum()
    }

    /// Pages count from one.
    fn page(&self, number: usize) -> Option<Output> {
        let answer = self.pages.get(number.checked_sub(1)?)?.clone();
        let next = (number < self.pages.len()).then(|| cursor(&self.id, number + 1));
        let page = Page { number, of: self.pages.len(), next, total_bytes: self.total_bytes };
        Some(Output::new(self.source.clone(), answer, Some(page)))
    }
}

fn cursor(id: &str, number: usize) -> String {
    format!("{id}-{number}")
}

/// Whether a text has the form of a cursor, held or not.
pub(crate) fn is_cursor(text: &str) -> bool {
    let digits = |text: &str, base| !text.is_empty() && text.chars().all(|digit| digit.is_digit(base));
    let parts = text.strip_prefix(MARK).and_then(|rest| rest.split_once('-'));
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
        let held = Held { most_bytes: 20_000, ..Held::default() };
        let hold = |bytes: usize| {
            let result = json!({ "content": [{ "type": "text", "text": "x".repeat(bytes) }] });
            let answer = Answer::read(to_raw_value(&result).unwrap()).unwrap();
            held.hold(SourceId::parse("s").unwrap(), None, answer, 2_000, Shape::Free)
                .map(|output| output.page.unwrap().next.unwrap())
        };
        let cursors: Vec<String> = (0..5).map(|_| hold(5_000).unwrap()).collect();
        let readable: Vec<bool> = cursors.iter().map(|cursor| held.page(None, cursor).is_ok()).collect();
        assert_eq!(readable, [false, false, true, true, true]);
        let error = hold(30_000).unwrap_err();
        assert_eq!((error.code, held.held().len()), (Code::ToolExecutionFailed, 3), "{}", error.message);
    }
}
