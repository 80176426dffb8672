//! `tools/list` with pagination and bounds, and `tools/call` with the headers that repeat its arguments.
//!
//! A list is assembled page by page, tool by tool: one malformed tool is skipped with a reason and the others stay.
//! Only what the wire needs is checked here (an object with a name, valid `x-mcp-header` keywords); everything else
//! about a tool is judged by the layer above.

use std::{collections::HashSet, time::Duration};

use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{McpClient, input_required};
use crate::{
    connection::{ClientTransport, OutgoingRequest},
    era::Era,
    error::{RpcError, WireError},
    headers,
    message::{RawObject, to_raw},
    options::RequestOptions,
};

/// All tools of a server, from all pages of its list.
#[derive(Debug, Default)]
pub struct ToolList {
    /// The tools as the server sent them, in its order.
    pub tools: Vec<Box<RawValue>>,
    /// Time to live in milliseconds: the smallest positive `ttlMs` of all pages. `None` if no page has one; 0 means "no
    /// hint", not "expired".
    pub ttl_ms: Option<u64>,
    /// Whether every page has the cache scope `public`, so that callers may share the list. Pages without a scope,
    /// which is all of the legacy era, count as private.
    pub public: bool,
    /// Names of invalid tools, which are not in `tools`, each with the reason. A tool without a name is listed by its
    /// position, such as `(tool 3)`.
    pub skipped: Vec<(String, String)>,
}

/// One page of `tools/list`. Fields are raw, so that a wrong type in a hint does not lose the page.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolListPage<'a> {
    #[serde(borrow)]
    tools: &'a RawValue,
    #[serde(borrow, default)]
    next_cursor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    ttl_ms: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cache_scope: Option<&'a RawValue>,
}

impl McpClient {
    /// Lists all tools, page by page, within one deadline. Returns an empty list without a request when the server
    /// declares no `tools` capability. Fails as a whole when a bound is exceeded: a part of a list would look like
    /// removed tools.
    pub async fn list_tools(&self, timeout: Duration) -> Result<ToolList, WireError> {
        self.list_tools_with(None, &RequestOptions::new(timeout)).await
    }

    /// Like [`McpClient::list_tools`], with `_meta` in every request. `options` apply to each of them.
    pub async fn list_tools_with(
        &self,
        meta: Option<&RawValue>,
        options: &RequestOptions<'_>,
    ) -> Result<ToolList, WireError> {
        let limits = *self.connection.0.limits();
        let mut list = ToolList { public: true, ..ToolList::default() };
        if RawObject::parse(&self.server.capabilities).is_some_and(|capabilities| capabilities.get("tools").is_none()) {
            return Ok(list);
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
            let request = OutgoingRequest { method: "tools/list", params: params.as_deref(), headers };
            let result = match self.connection.0.request(&request, options).await {
                // The server declares tools without implementing the method: it has none.
                Err(WireError::Rpc(error)) if error.code == RpcError::METHOD_NOT_FOUND && cursor.is_none() => {
                    return Ok(list);
                }
                outcome => outcome?,
            };
            // Counted before the page is parsed, so that a list of many large pages ends early.
            bytes += result.get().len();
            if bytes > limits.max_list_bytes {
                return Err(WireError::TooLarge { what: "the tool list (in bytes)", limit: limits.max_list_bytes });
            }
            let next = self.append_page(&result, &mut list)?;
            if list.tools.len() > limits.max_tools {
                return Err(WireError::TooLarge { what: "the number of tools", limit: limits.max_tools });
            }
            let Some(next) = next else { return Ok(list) };
            // A server that ignores the cursor returns the same page for ever.
            if !seen_cursors.insert(next.clone()) {
                return Err(WireError::Protocol("its tool list repeats a page and would never end".to_owned()));
            }
            cursor = Some(next);
        }
        Err(WireError::TooLarge { what: "the number of pages of the tool list", limit: limits.max_pages })
    }

    /// Adds one page to the list and returns the cursor of the next page.
    fn append_page(&self, result: &RawValue, list: &mut ToolList) -> Result<Option<String>, WireError> {
        let no_list = || WireError::Protocol("its response to `tools/list` has no array of tools".to_owned());
        let page: ToolListPage<'_> = serde_json::from_str(result.get()).map_err(|_| no_list())?;
        let tools: Vec<&RawValue> = serde_json::from_str(page.tools.get()).map_err(|_| no_list())?;
        for tool in tools {
            // The position in the whole list, from 1, for tools without a name.
            let number = list.tools.len() + list.skipped.len() + 1;
            match self.check_tool(tool) {
                Ok(()) => list.tools.push(tool.to_owned()),
                Err((name, reason)) => {
                    let name = name.unwrap_or_else(|| format!("(tool {number})"));
                    tracing::warn!(tool = name, reason, "skipped an invalid tool");
                    list.skipped.push((name, reason));
                }
            }
        }
        // A merged list is valid as long as its shortest-lived page. A value of another type counts as no hint.
        let ttl = page.ttl_ms.and_then(|ttl| ttl.get().parse::<u64>().ok()).filter(|ttl| *ttl > 0);
        list.ttl_ms = [list.ttl_ms, ttl].into_iter().flatten().min();
        list.public &= page.cache_scope.is_some_and(|scope| scope.get() == "\"public\"");
        let next: Option<String> = page.next_cursor.and_then(|cursor| serde_json::from_str(cursor.get()).ok());
        // An empty cursor counts as none.
        Ok(next.filter(|cursor| !cursor.is_empty()))
    }

    /// Checks what the wire itself needs of a tool; returns its name, if it has one, and the reason otherwise.
    fn check_tool(&self, tool: &RawValue) -> Result<(), (Option<String>, String)> {
        let tool = RawObject::parse(tool).ok_or_else(|| (None, "it is not an object".to_owned()))?;
        let name = tool.get_string("name").ok_or_else(|| {
            // A string that cannot be decoded holds a lone surrogate escape.
            let is_string = tool.get("name").is_some_and(|name| name.get().starts_with('"'));
            (None, if is_string { "its name is not valid Unicode" } else { "it has no name" }.to_owned())
        })?;
        match tool.get("inputSchema") {
            Some(schema) if self.sends_argument_headers() => {
                headers::check_header_parameters(schema).map_err(|reason| (Some(name), reason))
            }
            _ => Ok(()),
        }
    }

    /// Calls a tool. Over HTTP of 2026-07-28, arguments that `input_schema` marks with `x-mcp-header` are sent as
    /// headers too, so pass it there. `meta` is forwarded, except for hop-by-hop keys such as the progress token.
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: &RawValue,
        input_schema: Option<&RawValue>,
        meta: Option<&RawValue>,
        options: &RequestOptions<'_>,
    ) -> Result<Box<RawValue>, WireError> {
        let mut params = RawObject::default();
        params.set("name", to_raw(name)?);
        params.set_borrowed("arguments", arguments);
        if let Some(meta) = meta {
            params.set_borrowed("_meta", meta);
        }
        let params = params.to_raw()?;
        let mut headers = match input_schema {
            Some(schema) if self.sends_argument_headers() => headers::argument_headers(schema, arguments),
            _ => HeaderMap::new(),
        };
        // The caller's headers last: they replace generated ones of the same name.
        headers.extend(options.headers.clone());
        let request = OutgoingRequest { method: "tools/call", params: Some(&params), headers };
        let handler = options.handler.or(self.connection.0.options.handler.as_ref());
        input_required::request_with_input(&self.connection.0, &request, options, handler).await
    }

    /// Whether argument headers (`Mcp-Param-*`) are part of this transport and era.
    fn sends_argument_headers(&self) -> bool {
        self.era == Era::Modern && matches!(self.connection.0.transport, ClientTransport::Http(_))
    }
}
