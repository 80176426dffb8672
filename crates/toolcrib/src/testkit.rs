//! A scripted source for tests: the test sets its tools, replies and failures, and reads how often it was used. It
//! fulfils the contract of [`Connector`], so a registry treats it like a real one.
//!
//! It is here and not in `toolcrib-testkit`, because connectors are private to this crate. All other test helpers are
//! there.
//!
//! ```
//! use serde_json::json;
//! use toolcrib::RegistryOptions;
//! use toolcrib::testkit::{ScriptedSource, config_with_sources, open_with_connectors};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> toolcrib::Result<()> {
//! let shop = ScriptedSource::new(["order"]);
//! shop.set_reply(|tool, input| json!(format!("{tool}: {}", input["what"])));
//! let factory = ScriptedSource::connector_factory([("shop", &shop)]);
//! let registry = open_with_connectors(config_with_sources(["shop"]), RegistryOptions::default(), factory).await?;
//! assert_eq!(shop.discoveries(), 0, "opening makes no requests");
//!
//! let output = registry.call("shop__order", json!({"what": 7})).caller("agent").await?;
//! assert_eq!(output.text(), "order: 7");
//! assert_eq!((shop.discoveries(), shop.calls()), (1, 1));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use toolcrib_config::{Config, ConfiguredSource};
use toolcrib_core::features::OfferedFeatures;
use toolcrib_core::json::{parse_exact, plain_text, to_exact_raw};
use toolcrib_core::source::{SourceKind, SourceSettings, StdioSource};
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId};

use crate::call::ProgressListener;
use crate::connector::{
    CallFailure, Connector, Discovered, Discovery, FeatureReading, PendingFeatures, SourceRequest, ToolCall, ToolResult,
};
use crate::connectors::SourceEvents;
use crate::{Registry, RegistryOptions};

pub use crate::connectors::ConnectorFactory;

/// Opens a registry with some connectors replaced, such as those of [`ScriptedSource::connector_factory`].
pub async fn open_with_connectors(
    config: Config,
    options: RegistryOptions,
    factory: ConnectorFactory,
) -> Result<Registry> {
    Registry::open_with_connectors(config, options, factory).await
}

/// Computes the reply to a call from the tool's original name and its arguments.
type ReplyFn = dyn Fn(&str, &Value) -> ScriptedReply + Send + Sync;

/// Outcome of a call of a scripted source.
#[derive(Debug, Clone)]
pub enum ScriptedReply {
    /// Text becomes a text block; an object is the whole result: `content`, `structuredContent`, `isError`, `_meta`.
    Result(Value),
    /// The source responds with an error, like a JSON-RPC error.
    Rejected(String),
    /// The connection is lost.
    Disconnected(String),
}

impl From<Value> for ScriptedReply {
    fn from(value: Value) -> ScriptedReply {
        ScriptedReply::Result(value)
    }
}

/// A scripted source. Every method may be called while it is in use.
pub struct ScriptedSource {
    script: Mutex<ScriptState>,
    /// While true, discoveries and calls wait.
    paused: watch::Sender<bool>,
    /// Number of discoveries and calls that may pass although the source is paused.
    passes: AtomicUsize,
    /// Lets one waiting discovery or call continue.
    resume_one_signal: Notify,
    discoveries: AtomicUsize,
    calls: AtomicUsize,
    closes: AtomicUsize,
}

/// Settings made by the test.
struct ScriptState {
    tools: Vec<Value>,
    about: Option<String>,
    features: Option<OfferedFeatures>,
    list_delay: Option<Duration>,
    failure: Option<Error>,
    delay: Duration,
    reply: Arc<ReplyFn>,
    /// Set when a registry connects; for announcements.
    source_events: Option<(SourceEvents, SourceId)>,
}

impl ScriptedSource {
    /// Creates a source with these tools, given by name or as in an MCP list. Its replies repeat tool and arguments.
    pub fn new(tools: impl IntoIterator<Item = impl Into<Value>>) -> Arc<ScriptedSource> {
        let reply = Arc::new(|tool: &str, input: &Value| json!(format!("{tool} {}", plain_text(input))).into());
        let script = ScriptState {
            tools: tool_list(tools),
            about: None,
            features: None,
            list_delay: None,
            failure: None,
            delay: Duration::ZERO,
            reply,
            source_events: None,
        };
        Arc::new(ScriptedSource {
            script: Mutex::new(script),
            paused: watch::Sender::new(false),
            passes: AtomicUsize::new(0),
            resume_one_signal: Notify::new(),
            discoveries: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            closes: AtomicUsize::new(0),
        })
    }

    /// Returns a factory for [`open_with_connectors`]: these sources are scripted, all others are real.
    pub fn connector_factory<'a>(
        sources: impl IntoIterator<Item = (&'a str, &'a Arc<ScriptedSource>)>,
    ) -> ConnectorFactory {
        let sources: BTreeMap<String, Arc<ScriptedSource>> =
            sources.into_iter().map(|(id, scripted)| (id.to_owned(), scripted.clone())).collect();
        ConnectorFactory(Some(Arc::new(move |source, events| {
            let scripted = sources.get(source.id.as_str())?.clone();
            scripted.script.lock().source_events = Some((events.clone(), source.id.clone()));
            Some(Arc::new(ScriptedConnector(scripted)))
        })))
    }

    /// Replaces the tools.
    pub fn set_tools(&self, tools: impl IntoIterator<Item = impl Into<Value>>) {
        self.script.lock().tools = tool_list(tools);
    }

    /// Replaces the description of the source by itself.
    pub fn set_about(&self, about: &str) {
        self.script.lock().about = Some(about.to_owned());
    }

    /// Replaces the prompts, resources and instructions.
    pub fn set_features(&self, features: OfferedFeatures) {
        self.script.lock().features = Some(features);
    }

    /// Delays the prompts and resources of every discovery after its tools, by tokio's clock.
    pub fn set_list_delay(&self, delay: Duration) {
        self.script.lock().list_delay = Some(delay);
    }

    /// Makes discoveries fail, and calls find no connection. Calls fail like those of a server that cannot be reached,
    /// which counts for the circuit breaker.
    pub fn fail(&self, message: &str) {
        self.script.lock().failure = Some(Error::new(Code::ToolUnavailable, message));
    }

    /// Ends the failure.
    pub fn recover(&self) {
        self.script.lock().failure = None;
    }

    /// Delays every discovery and call, by tokio's clock.
    pub fn set_delay(&self, delay: Duration) {
        self.script.lock().delay = delay;
    }

    /// Sets how calls end; the arguments are the tool's original name and its input.
    pub fn set_reply<R: Into<ScriptedReply>>(&self, reply: impl Fn(&str, &Value) -> R + Send + Sync + 'static) {
        self.script.lock().reply = Arc::new(move |tool, input| reply(tool, input).into());
    }

    /// Makes discoveries and calls wait until [`ScriptedSource::resume`].
    pub fn pause(&self) {
        self.paused.send_replace(true);
    }

    /// Lets the next discovery or call pass although the source is paused.
    pub fn allow_next(&self) {
        self.passes.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets one waiting discovery or call continue.
    pub fn resume_next(&self) {
        self.resume_one_signal.notify_one();
    }

    /// Lets all waiting and later discoveries and calls run.
    pub fn resume(&self) {
        self.paused.send_replace(false);
    }

    /// Announces that the tools changed, like a server with `list_changed`. Has no effect before a registry has
    /// connected.
    pub fn announce_tools_changed(&self) {
        if let Some((events, id)) = &self.script.lock().source_events {
            events.tools_changed(id);
        }
    }

    /// Returns how many discoveries have started.
    pub fn discoveries(&self) -> usize {
        self.discoveries.load(Ordering::SeqCst)
    }

    /// Returns how many calls have started.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns how often a connection was closed.
    pub fn closes(&self) -> usize {
        self.closes.load(Ordering::SeqCst)
    }

    /// Waits for the delay, and while the source is paused.
    async fn wait(&self) {
        let delay = self.script.lock().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let pass = self.passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |passes| passes.checked_sub(1));
        if pass.is_ok() {
            return;
        }
        let mut paused = self.paused.subscribe();
        tokio::select! {
            // Cannot fail: the sender lives as long as the source.
            _ = paused.wait_for(|paused| !paused) => {}
            () = self.resume_one_signal.notified() => {}
        }
    }

    /// Returns a copy of the failure that the test has set.
    fn failure(&self) -> Option<Error> {
        let script = self.script.lock();
        script.failure.as_ref().map(|error| Error::new(error.code, error.message.clone()))
    }
}

/// Returns a configuration that declares these sources, to be replaced by scripted ones.
pub fn config_with_sources<'a>(sources: impl IntoIterator<Item = &'a str>) -> Config {
    let declared = sources.into_iter().filter_map(|name| {
        let id = SourceId::from_name(name).ok()?;
        let kind = SourceKind::Stdio(StdioSource { command: "scripted".into(), ..StdioSource::default() });
        let source = Ok(Source { id: id.clone(), kind, settings: SourceSettings::default() });
        Some(ConfiguredSource { id, original_name: name.to_owned(), source, file: "scripted".into(), line: 1 })
    });
    Config { sources: declared.collect(), ..Config::default() }
}

/// Returns a listener for [`CallContext::on_progress`](crate::CallContext), and the receiver of what it hears.
pub fn progress_channel() -> (ProgressListener, mpsc::UnboundedReceiver<Box<RawValue>>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    // Fails once the test has dropped the receiver.
    (Arc::new(move |params: &RawValue| drop(sender.send(params.to_owned()))), receiver)
}

/// Connector of a scripted source.
#[derive(Debug)]
struct ScriptedConnector(Arc<ScriptedSource>);

#[async_trait]
impl Connector for ScriptedConnector {
    async fn discover(&self, _: Discovery) -> Result<Discovered> {
        self.0.discoveries.fetch_add(1, Ordering::SeqCst);
        // Counted when it starts, so a test can wait for a discovery that is still paused. A slow source answers with
        // the tools it had when it was asked.
        let tools = self.0.script.lock().tools.clone();
        self.0.wait().await;
        if let Some(error) = self.0.failure() {
            return Err(error);
        }
        let tools: Result<Vec<Box<RawValue>>, _> = tools.iter().map(to_exact_raw).collect();
        let tools = tools.context(Code::Internal, "write a tool")?;
        let script = self.0.script.lock();
        let (about, features) = (script.about.clone(), script.features.clone());
        let Some(delay) = script.list_delay else {
            return Ok(Discovered { tools, about, features, ..Discovered::default() });
        };
        let reading = async move {
            tokio::time::sleep(delay).await;
            FeatureReading { offered: features.unwrap_or_default(), is_complete: true, ..FeatureReading::default() }
        };
        let pending_features = Some(PendingFeatures(stream::once(reading).boxed()));
        Ok(Discovered { tools, about, pending_features, ..Discovered::default() })
    }

    async fn call(&self, call: &ToolCall<'_>) -> Result<ToolResult, CallFailure> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        let timed_out = || Error::new(Code::ToolExecutionFailed, format!("`{}` did not answer in time", call.tool));
        tokio::select! {
            () = self.0.wait() => {}
            () = call.context.cancel.cancelled() => return Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(call.deadline.at) => return Err(CallFailure::TimedOut(timed_out())),
        }
        if let Some(error) = self.0.failure() {
            return Err(CallFailure::Unavailable(error));
        }
        let input = parse_exact(call.arguments.get()).context(Code::Internal, "read the arguments");
        let reply = self.0.script.lock().reply.clone();
        match reply(call.tool, &input.map_err(CallFailure::Rejected)?) {
            ScriptedReply::Result(value) => {
                let result =
                    build_answer(&value).context(Code::Internal, "write a result").map_err(CallFailure::Rejected)?;
                let not_an_object = || CallFailure::Rejected(Error::new(Code::Internal, "the result is not an object"));
                result.ok_or_else(not_an_object)
            }
            ScriptedReply::Rejected(message) => {
                Err(CallFailure::Rejected(Error::new(Code::ToolExecutionFailed, message)))
            }
            ScriptedReply::Disconnected(message) => {
                Err(CallFailure::Unavailable(Error::new(Code::ToolUnavailable, message)))
            }
        }
    }

    async fn request(&self, request: &SourceRequest<'_>) -> Result<Box<RawValue>, CallFailure> {
        let message = format!("a scripted source does not support `{}`", request.method);
        Err(CallFailure::Rejected(Error::new(Code::ToolNotImplemented, message)))
    }

    fn is_connected(&self) -> bool {
        self.0.calls() > 0
    }

    async fn close(&self) {
        self.0.closes.fetch_add(1, Ordering::SeqCst);
    }
}

/// Expands names to MCP tool definitions.
fn tool_list(tools: impl IntoIterator<Item = impl Into<Value>>) -> Vec<Value> {
    let definition = |definition: Value| match definition.as_str() {
        Some(name) => json!({"name": name, "description": format!("Does {name}"), "inputSchema": {"type": "object"}}),
        None => definition,
    };
    tools.into_iter().map(Into::into).map(definition).collect()
}

/// Builds an MCP result from a reply.
fn build_answer(reply: &Value) -> serde_json::Result<Option<ToolResult>> {
    let result = match (reply.as_object(), reply.as_str()) {
        (Some(result), _) => result.clone(),
        (None, Some(text)) => text_result(text),
        (None, None) => text_result(&reply.to_string()),
    };
    Ok(ToolResult::parse(to_exact_raw(&result)?))
}

/// An MCP result with one text block.
fn text_result(text: &str) -> serde_json::Map<String, Value> {
    serde_json::Map::from_iter([("content".to_owned(), json!([{"type": "text", "text": text}]))])
}

impl fmt::Debug for ScriptedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let discoveries = self.discoveries();
        let calls = self.calls();
        f.debug_struct("ScriptedSource")
            .field("discoveries", &discoveries)
            .field("calls", &calls)
            .finish_non_exhaustive()
    }
}
