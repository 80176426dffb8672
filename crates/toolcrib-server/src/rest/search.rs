//! `GET /api/search` and `GET /api/context`: finds tools, and summarises the catalogue for a system prompt.
//!
//! Both depend on the view and the query alone, so their responses are cached like the tool list.

use std::time::Duration;

use axum::http::{HeaderMap, Uri};
use serde_json::{Value, json};
use toolcrib::catalog::View;
use toolcrib::catalog::search::Query;
use toolcrib::catalog::summary::SummaryBudget;
use toolcrib::{Code, Error, Result};

use super::cache::{ContentScope, RenderedBody};
use super::error::ApiResult;
use super::openapi_schema::{array_of, count, described, object_schema, string_array, text, with_optional};
use super::query::QueryParams;
use super::response;
use super::route::{ApiRoute, schema_ref};
use crate::auth::AuthorizedRequest;

/// Maximum number of hits. The whole list is at `/api/tools`.
const MAX_SEARCH_HITS: u64 = 200;
/// Maximum token budget of a summary.
const MAX_CONTEXT_BUDGET: u64 = 100_000;
/// How long a request waits for token counts, which are also written to the store.
const TOKEN_COUNT_TIMEOUT: Duration = Duration::from_secs(2);

/// The limits of the handlers are stated in the document too, from the same constants.
pub(super) fn routes() -> Vec<ApiRoute> {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": MAX_SEARCH_HITS, "default": Query::DEFAULT_LIMIT });
    let budget = json!({ "type": "integer", "minimum": 1, "maximum": MAX_CONTEXT_BUDGET, "default": SummaryBudget::DEFAULT_TOKENS });
    vec![
        ApiRoute::read("/api/search", "search_tools", search_tools)
            .summary("Search tools by task, question or name")
            .required_query_param(
                "q",
                json!({ "type": "string", "minLength": 1 }),
                "Purpose of the tool, or its name in any spelling; the first 4096 bytes are read",
            )
            .query_param("limit", limit, "Maximum number of hits")
            .query_param("source", text(), "Only tools of this source")
            .query_param("tag", text(), "Only tools with this tag, of their own or of their source")
            .query_param("group", text(), "Only tools of this group")
            .json_response(200, "Found", "Best hit first")
            .conditional()
            .error_responses(&[400, 404]),
        ApiRoute::read("/api/context", "get_context", get_context)
            .summary("Summary for a system prompt: the most important tools, and how to find the others")
            .query_param("budget", budget, "Maximum number of tokens")
            .query_param("group", text(), "Only tools of this group")
            .json_response(200, "Context", "The text, its tokens, and the tokens of all definitions")
            .conditional()
            .error_responses(&[400, 404]),
    ]
}

/// `also` and `hint` are optional: identical tools of other sources, and `weak matches only` or a suggestion when nothing
/// was found.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let hit = object_schema(&[
        ("name", text()),
        ("score", json!({ "type": "number" })),
        ("signature", described(text(), "`name(required*: type, optional: type)`")),
        ("summary", text()),
    ]);
    let hit = with_optional(hit, &[("also", string_array())]);
    let found = object_schema(&[
        ("hits", array_of(schema_ref("Hit"))),
        (
            "total",
            described(count(), "Tools that words of the query match, without those that only a related word does"),
        ),
        ("tokens", described(count(), "Tokens that an agent needs to read the hits")),
    ]);
    let found = with_optional(found, &[("hint", text())]);
    let context = object_schema(&[("text", text()), ("tokens", count()), ("tokens_full", count()), ("tools", count())]);
    vec![("Hit", hit), ("Found", found), ("Context", context)]
}

/// `GET /api/search`.
async fn search_tools(request: AuthorizedRequest, uri: Uri, headers: HeaderMap) -> ApiResult {
    let AuthorizedRequest { app, client, .. } = request;
    let registry = app.registry.clone();
    let principal = client.principal.clone();
    let params = QueryParams::parse(uri.query().unwrap_or_default())?;
    let narrowed = params.narrow(&registry, &principal)?;
    // The other parameters are read only on a cache miss.
    let render = move |view: &View| {
        let query = Query {
            text: query_text(&params)?,
            limit: params.number("limit", 1..=MAX_SEARCH_HITS)?.map_or(Query::DEFAULT_LIMIT, |limit| limit as usize),
            source: params.source(&registry, &principal)?,
            tag: params.text("tag").map(str::to_owned),
        };
        let scope = params.list_scope(view, query.source.as_ref());
        render_body(&view.search(&query).to_response(), scope)
    };
    app.respond_cached(&narrowed, &uri, &headers, render).await
}

/// Returns the search text in `q`. An empty text counts as missing.
fn query_text(params: &QueryParams) -> Result<String> {
    let missing = || Error::new(Code::BadRequest, "`q` is missing; send a search text such as `q=create+an+issue`");
    params.text("q").map(str::to_owned).ok_or_else(missing)
}

/// `GET /api/context`.
async fn get_context(request: AuthorizedRequest, uri: Uri, headers: HeaderMap) -> ApiResult {
    let AuthorizedRequest { app, client, .. } = request;
    let params = QueryParams::parse(uri.query().unwrap_or_default())?;
    let principal = params.narrow(&app.registry, &client.principal)?;
    let view = app.registry.view(&principal);
    if view.sources().any(|source| !source.segment.has_token_counts()) {
        // The counts are also written to the store; a store that hangs must not block a read. Without them the summary
        // counts again.
        let _ = tokio::time::timeout(TOKEN_COUNT_TIMEOUT, app.registry.statistics().count_tokens()).await;
    }
    let render = move |view: &View| {
        let budget = params
            .number("budget", 1..=MAX_CONTEXT_BUDGET)?
            .map_or(SummaryBudget::DEFAULT_TOKENS, |budget| budget as usize);
        let scope = params.list_scope(view, None);
        render_body(&view.summary(SummaryBudget::from_tokens(budget)?), scope)
    };
    app.respond_cached(&principal, &uri, &headers, render).await
}

/// Serialises a body that has no further page.
fn render_body(value: &impl serde::Serialize, scope: ContentScope) -> Result<RenderedBody> {
    Ok(RenderedBody { body: response::to_json_bytes(value)?, link: None, scope })
}
