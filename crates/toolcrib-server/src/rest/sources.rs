//! Reads sources. Makes no network requests and starts no process.
//!
//! The fields of a source are those of `SourceView`. Some keep the word of an earlier version, because programs read
//! them: `connection: "resting"` is an open circuit breaker, `set_aside` are the skipped tools.

use std::sync::Arc;

use axum::http::HeaderMap;
use serde_json::{Value, json};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::registry::SourcesVersion;
use toolcrib::store::NodeStatus;

use super::error::ApiResult;
use super::openapi_schema::{
    array_of, boolean, count, described, nullable, object_schema, string_array, string_enum, text, timestamp,
    with_optional,
};
use super::precondition::source_etag;
use super::query::{PathParam, find_source_id};
use super::response::{TaggedResponse, make_weak_etag, tagged_json, to_json_bytes};
use super::route::{ApiRoute, schema_ref};
use crate::auth::AuthorizedRequest;
use crate::view_cache::{CachedSize, ViewCache};

/// The list supports conditional requests. The tag of a single source is for `If-Match`.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::read("/api/sources", "list_sources", list_sources)
            .summary("Every source with its status; makes no network requests and starts no process")
            .json_response(200, "Sources", "Sources in the order of their ids")
            .conditional(),
        ApiRoute::read("/api/sources/{id}", "get_source", get_source)
            .summary("One source with its status; makes no network requests and starts no process")
            .source_param()
            .json_response(200, "Source", "The source")
            .tagged(200)
            .error_responses(&[404]),
    ]
}

/// `Failure` is the short form of an error, which several schemas refer to.
pub(super) fn schemas() -> Vec<(&'static str, Value)> {
    let failure = object_schema(&[("code", schema_ref("Code")), ("message", text()), ("retryable", boolean())]);
    let breaker =
        object_schema(&[("state", string_enum(&["closed", "open", "half_open"])), ("retry_at", nullable(timestamp()))]);
    let skipped_tool = object_schema(&[("name", text()), ("reason", text())]);
    let source = object_schema(&[
        ("id", described(text(), "Prefix of its tools: `id__tool`")),
        ("title", nullable(text())),
        ("kind", text()),
        ("origin", string_enum(&["config", "runtime"])),
        ("transport", nullable(text())),
        ("command", nullable(text())),
        ("args", nullable(string_array())),
        ("url", nullable(text())),
        ("enabled", boolean()),
        ("status", string_enum(&["never", "discovering", "success", "failed"])),
        ("freshness", string_enum(&["fresh", "stale", "missing"])),
        ("health", string_enum(&["ok", "degraded", "down", "unknown"])),
        ("tool_count", count()),
        ("prompt_count", count()),
        ("resource_count", count()),
        ("resource_template_count", count()),
        ("inventory_hash", nullable(text())),
        ("config_hash", nullable(text())),
        ("last_checked", nullable(timestamp())),
        ("last_error", nullable(schema_ref("Failure"))),
        ("ttl_ms", count()),
        ("discovery_timeout_ms", count()),
        ("connection", string_enum(&["none", "connected", "resting"])),
        ("failures", described(count(), "Consecutive failures of discoveries and calls")),
        ("failing_since", nullable(timestamp())),
        ("breaker", schema_ref("Breaker")),
        ("set_aside", array_of(skipped_tool)),
    ]);
    let instructions = described(text(), "Instructions of an MCP server for models; of a single source only");
    let tool_names = described(string_array(), "Names of its tools; of a single source only");
    let nodes = described(string_array(), "Labels of the nodes that may start it; every node without it");
    let optional = [("instructions", instructions), ("nodes", nodes), ("tools", tool_names)];
    let source = with_optional(source, &optional);
    let node = object_schema(&[
        ("id", described(text(), "Unique id of the process")),
        ("label", text()),
        ("version", text()),
        ("position", described(count(), "Number of the last record that it has applied")),
        ("lag", described(count(), "Records that it has not applied yet")),
        ("last_seen_ms", described(count(), "Time since its last report")),
        ("alive", described(boolean(), "Whether it reports regularly")),
    ]);
    let sources = object_schema(&[("sources", array_of(schema_ref("Source")))]);
    let nodes = described(
        array_of(schema_ref("Node")),
        "Nodes that share the store; only with a store for several nodes, and not for callers that are limited to groups. Of them the `ETag`, which is weak then, covers id, label, version and `alive`",
    );
    let sources = with_optional(sources, &[("nodes", nodes)]);
    vec![("Source", source), ("Sources", sources), ("Node", node), ("Failure", failure), ("Breaker", breaker)]
}

/// Cache of the rendered source list, by the key of the client's scope. Separate from
/// [`ResponseCache`](super::ResponseCache), because the list also depends on the clock (freshness) and on connection
/// states. Not by the key of the view: the list has sources without tools, which are in no view, so that two scopes
/// with the same view may have different lists.
pub(crate) type SourceListCache = ViewCache<CachedSourceList, Fingerprint>;

/// A rendered list of sources, with the version that it shows.
#[derive(Debug)]
pub(crate) struct CachedSourceList {
    version: SourcesVersion,
    response: TaggedResponse,
}

impl CachedSize for CachedSourceList {
    fn cached_bytes(&self) -> usize {
        self.response.body.len()
    }
}

/// `GET /api/sources`.
async fn list_sources(AuthorizedRequest { app, client, .. }: AuthorizedRequest, headers: HeaderMap) -> ApiResult {
    let sources = app.registry.sources();
    let is_current = |cached: &CachedSourceList| sources.is_current(&cached.version);
    let scope = app.registry.scope(&client.principal).key();
    let cache = &app.source_list_cache;
    // Read for each response, since positions change all the time.
    let nodes = app.registry.store().nodes_for(&client.principal);
    if let Some(cached) = cache.get(scope).filter(|cached| is_current(cached)) {
        return to_response(&cached.response, nodes.as_deref(), &headers);
    }
    // The version is taken before the list is read: a change in between makes the entry outdated, never wrong.
    let version = sources.version();
    let response =
        TaggedResponse::from_body(to_json_bytes(&json!({ "sources": sources.list_for(&client.principal) }))?);
    let rendered = Arc::new(CachedSourceList { version, response });
    cache.insert(scope, &rendered, is_current);
    to_response(&rendered.response, nodes.as_deref(), &headers)
}

/// Builds the response of a list of sources, with the nodes that share the store. The tag covers the sources, and which
/// nodes there are and are alive; with their positions and times it would never be the same twice. It is weak, because
/// the bytes may differ under one tag.
fn to_response(sources: &TaggedResponse, nodes: Option<&Vec<NodeStatus>>, headers: &HeaderMap) -> ApiResult {
    let Some(nodes) = nodes else { return Ok(sources.to_response(headers)) };
    // The body is an object that ends after its last member.
    let mut body = sources.body.strip_suffix(b"}").unwrap_or(&sources.body).to_vec();
    body.extend_from_slice(b",\"nodes\":");
    body.extend_from_slice(&to_json_bytes(nodes)?);
    body.push(b'}');
    let states: Vec<_> = nodes.iter().map(|node| (&node.id, &node.label, &node.version, node.alive)).collect();
    let mut tagged = sources.etag.as_bytes().to_vec();
    tagged.extend_from_slice(&to_json_bytes(&states)?);
    Ok(TaggedResponse { body: body.into(), etag: make_weak_etag(tagged), ..sources.clone() }.to_response(headers))
}

/// `GET /api/sources/{id}`.
async fn get_source(AuthorizedRequest { app, client, .. }: AuthorizedRequest, PathParam(name): PathParam) -> ApiResult {
    let id = find_source_id(&app.registry, &client.principal, &name)?;
    let sources = app.registry.sources();
    let mut found: Vec<_> = sources.get_for(&client.principal, &id).into_iter().collect();
    sources.add_tool_names(&client.principal, &mut found);
    let unknown = || app.registry.visibility(&client.principal).unknown_source_error(id.as_str());
    let source = found.pop().ok_or_else(unknown)?;
    tagged_json(&source, source_etag(&app.registry, &source))
}
