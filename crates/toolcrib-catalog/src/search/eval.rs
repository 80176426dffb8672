//! Evaluation of search on a labelled set: tools, queries, and the tools that each query should find. The set is turned
//! into a regular catalogue, so the evaluation measures what an agent would get.
//!
//! ```json
//! {"id": "gh1", "server": "github", "name": "create_issue", "description": "…", "input_schema": {}}
//! {"id": 7, "query": "report a bug", "groups": [["gh1", "gl1"]]}
//! ```
//!
//! The first line is of the tool file, the second of the query file.

mod catalog;
mod scores;

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::error::{Code, Error, Result};

use super::{Query, SearchResults};
use crate::View;

pub use scores::{MeanScores, Scores};

/// Content of a file with its name for error messages.
#[derive(Debug, Clone, Copy)]
pub struct NamedText<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

/// A parsed labelled set, ready to be searched.
#[derive(Debug)]
pub struct LabelledSet {
    pub view: View,
    pub queries: Vec<LabelledQuery>,
    /// Ids that queries refer to and no tool has; they lower the scores, as nothing can find them.
    pub unknown_ids: Vec<String>,
    /// Position of each tool in the input file, by its name in the catalogue.
    positions: HashMap<String, usize>,
}

/// A query and the tools it should find.
#[derive(Debug)]
pub struct LabelledQuery {
    pub text: String,
    /// One group per needed tool: positions (in the tool file) of the tool and its interchangeable copies.
    pub groups: Vec<Vec<usize>>,
}

/// A line of the tool file.
#[derive(Debug, Deserialize)]
struct ToolRecord {
    id: String,
    #[serde(default)]
    server: Option<String>,
    #[serde(default)]
    server_description: Option<String>,
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Box<RawValue>>,
}

/// A line of the query file. `groups` takes precedence over `relevant`, which has one tool per group.
#[derive(Deserialize)]
struct QueryRecord {
    #[serde(default)]
    id: Value,
    query: String,
    #[serde(default)]
    relevant: Vec<String>,
    /// Each group is satisfied by any of its tools.
    groups: Option<Vec<Vec<String>>>,
}

impl LabelledSet {
    /// Parses both files (JSON Lines).
    ///
    /// # Errors
    /// `BAD_REQUEST` with file and line for malformed lines, duplicate ids and queries without relevant tools.
    pub fn parse(tools: NamedText<'_>, queries: NamedText<'_>) -> Result<LabelledSet> {
        let tools_by_line: Vec<(usize, ToolRecord)> = parse_lines(tools)?;
        check_unique(tools.name, tools_by_line.iter().map(|(line, tool)| (*line, tool.id.clone())))?;
        let by_id: HashMap<&str, usize> =
            tools_by_line.iter().enumerate().map(|(position, (_, tool))| (tool.id.as_str(), position)).collect();
        let queries_by_line: Vec<(usize, QueryRecord)> = parse_lines(queries)?;
        let ids = queries_by_line.iter().filter(|(_, query)| !query.id.is_null());
        check_unique(queries.name, ids.map(|(line, query)| (*line, format_id(&query.id))))?;
        let mut labelled_queries = Vec::new();
        let mut unknown_ids = Vec::new();
        for (line, query) in queries_by_line {
            let needed = query.groups.unwrap_or_else(|| query.relevant.into_iter().map(|id| vec![id]).collect());
            if needed.is_empty() {
                return Err(line_error(queries.name, line, "the query names no relevant tool"));
            }
            check_unique(queries.name, needed.iter().flatten().map(|id| (line, id.clone())))?;
            let mut positions = |ids: &Vec<String>| -> Vec<usize> {
                unknown_ids.extend(ids.iter().filter(|id| !by_id.contains_key(id.as_str())).cloned());
                ids.iter().filter_map(|id| by_id.get(id.as_str())).copied().collect()
            };
            let groups = needed.iter().map(&mut positions).collect();
            labelled_queries.push(LabelledQuery { text: query.query, groups });
        }
        // Reported and not rejected.
        unknown_ids.sort();
        unknown_ids.dedup();
        let (view, positions) = catalog::build(&tools_by_line)?;
        Ok(LabelledSet { view, queries: labelled_queries, unknown_ids, positions })
    }

    /// Searches as an agent would.
    pub fn search(&self, query: &LabelledQuery, limit: usize) -> SearchResults {
        self.view.search(&Query::new(&*query.text).with_limit(limit))
    }

    /// Adds the results of a query to `scores`. Duplicates on a hit's line take the ranks after that hit.
    pub fn score(&self, query: &LabelledQuery, results: &SearchResults, scores: &mut Scores) {
        let names = results.hits.iter().flat_map(|hit| std::iter::once(&hit.name).chain(&hit.also));
        let ranking: Vec<Option<usize>> = names.map(|name| self.positions.get(name.as_str()).copied()).collect();
        scores.add(&query.groups, &ranking);
    }
}

/// Checks that no id occurs twice. Ids come with their line numbers for the error message.
fn check_unique(file: &str, ids: impl Iterator<Item = (usize, String)>) -> Result<()> {
    let mut first_lines: HashMap<String, usize> = HashMap::new();
    for (line, id) in ids {
        match first_lines.get(&id) {
            Some(first) if *first == line => {
                return Err(line_error(file, line, &format!("the id `{id}` occurs twice")));
            }
            Some(first) => {
                return Err(line_error(file, line, &format!("the id `{id}` already occurs on line {first}")));
            }
            None => first_lines.insert(id, line),
        };
    }
    Ok(())
}

/// Formats an id as it was written, strings without quotes.
fn format_id(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// Parses each non-empty line and returns it with its number. Skips a byte order mark, which some editors write.
fn parse_lines<T: DeserializeOwned>(NamedText { name, text }: NamedText<'_>) -> Result<Vec<(usize, T)>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let records = numbered.map(|(index, line)| {
        let parsed = serde_json::from_str(line).map_err(|error| line_error(name, index + 1, &error.to_string()))?;
        Ok((index + 1, parsed))
    });
    let records: Vec<(usize, T)> = records.collect::<Result<_>>()?;
    if records.is_empty() {
        return Err(Error::new(Code::BadRequest, format!("`{name}` is empty")));
    }
    Ok(records)
}

fn line_error(file: &str, line: usize, reason: &str) -> Error {
    // Each line is parsed as a document of its own, so the parser's `line 1` is misleading.
    let reason = reason.replace(" at line 1 column ", " at column ");
    Error::new(Code::BadRequest, format!("{file}:{line}: {reason}"))
}

#[cfg(test)]
mod tests;
