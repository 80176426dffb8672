//! `tools/call`: the menu's own tools, and every other by its name; what a source says meanwhile goes to who called.

use std::sync::Arc;

use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolcrib::call::{CallNotification, ClientId, ResultPage};
use toolcrib::core::json::describe_error;
use toolcrib::core::outline;
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::tool::ToolName;
use toolcrib::{CallOptions, CallOutput, Code, Error, Trace};
use toolcrib_mcp::server::{ClientHandle, McpRequest};
use toolcrib_mcp::{Era, Relay, RpcError, ServerRequest, ServerRequestHandler};

use super::client_state::LogFilter;
use super::meta_tools::{self, CALL_TOOL, DESCRIBE_TOOLS, SEARCH_TOOLS};
use super::response::{McpResult, error_result, parse_params, to_raw, upstream_rpc_error};
use super::{McpService, request_caller};

/// What waits to be told to a client that is slow to listen; more is dropped, as progress may be.
const MAX_QUEUED_NOTIFICATIONS: usize = 256;

#[derive(Deserialize)]
struct CallToolParams {
    name: String,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(default, rename = "_meta")]
    meta: Option<Box<RawValue>>,
    /// The answers to what a source of 2026-07-28 asked before, and what it wants to see again with them.
    #[serde(default, rename = "inputResponses")]
    responses: Option<Box<RawValue>>,
    #[serde(default, rename = "requestState")]
    state: Option<Box<RawValue>>,
}

/// What comes with a call besides its arguments.
struct CallExtras {
    meta: Option<Box<RawValue>>,
    responses: Option<Box<RawValue>>,
    state: Option<Box<RawValue>>,
    /// Called by its own name: clients hold the result against the schema it is listed with.
    by_name: bool,
}

/// The arguments of `call_tool`.
#[derive(Deserialize)]
struct CallToolArguments {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(default)]
    page: Option<String>,
    #[serde(flatten)]
    others: serde_json::Map<String, Value>,
}

impl McpService {
    pub(super) async fn tools_call(&self, request: McpRequest) -> McpResult {
        let CallToolParams { name, arguments, meta, responses, state } = parse_params(request.params.as_deref())?;
        let (arguments, along) = (normalize_arguments(arguments), CallExtras { meta, responses, state, by_name: true });
        match name.as_str() {
            SEARCH_TOOLS => Ok(self.search_tools(arguments).await),
            DESCRIBE_TOOLS => Ok(self.describe_tools(arguments).await),
            CALL_TOOL => {
                Ok(self.call_through_meta_tool(&request, arguments, CallExtras { by_name: false, ..along }).await)
            }
            name => match self.call_by_name(&request, name, arguments, along).await {
                Ok(output) => Ok(output.raw),
                Err(error) => upstream_rpc_error(&error).map_or_else(|| Ok(error_result(&error)), Err),
            },
        }
    }

    async fn call_through_meta_tool(&self, request: &McpRequest, arguments: Value, along: CallExtras) -> Box<RawValue> {
        let forwarded: CallToolArguments = match serde_json::from_value(arguments) {
            Ok(forwarded) => forwarded,
            Err(error) => return invalid_arguments(CALL_TOOL, &describe_error(&error)),
        };
        let output = match (forwarded.page, forwarded.name) {
            (Some(page), _) => self.registry.result_page(Some(ClientId(request.peer.id)), &page),
            (None, Some(name)) if meta_tools::input_schema(&name).is_some() => {
                return invalid_arguments(
                    CALL_TOOL,
                    &format!("`{name}` is called by itself, not through `{CALL_TOOL}`"),
                );
            }
            (None, Some(_)) if forwarded.arguments.is_none() && !forwarded.others.is_empty() => {
                let stray: Vec<String> =
                    forwarded.others.keys().map(|key| format!("`{}`", sanitize_truncated(key, 40))).collect();
                let fault =
                    format!("what the tool is given stands under `arguments`, not beside it ({})", stray.join(", "));
                return invalid_arguments(CALL_TOOL, &fault);
            }
            (None, Some(name)) => {
                self.call_by_name(request, &name, normalize_arguments(forwarded.arguments), along).await
            }
            (None, None) => return invalid_arguments(CALL_TOOL, "missing field `name`"),
        };
        output.map_or_else(|error| error_result(&error), |output| output.raw)
    }

    /// Calls a tool for a client, or gives the page it asks for. A fault in the arguments comes back with the signature,
    /// so that one look mends it.
    async fn call_by_name(
        &self,
        request: &McpRequest,
        name: &str,
        arguments: Value,
        along: CallExtras,
    ) -> Result<CallOutput, Error> {
        let shown = self.listings().resolve_name(name).await;
        let name = shown.as_ref().map_or(name, ToolName::as_str);
        // Who lists all tools has no other to read on with than the one that was called.
        let cursor = arguments["page"].as_str().filter(|page| ResultPage::is_cursor(page));
        let page = cursor.map(|cursor| self.registry.result_page(Some(ClientId(request.peer.id)), cursor));
        if let Some(Ok(page)) = page {
            return Ok(page);
        }
        let outlet = &request.client;
        // What the message itself says goes over what the way it came by says.
        let trace = along.meta.as_deref().and_then(Trace::from_meta);
        let trace = trace.or_else(|| request.extensions.get::<Trace>().cloned());
        let verdict = || self.registry.catalog().find(name).map(|tool| tool.verdict());
        let mut waited_in_vain = false;
        let verdict = match verdict() {
            Ok(known) => Ok(known),
            Err(_) => {
                // Whether consent is needed is known once the tool is.
                let cancel = request.cancel.clone();
                let options = CallOptions { trace: trace.clone(), cancel, ..CallOptions::default() };
                waited_in_vain = self.registry.discover_for_call(name, &options).await.is_err();
                verdict()
            }
        };
        // The source may be another Toolcrib, and the cursor its own.
        if let Some(Err(not_held)) = page
            && !self.has_page_argument(name)
        {
            return Err(not_held);
        }
        let asks = verdict.is_ok_and(|verdict| verdict == Verdict::Ask);
        let consent = asks && self.ask_consent(outlet, name, &arguments).await;
        let logs = self.clients.log_filter(&request.peer, along.meta.as_deref());
        let tell = |said: &CallNotification| {
            if logs.includes(said) {
                outlet.notify(&said.method, said.params.as_deref());
            }
        };
        let (progress, mut progressed) =
            outlet.wants_progress().then(|| mpsc::channel(MAX_QUEUED_NOTIFICATIONS)).unzip();
        let (said, mut heard) = (logs != LogFilter::Off).then(|| mpsc::channel(MAX_QUEUED_NOTIFICATIONS)).unzip();
        let options = CallOptions {
            progress,
            cancel: request.cancel.clone(),
            consent,
            client: Some(ClientId(request.peer.id)),
            stateless: request.peer.is_stateless,
            on_server_request: Some(forward_to_client(outlet.clone())),
            // Consent is given once; so the questions of such a tool are asked from here, within the one request.
            relay: client_relay(request).filter(|_| !asks).map(|relay| Relay {
                input_responses: along.responses,
                request_state: along.state,
                ..relay
            }),
            notifications: said,
            log_level: logs.level_name(),
            meta: along.meta,
            enforce_output_schema: along.by_name,
            // What was waited for in vain fails in the call as well, without another wait.
            skip_discovery: waited_in_vain,
            trace,
            ..CallOptions::default()
        };
        let caller = request_caller(request);
        let mut calling = Box::pin(self.registry.call(&caller, name, arguments, options).fuse());
        let result = loop {
            tokio::select! {
                biased;
                Some(params) = recv_if_open(&mut progressed) => outlet.report_progress(&params),
                Some(said) = recv_if_open(&mut heard) => tell(&said),
                result = &mut calling => break result,
            }
        };
        // What was said before the end is told before the answer.
        while let Some(Some(params)) = recv_if_open(&mut progressed).now_or_never() {
            outlet.report_progress(&params);
        }
        while let Some(Some(said)) = recv_if_open(&mut heard).now_or_never() {
            tell(&said);
        }
        result.map_err(|error| match error.code == Code::Forbidden && asks && !consent {
            true => consent_error(name, outlet),
            false => self.add_signature(name, error),
        })
    }

    /// Asks the person behind the client where a rule says that somebody must be asked.
    async fn ask_consent(&self, outlet: &ClientHandle, name: &str, arguments: &Value) -> bool {
        if !outlet.supports_request("elicitation/create") {
            return false;
        }
        let given = sanitize_truncated(&arguments.to_string(), 2000);
        let question = json!({
            "message": format!("May the agent call `{name}` with {given}?"),
            "requestedSchema": {
                "type": "object",
                "properties": { "allow": { "type": "boolean", "title": "Allow this call", "default": false } },
                "required": ["allow"],
            },
        });
        let answered = outlet.send_request("elicitation/create", Some(&to_raw(&question))).await;
        let answer: Value =
            answered.ok().and_then(|answer| serde_json::from_str(answer.get()).ok()).unwrap_or_default();
        answer["action"] == "accept" && answer["content"]["allow"] == true
    }

    /// Whether a tool has an argument `page` of its own.
    fn has_page_argument(&self, name: &str) -> bool {
        let Ok(tool) = self.registry.tool(name) else { return false };
        let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
        schema["properties"].get("page").is_some()
    }

    fn add_signature(&self, name: &str, mut error: Error) -> Error {
        if error.code != Code::ToolInvalidInput {
            return error;
        }
        let Ok(tool) = self.registry.tool(name) else { return error };
        let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
        let mut details = error.details.take().unwrap_or_else(|| json!({}));
        let faults = details["faults"].as_array().into_iter().flatten();
        let wrong: Vec<&str> = faults.filter_map(|fault| fault["path"].as_str()?.split('/').nth(1)).collect();
        let signature = outline::call_signature_with(tool.name.as_str(), &schema, &wrong);
        details["signature"] = signature.into();
        error.with_details(details)
    }
}

/// In words for an agent, who has no command line.
fn consent_error(name: &str, outlet: &ClientHandle) -> Error {
    let why = match outlet.supports_request("elicitation/create") {
        true => "it was not given",
        false => "this client cannot ask for it",
    };
    Error::new(Code::Forbidden, format!("`{name}` needs a person's consent before each call, and {why}"))
}

/// What comes next; nothing where nobody asked to hear it.
async fn recv_if_open<T>(channel: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    channel.as_mut()?.recv().await
}

/// A client of 2026-07-28 speaks for itself to a source of that version.
pub(super) fn client_relay(request: &McpRequest) -> Option<Relay> {
    match request.peer.era {
        Era::Modern => {
            Some(Relay { capabilities: request.peer.capabilities.clone(), input_responses: None, request_state: None })
        }
        Era::Legacy(_) => None,
    }
}

/// Hands a source's question to the client.
pub(super) fn forward_to_client(outlet: ClientHandle) -> ServerRequestHandler {
    Arc::new(move |asked: ServerRequest| {
        let outlet = outlet.clone();
        Box::pin(async move {
            if !outlet.supports_request(&asked.method) {
                let message = format!("the client does not answer `{}`", asked.method);
                return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message));
            }
            outlet.send_request(&asked.method, asked.params.as_deref()).await
        })
    })
}

/// Arguments as the object they should be: some agents leave them out, some write them as text.
fn normalize_arguments(arguments: Option<Value>) -> Value {
    match arguments {
        None | Some(Value::Null) => json!({}),
        Some(Value::String(text)) => match serde_json::from_str::<Value>(&text) {
            Ok(value) if value.is_object() => value,
            _ => Value::String(text),
        },
        Some(value) => value,
    }
}

/// One of the menu's own tools was called wrongly.
pub(super) fn invalid_arguments(tool: &str, fault: &str) -> Box<RawValue> {
    let message = format!("wrong arguments for `{tool}`: {fault}");
    let details = json!({ "signature": meta_tools::signature(tool) });
    error_result(&Error::new(Code::ToolInvalidInput, message).with_details(details))
}
