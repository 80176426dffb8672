//! What was found, as programs get it: `toolcrib search --json` and `GET /api/search`.

use serde::Serialize;

use super::{Hit, SearchResults};
use crate::tokens;
use crate::tool::ToolName;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchResponse<'a> {
    pub hits: Vec<SearchResponseHit<'a>>,
    /// How many tools match, shown or not.
    pub total: usize,
    /// What the lines of the hits cost an agent, in tokens of `o200k_base`.
    pub tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'a str>,
}

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
