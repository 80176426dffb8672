//! MCP sources: one connection per source, made by the first call that needs it, shared by all, and ended when idle;
//! or one for each client, or one for each call, as the source's `lifecycle` says.

mod active_calls;
mod connection;
mod connection_pool;
mod output_sniffer;
mod subscription_requests;
mod subscriptions;
mod target;
mod upstream_request;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolcrib_core::json::RawFields;
use toolcrib_core::manifest::SetAsideTool;
use toolcrib_core::source::Lifecycle;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::format_duration;
use toolcrib_core::tool::EXECUTION_SPEC_KEY;
use toolcrib_core::{Code, Error, Result, Source};
use toolcrib_mcp::{ConnectionEvent, Era, RequestOptions, ServerDescription};

use super::{CallFailure, Connector, Discovered, Discovery, SourceRequest, ToolCall, ToolResult};
use crate::call::ClientId;
use crate::clock::deadline_after;
use crate::connections::SourceEvents;
use crate::redact::{Redactor, SourceRedactor};
use crate::registry::RegistryOptions;
use crate::trace::Trace;
use connection::{Lifetime, McpConnection};
use connection_pool::{ConnectionPool, PooledConnection};
use upstream_request::UpstreamRequest;

pub use connection_pool::SourceSubscriptions;
pub(crate) use target::McpHttpClients;

#[derive(Debug)]
pub(crate) struct McpConnector {
    source: Source,
    options: RegistryOptions,
    clients: Arc<McpHttpClients>,
    source_events: SourceEvents,
    redactor: Arc<SourceRedactor>,
    pool: ConnectionPool,
    /// The protocol version found last, to save the probe next time.
    era: std::sync::Mutex<Option<String>>,
    maintenance_lock: tokio::sync::Mutex<()>,
    /// Temporary connections that failed and are being closed.
    closing_tasks: TaskTracker,
    /// Cancelled when this connector is closed: from then on a server that hangs is not waited for.
    shutdown: CancellationToken,
}

impl McpConnector {
    pub(crate) fn new(
        source: Source,
        options: &RegistryOptions,
        clients: Arc<McpHttpClients>,
        news: SourceEvents,
        redactor: Arc<SourceRedactor>,
    ) -> McpConnector {
        McpConnector {
            source,
            options: options.clone(),
            clients,
            source_events: news,
            redactor,
            pool: ConnectionPool::default(),
            era: std::sync::Mutex::default(),
            maintenance_lock: tokio::sync::Mutex::default(),
            closing_tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        }
    }

    /// Closes a connection that was made for one request. After a failure that happens in the background: a server
    /// that did not answer takes its time to end as well, and the error must be told at the deadline. After a success
    /// it is waited for, so that a server of which there may be only one has ended before the next one starts.
    async fn close_temporary<T, E>(&self, live: &Arc<McpConnection>, outcome: &Result<T, E>) {
        if outcome.is_ok() {
            live.close().await;
            return;
        }
        let live = live.clone();
        let closed = self.shutdown.clone();
        self.closing_tasks.spawn(async move { live.close_until(&closed).await });
    }

    async fn connect(&self, timeout: Duration, stay: Lifetime) -> Result<Arc<McpConnection>, CallFailure> {
        let era = self.era.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let live = McpConnection::connect(self, era, timeout, stay).await?;
        *self.era.lock().unwrap_or_else(PoisonError::into_inner) = Some(live.era());
        Ok(live)
    }

    /// The connection that stands on a line, or a new one in its place.
    async fn get_or_connect(
        &self,
        line: &PooledConnection,
        timeout: Duration,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        let began = Instant::now();
        let mut place = line.connection.lock().await;
        // What another caller found out while this one waited for it need not be found out again.
        let usable = place.as_ref().is_some_and(|live| live.is_usable());
        if let Some(failure) = line.failure_since(began).filter(|_| !usable) {
            return Err(failure);
        }
        let stood = self.get_or_connect_locked(line, &mut place, timeout).await;
        if let Err(failure) = &stood {
            line.record_failure(failure);
        }
        stood
    }

    async fn get_or_connect_locked(
        &self,
        line: &PooledConnection,
        place: &mut Option<Arc<McpConnection>>,
        timeout: Duration,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        if let Some(standing) = place.as_ref().filter(|live| live.is_usable()) {
            return Ok(standing.clone());
        }
        let new = self.connect(timeout, Lifetime::Persistent(line.subscriptions.clone())).await?;
        *place = Some(new.clone());
        if line.subscriptions.has_any() {
            new.track_task(tokio::spawn(line.subscriptions.clone().resubscribe(
                new.clone(),
                self.source.id.clone(),
                self.source_events.clone(),
            )));
        }
        Ok(new)
    }
}

#[async_trait]
impl Connector for McpConnector {
    /// Over the live connection when there is one, else by a temporary start.
    async fn discover(&self, discovery: Discovery) -> Result<Discovered> {
        {
            let mut era = self.era.lock().unwrap_or_else(PoisonError::into_inner);
            if era.is_none() {
                *era = discovery.era.clone();
            }
        }
        let deadline = deadline_after(discovery.timeout);
        let standing = async { self.pool.shared.connection.lock().await.clone() };
        let standing = tokio::time::timeout_at(deadline, standing).await.map_err(|_| {
            let message = format!("no connection within {}", format_duration(discovery.timeout));
            Error::new(Code::ToolUnavailable, message)
        })?;
        let standing = standing.filter(|live| live.is_usable());
        let keep = discovery.keep_connection && self.source.settings.lifecycle() == Lifecycle::Shared;
        let (live, ends) = match standing {
            Some(live) => (live, false),
            None if keep => {
                let standing = self.get_or_connect(&self.pool.shared, discovery.timeout).await;
                (standing.map_err(CallFailure::into_error)?, false)
            }
            None => {
                (self.connect(discovery.timeout, Lifetime::Temporary).await.map_err(CallFailure::into_error)?, true)
            }
        };
        let remaining = deadline.saturating_duration_since(Instant::now());
        let listed = {
            let _in_flight = live.begin_discovery();
            let mut notices = live.client.events();
            let mut options = RequestOptions::new(remaining);
            if let Some(trace) = &discovery.trace {
                trace.add_to_headers(&mut options.headers);
            }
            let meta = discovery.trace.as_ref().and_then(Trace::to_meta);
            let listed = live.client.list_tools_with(meta.as_deref(), &options).await;
            // A temporary connection is not listened to later, so an announcement that came meanwhile counts now.
            let mut announced = std::iter::from_fn(|| notices.try_recv().ok());
            let is_outdated = ends && announced.any(|notice| matches!(notice, ConnectionEvent::ToolsChanged));
            if listed.is_ok() && is_outdated {
                options.timeout = deadline.saturating_duration_since(Instant::now());
                live.client.list_tools_with(meta.as_deref(), &options).await
            } else {
                listed
            }
        };
        let listed = match listed {
            Ok(list) => Ok(list),
            Err(error) => {
                let at = self.options.clock.now();
                Err(live.explain_failure(&self.source, "listing its tools", discovery.timeout, error, at).await)
            }
        };
        let era = live.era();
        let capabilities = capability_names(live.client.server());
        let about = describe_server(live.client.server());
        // Before 2026 a list says nothing about who may see it.
        let modern = live.client.era() == Era::Modern;
        if ends {
            self.close_temporary(&live, &listed).await;
        }
        let list = listed?;
        let ttl_ms = list.ttl_ms;
        let private = modern && !list.public;
        let redactor = self.redactor.get(&self.source.kind);
        let mut excluded = excluded_tools(&list.excluded, &redactor);
        let tools = list.tools.into_iter().map(|tool| redactor.redact_tool(strip_execution_spec(tool)));
        let (repeating, tools): (Vec<_>, Vec<_>) = tools.partition(|tool| redactor.is_leaked_by(tool));
        excluded.extend(repeating.iter().map(|tool| exclude_leaking_tool(tool, &redactor)));
        let about = about.map(|about| redactor.redact(&about).into_owned());
        Ok(Discovered {
            tools,
            excluded,
            era: Some(era),
            capabilities,
            about,
            ttl_ms,
            private,
            ..Discovered::default()
        })
    }

    async fn call(&self, call: ToolCall) -> Result<ToolResult, CallFailure> {
        let result = self.send_request(&UpstreamRequest::Call(&call)).await?;
        let broken = || Error::new(Code::ToolExecutionFailed, "the result of the call is not an object");
        let answer = ToolResult::parse(result).ok_or_else(|| CallFailure::Rejected(broken()))?;
        if answer.layout.input_required && call.context.relay.is_none() {
            let message = "the tool asks for more input, which nobody here can give";
            return Err(CallFailure::Rejected(Error::new(Code::ToolExecutionFailed, message)));
        }
        Ok(answer)
    }

    async fn request(&self, request: SourceRequest) -> Result<Box<RawValue>, CallFailure> {
        match request.method.as_str() {
            "resources/subscribe" => self.subscribe(request).await,
            "resources/unsubscribe" => self.unsubscribe(request).await,
            _ => self.send_request(&UpstreamRequest::Request(&request)).await,
        }
    }

    fn is_connected(&self) -> bool {
        self.pool.is_connected()
    }

    async fn client_disconnected(&self, client: ClientId) {
        self.pool.close_client(client).await;
        self.unsubscribe_client(client).await;
    }

    fn needs_maintenance(&self) -> bool {
        self.has_outdated_subscriptions()
    }

    async fn maintain(&self) {
        // One at a time; who looks again soon finds it done.
        if let Ok(_alone) = self.maintenance_lock.try_lock() {
            self.restore_connections().await;
        }
    }

    fn take_subscriptions(&self) -> SourceSubscriptions {
        self.pool.take_subscriptions()
    }

    fn restore_subscriptions(&self, watches: SourceSubscriptions) {
        match self.source.settings.lifecycle() {
            Lifecycle::Shared => self.pool.restore_subscriptions(watches, |_| None),
            Lifecycle::PerClient => self.pool.restore_subscriptions(watches, |client| client),
            Lifecycle::Transient => self.notify_lost(&watches),
        }
    }

    async fn close(&self) {
        self.notify_lost(&self.pool.take_subscriptions());
        self.shutdown.cancel();
        self.closing_tasks.close();
        tokio::join!(self.pool.drain(), self.closing_tasks.wait());
    }
}

/// An empty result.
fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// What lies behind a tool of a server is the server: nobody believes what it says about requests elsewhere.
fn strip_execution_spec(tool: Box<RawValue>) -> Box<RawValue> {
    // A name may be written with escapes.
    if !tool.get().contains(EXECUTION_SPEC_KEY) && !tool.get().contains("\\u") {
        return tool;
    }
    let Some(mut fields) = RawFields::parse(&tool) else { return tool };
    match fields.remove(EXECUTION_SPEC_KEY) {
        Some(_) => to_raw_value(&fields).unwrap_or_default(),
        None => tool,
    }
}

/// Tools that the list leaves out, with names and reasons fit to be shown.
fn excluded_tools(excluded: &[(String, String)], redactor: &Redactor) -> Vec<SetAsideTool> {
    // Redacted first: the beginning of a value that is cut is harder to recognise.
    let shown = |text: &str| sanitize_truncated(&redactor.redact(text), 512);
    excluded.iter().map(|(name, reason)| SetAsideTool { name: shown(name), reason: shown(reason) }).collect()
}

/// A tool that is left out because it repeats what its source was given in confidence.
fn exclude_leaking_tool(tool: &RawValue, redactor: &Redactor) -> SetAsideTool {
    let name = RawFields::parse(tool).and_then(|fields| serde_json::from_str::<String>(fields.get("name")?.get()).ok());
    let name = sanitize_truncated(&redactor.redact(&name.unwrap_or_default()), 512);
    let reason = "it repeats a value that its source was given, in a name, an enumeration or a default";
    SetAsideTool { name, reason: reason.into() }
}

/// The names of the capabilities a server announced.
fn capability_names(server: &ServerDescription) -> Vec<String> {
    const MAX_CAPABILITIES: usize = 32;
    let capabilities = RawFields::parse(&server.capabilities).unwrap_or_default();
    let offered = capabilities.iter().filter(|(_, value)| !matches!(value.get(), "null" | "false"));
    offered.map(|(name, _)| name.chars().take(64).collect()).take(MAX_CAPABILITIES).collect()
}

/// What a server says about itself: title, description, instructions.
fn describe_server(server: &ServerDescription) -> Option<String> {
    let info = server.info.as_deref().and_then(RawFields::parse).unwrap_or_default();
    let said = |key: &str| info.get(key).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let texts = [said("title"), said("description"), server.instructions.clone()];
    Some(texts.into_iter().flatten().collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_tools_show_no_secrets() {
        let redactor = Redactor::new(&["hunter2".to_owned()].into());
        let excluded = [("read_hunter2".to_owned(), "its schema has `hunter2`".to_owned())];
        let expected = SetAsideTool { name: "read_***".into(), reason: "its schema has `***`".into() };
        assert_eq!(excluded_tools(&excluded, &redactor), [expected]);
    }

    #[test]
    fn a_tool_that_repeats_a_secret_where_calls_depend_on_it_is_left_out() {
        let redactor = Redactor::new(&["hunter2-hunter2".to_owned(), "europe".to_owned()].into());
        for (tool, repeats) in [
            (r#"{"name":"read","description":"with hunter2-hunter2","_meta":{"k":"hunter2-hunter2"}}"#, false),
            (r#"{"name":"read_hunter2-hunter2"}"#, true),
            (r#"{"name":"read","inputSchema":{"properties":{"hunter2-hunter2":{}}}}"#, true),
            (r#"{"name":"read","inputSchema":{"properties":{"a":{"enum":["x","hunter2-hunter2"]}}}}"#, true),
            (r#"{"name":"read","inputSchema":{"properties":{"a":{"examples":["hunter2-hunter2"]}}}}"#, false),
            (r#"{"name":"list_europe"}"#, false),
        ] {
            let redacted = redactor.redact_tool(RawValue::from_string(tool.to_owned()).unwrap());
            assert_eq!(redactor.is_leaked_by(&redacted), repeats, "{tool}");
            let shown = exclude_leaking_tool(&redacted, &redactor);
            assert!(!shown.name.contains("hunter2"), "{}", shown.name);
        }
    }

    #[test]
    fn a_server_does_not_say_what_lies_behind_its_tools() {
        for (tool, expected) in [
            (r#"{"name":"a","x-toolcrib-backing":{"execution":{}},"z":1.50}"#, r#"{"name":"a","z":1.50}"#),
            (r#"{"name":"a","x-toolcrib-\u0062acking":{}}"#, r#"{"name":"a"}"#),
            (r#"{"name":"x-toolcrib-backing", "z":"\u00e9"}"#, r#"{"name":"x-toolcrib-backing", "z":"\u00e9"}"#),
            ("5", "5"),
        ] {
            let tool = RawValue::from_string(tool.to_owned()).unwrap();
            assert_eq!(strip_execution_spec(tool).get(), expected);
        }
    }
}
