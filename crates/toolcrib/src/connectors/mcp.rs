//! Connector for MCP sources. With `lifecycle: shared` one connection per source is opened by the first call that needs
//! it, used by all clients, and closed when idle; `per_client` and `transient` open one per client or per call.
//!
//! This file holds the [`Connector`] implementation and discovery. Requests are in `upstream_request`, connections and
//! their processes in `connection` and `target`, resource subscriptions in `subscriptions`.
//!
//! A call takes this way:
//!
//! ```text
//! pool entry (lifecycle, client) ▶ open connection, or connect ▶ register the call ▶ send ▶ raw result, or CallFailure
//! ```
//!
//! A connection is used as long as it works; the first request after its end opens another. Results
//! are passed on as the raw JSON that the server sent; tools as well, but for secrets that are masked in them.

mod connection;
mod connection_pool;
mod target;

mod active_calls;
mod upstream_request;

mod subscription_requests;
mod subscriptions;

mod output_sniffer;
mod stderr_tail;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolcrib_connector::{
    CallFailure, Connector, Discovered, Discovery, SourceRequest, SourceSubscriptions, ToolCall, ToolResult,
};
use toolcrib_core::json::RawFields;
use toolcrib_core::manifest::SkippedTool;
use toolcrib_core::source::Lifecycle;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_core::time::format_duration;
use toolcrib_core::tool::EXECUTION_SPEC_KEY;
use toolcrib_core::{Code, Error, Result, Source};
use toolcrib_mcp::{ConnectionEvent, Era, RequestOptions, ServerDescription};

use crate::call::ClientId;
use crate::clock::deadline_after;
use crate::connectors::SourceEvents;
use crate::redact::Redactor;
use crate::registry::RegistryOptions;
use crate::secret::{ReferenceValues, SourceReferences};
use crate::trace::Trace;
use connection::{Lifetime, McpConnection};
use connection_pool::{ConnectionPool, PooledConnection};
use upstream_request::UpstreamRequest;

pub(crate) use target::McpHttpClients;

/// Connector of one MCP source.
#[derive(Debug)]
pub(crate) struct McpConnector {
    /// As declared, with references unresolved; they are resolved for each connection.
    source: Source,
    options: RegistryOptions,
    /// Shared by all sources: building an HTTP client reads the system's certificates.
    clients: Arc<McpHttpClients>,
    /// Passes `tools/list_changed` and resource notifications on to the registry.
    source_events: SourceEvents,
    /// Resolves the references for each connection, and redacts their values, old ones included.
    references: Arc<SourceReferences>,
    /// Open connections; see `ConnectionPool` for how `lifecycle` selects one.
    pool: ConnectionPool,
    /// Protocol version of the last connection; saves the probe on the next one.
    era: parking_lot::Mutex<Option<String>>,
    /// Held by the one task that runs [`Connector::maintain`].
    maintenance_lock: tokio::sync::Mutex<()>,
    /// Tasks that close temporary connections after a failed request.
    closing_tasks: TaskTracker,
    /// Cancelled when the connector closes. From then on a hanging server is killed instead of waited for.
    shutdown: CancellationToken,
}

impl McpConnector {
    pub(crate) fn new(
        source: Source,
        options: &RegistryOptions,
        clients: Arc<McpHttpClients>,
        source_events: SourceEvents,
        references: Arc<SourceReferences>,
    ) -> McpConnector {
        McpConnector {
            source,
            options: options.clone(),
            clients,
            source_events,
            references,
            pool: ConnectionPool::default(),
            era: parking_lot::Mutex::default(),
            maintenance_lock: tokio::sync::Mutex::default(),
            closing_tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
        }
    }

    /// Closes a connection that was opened for one request. After a failure this happens in the background: a server
    /// that does not respond also takes long to end, and the caller must get its error at the deadline. After a success
    /// it is awaited, so that a server of which only one instance may run has ended before the next one starts.
    async fn close_temporary<T, E>(&self, connection: &Arc<McpConnection>, outcome: &Result<T, E>) {
        if outcome.is_ok() {
            connection.close().await;
            return;
        }
        // Owned by the connector's task tracker, so that closing the connector waits for it.
        let connection = connection.clone();
        let closed = self.shutdown.clone();
        self.closing_tasks.spawn(async move { connection.close_or_kill(&closed).await });
    }

    /// Opens a connection and remembers its protocol version. `references` are the values that a discovery has read;
    /// without them they are read now.
    async fn connect(
        &self,
        timeout: Duration,
        lifetime: Lifetime,
        references: Option<&ReferenceValues>,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        // Copied out: the lock must not be held while connecting, which may take as long as the whole timeout.
        let era = self.era.lock().clone();
        let connection = match references {
            Some(references) => McpConnection::connect(self, references, era, timeout, lifetime).await?,
            None => McpConnection::connect(self, &self.references.read().await, era, timeout, lifetime).await?,
        };
        *self.era.lock() = Some(connection.era());
        Ok(connection)
    }

    /// Returns the open connection of a pool entry, or opens one. Callers of the same entry wait for one attempt.
    async fn get_or_connect(
        &self,
        pooled: &PooledConnection,
        timeout: Duration,
        references: Option<&ReferenceValues>,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        // Before the lock: only failures of attempts that this caller has waited for are shared with it.
        let began = Instant::now();
        let mut slot = pooled.connection.lock().await;
        // Another caller may have failed while this one waited for the lock: share that failure instead of retrying.
        let usable = slot.as_ref().is_some_and(|connection| connection.is_usable());
        if let Some(failure) = pooled.failure_since(began).filter(|_| !usable) {
            return Err(failure);
        }
        // Record the failure while the lock is held: callers that waited find it as soon as they get the lock.
        let connected = self.get_or_connect_locked(pooled, &mut slot, timeout, references).await;
        if let Err(failure) = &connected {
            pooled.record_failure(failure);
        }
        connected
    }

    /// As [`McpConnector::get_or_connect`], with the pool entry already locked. Renews subscriptions on a new
    /// connection.
    async fn get_or_connect_locked(
        &self,
        pooled: &PooledConnection,
        slot: &mut Option<Arc<McpConnection>>,
        timeout: Duration,
        references: Option<&ReferenceValues>,
    ) -> Result<Arc<McpConnection>, CallFailure> {
        if let Some(existing) = slot.as_ref().filter(|connection| connection.is_usable()) {
            return Ok(existing.clone());
        }
        // A dead connection is replaced; its process was ended when the transport closed.
        let new = self.connect(timeout, Lifetime::Persistent(pooled.subscriptions.clone()), references).await?;
        *slot = Some(new.clone());
        // In the background: the call that triggered the connection must not wait for subscriptions.
        if pooled.subscriptions.has_any() {
            new.track_task(tokio::spawn(pooled.subscriptions.clone().resubscribe(
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
    /// Lists the tools over the shared connection if one is open. Otherwise opens one: the shared one if a call follows
    /// (`keep_connection`), else a temporary one.
    async fn discover(&self, discovery: Discovery) -> Result<Discovered> {
        {
            // The version that the store remembers. That of a connection made in this process takes precedence.
            let mut era = self.era.lock();
            if era.is_none() {
                *era = discovery.era.clone();
            }
        }
        // Reuse the open connection. Waiting for the lock counts against the timeout: it is held while connecting.
        let deadline = deadline_after(discovery.timeout);
        let existing = async { self.pool.shared.connection.lock().await.clone() };
        let existing = tokio::time::timeout_at(deadline, existing).await.map_err(|_| {
            let message = format!("no connection within {}", format_duration(discovery.timeout));
            Error::new(Code::ToolUnavailable, message)
        })?;
        let existing = existing.filter(|connection| connection.is_usable());
        // Per-client and transient sources have no connection that a later call could share.
        let keep = discovery.keep_connection && self.source.settings.lifecycle() == Lifecycle::Shared;
        // Otherwise connect: persistently if a call follows, else for this discovery only.
        let references = Some(&*discovery.references);
        let (connection, is_temporary) = match existing {
            Some(connection) => (connection, false),
            None if keep => {
                let connected = self.get_or_connect(&self.pool.shared, discovery.timeout, references).await;
                (connected.map_err(CallFailure::into_error)?, false)
            }
            None => {
                let connected = self.connect(discovery.timeout, Lifetime::Temporary, references).await;
                (connected.map_err(CallFailure::into_error)?, true)
            }
        };
        // List the tools, and once more if the server announced a change meanwhile.
        let tool_list = {
            // Keeps the idle monitor from closing the connection meanwhile.
            let _in_flight = connection.begin_discovery();
            let mut events = connection.client.events();
            let mut options = RequestOptions::with_deadline(deadline);
            if let Some(trace) = &discovery.trace {
                trace.add_to_headers(&mut options.headers);
            }
            let meta = discovery.trace.as_ref().and_then(Trace::to_meta);
            let tool_list = connection.client.list_tools_with(meta.as_deref(), &options).await;
            // A temporary connection has no listener later, so an announcement during the listing counts now.
            let mut announced = std::iter::from_fn(|| events.try_recv().ok());
            let is_outdated = is_temporary && announced.any(|event| matches!(event, ConnectionEvent::ToolsChanged));
            if tool_list.is_ok() && is_outdated {
                connection.client.list_tools_with(meta.as_deref(), &options).await
            } else {
                tool_list
            }
        };
        // Explain a failure before the connection is closed: that needs the process and its stderr.
        let tool_list = match tool_list {
            Ok(list) => Ok(list),
            Err(error) => Err(connection.explain_failure(self, "listing its tools", discovery.timeout, error).await),
        };
        // Everything that is read from the connection is read before a temporary one is closed.
        let era = connection.era();
        let capabilities = capability_names(connection.client.server());
        let about = describe_server(connection.client.server());
        // Only servers of the 2026 protocol declare whether a list is public.
        let modern = connection.client.era() == Era::Modern;
        if is_temporary {
            self.close_temporary(&connection, &tool_list).await;
        }
        // Fail only after the temporary connection is closed; nothing below the `?` can fail.
        let list = tool_list?;
        let ttl_ms = list.ttl_ms;
        let private = modern && !list.public;
        // Secrets of the source must not reach the manifest. What cannot be masked excludes the tool.
        let redactor = self.references.redactor();
        let mut skipped = skipped_tools(&list.skipped, &redactor);
        let tools = list.tools.into_iter().map(|tool| redactor.redact_tool(strip_execution_spec(tool)));
        let (leaking, tools): (Vec<_>, Vec<_>) = tools.partition(|tool| redactor.is_leaked_by(tool));
        skipped.extend(leaking.iter().map(|tool| skip_leaking_tool(tool, &redactor)));
        let about = about.map(|about| redactor.redact(&about).into_owned());
        Ok(Discovered { tools, skipped, era: Some(era), capabilities, about, ttl_ms, private, ..Discovered::default() })
    }

    /// Sends `tools/call`. A result with `isError` is a result; only a missing or unusable one is a failure.
    async fn call(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        let result = self.send_request(&UpstreamRequest::Call(call)).await?;
        let not_an_object = || Error::new(Code::ToolExecutionFailed, "the result of the call is not an object");
        let result = ToolResult::parse(result).ok_or_else(|| CallFailure::Rejected(not_an_object()))?;
        if result.layout.input_required && call.context.input_relay.is_none() {
            let message = "the tool requires more input (`input_required`), which this caller cannot provide";
            return Err(CallFailure::Rejected(Error::new(Code::ToolExecutionFailed, message)));
        }
        Ok(result)
    }

    async fn request(&self, request: &SourceRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        // Subscriptions of several clients share one subscription at the server, so they are counted here.
        match request.method {
            "resources/subscribe" => self.subscribe(request).await,
            "resources/unsubscribe" => self.unsubscribe(request).await,
            _ => self.send_request(&UpstreamRequest::Request(request)).await,
        }
    }

    /// Whether any connection is open, the shared one or that of a client.
    fn is_connected(&self) -> bool {
        self.pool.is_connected()
    }

    /// Closes the client's own connection, and removes its subscriptions over the shared one.
    async fn client_disconnected(&self, client: ClientId) {
        self.pool.close_client(client).await;
        self.unsubscribe_client(client).await;
    }

    /// Only subscriptions need a connection without a call; see `subscriptions`.
    fn needs_maintenance(&self) -> bool {
        self.has_outdated_subscriptions()
    }

    async fn maintain(&self) {
        // One run at a time; the next interval checks again.
        if let Ok(_alone) = self.maintenance_lock.try_lock() {
            self.restore_connections().await;
        }
    }

    fn take_subscriptions(&self) -> SourceSubscriptions {
        self.pool.take_subscriptions()
    }

    /// The `lifecycle` may have changed with the configuration: without connections to carry them, subscriptions end.
    fn restore_subscriptions(&self, subscriptions: SourceSubscriptions) {
        match self.source.settings.lifecycle() {
            Lifecycle::Shared => self.pool.restore_subscriptions(subscriptions, |_| None),
            Lifecycle::PerClient => self.pool.restore_subscriptions(subscriptions, |client| client),
            Lifecycle::Transient => self.notify_lost(&subscriptions),
        }
    }

    /// Ends subscriptions and connections. Returns when every server process has exited or was killed.
    async fn close(&self) {
        // Subscribers learn that no more updates will come from this connector.
        self.notify_lost(&self.pool.take_subscriptions());
        // Calls in flight may finish; temporary connections that hang are killed at once.
        self.shutdown.cancel();
        self.closing_tasks.close();
        tokio::join!(self.pool.drain(), self.closing_tasks.wait());
    }
}

/// Empty JSON object, the result of requests without content.
fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// Removes Toolcrib's own execution specification from a tool of an MCP server. Without this a server could make
/// Toolcrib send HTTP requests elsewhere with the tool's name.
fn strip_execution_spec(tool: Box<RawValue>) -> Box<RawValue> {
    // The key may be written with JSON escapes, which a plain search does not see.
    if !tool.get().contains(EXECUTION_SPEC_KEY) && !tool.get().contains("\\u") {
        return tool;
    }
    let Some(mut fields) = RawFields::parse(&tool) else { return tool };
    match fields.remove(EXECUTION_SPEC_KEY) {
        Some(_) => to_raw_value(&fields).unwrap_or_default(),
        None => tool,
    }
}

/// Skipped tools with redacted, sanitised names and reasons.
fn skipped_tools(skipped: &[(String, String)], redactor: &Redactor) -> Vec<SkippedTool> {
    // Redact before truncating: the cut-off beginning of a secret is harder to recognise.
    let clean = |text: &str| sanitize_truncated(&redactor.redact(text), 512);
    skipped.iter().map(|(name, reason)| SkippedTool { name: clean(name), reason: clean(reason) }).collect()
}

/// Entry for a tool that is skipped because it contains a secret of its source where it cannot be masked.
fn skip_leaking_tool(tool: &RawValue, redactor: &Redactor) -> SkippedTool {
    let name = RawFields::parse(tool).and_then(|fields| serde_json::from_str::<String>(fields.get("name")?.get()).ok());
    let name = sanitize_truncated(&redactor.redact(&name.unwrap_or_default()), 512);
    let reason = "it contains a secret value of its source in a name, an enumeration or a default";
    SkippedTool { name, reason: reason.into() }
}

/// Names of the capabilities that a server announced, bounded in number and length.
fn capability_names(server: &ServerDescription) -> Vec<String> {
    // Servers announce a handful; the bound protects the store.
    const MAX_CAPABILITIES: usize = 32;
    let capabilities = RawFields::parse(&server.capabilities).unwrap_or_default();
    let offered = capabilities.iter().filter(|(_, value)| !matches!(value.get(), "null" | "false"));
    offered.map(|(name, _)| name.chars().take(64).collect()).take(MAX_CAPABILITIES).collect()
}

/// Self-description of a server for search: title, description and instructions.
fn describe_server(server: &ServerDescription) -> Option<String> {
    let info = server.info.as_deref().and_then(RawFields::parse).unwrap_or_default();
    let text_field = |key: &str| info.get(key).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let texts = [text_field("title"), text_field("description"), server.instructions.clone()];
    Some(texts.into_iter().flatten().collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tools_show_no_secrets() {
        let redactor = Redactor::new(&["hunter2".to_owned()].into());
        let skipped = [("read_hunter2".to_owned(), "its schema has `hunter2`".to_owned())];
        let expected = SkippedTool { name: "read_***".into(), reason: "its schema has `***`".into() };
        assert_eq!(skipped_tools(&skipped, &redactor), [expected]);
    }

    #[test]
    fn a_tool_that_repeats_a_secret_where_calls_depend_on_it_is_skipped() {
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
            let skipped = skip_leaking_tool(&redacted, &redactor);
            assert!(!skipped.name.contains("hunter2"), "{}", skipped.name);
        }
    }

    #[test]
    fn an_execution_spec_sent_by_a_server_is_removed() {
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
