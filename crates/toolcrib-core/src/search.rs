//! Finding tools by what they are for. Words are weighed by where they stand and how rare they are (BM25F); a name that
//! was asked for comes first, whatever its spelling. Reads take no lock and touch no disk.

mod response;

mod rank;

mod parsed_query;

mod resolved_query;

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

#[cfg(feature = "embeddings")]
pub mod embeddings;

pub mod eval;

use crate::catalog::View;
use crate::source::SourceId;
use crate::tool::ToolName;

pub(crate) use index::SearchIndex;
pub(crate) use postings::Postings;

use rank::{RankedHit, Ranking};
pub use response::{SearchResponse, SearchResponseHit};

/// What is looked for, and among what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Anything: a name, a few words, a whole task, in any script and of any length.
    pub text: String,
    /// At most so many hits; 0 is all.
    pub limit: usize,
    pub source: Option<SourceId>,
    /// A tag of the source.
    pub tag: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    pub name: ToolName,
    pub score: f32,
    /// `name(required*: type, optional: type)`.
    pub signature: String,
    /// The first sentence of its description.
    pub summary: String,
    /// The same tool at other sources, left out of the list.
    pub also: Vec<ToolName>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct SearchResults {
    /// The best first.
    pub hits: Vec<Hit>,
    /// What to try instead, when nothing was found.
    pub hint: Option<String>,
    /// How many tools match, shown or not.
    pub total: usize,
}

impl Query {
    pub const DEFAULT_LIMIT: usize = 5;

    pub fn new(text: impl Into<String>) -> Query {
        Query { text: text.into(), limit: Query::DEFAULT_LIMIT, source: None, tag: None }
    }

    pub fn with_limit(self, limit: usize) -> Query {
        Query { limit, ..self }
    }
}

impl Hit {
    /// `name(required*: type, optional: type) — first sentence`, and where else it can be had.
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
    /// The tools that fit a query best, among those that an agent may be offered and may call.
    pub fn search(&self, query: &Query) -> SearchResults {
        self.search_with(query, |_, _| {})
    }

    /// As [`View::search`], and by what texts mean. `meanings` of another catalogue are left out of account.
    #[cfg(feature = "embeddings")]
    pub fn search_with_embeddings(&self, query: &Query, meanings: &embeddings::ToolEmbeddings) -> SearchResults {
        self.search_with(query, |text, scores| {
            if meanings.is_for(&self.catalog) {
                meanings.add_similarity(text, scores);
            }
        })
    }

    /// `mix` may change what words alone have scored.
    fn search_with(&self, query: &Query, mix: impl FnOnce(&str, &mut [f32])) -> SearchResults {
        let directory = self.catalog.search_index();
        let Ranking { hits: lines, total } = rank::rank_tools(directory, query, mix);
        let hits: Vec<Hit> = lines.into_iter().filter_map(|line| build_hit(directory, line)).collect();
        let hint = hits.is_empty().then(|| no_match_hint(query));
        SearchResults { hits, hint, total }
    }
}

fn build_hit(directory: &SearchIndex, RankedHit { scored, duplicates: also }: RankedHit) -> Option<Hit> {
    let name = |tool: u32| directory.tool(tool).map(|tool| tool.name().clone());
    let card = directory.card(scored.tool)?;
    Some(Hit {
        name: name(scored.tool)?,
        score: scored.score,
        signature: card.signature.clone(),
        summary: card.summary.clone(),
        also: also.into_iter().filter_map(name).collect(),
    })
}

fn no_match_hint(query: &Query) -> String {
    let within = match (&query.source, &query.tag) {
        (Some(source), _) => format!(" in `{source}`; search without a source, or"),
        (None, Some(tag)) => format!(" under the tag `{tag}`; search without a tag, or"),
        (None, None) => ";".into(),
    };
    format!("no tool matches{within} try other words: what it does and on what, such as `create issue`")
}

#[cfg(test)]
mod tests;
