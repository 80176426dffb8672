//! Full-text search over the tools of a catalogue: BM25F with weighted fields, exact and misspelled tool names first.
//!
//! A query passes through these modules in order: `parsed_query` tokenizes it, `resolved_query` looks its terms up
//! in the `index`, `rank` scores all tools, `rerank` refines the best ones, `duplicates` collapses copies of a
//! tool. Searching takes no lock and does no I/O; the index is built by the first search in a catalogue.
//!
//! ```text
//! "create a github issue"  -> terms create, github, issue (stems), and related words
//! postings                 -> per segment: term, tool, impact; built once per tool list
//! index                    -> all segments: term, postings, rarity; built once per catalogue
//! scores                   -> sum over terms of weight x rarity x impact
//! ```
//!
//! The result is deterministic: ties are broken by the number of the tool, and sums run in a fixed order.

mod response;

mod rank;

mod parsed_query;

mod query_text;

mod resolved_query;

mod strength;

mod rerank;

mod name_match;

mod fuzzy;

mod duplicates;

mod index;

mod forward_index;

mod name_index;

mod term_text;

mod text_block;

mod postings;

mod document;

mod tokenize;
mod vocabulary;

pub mod embeddings;

pub mod eval;

use serde::Serialize;

use crate::View;

pub(crate) use index::SearchIndex;
pub(crate) use postings::Postings;
use toolcrib_core::source::SourceId;
use toolcrib_core::tool::ToolName;

use rank::{RankedHit, Ranking};
pub use response::SearchResponse;

/// A search request: the text to search for, and optional filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// A tool name, a few words or a whole task description, in any script. Only the first [`Query::MAX_BYTES`] are read.
    pub text: String,
    /// Maximum number of hits; 0 returns all.
    pub limit: usize,
    /// Restricts the search to the tools of one source.
    pub source: Option<SourceId>,
    /// Restricts the search to tools with this tag, of their own or of their source.
    pub tag: Option<String>,
}

/// One tool that matches a query.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hit {
    pub name: ToolName,
    /// Only comparable within one result; a match by name adds a thousand or more.
    pub score: f32,
    /// Call signature: `name(required*: type, optional: type)`.
    pub signature: String,
    /// First sentence of the tool's description.
    pub summary: String,
    /// The same tool at other sources; these do not appear as hits of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<ToolName>,
}

/// Hint of a response whose hits have only little in common with the query.
pub const WEAK_MATCHES_HINT: &str = "weak matches only";

/// Result of [`View::search`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SearchResults {
    /// Hits in descending order of score.
    pub hits: Vec<Hit>,
    /// Warning for people and agents: [`WEAK_MATCHES_HINT`] if no hit answers the query well; without hits a suggestion
    /// for another query, which names the filter that may be too narrow.
    pub hint: Option<String>,
    /// Number of tools that match, including those beyond the limit and collapsed duplicates. Tools that only a related
    /// word explains are not counted; they come last among the hits.
    pub total: usize,
}

impl Query {
    /// Number of hits when the caller sets no limit.
    pub const DEFAULT_LIMIT: usize = 5;
    /// Number of bytes of the text that are read; the rest is ignored.
    pub const MAX_BYTES: usize = parsed_query::MAX_QUERY_BYTES;

    /// Creates a query over all sources with [`Query::DEFAULT_LIMIT`].
    pub fn new(text: impl Into<String>) -> Query {
        Query { text: text.into(), limit: Query::DEFAULT_LIMIT, source: None, tag: None }
    }

    /// Returns the query with another limit; 0 returns all hits.
    pub fn with_limit(self, limit: usize) -> Query {
        Query { limit, ..self }
    }
}

impl Hit {
    /// Formats the hit as agents see it: `signature — first sentence (also: other sources)`.
    pub fn to_line(&self) -> String {
        let mut line = self.signature.clone();
        if !self.summary.is_empty() {
            line.push_str(&format!(" — {}", self.summary));
        }
        if !self.also.is_empty() {
            let also: Vec<&str> = self.also.iter().map(ToolName::as_str).collect();
            line.push_str(&format!(" (also: {})", also.join(", ")));
        }
        line
    }
}

impl View {
    /// Returns the best matching tools among those that an agent may see and call; hidden, denied and disabled tools
    /// are left out.
    ///
    /// With a model ([`Catalog::with_search_model`](crate::Catalog::with_search_model)), semantic similarity is added to
    /// the term scores. The first search loads the model and builds the index, which takes too long for an async thread.
    pub fn search(&self, query: &Query) -> SearchResults {
        self.search_by(query, self.search_model().and_then(|model| model.get()))
    }

    /// Like [`View::search`], with the given model instead of that of the catalogue.
    pub fn search_with_model(&self, query: &Query, model: &embeddings::EmbeddingModel) -> SearchResults {
        self.search_by(query, Some(model))
    }

    fn search_by(&self, query: &Query, model: Option<&embeddings::EmbeddingModel>) -> SearchResults {
        // The first search in a catalogue builds the index; later ones share it.
        let index = self.search_index();
        let Ranking { hits: ranked, total, is_weak } = rank::rank_tools(&index, query, model);
        let hits: Vec<Hit> = ranked.into_iter().filter_map(|hit| build_hit(&index, hit)).collect();
        let hint = match (hits.is_empty(), is_weak) {
            (true, _) => Some(no_match_hint(query)),
            (false, true) => Some(WEAK_MATCHES_HINT.to_owned()),
            (false, false) => None,
        };
        SearchResults { hits, hint, total }
    }
}

/// Converts a ranked tool to a public hit. Returns `None` if the tool number is unknown to the index.
fn build_hit(index: &SearchIndex, RankedHit { scored, duplicates: also }: RankedHit) -> Option<Hit> {
    let name = |tool: u32| index.tool(tool).map(|tool| tool.name().clone());
    let card = index.card(scored.tool)?;
    Some(Hit {
        name: name(scored.tool)?,
        score: scored.score,
        signature: card.signature.clone(),
        summary: card.summary.clone(),
        also: also.into_iter().filter_map(name).collect(),
    })
}

/// Suggests how to change a query that found nothing. Only the source is mentioned if both filters are set.
fn no_match_hint(query: &Query) -> String {
    let within = match (&query.source, &query.tag) {
        (Some(source), _) => format!(" in `{source}`; search without a source, or"),
        (None, Some(tag)) => format!(" under the tag `{tag}`; search without a tag, or"),
        (None, None) => ";".into(),
    };
    format!("no tool matches{within} try other words: an action and an object, such as `create issue`")
}

#[cfg(test)]
mod tests;
