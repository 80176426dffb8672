//! Listing and calling tools.

use std::{collections::HashSet, time::Duration};

use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{McpClient, input_required};
use crate::{
    connection::{ClientTransport, OutgoingRequest, RequestContext, deadline_after},
    era::Era,
    error::{RpcError, WireError},
    headers,
    message::{RawObject, to_raw},
    options::RequestOptions,
};

/// All tools of a server, each as it sent it.
#[derive(Debug, Default)]
pub struct ToolList {
    pub tools: Vec<Box<RawValue>>,
    /// How long the server thinks its list holds: the smallest positive of its pages.
    pub ttl_ms: Option<u64>,
    /// Whether every page said that its list may be shared between callers.
    pub public: bool,
    /// What was left out, by name, and why.
    pub excluded: Vec<(String, String)>,
}

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
    /// Lists all tools, page by page, within one deadline. A server that announces no tools has none.
    pub async fn list_tools(&self, timeout: Duration) -> Result<ToolList, WireError> {
        self.list_tools_with(None, &RequestOptions::new(timeout)).await
    }

    /// The same, with `_meta` in every request and the headers of the options; nothing else of them counts.
    pub async fn list_tools_with(
        &self,
        meta: Option<&RawValue>,
        options: &RequestOptions,
    ) -> Result<ToolList, WireError> {
        let terms = RequestContext::with_deadline(deadline_after(options.timeout));
        let limits = *self.connection.0.limits();
        let mut list = ToolList { public: true, ..ToolList::default() };
        if RawObject::parse(&self.server.capabilities).is_some_and(|capabilities| capabilities.get("tools").is_none()) {
            return Ok(list);
        }
        let (mut cursor, mut cursors, mut bytes) = (None::<String>, HashSet::new(), 0);
        for _ in 0..limits.pages {
            let mut params = RawObject::default();
            if let Some(cursor) = &cursor {
                params.set("cursor", to_raw(cursor)?);
            }
            if let Some(meta) = meta {
                params.set_borrowed("_meta", meta);
            }
            let params = if cursor.is_some() || meta.is_some() { Some(params.to_raw()?) } else { None };
            let headers = options.headers.clone();
            let ask = OutgoingRequest { method: "tools/list", params: params.as_deref(), headers, relay: None };
            let result = match self.connection.0.request(&ask, &terms).await {
                Err(WireError::Rpc(error)) if error.code == RpcError::METHOD_NOT_FOUND && cursor.is_none() => {
                    return Ok(list);
                }
                outcome => outcome?,
            };
            bytes += result.get().len();
            if bytes > limits.list_bytes {
                return Err(WireError::TooLarge { what: "the tool list (in bytes)", limit: limits.list_bytes });
            }
            let next = self.append_page(&result, &mut list)?;
            if list.tools.len() > limits.tools {
                return Err(WireError::TooLarge { what: "the number of tools", limit: limits.tools });
            }
            let Some(next) = next else { return Ok(list) };
            if !cursors.insert(next.clone()) {
                return Err(WireError::Protocol("its tool list repeats a page and would never end".to_owned()));
            }
            cursor = Some(next);
        }
        Err(WireError::TooLarge { what: "the number of pages of the tool list", limit: limits.pages })
    }

    /// Adds one page to the list and returns where the next one is.
    fn append_page(&self, result: &RawValue, list: &mut ToolList) -> Result<Option<String>, WireError> {
        let no_list = || WireError::Protocol("its answer to `tools/list` has no list of tools".to_owned());
        let page: ToolListPage<'_> = serde_json::from_str(result.get()).map_err(|_| no_list())?;
        let tools: Vec<&RawValue> = serde_json::from_str(page.tools.get()).map_err(|_| no_list())?;
        for tool in tools {
            let number = list.tools.len() + list.excluded.len() + 1;
            match self.check_tool(tool) {
                Ok(()) => list.tools.push(tool.to_owned()),
                Err((name, reason)) => {
                    let name = name.unwrap_or_else(|| format!("(tool {number})"));
                    tracing::warn!(tool = name, reason, "left out a tool");
                    list.excluded.push((name, reason));
                }
            }
        }
        let ttl = page.ttl_ms.and_then(|ttl| ttl.get().parse::<u64>().ok()).filter(|ttl| *ttl > 0);
        list.ttl_ms = [list.ttl_ms, ttl].into_iter().flatten().min();
        list.public &= page.cache_scope.is_some_and(|scope| scope.get() == "\"public\"");
        let next: Option<String> = page.next_cursor.and_then(|cursor| serde_json::from_str(cursor.get()).ok());
        Ok(next.filter(|cursor| !cursor.is_empty()))
    }

    fn check_tool(&self, tool: &RawValue) -> Result<(), (Option<String>, String)> {
        let tool = RawObject::parse(tool).ok_or_else(|| (None, "it is no object".to_owned()))?;
        let name = tool.get_string("name").ok_or_else(|| {
            let is_text = tool.get("name").is_some_and(|name| name.get().starts_with('"'));
            (None, if is_text { "its name is not valid Unicode" } else { "it has no name" }.to_owned())
        })?;
        match tool.get("inputSchema") {
            Some(schema) if self.sends_argument_headers() => {
                headers::check_header_parameters(schema).map_err(|reason| (Some(name), reason))
            }
            _ => Ok(()),
        }
    }

    /// Calls a tool. Over modern HTTP, arguments that `input_schema` marks with `x-mcp-header` are sent as headers
    /// too, so hand it in there. `meta` passes on, except for the keys that belong to each hop.
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: &RawValue,
        input_schema: Option<&RawValue>,
        meta: Option<&RawValue>,
        options: &RequestOptions,
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
        headers.extend(options.headers.clone());
        let ask =
            OutgoingRequest { method: "tools/call", params: Some(&params), headers, relay: options.relay.as_ref() };
        let handler = options.handler.as_ref().or(self.connection.0.options.handler.as_ref());
        input_required::request_with_input(&self.connection.0, &ask, &RequestContext::new(options), handler).await
    }

    fn sends_argument_headers(&self) -> bool {
        self.era == Era::Modern && matches!(self.connection.0.transport, ClientTransport::Http(_))
    }
}
