//! MCP sources: one connection per source, made by the first call that needs it, shared by all, and ended when idle;
//! or one for each client, or one for each call, as the source's `lifecycle` says.

mod callers;
mod exchange;
mod lines;
mod live;
mod overheard;
mod target;
mod watched;
mod watching;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolcrib_core::json::Fields;
use toolcrib_core::manifest::SetAside;
use toolcrib_core::source::Lifecycle;
use toolcrib_core::text::shown_short;
use toolcrib_core::time::format_duration;
use toolcrib_core::tool::BACKING;
use toolcrib_core::{Code, Error, Result, Source};
use toolcrib_mcp::{Era, Notice, RequestOptions, ServerSays};

use super::{Answer, Call, CallFailure, Connector, Discovery, Offer, Request};
use crate::call::ClientId;
use crate::clock::after;
use crate::connections::News;
use crate::redact::{Redactor, SourceRedactor};
use crate::registry::Options;
use crate::trace::Trace;
use exchange::Exchange;
use lines::{Line, Lines};
use live::{Live, Stay};

pub use lines::Watches;
pub(crate) use target::HttpClients;

#[derive(Debug)]
pub(crate) struct McpConnector {
    source: Source,
    options: Options,
    clients: Arc<HttpClients>,
    news: News,
    redactor: Arc<SourceRedactor>,
    lines: Lines,
    /// The protocol version found last, to save the probe next time.
    era: std::sync::Mutex<Option<String>>,
    tending: tokio::sync::Mutex<()>,
    /// Temporary connections that failed and are being closed.
    closing: TaskTracker,
    /// Cancelled when this connector is closed: from then on a server that hangs is not waited for.
    closed: CancellationToken,
}

impl McpConnector {
    pub(crate) fn new(
        source: Source,
        options: &Options,
        clients: Arc<HttpClients>,
        news: News,
        redactor: Arc<SourceRedactor>,
    ) -> McpConnector {
        McpConnector {
            source,
            options: options.clone(),
            clients,
            news,
            redactor,
            lines: Lines::default(),
            era: std::sync::Mutex::default(),
            tending: tokio::sync::Mutex::default(),
            closing: TaskTracker::new(),
            closed: CancellationToken::new(),
        }
    }

    /// Closes a connection that was made for one request. After a failure that happens in the background: a server
    /// that did not answer takes its time to end as well, and the error must be told at the deadline. After a success
    /// it is waited for, so that a server of which there may be only one has ended before the next one starts.
    async fn close_temporary<T, E>(&self, live: &Arc<Live>, outcome: &Result<T, E>) {
        if outcome.is_ok() {
            live.close().await;
            return;
        }
        let live = live.clone();
        let closed = self.closed.clone();
        self.closing.spawn(async move { live.close_until(&closed).await });
    }

    async fn connect(&self, timeout: Duration, stay: Stay) -> Result<Arc<Live>, CallFailure> {
        let era = self.era.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let live = Live::connect(self, era, timeout, stay).await?;
        *self.era.lock().unwrap_or_else(PoisonError::into_inner) = Some(live.era());
        Ok(live)
    }

    /// The connection that stands on a line, or a new one in its place.
    async fn standing(&self, line: &Line, timeout: Duration) -> Result<Arc<Live>, CallFailure> {
        let began = Instant::now();
        let mut place = line.live.lock().await;
        // What another caller found out while this one waited for it need not be found out again.
        let usable = place.as_ref().is_some_and(|live| live.usable());
        if let Some(failure) = line.failure_since(began).filter(|_| !usable) {
            return Err(failure);
        }
        let stood = self.stand(line, &mut place, timeout).await;
        if let Err(failure) = &stood {
            line.failed(failure);
        }
        stood
    }

    async fn stand(
        &self,
        line: &Line,
        place: &mut Option<Arc<Live>>,
        timeout: Duration,
    ) -> Result<Arc<Live>, CallFailure> {
        if let Some(standing) = place.as_ref().filter(|live| live.usable()) {
            return Ok(standing.clone());
        }
        let new = self.connect(timeout, Stay::Long(line.watched.clone())).await?;
        *place = Some(new.clone());
        if line.watched.any() {
            new.own(tokio::spawn(line.watched.clone().renew(new.clone(), self.source.id.clone(), self.news.clone())));
        }
        Ok(new)
    }
}

#[async_trait]
impl Connector for McpConnector {
    /// Over the live connection when there is one, else by a temporary start.
    async fn discover(&self, discovery: Discovery) -> Result<Offer> {
        {
            let mut era = self.era.lock().unwrap_or_else(PoisonError::into_inner);
            if era.is_none() {
                *era = discovery.era.clone();
            }
        }
        let deadline = after(discovery.timeout);
        let standing = async { self.lines.common.live.lock().await.clone() };
        let standing = tokio::time::timeout_at(deadline, standing).await.map_err(|_| {
            let message = format!("no connection within {}", format_duration(discovery.timeout));
            Error::new(Code::ToolUnavailable, message)
        })?;
        let standing = standing.filter(|live| live.usable());
        let keep = discovery.keep && self.source.settings.lifecycle() == Lifecycle::Shared;
        let (live, ends) = match standing {
            Some(live) => (live, false),
            None if keep => {
                let standing = self.standing(&self.lines.common, discovery.timeout).await;
                (standing.map_err(CallFailure::into_error)?, false)
            }
            None => (self.connect(discovery.timeout, Stay::Short).await.map_err(CallFailure::into_error)?, true),
        };
        let remaining = deadline.saturating_duration_since(Instant::now());
        let listed = {
            let _in_flight = live.begin_to_look();
            let mut notices = live.client.notices();
            let mut options = RequestOptions::new(remaining);
            if let Some(trace) = &discovery.trace {
                trace.add_to(&mut options.headers);
            }
            let meta = discovery.trace.as_ref().and_then(Trace::meta);
            let listed = live.client.list_tools_with(meta.as_deref(), &options).await;
            // A temporary connection is not listened to later, so an announcement that came meanwhile counts now.
            let mut announced = std::iter::from_fn(|| notices.try_recv().ok());
            let is_outdated = ends && announced.any(|notice| matches!(notice, Notice::ToolsChanged));
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
                Err(live.explain(&self.source, "listing its tools", discovery.timeout, error, at).await)
            }
        };
        let (era, offers, about) = (live.era(), offers(live.client.server()), about(live.client.server()));
        // Before 2026 a list says nothing about who may see it.
        let modern = live.client.era() == Era::Modern;
        if ends {
            self.close_temporary(&live, &listed).await;
        }
        let list = listed?;
        let (ttl_ms, private) = (list.ttl_ms, modern && !list.public);
        let redactor = self.redactor.get(&self.source.kind);
        let mut excluded = excluded_tools(&list.excluded, &redactor);
        let tools = list.tools.into_iter().map(|tool| redactor.redact_tool(without_backing(tool)));
        let (repeating, tools): (Vec<_>, Vec<_>) = tools.partition(|tool| redactor.is_repeated_by(tool));
        excluded.extend(repeating.iter().map(|tool| repeating_tool(tool, &redactor)));
        let about = about.map(|about| redactor.redact(&about).into_owned());
        Ok(Offer { tools, excluded, era: Some(era), offers, about, ttl_ms, private, ..Offer::default() })
    }

    async fn call(&self, call: Call) -> Result<Answer, CallFailure> {
        let result = self.exchange(&Exchange::Call(&call)).await?;
        let broken = || Error::new(Code::ToolExecutionFailed, "the result of the call is not an object");
        let answer = Answer::read(result).ok_or_else(|| CallFailure::Refused(broken()))?;
        if answer.layout.input_required && call.terms.relay.is_none() {
            let message = "the tool asks for more input, which nobody here can give";
            return Err(CallFailure::Refused(Error::new(Code::ToolExecutionFailed, message)));
        }
        Ok(answer)
    }

    async fn request(&self, request: Request) -> Result<Box<RawValue>, CallFailure> {
        match request.method.as_str() {
            "resources/subscribe" => self.watch(request).await,
            "resources/unsubscribe" => self.unwatch(request).await,
            _ => self.exchange(&Exchange::Request(&request)).await,
        }
    }

    fn connected(&self) -> bool {
        self.lines.connected()
    }

    async fn client_gone(&self, client: ClientId) {
        self.lines.client_gone(client).await;
        self.unwatch_all(client).await;
    }

    fn neglected(&self) -> bool {
        self.is_neglected()
    }

    async fn tend(&self) {
        // One at a time; who looks again soon finds it done.
        if let Ok(_alone) = self.tending.try_lock() {
            self.attend().await;
        }
    }

    fn hand_over(&self) -> Watches {
        self.lines.hand_over()
    }

    fn take_over(&self, watches: Watches) {
        match self.source.settings.lifecycle() {
            Lifecycle::Shared => self.lines.take_over(watches, |_| None),
            Lifecycle::PerClient => self.lines.take_over(watches, |client| client),
            Lifecycle::Transient => self.lose(&watches),
        }
    }

    async fn close(&self) {
        self.lose(&self.lines.hand_over());
        self.closed.cancel();
        self.closing.close();
        tokio::join!(self.lines.drain(), self.closing.wait());
    }
}

/// An empty result.
fn unsaid() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// What lies behind a tool of a server is the server: nobody believes what it says about requests elsewhere.
fn without_backing(tool: Box<RawValue>) -> Box<RawValue> {
    // A name may be written with escapes.
    if !tool.get().contains(BACKING) && !tool.get().contains("\\u") {
        return tool;
    }
    let Some(mut fields) = Fields::parse(&tool) else { return tool };
    match fields.take(BACKING) {
        Some(_) => to_raw_value(&fields).unwrap_or_default(),
        None => tool,
    }
}

/// Tools that the list leaves out, with names and reasons fit to be shown.
fn excluded_tools(excluded: &[(String, String)], redactor: &Redactor) -> Vec<SetAside> {
    // Redacted first: the beginning of a value that is cut is harder to recognise.
    let shown = |text: &str| shown_short(&redactor.redact(text), 512);
    excluded.iter().map(|(name, reason)| SetAside { name: shown(name), reason: shown(reason) }).collect()
}

/// A tool that is left out because it repeats what its source was given in confidence.
fn repeating_tool(tool: &RawValue, redactor: &Redactor) -> SetAside {
    let name = Fields::parse(tool).and_then(|fields| serde_json::from_str::<String>(fields.get("name")?.get()).ok());
    let name = shown_short(&redactor.redact(&name.unwrap_or_default()), 512);
    let reason = "it repeats a value that its source was given, in a name, an enumeration or a default";
    SetAside { name, reason: reason.into() }
}

/// The names of the capabilities a server announced.
fn offers(server: &ServerSays) -> Vec<String> {
    const MOST: usize = 32;
    let capabilities = Fields::parse(&server.capabilities).unwrap_or_default();
    let offered = capabilities.iter().filter(|(_, value)| !matches!(value.get(), "null" | "false"));
    offered.map(|(name, _)| name.chars().take(64).collect()).take(MOST).collect()
}

/// What a server says about itself: title, description, instructions.
fn about(server: &ServerSays) -> Option<String> {
    let info = server.info.as_deref().and_then(Fields::parse).unwrap_or_default();
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
        let expected = SetAside { name: "read_***".into(), reason: "its schema has `***`".into() };
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
            assert_eq!(redactor.is_repeated_by(&redacted), repeats, "{tool}");
            let shown = repeating_tool(&redacted, &redactor);
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
            assert_eq!(without_backing(tool).get(), expected);
        }
    }
}
