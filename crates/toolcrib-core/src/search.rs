//! Finding tools by what they are for. Words are weighed by where they stand and how rare they are (BM25F); a name that
//! was asked for comes first, whatever its spelling. Reads take no lock and touch no disk.

mod answer;

mod rank;

mod question;

mod asked;

mod closer;

mod names;

mod inside;

mod duplicates;

mod directory;

mod texts;

mod roll;

mod spellings;

mod lines;

mod postings;

mod document;

mod vocabulary;
mod words;

#[cfg(feature = "embeddings")]
pub mod meaning;

pub mod eval;

use crate::catalog::View;
use crate::source::SourceId;
use crate::tool::ToolName;

pub(crate) use directory::Directory;
pub(crate) use postings::Postings;

pub use answer::{Answer, Shown};
use rank::{Line, Ranking};

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
pub struct Found {
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

    pub fn limited(self, limit: usize) -> Query {
        Query { limit, ..self }
    }
}

impl Hit {
    /// `name(required*: type, optional: type) — first sentence`, and where else it can be had.
    pub fn line(&self) -> String {
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
    pub fn search(&self, query: &Query) -> Found {
        self.search_by(query, |_, _| {})
    }

    /// As [`View::search`], and by what texts mean. `meanings` of another catalogue are left out of account.
    #[cfg(feature = "embeddings")]
    pub fn search_by_meaning(&self, query: &Query, meanings: &meaning::Meanings) -> Found {
        self.search_by(query, |text, scores| {
            if meanings.is_about(&self.catalog) {
                meanings.mix(text, scores);
            }
        })
    }

    /// `mix` may change what words alone have scored.
    fn search_by(&self, query: &Query, mix: impl FnOnce(&str, &mut [f32])) -> Found {
        let directory = self.catalog.directory();
        let Ranking { lines, total } = rank::ranked(directory, query, mix);
        let hits: Vec<Hit> = lines.into_iter().filter_map(|line| hit(directory, line)).collect();
        let hint = hits.is_empty().then(|| hint(query));
        Found { hits, hint, total }
    }
}

fn hit(directory: &Directory, Line { scored, also }: Line) -> Option<Hit> {
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

fn hint(query: &Query) -> String {
    let within = match (&query.source, &query.tag) {
        (Some(source), _) => format!(" in `{source}`; search without a source, or"),
        (None, Some(tag)) => format!(" under the tag `{tag}`; search without a tag, or"),
        (None, None) => ";".into(),
    };
    format!("no tool matches{within} try other words: what it does and on what, such as `create issue`")
}

#[cfg(test)]
mod tests;
