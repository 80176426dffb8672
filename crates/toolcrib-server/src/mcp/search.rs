//! `search_tools`: one line a tool, in as few words as will do.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::core::freshness::Freshness;
use toolcrib::core::json::describe_error;
use toolcrib::core::search::{Hit, Query, SearchResults};

use super::McpService;
use super::call::invalid_arguments;
use super::meta_tools::SEARCH_TOOLS;
use super::response::text_result;

const DEFAULT_SEARCH_LIMIT: usize = 5;
/// Whoever asks for all gets so many; nobody reads on.
const MAX_SEARCH_HITS: usize = 200;

#[derive(Deserialize)]
struct SearchArguments {
    query: String,
    /// Any form of a number: models write `5`, `5.0` and `"5"`.
    #[serde(default)]
    limit: Value,
}

impl McpService {
    pub(super) async fn search_tools(&self, arguments: Value) -> Box<RawValue> {
        let asked: SearchArguments = match serde_json::from_value(arguments) {
            Ok(asked) => asked,
            Err(error) => return invalid_arguments(SEARCH_TOOLS, &describe_error(&error)),
        };
        self.refresh_in_background().await;
        let limit = match parse_limit(&asked.limit) {
            None => DEFAULT_SEARCH_LIMIT,
            Some(0) => MAX_SEARCH_HITS,
            Some(limit) => limit.min(MAX_SEARCH_HITS),
        };
        let listings = self.listings();
        let query = Query::new(asked.query).with_limit(limit);
        // Postings are built by the first search, which may take a while; others want to be answered meanwhile.
        let searching = tokio::task::spawn_blocking(move || listings.view().search(&query));
        let found = searching.await.unwrap_or_default();
        text_result(&self.render_hits(&found, limit))
    }

    /// Sources that a person has to allow first, and how.
    pub(super) fn blocked_sources_note(&self) -> Option<String> {
        let forbidden = self.registry.blocked_sources();
        let reason = forbidden.values().next()?;
        let what = if forbidden.len() == 1 { "1 source is" } else { &format!("{} sources are", forbidden.len()) };
        Some(format!("{what} not used: {reason}"))
    }

    fn render_hits(&self, found: &SearchResults, limit: usize) -> String {
        let mut lines: Vec<String> = found.hits.iter().map(Hit::to_line).collect();
        let sources = self.registry.sources();
        if sources.is_empty() {
            lines.push("There are no sources yet, so there are no tools; whoever runs this declares them.".into());
        } else if lines.is_empty() {
            lines.push(found.hint.clone().unwrap_or_else(|| "Nothing found.".into()));
        }
        if limit == MAX_SEARCH_HITS && found.total > MAX_SEARCH_HITS {
            lines.push(format!("({} more match; more words narrow it down)", found.total - MAX_SEARCH_HITS));
        }
        lines.extend(self.blocked_sources_note().map(|unused| format!("({unused})")));
        let forbidden = self.registry.blocked_sources();
        let missing = sources.into_iter().filter(|source| !forbidden.contains_key(&source.id));
        let missing = missing.filter(|source| source.enabled && source.freshness == Freshness::Missing);
        let missing = missing.filter(|source| source.last_error.is_none()).count();
        if missing > 0 {
            let what = if missing == 1 { "1 source is" } else { &format!("{missing} sources are") };
            lines.push(format!("({what} still being discovered; search again in a moment for more)"));
        }
        lines.join("\n")
    }
}

/// A whole number that is not negative.
fn parse_limit(value: &Value) -> Option<usize> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (number >= 0.0 && number.fract() == 0.0).then_some(number as usize)
}
