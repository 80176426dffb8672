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

/// The results that can be read further, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Vec<Kept>>);

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
    ) -> Result<Output> {
        let total_bytes = answer.raw.get().len() as u64;
        let id = format!("{:032x}", rand::random::<u128>());
        let pages = pages::split(&answer, limit, |number| cursor(&id, number));
        let kept = Kept { id, keeper, source, pages, total_bytes, until: Instant::now() + TIME };
        if kept.bytes() > BYTES {
            let message = format!("the result has {total_bytes} bytes, more than can be held; ask for less");
            let details = json!({ "bytes": total_bytes, "limit": BYTES });
            return Err(Error::new(Code::ToolExecutionFailed, message).with_details(details));
        }
        let broken = || Error::new(Code::Internal, "a result could not be split");
        let first = kept.page(1).ok_or_else(broken)?;
        if kept.pages.len() > 1 {
            let mut held = self.held();
            held.retain(|other| other.until > Instant::now());
            held.push(kept);
            let mut bytes: usize = held.iter().map(Kept::bytes).sum();
            let excess = held.len().saturating_sub(RESULTS);
            let dropped = held.iter().enumerate().take_while(|(place, old)| {
                let drop = *place < excess || bytes > BYTES;
                bytes = bytes.saturating_sub(old.bytes());
                drop
            });
            let dropped = dropped.count();
            held.drain(..dropped);
        }
        Ok(first)
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
