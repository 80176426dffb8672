//! Measuring search on a labelled set: tools, queries, and which tools each query should find. The set is read into a
//! catalogue like any other, so that what is measured is what an agent would get.

mod catalogue;
mod scores;

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Query, SearchResults};
use crate::catalog::View;
use crate::error::{Code, Error, Result};

pub use scores::{MeanScores, Scores};

/// A text, and the name of the file it is from.
#[derive(Debug, Clone, Copy)]
pub struct NamedText<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

#[derive(Debug)]
pub struct LabelledSet {
    pub view: View,
    pub queries: Vec<LabelledQuery>,
    /// Ids that queries name and no tool has: nothing can find them.
    pub unknown_ids: Vec<String>,
    /// Positions of tools by the names that agents see.
    positions: HashMap<String, usize>,
}

#[derive(Debug)]
pub struct LabelledQuery {
    pub text: String,
    /// One list for each needed tool: positions in the file of tools, of it and its interchangeable copies.
    pub groups: Vec<Vec<usize>>,
}

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

#[derive(Deserialize)]
struct QueryRecord {
    #[serde(default)]
    id: Value,
    query: String,
    #[serde(default)]
    relevant: Vec<String>,
    groups: Option<Vec<Vec<String>>>,
}

impl LabelledSet {
    pub fn parse(tools: NamedText<'_>, queries: NamedText<'_>) -> Result<LabelledSet> {
        let lists: Vec<(usize, ToolRecord)> = parse_lines(tools)?;
        check_unique(tools.name, lists.iter().map(|(line, tool)| (*line, tool.id.clone())))?;
        let by_id: HashMap<&str, usize> =
            lists.iter().enumerate().map(|(position, (_, tool))| (tool.id.as_str(), position)).collect();
        let asked: Vec<(usize, QueryRecord)> = parse_lines(queries)?;
        let ids = asked.iter().filter(|(_, query)| !query.id.is_null());
        check_unique(queries.name, ids.map(|(line, query)| (*line, format_id(&query.id))))?;
        let (mut labelled, mut unknown) = (Vec::new(), Vec::new());
        for (line, query) in asked {
            let needed = query.groups.unwrap_or_else(|| query.relevant.into_iter().map(|id| vec![id]).collect());
            if needed.is_empty() {
                return Err(line_error(queries.name, line, "the query names no relevant tool"));
            }
            check_unique(queries.name, needed.iter().flatten().map(|id| (line, id.clone())))?;
            let mut positions = |ids: &Vec<String>| -> Vec<usize> {
                unknown.extend(ids.iter().filter(|id| !by_id.contains_key(id.as_str())).cloned());
                ids.iter().filter_map(|id| by_id.get(id.as_str())).copied().collect()
            };
            let groups = needed.iter().map(&mut positions).collect();
            labelled.push(LabelledQuery { text: query.query, groups });
        }
        unknown.sort();
        unknown.dedup();
        let (view, positions) = catalogue::build(&lists)?;
        Ok(LabelledSet { view, queries: labelled, unknown_ids: unknown, positions })
    }

    /// What an agent gets for a query.
    pub fn search(&self, query: &LabelledQuery, limit: usize) -> SearchResults {
        self.view.search(&Query::new(&*query.text).with_limit(limit))
    }

    /// Takes an answer into account. A tool that stands on another's line, as a copy, has the next rank after it.
    pub fn score(&self, query: &LabelledQuery, found: &SearchResults, scores: &mut Scores) {
        let names = found.hits.iter().flat_map(|hit| std::iter::once(&hit.name).chain(&hit.also));
        let ranking: Vec<Option<usize>> = names.map(|name| self.positions.get(name.as_str()).copied()).collect();
        scores.add(&query.groups, &ranking);
    }
}

/// Ids come with their lines.
fn check_unique(file: &str, ids: impl Iterator<Item = (usize, String)>) -> Result<()> {
    let mut known: HashMap<String, usize> = HashMap::new();
    for (line, id) in ids {
        match known.get(&id) {
            Some(first) if *first == line => {
                return Err(line_error(file, line, &format!("the id `{id}` is here twice")));
            }
            Some(first) => return Err(line_error(file, line, &format!("the id `{id}` is on line {first} already"))),
            None => known.insert(id, line),
        };
    }
    Ok(())
}

/// An id as it was written, without quotes.
fn format_id(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// Every line that is not empty, with its number. Some editors begin a file with a mark of its byte order.
fn parse_lines<T: DeserializeOwned>(NamedText { name, text }: NamedText<'_>) -> Result<Vec<(usize, T)>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = numbered.map(|(index, line)| {
        let parsed = serde_json::from_str(line).map_err(|error| line_error(name, index + 1, &error.to_string()))?;
        Ok((index + 1, parsed))
    });
    let read: Vec<(usize, T)> = read.collect::<Result<_>>()?;
    if read.is_empty() {
        return Err(Error::new(Code::BadRequest, format!("`{name}` has no lines")));
    }
    Ok(read)
}

fn line_error(file: &str, line: usize, reason: &str) -> Error {
    // Each line is a JSON document of its own, so that the parser's `line 1` would only confuse.
    let reason = reason.replace(" at line 1 column ", " at column ");
    Error::new(Code::BadRequest, format!("{file}:{line}: {reason}"))
}

#[cfg(test)]
mod tests;
