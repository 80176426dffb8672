//! [`UpstreamLists`]: lists of prompts, resources and resource templates, merged from all sources. Unlike tools they are
//! not stored: each list request is sent to the sources.
//!
//! An item keeps every field that its source sent. Names and URIs get the prefix, titles and descriptions are cleaned:
//! ```text
//! { "name": "review", "description": "Review a change" }          from the source `git`
//! { "name": "git__review", "description": "Review a change" }     as listed, with `expose.prefix`
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolcrib::call::{CallDeadline, ClientId, McpCapability};
use toolcrib::config::Expose;
use toolcrib::core::json::{RawFields, raw_string};
use toolcrib::core::text::{is_sanitized, sanitize, sanitize_truncated};
use toolcrib::{CallContext, Error, Registry, Result, SourceId};
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::McpRequest;

use super::client_state::ClientStates;
use super::request_caller;
use super::response::{McpResult, invalid_params, list_result, to_raw};
use super::tools_list::cache_hints;

/// Prompts, resources, completions and subscriptions: the requests that are answered by one source, and the lists of all
/// of them. Cheap to clone. The requests are in `prompts` and `resources`.
#[derive(Debug, Clone)]
pub(super) struct UpstreamLists {
    pub(super) registry: Registry,
    /// The `expose` section of the configuration.
    pub(super) expose: watch::Receiver<Arc<Expose>>,
    /// Has the subscriptions of each client.
    pub(super) clients: Arc<ClientStates>,
}

/// One kind of list.
pub(super) struct ListKind {
    /// Capability that a source needs to have such a list.
    pub(super) capability: McpCapability,
    pub(super) method: &'static str,
    /// Name of the array in the result.
    pub(super) items: &'static str,
    /// Field that identifies an item.
    pub(super) key: &'static str,
}

/// One item of a list, with the source that listed it.
pub(super) struct ListItem {
    pub(super) source: SourceId,
    /// All fields as the source sent them, so that unknown ones are passed on.
    pub(super) fields: RawFields,
    /// Key of the item at its source.
    pub(super) upstream_key: String,
}

/// Timeout for one source; a slow source delays the merged list no longer than this.
const SOURCE_LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of sources listed at the same time. A list may have to start their servers.
const MAX_CONCURRENT_SOURCES: usize = 8;
/// Maximum number of pages read from one source. A source that returns a new cursor for ever is cut off here.
const MAX_LIST_PAGES: usize = 50;
/// Maximum number of items of a merged list. Also bounds the items that are read from a single source. The rest is left
/// out of the list.
const MAX_LIST_ITEMS: usize = 10_000;

impl UpstreamLists {
    /// Collects the items of all sources. Sources that fail are logged and skipped.
    pub(super) async fn collect_items(&self, list: &ListKind, request: &McpRequest) -> Vec<ListItem> {
        let mut requests = Vec::new();
        for source in self.registry.sources().with_capability(list.capability) {
            requests.push(async move { (self.list_from_source(list, &source, request).await, source) });
        }
        // `buffered` keeps the order of the sources, so the same items give the same list.
        let mut results = stream::iter(requests).buffered(MAX_CONCURRENT_SOURCES);
        let mut items = Vec::new();
        while let Some((result, source)) = results.next().await {
            match result {
                Ok(source_items) => items.extend(source_items),
                Err(error) => tracing::warn!(server_name = %source, %error, "skipped in `{}`", list.method),
            }
        }
        items.truncate(MAX_LIST_ITEMS);
        items
    }

    /// Reads all pages of one source's list.
    async fn list_from_source(
        &self,
        list: &ListKind,
        source: &SourceId,
        request: &McpRequest,
    ) -> Result<Vec<ListItem>> {
        let mut items = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_LIST_PAGES {
            let params = cursor.take().map(|cursor: String| to_raw(&json!({ "cursor": cursor })));
            let context =
                CallContext { deadline: Some(CallDeadline::after(SOURCE_LIST_TIMEOUT)), ..client_context(request) };
            let result = self.registry.send_request(source, list.method, params.as_deref(), &context).await?;
            let mut page = RawFields::parse(&result).unwrap_or_default();
            let array = page.remove(list.items);
            let raw_items: Vec<Box<RawValue>> =
                array.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
            for raw in raw_items {
                // A malformed item is skipped; the others of the page stay.
                let Some(mut fields) = RawFields::parse(&raw) else { continue };
                let Some(upstream_key) = text_field(&fields, list.key) else { continue };
                sanitize_fields(&mut fields);
                items.push(ListItem { source: source.clone(), fields, upstream_key });
            }
            cursor = text_field(&page, "nextCursor");
            if cursor.is_none() || items.len() >= MAX_LIST_ITEMS {
                break;
            }
        }
        Ok(items)
    }

    /// Finds the source of an item by its upstream key: the only source with such a list, or the only one that lists
    /// the item. When several do, the error names them with `full_name`. With several sources this lists all of them,
    /// which is slow; clients that use the public name avoid it.
    pub(super) async fn find_owner(
        &self,
        list: &ListKind,
        upstream_key: &str,
        request: &McpRequest,
        full_name: impl Fn(&SourceId) -> String,
    ) -> Result<Option<SourceId>, RpcError> {
        let sources = self.registry.sources().with_capability(list.capability);
        if sources.len() < 2 {
            return Ok(sources.into_iter().next());
        }
        let items = self.collect_items(list, request).await.into_iter();
        let mut owners: Vec<SourceId> =
            items.filter(|item| item.upstream_key == upstream_key).map(|item| item.source).collect();
        // Items of one source are adjacent, so this leaves each source once.
        owners.dedup();
        if owners.len() < 2 {
            return Ok(owners.into_iter().next());
        }
        let names: Vec<String> = owners.iter().map(|source| format!("`{}`", full_name(source))).collect();
        Err(invalid_params(&format!(
            "`{}` is offered by several sources: {}",
            sanitize_truncated(upstream_key, 200),
            names.join(", ")
        )))
    }

    /// Renders the result of a list request, sorted by key so that an unchanged list is byte-identical.
    pub(super) fn render_list(&self, list: &ListKind, mut items: Vec<ListItem>, request: &McpRequest) -> McpResult {
        items.sort_by(|a, b| {
            (a.fields.get(list.key).map(RawValue::get)).cmp(&b.fields.get(list.key).map(RawValue::get))
        });
        let items = items.iter().map(|item| Box::<str>::from(to_raw(&item.fields)));
        list_result(list.items, items, &cache_hints(&self.registry, request))
    }

    /// Returns the source with this id, if it has the capability.
    pub(super) fn find_capable_source(&self, capability: McpCapability, id: &str) -> Option<SourceId> {
        self.registry.sources().with_capability(capability).into_iter().find(|source| source.as_str() == id)
    }

    /// True when names and URIs carry their source (`expose.prefix`).
    pub(super) fn has_prefixes(&self) -> bool {
        self.expose.borrow().prefix
    }
}

/// Removes control characters and the like from the texts that users and models read, as for tools.
fn sanitize_fields(fields: &mut RawFields) {
    for key in ["title", "description"] {
        if let Some(text) = text_field(fields, key).filter(|text| !is_sanitized(text)) {
            set_text_field(fields, key, &sanitize(&text));
        }
    }
}

/// Returns a string field.
pub(super) fn text_field(fields: &RawFields, key: &str) -> Option<String> {
    fields.get(key).and_then(|raw| serde_json::from_str(raw.get()).ok())
}

/// Sets a string field, at its place if it exists.
pub(super) fn set_text_field(fields: &mut RawFields, key: &str, value: &str) {
    fields.insert(key, raw_string(value));
}

/// Returns the context of a request to a source on behalf of the client.
pub(super) fn client_context(request: &McpRequest) -> CallContext {
    CallContext {
        caller: request_caller(&request.extensions, request.peer.name.as_deref()),
        cancel: request.cancel.clone(),
        client: Some(ClientId(request.peer.id)),
        stateless: request.peer.is_stateless,
        ..CallContext::default()
    }
}

/// `NOT_FOUND` for an item that no source offers; `what` is its kind, such as `prompt`.
pub(super) fn not_found_error(what: &str, name: &str) -> Error {
    let name = sanitize_truncated(name, 200);
    Error::new(toolcrib::Code::NotFound, format!("no {what} named `{name}`"))
}
