//! What agents ask first: which tool fits, and what there is at all.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use toolcrib::core::catalog::View;
use toolcrib::core::search::Query;
use toolcrib::core::summary::SummaryBudget;
use toolcrib::{Code, Error, Result};

use super::cache::RenderedBody;
use super::error::ApiError;
use super::openapi_schema::{object_schema, string_array, with_optional};
use super::query::QueryParams;
use super::response;
use super::route::{ApiRoute, schema_ref};
use crate::auth::Permission;
use crate::state::AppState;

/// Nobody reads on.
const MAX_SEARCH_HITS: u64 = 200;
/// How many characters a question may have; a task in full has room.
const MAX_QUERY_CHARS: usize = 2_000;
const MAX_CONTEXT_BUDGET: u64 = 100_000;
/// How long counts of tokens are waited for that may be on their way to the store.
const TOKEN_COUNT_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Vec<ApiRoute> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": MAX_SEARCH_HITS, "default": Query::DEFAULT_LIMIT });
    let budget = json!({ "type": "integer", "minimum": 1, "maximum": MAX_CONTEXT_BUDGET, "default": SummaryBudget::DEFAULT_TOKENS });
    vec![
        ApiRoute::new("GET", "/api/search", "search_tools", get(search_tools))
            .summary("The tools that fit a task, a question or a name")
            .requires(Permission::Read)
            .required_query_param(
                "q",
                json!({ "type": "string", "minLength": 1, "maxLength": MAX_QUERY_CHARS }),
                "What the tool is for, or its name in any spelling",
            )
            .query_param("limit", limit, "At most so many hits")
            .query_param("source", json!({ "type": "string" }), "Only the tools of one source")
            .query_param("tag", json!({ "type": "string" }), "Only the tools of sources with this tag")
            .query_param("group", json!({ "type": "string" }), "There are no groups in this version")
            .json_response(200, "Found", "The best first")
            .conditional()
            .error_responses(&[400, 404]),
        ApiRoute::new("GET", "/api/context", "get_context", get(get_context))
            .summary("The summary for a system prompt: some of the tools there are, and how to find the others")
            .requires(Permission::Read)
            .query_param("budget", budget, "The most tokens it may have")
            .json_response(200, "Context", "The text and what it saves")
            .conditional()
            .error_responses(&[400]),
    ]
}

pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let text = || json!({ "type": "string" });
    let count = || json!({ "type": "integer", "minimum": 0 });
    let hit = object_schema(&[
        ("name", text()),
        ("score", json!({ "type": "number" })),
        ("signature", json!({ "type": "string", "description": "`name(required*: type, optional: type)`" })),
        ("summary", text()),
    ]);
    let hit = with_optional(hit, &[("also", string_array())]);
    let found = object_schema(&[
        ("hits", json!({ "type": "array", "items": schema_ref("Hit") })),
        ("total", count()),
        ("tokens", json!({ "type": "integer", "minimum": 0, "description": "What the hits cost an agent to read" })),
    ]);
    let found = with_optional(found, &[("hint", text())]);
    let context = object_schema(&[("text", text()), ("tokens", count()), ("tokens_full", count()), ("tools", count())]);
    vec![("Hit", hit), ("Found", found), ("Context", context)]
}

async fn search_tools(State(app): State<AppState>, uri: Uri, headers: HeaderMap) -> Result<Response, ApiError> {
    let (registry, query) = (app.registry.clone(), uri.query().unwrap_or_default().to_owned());
    let make = move |view: &View| {
        let params = QueryParams::parse(&query)?;
        params.reject_group()?;
        let query = Query {
            text: query_text(&params)?,
            limit: params.number("limit", 1..=MAX_SEARCH_HITS)?.map_or(Query::DEFAULT_LIMIT, |limit| limit as usize),
            source: params.source(&registry)?,
            tag: params.text("tag").map(str::to_owned),
        };
        render_body(&view.search(&query).to_response())
    };
    app.respond_cached(&uri, &headers, make).await
}

fn query_text(params: &QueryParams) -> Result<String> {
    match params.text("q") {
        None => Err(Error::new(Code::BadRequest, "`q` says what to look for, such as `q=create+an+issue`")),
        Some(text) if text.chars().count() > MAX_QUERY_CHARS => {
            Err(Error::new(Code::BadRequest, "`q` is too long; a few sentences will do"))
        }
        Some(text) => Ok(text.to_owned()),
    }
}

async fn get_context(State(app): State<AppState>, uri: Uri, headers: HeaderMap) -> Result<Response, ApiError> {
    let catalog = app.registry.catalog();
    if catalog.sources().any(|part| !part.segment.has_token_counts()) {
        // Counts are stored for the next start; a store that hangs must not keep a reader waiting.
        let _late = tokio::time::timeout(TOKEN_COUNT_TIMEOUT, app.registry.count_tokens()).await;
    }
    let query = uri.query().unwrap_or_default().to_owned();
    let make = move |view: &View| {
        let params = QueryParams::parse(&query)?;
        let budget = params
            .number("budget", 1..=MAX_CONTEXT_BUDGET)?
            .map_or(SummaryBudget::DEFAULT_TOKENS, |budget| budget as usize);
        render_body(&view.summary(SummaryBudget::from_tokens(budget)?))
    };
    app.respond_cached(&uri, &headers, make).await
}

fn render_body(answer: &impl serde::Serialize) -> Result<RenderedBody> {
    Ok(RenderedBody { body: response::to_json_bytes(answer)?, link: None })
}
