//! JSON form of search results: `toolcrib search --json` and `GET /api/search`. Agents get text lines instead
//! ([`Hit::to_line`]).

use serde::Serialize;
use toolcrib_core::tool::ToolName;

use super::{Hit, SearchResults};
use crate::tokens;

/// Serialised search results. Field names are part of the public contract.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchResponse<'a> {
    pub hits: Vec<SearchResponseHit<'a>>,
    /// Number of tools that match, including those not in `hits`.
    pub total: usize,
    /// Tokens (`o200k_base`) of the hits as text lines, i.e. the cost for an agent that reads them.
    pub tokens: usize,
    /// See [`SearchResults::hint`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'a str>,
}

/// One [`Hit`], borrowed for serialisation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchResponseHit<'a> {
    pub name: &'a str,
    pub score: f32,
    pub signature: &'a str,
    pub summary: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<&'a str>,
}

impl SearchResults {
    /// Returns the serialisable form. Counts tokens, which loads the tokenizer on first use.
    pub fn to_response(&self) -> SearchResponse<'_> {
        let lines: Vec<String> = self.hits.iter().map(Hit::to_line).collect();
        SearchResponse {
            hits: self.hits.iter().map(to_response_hit).collect(),
            total: self.total,
            tokens: tokens::count(&lines.join("\n")),
            hint: self.hint.as_deref(),
        }
    }
}

fn to_response_hit(hit: &Hit) -> SearchResponseHit<'_> {
    SearchResponseHit {
        name: hit.name.as_str(),
        score: hit.score,
        signature: &hit.signature,
        summary: &hit.summary,
        also: hit.also.iter().map(ToolName::as_str).collect(),
    }
}
