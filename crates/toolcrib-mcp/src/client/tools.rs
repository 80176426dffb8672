//! `tools/list`, and `tools/call` with the headers that repeat its arguments. `lists` reads the pages.
//!
//! A list is assembled tool by tool: one malformed tool is skipped with a reason and the others stay.
//! Only what the wire needs is checked here (an object with a name, valid `x-mcp-header` keywords); everything else
//! about a tool is judged by the layer above.

use std::time::Duration;

use http::HeaderMap;
use serde_json::value::RawValue;

use super::{
    McpClient,
    lists::{ItemList, ListMethod},
};
use crate::{
    connection::{ClientTransport, OutgoingRequest},
    era::Era,
    error::WireError,
    headers,
    message::{RawObject, empty_object, to_raw},
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
        let ItemList { items, ttl_ms, public } = self.list_items(&ListMethod::TOOLS, meta, options).await?;
        let mut list = ToolList { ttl_ms, public, ..ToolList::default() };
        // Positions in the whole list, from 1, name the tools without a name.
        for (tool, number) in items.into_iter().zip(1..) {
            match self.check_tool(&tool) {
                Ok(()) => list.tools.push(tool),
                Err((name, reason)) => {
                    let name = name.unwrap_or_else(|| format!("(tool {number})"));
                    tracing::warn!(tool = name, reason, "skipped an invalid tool");
                    list.skipped.push((name, reason));
                }
            }
        }
        Ok(list)
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
    /// headers too, so pass it there. Waits for a task if the server makes one. `meta` is forwarded, except for hop-by-hop keys such as the progress token.
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
        let as_task = options.as_task && self.offers_tool_tasks();
        if as_task {
            params.set("task", empty_object());
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
        self.call_with_tasks(&request, options, handler).await
    }

    /// Whether argument headers (`Mcp-Param-*`) are part of this transport and era.
    fn sends_argument_headers(&self) -> bool {
        self.era == Era::Modern && matches!(self.connection.0.transport, ClientTransport::Http(_))
    }
}
