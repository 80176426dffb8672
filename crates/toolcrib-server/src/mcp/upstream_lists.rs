//! What sources keep besides tools: prompts, resources and templates, asked for when a client lists them.
//! Names and addresses carry their source, as those of tools do.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use serde_json::value::RawValue;
use toolcrib::call::{ClientId, McpCapability};
use toolcrib::core::json::{RawFields, raw_string};
use toolcrib::core::text::{is_sanitized, sanitize, sanitize_truncated};
use toolcrib::{CallOptions, Error, Result, SourceId};
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::McpRequest;

use super::McpService;
use super::response::{McpResult, invalid_params, to_raw};

/// One kind of thing that sources list.
pub(super) struct ListKind {
    pub(super) offering: McpCapability,
    pub(super) method: &'static str,
    /// The array in the result.
    pub(super) items: &'static str,
    /// The field that tells one from another.
    pub(super) key: &'static str,
}

pub(super) struct ListItem {
    pub(super) source: SourceId,
    pub(super) fields: RawFields,
    /// The source's own key.
    pub(super) upstream_key: String,
}

/// One slow source holds no list up for longer.
const SOURCE_LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Servers may have to be started for this.
const MAX_CONCURRENT_SOURCES: usize = 8;
const MAX_LIST_PAGES: usize = 50;
const MAX_LIST_ITEMS: usize = 10_000;

impl McpService {
    /// Everything on a shelf, of every source that answers.
    pub(super) async fn collect_items(&self, shelf: &ListKind, request: &McpRequest) -> Vec<ListItem> {
        let mut asking = Vec::new();
        for source in self.registry.sources_with_capability(shelf.offering) {
            asking.push(async move { (self.list_from_source(shelf, &source, request).await, source) });
        }
        let mut answers = stream::iter(asking).buffered(MAX_CONCURRENT_SOURCES);
        let mut items = Vec::new();
        while let Some((found, source)) = answers.next().await {
            match found {
                Ok(found) => items.extend(found),
                Err(error) => tracing::warn!(server_name = %source, %error, "left out of `{}`", shelf.method),
            }
        }
        items.truncate(MAX_LIST_ITEMS);
        items
    }

    async fn list_from_source(
        &self,
        shelf: &ListKind,
        source: &SourceId,
        request: &McpRequest,
    ) -> Result<Vec<ListItem>> {
        let (mut items, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_LIST_PAGES {
            let params = cursor.take().map(|cursor: String| to_raw(&json!({ "cursor": cursor })));
            let result = self
                .registry
                .send_request(source, shelf.method, params, request_options(request, Some(SOURCE_LIST_TIMEOUT)))
                .await?;
            let mut page = RawFields::parse(&result).unwrap_or_default();
            let listed = page.remove(shelf.items);
            let listed: Vec<Box<RawValue>> =
                listed.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
            for raw in listed {
                // One that is malformed is left out; its siblings stay.
                let Some(mut fields) = RawFields::parse(&raw) else { continue };
                let Some(own) = text_field(&fields, shelf.key) else { continue };
                sanitize_fields(&mut fields);
                items.push(ListItem { source: source.clone(), fields, upstream_key: own });
            }
            cursor = text_field(&page, "nextCursor");
            if cursor.is_none() || items.len() >= MAX_LIST_ITEMS {
                break;
            }
        }
        Ok(items)
    }

    /// Whose thing it is, by its own key: the only source that offers any, or the only one that lists it. Where several
    /// do, they are told, with the names in full.
    pub(super) async fn find_owner(
        &self,
        shelf: &ListKind,
        own: &str,
        request: &McpRequest,
        full: impl Fn(&SourceId) -> String,
    ) -> Result<Option<SourceId>, RpcError> {
        let offering = self.registry.sources_with_capability(shelf.offering);
        if offering.len() < 2 {
            return Ok(offering.into_iter().next());
        }
        let listed = self.collect_items(shelf, request).await.into_iter().filter(|item| item.upstream_key == own);
        let mut owners: Vec<SourceId> = listed.map(|item| item.source).collect();
        owners.dedup();
        if owners.len() < 2 {
            return Ok(owners.into_iter().next());
        }
        let names: Vec<String> = owners.iter().map(|source| format!("`{}`", full(source))).collect();
        Err(invalid_params(&format!(
            "`{}` is offered by several sources: {}",
            sanitize_truncated(own, 200),
            names.join(", ")
        )))
    }

    /// A list as the protocol has it, in the order of the keys.
    pub(super) fn render_list(&self, shelf: &ListKind, mut items: Vec<ListItem>, request: &McpRequest) -> McpResult {
        items.sort_by(|one, other| {
            (one.fields.get(shelf.key).map(RawValue::get)).cmp(&other.fields.get(shelf.key).map(RawValue::get))
        });
        let mut list = format!("{{\"{}\":[", shelf.items);
        for (index, item) in items.iter().enumerate() {
            list.push_str(if index > 0 { "," } else { "" });
            list.push_str(to_raw(&item.fields).get());
        }
        list.push(']');
        list.push_str(&self.cache_hints(request));
        list.push('}');
        RawValue::from_string(list).map_err(|_| invalid_params("the list cannot be written"))
    }

    pub(super) fn has_prefixes(&self) -> bool {
        self.expose.borrow().prefix
    }
}

/// What people and agents read is as harmless as that of tools.
fn sanitize_fields(fields: &mut RawFields) {
    for key in ["title", "description"] {
        if let Some(said) = text_field(fields, key).filter(|said| !is_sanitized(said)) {
            set_text_field(fields, key, &sanitize(&said));
        }
    }
}

pub(super) fn text_field(fields: &RawFields, key: &str) -> Option<String> {
    fields.get(key).and_then(|raw| serde_json::from_str(raw.get()).ok())
}

pub(super) fn set_text_field(fields: &mut RawFields, key: &str, value: &str) {
    fields.insert(key, raw_string(value));
}

/// For whom a source is asked, and for how long.
pub(super) fn request_options(request: &McpRequest, timeout: Option<Duration>) -> CallOptions {
    CallOptions {
        timeout,
        cancel: request.cancel.clone(),
        client: Some(ClientId(request.peer.id)),
        stateless: request.peer.is_stateless,
        ..CallOptions::default()
    }
}

pub(super) fn not_found_error(what: &str, name: &str) -> Error {
    let name = sanitize_truncated(name, 200);
    Error::new(toolcrib::Code::NotFound, format!("no {what} named `{name}`"))
}
