//! The meta tool `search_tools`: one line per hit, in as few tokens as possible.
//!
//! ```text
//! git__commit(message*: string, amend: boolean) — Record changes in the repository
//! ```
//!
//! Below the hits come notes about what the search could not see: sources that are being discovered or not trusted yet.
//! Without them an agent would conclude that there is no such tool.

use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::Principal;
use toolcrib::catalog::search::{Hit, Query, SearchResults};
use toolcrib::core::freshness::Freshness;
use toolcrib::core::json::describe_error;
use toolcrib_mcp::server::McpRequest;

use super::call::invalid_arguments;
use super::meta_tools::SEARCH_TOOLS;
use super::response::text_result;
use super::{McpService, reading_principal};

/// Hits for a call without `limit`.
const DEFAULT_SEARCH_LIMIT: usize = 5;
/// Maximum number of hits, also for `limit: 0`, which means all.
const MAX_SEARCH_HITS: usize = 200;

/// Arguments of `search_tools`.
#[derive(Deserialize)]
struct SearchArguments {
    query: String,
    /// A number in any form: models write `5`, `5.0` and `"5"`.
    #[serde(default)]
    limit: Value,
}

impl McpService {
    /// Handles the meta tool `search_tools`.
    pub(super) async fn search_tools(&self, request: &McpRequest, arguments: Value) -> Box<RawValue> {
        let arguments: SearchArguments = match serde_json::from_value(arguments) {
            Ok(arguments) => arguments,
            Err(error) => return invalid_arguments(SEARCH_TOOLS, &describe_error(&error)),
        };
        // Waits only if nothing was ever discovered, for a search in an empty catalogue would be pointless.
        self.refresh_in_background(request).await;
        let limit = match parse_limit(&arguments.limit) {
            None => DEFAULT_SEARCH_LIMIT,
            Some(0) => MAX_SEARCH_HITS,
            Some(limit) => limit.min(MAX_SEARCH_HITS),
        };
        let query = Query::new(arguments.query).with_limit(limit);
        self.render_at_position(&request.extensions, || self.render_search(request, query.clone()).boxed()).await
    }

    async fn render_search(&self, request: &McpRequest, query: Query) -> Box<RawValue> {
        let (view, limit) = (self.view(&request.extensions), query.limit);
        // The first search builds the index, which takes too long for an async thread.
        let search_task = tokio::task::spawn_blocking(move || view.search(&query));
        let results = search_task.await.unwrap_or_default();
        text_result(&self.render_hits(&results, limit, &reading_principal(&request.extensions)))
    }

    /// Returns a note about sources that the user has to trust first, with the reason. None for a client that sees only
    /// the tools of groups: which sources there are is not its business.
    pub(super) fn blocked_sources_note(&self, principal: &Principal) -> Option<String> {
        let blocked = self.registry.sources().blocked();
        let reason = blocked.values().next().filter(|_| !self.registry.scope(principal).limits_tools())?;
        let subject = if blocked.len() == 1 { "1 source is" } else { &format!("{} sources are", blocked.len()) };
        Some(format!("{subject} not used: {reason}"))
    }

    /// Renders the hits, and notes about what the search could not see.
    fn render_hits(&self, results: &SearchResults, limit: usize, principal: &Principal) -> String {
        let mut lines: Vec<String> = results.hits.iter().map(Hit::to_line).collect();
        let sources = self.registry.sources().list_for(principal);
        if sources.is_empty() {
            lines.push("There are no sources yet, so there are no tools; the administrator has to add one.".into());
        } else if lines.is_empty() {
            lines.push(results.hint.clone().unwrap_or_else(|| "Nothing found.".into()));
        } else if let Some(hint) = &results.hint {
            lines.push(format!("hint: {hint}"));
        }
        if limit == MAX_SEARCH_HITS && results.total > MAX_SEARCH_HITS {
            let more = results.total - MAX_SEARCH_HITS;
            let verb = if more == 1 { "matches" } else { "match" };
            lines.push(format!("({more} more {verb}; more words narrow it down)"));
        }
        lines.extend(self.blocked_sources_note(principal).map(|note| format!("({note})")));
        let blocked = self.registry.sources().blocked();
        // Sources that failed are not mentioned: searching again would not help.
        let missing = sources.into_iter().filter(|source| !blocked.contains_key(&source.id));
        let missing = missing.filter(|source| source.enabled && source.freshness == Freshness::Missing);
        // Nor are those that this node never discovers: another one may not run.
        let missing = missing.filter(|source| self.registry.sources().ensure_may_start(&source.id).is_ok());
        let missing = missing.filter(|source| source.last_error.is_none()).count();
        if missing > 0 {
            let subject = if missing == 1 { "1 source is" } else { &format!("{missing} sources are") };
            lines.push(format!("({subject} still being discovered; search again in a moment for more)"));
        }
        lines.join("\n")
    }
}

/// Parses a whole number that is not negative; anything else counts as no limit given.
fn parse_limit(value: &Value) -> Option<usize> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (number >= 0.0 && number.fract() == 0.0).then_some(number as usize)
}
