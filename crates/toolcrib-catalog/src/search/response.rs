//! JSON form of search results: `toolcrib search --json` and `GET /api/search`. Agents get text lines instead
//! ([`Hit::to_line`]).

use serde::Serialize;

use super::{Hit, SearchResults};
use crate::token_count;

/// Serialised search results. Field names are part of the public contract.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchResponse<'a> {
    pub hits: &'a [Hit],
    /// Number of tools that match, including those not in `hits`.
    pub total: usize,
    /// Tokens (`o200k_base`) of the hits as text lines, i.e. the cost for an agent that reads them.
    pub tokens: usize,
    /// See [`SearchResults::hint`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'a str>,
}

impl SearchResults {
    /// Returns the serialisable form. Counts tokens, which loads the tokenizer on first use.
    pub fn to_response(&self) -> SearchResponse<'_> {
        let lines: Vec<String> = self.hits.iter().map(Hit::to_line).collect();
        let tokens = token_count::count(&lines.join("\n"));
        SearchResponse { hits: &self.hits, total: self.total, tokens, hint: self.hint.as_deref() }
    }
}
