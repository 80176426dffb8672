//! `tools/call`: the menu's own tools, and every other by its name; what a source says meanwhile goes to who called.

use std::sync::Arc;

use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolcrib::call::{ClientId, Page, Said};
use toolcrib::core::json::mistake;
use toolcrib::core::outline;
use toolcrib::core::policy::Verdict;
use toolcrib::core::text::shown_short;
use toolcrib::core::tool::ToolName;
use toolcrib::{CallOptions, Code, Error, Output, Trace};
use toolcrib_mcp::server::{Outlet, Request};
use toolcrib_mcp::{Era, Handler, Relay, RpcError, ServerRequest};

use super::answer::{Answer, own_error, parameters, raw, refused};
use super::menu::{self, CALL, DESCRIBE, SEARCH};
use super::visitors::Logs;
use super::{Surface, caller};

/// What waits to be told to a client that is slow to listen; more is dropped, as progress may be.
const WAITING: usize = 256;

#[derive(Deserialize)]
struct Asked {
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
struct Along {
    meta: Option<Box<RawValue>>,
    responses: Option<Box<RawValue>>,
    state: Option<Box<RawValue>>,
    /// Called by its own name: clients hold the result against the schema it is listed with.
    by_name: bool,
}

/// The arguments of `call_tool`.
#[derive(Deserialize)]
struct Forwarded {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(default)]
    page: Option<String>,
    #[serde(flatten)]
    others: serde_json::Map<String, Value>,
}

impl Surface {
    pub(super) async fn tools_call(&self, request: Request) -> Answer {
        let Asked { name, arguments, meta, responses, state } = parameters(request.params.as_deref())?;
        let (arguments, along) = (object(arguments), Along { meta, responses, state, by_name: true });
        match name.as_str() {
            SEARCH => Ok(self.search_tools(arguments).await),
            DESCRIBE => Ok(self.describe_tools(arguments).await),
            CALL => Ok(self.call_tool(&request, arguments, Along { by_name: false, ..along }).await),
            name => match self.call(&request, name, arguments, along).await {
                Ok(output) => Ok(output.raw),
                Err(error) => own_error(&error).map_or_else(|| Ok(refused(&error)), Err),
            },
        }
    }

    async fn call_tool(&self, request: &Request, arguments: Value, along: Along) -> Box<RawValue> {
        let forwarded: Forwarded = match serde_json::from_value(arguments) {
            Ok(forwarded) => forwarded,
            Err(error) => return wrong_arguments(CALL, &mistake(&error)),
        };
        let output = match (forwarded.page, forwarded.name) {
            (Some(page), _) => self.registry.page(Some(ClientId(request.peer.id)), &page),
            (None, Some(name)) if menu::input_schema(&name).is_some() => {
                return wrong_arguments(CALL, &format!("`{name}` is called by itself, not through `{CALL}`"));
            }
            (None, Some(_)) if forwarded.arguments.is_none() && !forwarded.others.is_empty() => {
                let stray: Vec<String> =
                    forwarded.others.keys().map(|key| format!("`{}`", shown_short(key, 40))).collect();
                let fault =
                    format!("what the tool is given stands under `arguments`, not beside it ({})", stray.join(", "));
                return wrong_arguments(CALL, &fault);
            }
            (None, Some(name)) => self.call(request, &name, object(forwarded.arguments), along).await,
            (None, None) => return wrong_arguments(CALL, "missing field `name`"),
        };
        output.map_or_else(|error| refused(&error), |output| output.raw)
    }

    /// Calls a tool for a client, or gives the page it asks for. A fault in the arguments comes back with the signature,
    /// so that one look mends it.
    async fn call(&self, request: &Request, name: &str, arguments: Value, along: Along) -> Result<Output, Error> {
        let shown = self.sight().resolve(name).await;
        let name = shown.as_ref().map_or(name, ToolName::as_str);
        // Who lists all tools has no other to read on with than the one that was called.
        let cursor = arguments["page"].as_str().filter(|page| Page::is_cursor(page));
        let page = cursor.map(|cursor| self.registry.page(Some(ClientId(request.peer.id)), cursor));
        if let Some(Ok(page)) = page {
            return Ok(page);
        }
        let outlet = &request.outlet;
        // What the message itself says goes over what the way it came by says.
        let trace = along.meta.as_deref().and_then(Trace::of_meta);
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
            && !self.takes_pages(name)
        {
            return Err(not_held);
        }
        let asks = verdict.is_ok_and(|verdict| verdict == Verdict::Ask);
        let consent = asks && self.consents(outlet, name, &arguments).await;
        let logs = self.visitors.logs(&request.peer, along.meta.as_deref());
        let tell = |said: &Said| {
            if logs.include(said) {
                outlet.notify(&said.method, said.params.as_deref());
            }
        };
        let (progress, mut progressed) = outlet.wants_progress().then(|| mpsc::channel(WAITING)).unzip();
        let (said, mut heard) = (logs != Logs::Nothing).then(|| mpsc::channel(WAITING)).unzip();
        let options = CallOptions {
            progress,
            cancel: request.cancel.clone(),
            consent,
            client: Some(ClientId(request.peer.id)),
            fleeting: request.peer.fleeting,
            back: Some(asking(outlet.clone())),
            // Consent is given once; so the questions of such a tool are asked from here, within the one request.
            relay: relay(request).filter(|_| !asks).map(|relay| Relay {
                responses: along.responses,
                state: along.state,
                ..relay
            }),
            said,
            log_level: logs.level(),
            meta: along.meta,
            fits_schema: along.by_name,
            // What was waited for in vain fails in the call as well, without another wait.
            cached: waited_in_vain,
            trace,
            ..CallOptions::default()
        };
        let caller = caller(request);
        let mut calling = Box::pin(self.registry.call(&caller, name, arguments, options).fuse());
        let result = loop {
            tokio::select! {
                biased;
                Some(params) = next(&mut progressed) => outlet.progress(&params),
                Some(said) = next(&mut heard) => tell(&said),
                result = &mut calling => break result,
            }
        };
        // What was said before the end is told before the answer.
        while let Some(Some(params)) = next(&mut progressed).now_or_never() {
            outlet.progress(&params);
        }
        while let Some(Some(said)) = next(&mut heard).now_or_never() {
            tell(&said);
        }
        result.map_err(|error| match error.code == Code::Forbidden && asks && !consent {
            true => without_consent(name, outlet),
            false => self.with_signature(name, error),
        })
    }

    /// Asks the person behind the client where a rule says that somebody must be asked.
    async fn consents(&self, outlet: &Outlet, name: &str, arguments: &Value) -> bool {
        if !outlet.can_ask("elicitation/create") {
            return false;
        }
        let given = shown_short(&arguments.to_string(), 2000);
        let question = json!({
            "message": format!("May the agent call `{name}` with {given}?"),
            "requestedSchema": {
                "type": "object",
                "properties": { "allow": { "type": "boolean", "title": "Allow this call", "default": false } },
                "required": ["allow"],
            },
        });
        let answered = outlet.ask("elicitation/create", Some(&raw(&question))).await;
        let answer: Value =
            answered.ok().and_then(|answer| serde_json::from_str(answer.get()).ok()).unwrap_or_default();
        answer["action"] == "accept" && answer["content"]["allow"] == true
    }

    /// Whether a tool has an argument `page` of its own.
    fn takes_pages(&self, name: &str) -> bool {
        let Ok(tool) = self.registry.tool(name) else { return false };
        let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
        schema["properties"].get("page").is_some()
    }

    fn with_signature(&self, name: &str, mut error: Error) -> Error {
        if error.code != Code::ToolInvalidInput {
            return error;
        }
        let Ok(tool) = self.registry.tool(name) else { return error };
        let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
        let mut details = error.details.take().unwrap_or_else(|| json!({}));
        let faults = details["faults"].as_array().into_iter().flatten();
        let wrong: Vec<&str> = faults.filter_map(|fault| fault["path"].as_str()?.split('/').nth(1)).collect();
        let signature = outline::call_form_with(tool.name.as_str(), &schema, &wrong);
        details["signature"] = signature.into();
        error.with_details(details)
    }
}

/// In words for an agent, who has no command line.
fn without_consent(name: &str, outlet: &Outlet) -> Error {
    let why = match outlet.can_ask("elicitation/create") {
        true => "it was not given",
        false => "this client cannot ask for it",
    };
    Error::new(Code::Forbidden, format!("`{name}` needs a person's consent before each call, and {why}"))
}

/// What comes next; nothing where nobody asked to hear it.
async fn next<T>(channel: &mut Option<mpsc::Receiver<T>>) -> Option<T> {
    channel.as_mut()?.recv().await
}

/// A client of 2026-07-28 speaks for itself to a source of that version.
pub(super) fn relay(request: &Request) -> Option<Relay> {
    match request.peer.era {
        Era::Modern => Some(Relay { capabilities: request.peer.capabilities.clone(), responses: None, state: None }),
        Era::Legacy(_) => None,
    }
}

/// Hands a source's question to the client.
pub(super) fn asking(outlet: Outlet) -> Handler {
    Arc::new(move |asked: ServerRequest| {
        let outlet = outlet.clone();
        Box::pin(async move {
            if !outlet.can_ask(&asked.method) {
                let message = format!("the client does not answer `{}`", asked.method);
                return Err(RpcError::new(RpcError::METHOD_NOT_FOUND, message));
            }
            outlet.ask(&asked.method, asked.params.as_deref()).await
        })
    })
}

/// Arguments as the object they should be: some agents leave them out, some write them as text.
fn object(arguments: Option<Value>) -> Value {
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
pub(super) fn wrong_arguments(tool: &str, fault: &str) -> Box<RawValue> {
    let message = format!("wrong arguments for `{tool}`: {fault}");
    let details = json!({ "signature": menu::signature(tool) });
    refused(&Error::new(Code::ToolInvalidInput, message).with_details(details))
}
