//! `tools/call`: the meta tools, and every other tool by its name. Forwards progress, log messages and requests of the
//! source to the calling client while the call runs.
//!
//! Errors of tools are returned as results with `isError`, so that the model sees them. A JSON-RPC error that a source
//! responded with is passed on as such when the tool was called by its own name; through `call_tool` it becomes a
//! result, because the request for `call_tool` itself was right.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib::call::{
    InputRelay, NotificationListener, ProgressListener, QuestionError, QuestionHandler, ResultPaging, SourceQuestion,
};
use toolcrib::catalog::outline;
use toolcrib::core::json::{Exact, describe_error, parse_exact, plain_text};
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::tool::ToolName;
use toolcrib::{CallContext, CallOutput, Code, Error, HandleOrigin, Trace};
use toolcrib_mcp::server::{ClientHandle, McpRequest};
use toolcrib_mcp::{Era, LegacyVersion, RpcError};

use super::client_state::LogFilter;
use super::meta_tools::{self, CALL_TOOL, DESCRIBE_TOOLS, SEARCH_TOOLS};
use super::response::{McpResult, error_result, parse_params, to_raw, upstream_rpc_error};
use super::tools_list::wait_for_missing_sources;
use super::upstream_lists::client_context;
use super::{McpService, reading_principal};

/// Parameters of `tools/call`.
#[derive(Deserialize)]
struct CallToolParams {
    name: String,
    #[serde(default)]
    arguments: Option<Exact<Value>>,
    #[serde(default, rename = "_meta")]
    meta: Option<Box<RawValue>>,
    /// Protocol 2026-07-28: the client's responses to an `input_required` result.
    #[serde(default, rename = "inputResponses")]
    responses: Option<Box<RawValue>>,
    /// Protocol 2026-07-28: the opaque state that came with that result.
    #[serde(default, rename = "requestState")]
    state: Option<Box<RawValue>>,
}

/// Parts of a call besides its name and arguments.
struct CallExtras {
    meta: Option<Box<RawValue>>,
    responses: Option<Box<RawValue>>,
    state: Option<Box<RawValue>>,
    /// True when the tool was called by its own name and not through `call_tool`. Clients then validate the result against
    /// the output schema in their list.
    by_name: bool,
}

/// Arguments of the meta tool `call_tool`. Parsed leniently: models put arguments at the wrong level or leave out the
/// name, and each case has its own message.
#[derive(Deserialize)]
struct CallToolArguments {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    /// Cursor of a page of an earlier result; takes precedence over `name`.
    #[serde(default)]
    page: Option<String>,
    /// Unknown keys: usually the tool's own arguments at the wrong level.
    #[serde(flatten)]
    others: serde_json::Map<String, Value>,
}

impl McpService {
    /// Handles `tools/call`.
    pub(super) async fn tools_call(&self, request: McpRequest) -> McpResult {
        let CallToolParams { name, arguments, meta, responses, state } = parse_params(request.params.as_deref())?;
        let arguments = normalize_arguments(arguments.map(|arguments| arguments.0));
        let extras = CallExtras { meta, responses, state, by_name: true };
        match name.as_str() {
            SEARCH_TOOLS => Ok(self.search_tools(&request, arguments).await),
            DESCRIBE_TOOLS => Ok(self.describe_tools(&request, arguments).await),
            CALL_TOOL => {
                Ok(self.call_through_meta_tool(&request, arguments, CallExtras { by_name: false, ..extras }).await)
            }
            name => match self.call_by_name(&request, name, arguments, extras).await {
                Ok(output) => Ok(output.raw),
                Err(error) => upstream_rpc_error(&error).map_or_else(|| Ok(error_result(&error)), Err),
            },
        }
    }

    /// Handles the meta tool `call_tool`: calls the named tool, or returns a page of an earlier result.
    async fn call_through_meta_tool(
        &self,
        request: &McpRequest,
        arguments: Value,
        extras: CallExtras,
    ) -> Box<RawValue> {
        // The cases in order: a page, a meta tool, which is called directly, misplaced arguments, an ordinary call, no
        // name.
        let forwarded: CallToolArguments = match serde_json::from_value(arguments) {
            Ok(forwarded) => forwarded,
            Err(error) => return invalid_arguments(CALL_TOOL, &describe_error(&error)),
        };
        let output = match (forwarded.page, forwarded.name) {
            (Some(page), _) => self.registry.result_page(&page, &client_context(request)),
            (None, Some(name)) if meta_tools::input_schema(&name).is_some() => {
                return invalid_arguments(CALL_TOOL, &format!("call `{name}` directly, not through `{CALL_TOOL}`"));
            }
            (None, Some(_)) if forwarded.arguments.is_none() && !forwarded.others.is_empty() => {
                let stray: Vec<String> =
                    forwarded.others.keys().map(|key| format!("`{}`", sanitize_truncated(key, 40))).collect();
                let problem =
                    format!("the arguments of the tool belong under `arguments`, not beside it ({})", stray.join(", "));
                return invalid_arguments(CALL_TOOL, &problem);
            }
            (None, Some(name)) => {
                self.call_by_name(request, &name, normalize_arguments(forwarded.arguments), extras).await
            }
            (None, None) => return invalid_arguments(CALL_TOOL, "missing field `name`"),
        };
        output.map_or_else(|error| error_result(&error), |output| output.raw)
    }

    /// Calls a tool, or returns the page that its argument `page` asks for. An error about the arguments carries the
    /// signature of the tool, so that the agent can correct the call without another request.
    async fn call_by_name(
        &self,
        request: &McpRequest,
        name: &str,
        arguments: Value,
        extras: CallExtras,
    ) -> Result<CallOutput, Error> {
        // Without prefixes, the listed name differs from the one in the catalogue. Phase 1: find out what is called,
        // and whether it is a page of an earlier result.
        let resolved = self.resolve_listed_name(request, name).await;
        let name = resolved.as_ref().map_or(name, ToolName::as_str);
        // In full mode there is no `call_tool`: further pages are read by calling the same tool with a cursor.
        let cursor = arguments["page"].as_str().filter(|page| toolcrib::call::is_result_cursor(page));
        let mut page = cursor.map(|cursor| self.registry.result_page(cursor, &client_context(request)));
        // A cursor of this store cannot be one of a source, see below.
        let is_local = |cursor: &str| self.registry.node().classify(cursor) != HandleOrigin::Unknown;
        if let Some(page) = page.take_if(|page| page.is_ok() || cursor.is_some_and(is_local)) {
            return page;
        }
        let client = &request.client;
        // The trace context in `_meta` takes precedence over the HTTP header.
        let trace = extras.meta.as_deref().and_then(Trace::from_meta);
        let trace = trace.or_else(|| request.extensions.get::<Trace>().cloned());
        // Phase 2: find the policy, which decides on consent before anything is sent.
        let find_verdict = || self.view(&request.extensions).find(name).map(|tool| tool.verdict());
        let mut discovery_failed = false;
        let verdict = match find_verdict() {
            Ok(verdict) => Ok(verdict),
            Err(_) => {
                // The policy of an unknown tool is known only after its source was discovered.
                let context = CallContext { trace: trace.clone(), ..client_context(request) };
                discovery_failed = self.registry.sources().discover_for_call(name, &context).await.is_err();
                find_verdict()
            }
        };
        // An unknown cursor is an error, unless the tool has an argument `page` of its own: the source may be another
        // Toolcrib, and the cursor one of its results.
        if let Some(Err(unknown_cursor)) = page
            && !self.has_page_argument(request, name)
        {
            return Err(unknown_cursor);
        }
        let needs_consent = verdict.is_ok_and(|verdict| verdict == Verdict::Ask);
        let consent = needs_consent && self.ask_consent(client, name, &arguments).await;
        // Phase 3: call. The listeners run while the source's messages are read, so a message that the source sent before
        // its result reaches the client before the result.
        let log_filter = self.clients.log_filter(&request.peer, extras.meta.as_deref());
        let context = CallContext {
            trace,
            consent,
            on_progress: client.wants_progress().then(|| forward_progress(client)),
            on_notification: (log_filter != LogFilter::Off).then(|| forward_notifications(client, log_filter)),
            log_level: log_filter.level_name(),
            on_question: Some(forward_to_client(client.clone())),
            // With relaying, a question of the tool would end this request, and the retry would need consent again. So
            // such a tool's questions are forwarded within this request.
            input_relay: client_relay(request).filter(|_| !needs_consent).map(|relay| InputRelay {
                responses: extras.responses,
                state: extras.state,
                ..relay
            }),
            // Links in results exist since 2025-06-18. Older clients get the content itself.
            hold_binaries: request.peer.era >= Era::Legacy(LegacyVersion::V2025_06_18),
            ..client_context(request)
        };
        let paging = if extras.by_name { ResultPaging::DeclaredPages } else { ResultPaging::Pages };
        let call = self.registry.call(name, arguments).meta(extras.meta).paging(paging).context(context);
        // A failed discovery is not repeated by the call.
        let result = if discovery_failed { call.without_discovery().await } else { call.await };
        result.map_err(|error| {
            if error.code == Code::Forbidden && needs_consent && !consent {
                consent_error(name, client)
            } else {
                self.add_signature(request, name, error)
            }
        })
    }

    /// Returns the catalogue's name of a tool that lists show without its prefix. While nothing is discovered yet, it may be
    /// one of any source.
    async fn resolve_listed_name(&self, request: &McpRequest, name: &str) -> Option<ToolName> {
        let resolved = self.listings(&request.extensions).resolve_name(name).await;
        let names_no_source = || matches!(self.registry.sources().find_by_tool_name(name), Ok(None));
        let may_wait = !self.upstream_lists.has_prefixes() && names_no_source() && self.is_undiscovered();
        if resolved.is_some() || !may_wait {
            return resolved;
        }
        wait_for_missing_sources(&self.registry, request).await;
        self.listings(&request.extensions).resolve_name(name).await
    }

    /// Asks the user of the client for consent, by `elicitation/create`. False when the client does not support it.
    async fn ask_consent(&self, client: &ClientHandle, name: &str, arguments: &Value) -> bool {
        if !client.supports_request("elicitation/create") {
            return false;
        }
        let arguments = sanitize_truncated(&plain_text(arguments), 2000);
        let question = json!({
            "message": format!("May the agent call `{name}` with {arguments}?"),
            "requestedSchema": {
                "type": "object",
                "properties": { "allow": { "type": "boolean", "title": "Allow this call", "default": false } },
                // A client that returns an empty form, or accepts without the field, has not consented.
                "required": ["allow"],
            },
        });
        let response = client.send_request("elicitation/create", Some(&to_raw(&question))).await;
        let response: Value =
            response.ok().and_then(|response| serde_json::from_str(response.get()).ok()).unwrap_or_default();
        response["action"] == "accept" && response["content"]["allow"] == true
    }

    /// True when the tool's own schema has an argument `page`. False for an unknown tool, and for one whose schema
    /// cannot be read.
    fn has_page_argument(&self, request: &McpRequest, name: &str) -> bool {
        let Ok(tool) = self.registry.tool_for(&reading_principal(&request.extensions), name) else { return false };
        let schema: Value = serde_json::from_str(tool.tool.listing.input_schema.get()).unwrap_or_default();
        schema["properties"].get("page").is_some()
    }

    /// Adds the signature to the details of an error about arguments, with the wrong arguments first. The path of a
    /// fault is a JSON pointer, `/argument/…`, whose first segment names the argument.
    fn add_signature(&self, request: &McpRequest, name: &str, mut error: Error) -> Error {
        if error.code != Code::ToolInvalidInput {
            return error;
        }
        let Ok(tool) = self.registry.tool_for(&reading_principal(&request.extensions), name) else { return error };
        let schema: Value = serde_json::from_str(tool.tool.listing.input_schema.get()).unwrap_or_default();
        let mut details = error.details.take().unwrap_or_else(|| json!({}));
        let faults = details["faults"].as_array().into_iter().flatten();
        let wrong_arguments: Vec<&str> = faults.filter_map(|fault| fault["path"].as_str()?.split('/').nth(1)).collect();
        let signature = outline::call_signature_with(tool.name.as_str(), &schema, &wrong_arguments);
        details["signature"] = signature.into();
        error.with_details(details)
    }
}

/// Error for a call without consent, worded for an agent: unlike the registry's, it names no command-line option.
fn consent_error(name: &str, client: &ClientHandle) -> Error {
    let reason = if client.supports_request("elicitation/create") {
        "it was not given"
    } else {
        "this client cannot ask for it"
    };
    Error::new(Code::Forbidden, format!("`{name}` needs the user's consent before each call, and {reason}"))
}

/// Returns a listener that passes progress on to the client.
fn forward_progress(client: &ClientHandle) -> ProgressListener {
    let client = client.clone();
    Arc::new(move |params: &RawValue| client.report_progress(params))
}

/// Returns a listener that passes log messages of the client's level, and other notifications, on to the client.
fn forward_notifications(client: &ClientHandle, log_filter: LogFilter) -> NotificationListener {
    let client = client.clone();
    Arc::new(move |method: &str, params: Option<&RawValue>| {
        if log_filter.includes(params) {
            client.notify(method, params);
        }
    })
}

/// Returns the relay for a client of protocol 2026-07-28: a source of that version sees the client's own capabilities, and
/// its `input_required` results are passed on unchanged.
pub(super) fn client_relay(request: &McpRequest) -> Option<InputRelay> {
    match request.peer.era {
        Era::Modern => {
            Some(InputRelay { capabilities: request.peer.capabilities.clone(), responses: None, state: None })
        }
        Era::Legacy(_) => None,
    }
}

/// Returns a handler that forwards requests of a source, such as `elicitation/create`, to the client.
pub(super) fn forward_to_client(client: ClientHandle) -> QuestionHandler {
    Arc::new(move |question: SourceQuestion| {
        let client = client.clone();
        Box::pin(async move {
            if !client.supports_request(&question.method) {
                let message = format!("the client does not support `{}`", question.method);
                return Err(QuestionError { code: RpcError::METHOD_NOT_FOUND, message, data: None });
            }
            let answer = client.send_request(&question.method, question.params.as_deref()).await;
            answer.map_err(|RpcError { code, message, data }| QuestionError { code, message, data })
        })
    })
}

/// Turns arguments into an object: some agents leave them out, some send them as JSON text. Anything else is left as it
/// is, for the validation to report.
fn normalize_arguments(arguments: Option<Value>) -> Value {
    match arguments {
        None | Some(Value::Null) => json!({}),
        Some(Value::String(text)) => match parse_exact::<Value>(&text) {
            Ok(value) if value.is_object() => value,
            _ => Value::String(text),
        },
        Some(value) => value,
    }
}

/// Error result of a meta tool that was called with wrong arguments.
pub(super) fn invalid_arguments(tool: &str, problem: &str) -> Box<RawValue> {
    let message = format!("wrong arguments for `{tool}`: {problem}");
    let details = json!({ "signature": meta_tools::signature(tool) });
    error_result(&Error::new(Code::ToolInvalidInput, message).with_details(details))
}
