//! Paged lists of a server, within bounds: tools, prompts, resources and resource templates.
//!
//! A list is assembled page by page and fails as a whole when a bound is exceeded: a part of a list would look like
//! removed items. The items themselves are judged by the callers.

use std::collections::HashSet;

use serde_json::value::RawValue;

use super::McpClient;
use crate::{
    connection::OutgoingRequest,
    error::{RpcError, WireError},
    message::{RawObject, to_raw},
    options::RequestOptions,
};

/// A list method of the protocol, with the words of its error messages.
#[derive(Debug)]
pub struct ListMethod {
    /// Name of the method, such as `tools/list`.
    pub method: &'static str,
    /// Capability that a server with such a list declares.
    pub capability: &'static str,
    /// Name of the array in a result.
    items: &'static str,
    /// The list in messages, such as `tool list`.
    name: &'static str,
    too_many_bytes: &'static str,
    too_many_items: &'static str,
    too_many_pages: &'static str,
}

impl ListMethod {
    pub const TOOLS: ListMethod = ListMethod {
        method: "tools/list",
        capability: "tools",
        items: "tools",
        name: "tool list",
        too_many_bytes: "the tool list (in bytes)",
        too_many_items: "the number of tools",
        too_many_pages: "the number of pages of the tool list",
    };
    pub const PROMPTS: ListMethod = ListMethod {
        method: "prompts/list",
        capability: "prompts",
        items: "prompts",
        name: "prompt list",
        too_many_bytes: "the prompt list (in bytes)",
        too_many_items: "the number of prompts",
        too_many_pages: "the number of pages of the prompt list",
    };
    pub const RESOURCES: ListMethod = ListMethod {
        method: "resources/list",
        capability: "resources",
        items: "resources",
        name: "resource list",
        too_many_bytes: "the resource list (in bytes)",
        too_many_items: "the number of resources",
        too_many_pages: "the number of pages of the resource list",
    };
    pub const RESOURCE_TEMPLATES: ListMethod = ListMethod {
        method: "resources/templates/list",
        capability: "resources",
        items: "resourceTemplates",
        name: "list of resource templates",
        too_many_bytes: "the list of resource templates (in bytes)",
        too_many_items: "the number of resource templates",
        too_many_pages: "the number of pages of the list of resource templates",
    };
}

/// All items of a list, from all its pages.
#[derive(Debug, Default)]
pub struct ItemList {
    /// The items as the server sent them, in its order.
    pub items: Vec<Box<RawValue>>,
    /// Time to live in milliseconds: the smallest positive `ttlMs` of all pages. `None` if no page has one; 0 means "no
    /// hint", not "expired".
    pub ttl_ms: Option<u64>,
    /// Whether every page has the cache scope `public`, so that callers may share the list. Pages without a scope,
    /// which is all of the legacy era, count as private.
    pub public: bool,
}

impl McpClient {
    /// Whether the server declares that it has such a list. True for capabilities that cannot be read.
    pub fn declares(&self, list: &ListMethod) -> bool {
        let capabilities = RawObject::parse(&self.server.capabilities);
        capabilities.is_none_or(|capabilities| capabilities.get(list.capability).is_some())
    }

    /// Reads all pages of a list within the deadline of `options`, with `meta` in every request. Returns an empty list
    /// without a request when the server does not declare the capability, and when it does not know the method.
    pub async fn list_items(
        &self,
        list: &ListMethod,
        meta: Option<&RawValue>,
        options: &RequestOptions<'_>,
    ) -> Result<ItemList, WireError> {
        let limits = *self.connection.0.limits();
        let mut collected = ItemList { public: true, ..ItemList::default() };
        if !self.declares(list) {
            return Ok(collected);
        }
        let mut cursor = None::<String>;
        let mut seen_cursors = HashSet::new();
        let mut bytes = 0;
        for _ in 0..limits.max_pages {
            let mut params = RawObject::default();
            // The cursor is opaque and sent back as it came.
            if let Some(cursor) = &cursor {
                params.set("cursor", to_raw(cursor)?);
            }
            if let Some(meta) = meta {
                params.set_borrowed("_meta", meta);
            }
            let params = if cursor.is_some() || meta.is_some() { Some(params.to_raw()?) } else { None };
            let headers = options.headers.clone();
            let request = OutgoingRequest { method: list.method, params: params.as_deref(), headers };
            let result = match self.connection.0.request(&request, options).await {
                // The server declares the capability without implementing the method: it has no items.
                Err(WireError::Rpc(error)) if error.code == RpcError::METHOD_NOT_FOUND && cursor.is_none() => {
                    return Ok(collected);
                }
                outcome => outcome?,
            };
            // Counted before the page is parsed, so that a list of many large pages ends early.
            bytes += result.get().len();
            if bytes > limits.max_list_bytes {
                return Err(WireError::TooLarge { what: list.too_many_bytes, limit: limits.max_list_bytes });
            }
            let next = append_page(list, &result, &mut collected)?;
            if collected.items.len() > limits.max_tools {
                return Err(WireError::TooLarge { what: list.too_many_items, limit: limits.max_tools });
            }
            let Some(next) = next else { return Ok(collected) };
            // A server that ignores the cursor returns the same page for ever.
            if !seen_cursors.insert(next.clone()) {
                return Err(WireError::Protocol(format!("its {} repeats a page and would never end", list.name)));
            }
            cursor = Some(next);
        }
        Err(WireError::TooLarge { what: list.too_many_pages, limit: limits.max_pages })
    }
}

/// Adds one page to the list and returns the cursor of the next page.
fn append_page(list: &ListMethod, result: &RawValue, collected: &mut ItemList) -> Result<Option<String>, WireError> {
    let no_list = || {
        let message = format!("its response to `{}` has no array of {}", list.method, list.items);
        WireError::Protocol(message)
    };
    // Fields are raw, so that a wrong type in a hint does not lose the page.
    let page = RawObject::parse(result).ok_or_else(no_list)?;
    let items: Option<Vec<&RawValue>> = page.get(list.items).and_then(|raw| serde_json::from_str(raw.get()).ok());
    collected.items.extend(items.ok_or_else(no_list)?.into_iter().map(ToOwned::to_owned));
    // A merged list is valid as long as its shortest-lived page. A value of another type counts as no hint.
    let ttl = page.get("ttlMs").and_then(|ttl| ttl.get().parse::<u64>().ok()).filter(|ttl| *ttl > 0);
    collected.ttl_ms = [collected.ttl_ms, ttl].into_iter().flatten().min();
    collected.public &= page.get("cacheScope").is_some_and(|scope| scope.get() == "\"public\"");
    // An empty cursor counts as none.
    Ok(page.get_string("nextCursor").filter(|cursor| !cursor.is_empty()))
}
