//! A source that lives in the test: its tools, its answers and its faults are set from outside, and what happens to it
//! is counted. It keeps to what a [`Connector`] promises, so a registry cannot tell it from a real one.
//!
//! ```
//! use serde_json::json;
//! use toolcrib::testkit::{Scripted, config};
//! use toolcrib::{CallOptions, Caller, Options, Registry};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> toolcrib::Result<()> {
//! let shop = Scripted::new(["order"]);
//! shop.answer(|tool, input| json!(format!("{tool}: {}", input["what"])));
//! let options = Options { connect: Some(Scripted::connect([("shop", &shop)])), ..Options::default() };
//! let registry = Registry::open(config(["shop"]), options).await?;
//! assert_eq!(shop.discoveries(), 0, "opening contacts nobody");
//!
//! let agent = Caller { name: "agent".into() };
//! let output = registry.call(&agent, "shop__order", json!({"what": 7}), CallOptions::default()).await?;
//! assert_eq!(output.content(), r#"[{"type":"text","text":"order: 7"}]"#);
//! assert_eq!((shop.discoveries(), shop.calls()), (1, 1));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use toolcrib_core::config::{Config, ConfiguredSource};
use toolcrib_core::source::{SourceKind, SourceSettings, StdioSource};
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId};

use crate::connections::{ConnectorFactory, SourceEvents};
use crate::connector::{CallFailure, Connector, Discovered, Discovery, SourceRequest, ToolCall, ToolResult};

type ReplyFn = dyn Fn(&str, &Value) -> ScriptedReply + Send + Sync;

/// How a call ends.
#[derive(Debug, Clone)]
pub enum ScriptedReply {
    /// Text becomes a text block; an object is the whole result: `content`, `structuredContent`, `isError`, `_meta`.
    Result(Value),
    /// The source is alive and says no, as with a JSON-RPC error.
    Rejected(String),
    /// The connection is gone.
    Disconnected(String),
}

impl From<Value> for ScriptedReply {
    fn from(value: Value) -> ScriptedReply {
        ScriptedReply::Result(value)
    }
}

/// One scripted source. Every method may be called while it is in use.
pub struct ScriptedSource {
    script: Mutex<ScriptState>,
    /// While true, discoveries and calls wait.
    paused: watch::Sender<bool>,
    /// How many may pass all the same.
    passes: AtomicUsize,
    resume_one_signal: Notify,
    discoveries: AtomicUsize,
    calls: AtomicUsize,
    closes: AtomicUsize,
}

struct ScriptState {
    tools: Vec<Value>,
    failure: Option<Error>,
    delay: Duration,
    reply: Arc<ReplyFn>,
    source_events: Option<(SourceEvents, SourceId)>,
}

impl ScriptedSource {
    /// A source that offers these tools, given by name or as MCP would list them, and answers with their arguments.
    pub fn new(tools: impl IntoIterator<Item = impl Into<Value>>) -> Arc<ScriptedSource> {
        let answers = Arc::new(|tool: &str, input: &Value| json!(format!("{tool} {input}")).into());
        let script = ScriptState {
            tools: tool_list(tools),
            failure: None,
            delay: Duration::ZERO,
            reply: answers,
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

    /// What [`Options::connect`](crate::Options) takes: these sources are scripted, all others are real.
    pub fn connector_factory<'a>(
        sources: impl IntoIterator<Item = (&'a str, &'a Arc<ScriptedSource>)>,
    ) -> ConnectorFactory {
        let sources: BTreeMap<String, Arc<ScriptedSource>> =
            sources.into_iter().map(|(id, scripted)| (id.to_owned(), scripted.clone())).collect();
        ConnectorFactory(Arc::new(move |source, news| {
            let scripted = sources.get(source.id.as_str())?.clone();
            scripted.script().source_events = Some((news.clone(), source.id.clone()));
            Some(Arc::new(ScriptedConnector(scripted)))
        }))
    }

    /// From now on these tools.
    pub fn set_tools(&self, tools: impl IntoIterator<Item = impl Into<Value>>) {
        self.script().tools = tool_list(tools);
    }

    /// From now on discoveries fail, and calls find no connection.
    pub fn fail(&self, message: &str) {
        self.script().failure = Some(Error::new(Code::ToolUnavailable, message));
    }

    /// All is well again.
    pub fn recover(&self) {
        self.script().failure = None;
    }

    /// Everything takes this long, by tokio's clock.
    pub fn set_delay(&self, delay: Duration) {
        self.script().delay = delay;
    }

    /// From now on calls end like this; the arguments are the tool's own name and its input.
    pub fn set_reply<R: Into<ScriptedReply>>(&self, answers: impl Fn(&str, &Value) -> R + Send + Sync + 'static) {
        self.script().reply = Arc::new(move |tool, input| answers(tool, input).into());
    }

    /// Whoever discovers or calls waits until [`Scripted::release`].
    pub fn pause(&self) {
        self.paused.send_replace(true);
    }

    /// The next call that begins passes, whatever waits.
    pub fn pass_one(&self) {
        self.passes.fetch_add(1, Ordering::SeqCst);
    }

    /// One that waits goes on.
    pub fn resume_one(&self) {
        self.resume_one_signal.notify_one();
    }

    pub fn resume(&self) {
        self.paused.send_replace(false);
    }

    /// Says that its tools changed, as a server does with `list_changed`. Nobody hears it before it was connected to.
    pub fn announce_tools_changed(&self) {
        if let Some((news, id)) = &self.script().source_events {
            news.tools_changed(id);
        }
    }

    /// How many discoveries began.
    pub fn discoveries(&self) -> usize {
        self.discoveries.load(Ordering::SeqCst)
    }

    /// How many calls began.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// How often a connection to it was closed.
    pub fn closes(&self) -> usize {
        self.closes.load(Ordering::SeqCst)
    }

    async fn wait(&self) {
        let delay = self.script().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let pass = self.passes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |passes| passes.checked_sub(1));
        if pass.is_ok() {
            return;
        }
        let mut held = self.paused.subscribe();
        tokio::select! {
            // It fails only without a sender, and that lives as long as we do.
            _released = held.wait_for(|held| !held) => {}
            () = self.resume_one_signal.notified() => {}
        }
    }

    fn failure(&self) -> Option<Error> {
        let script = self.script();
        script.failure.as_ref().map(|error| Error::new(error.code, error.message.clone()))
    }

    fn script(&self) -> MutexGuard<'_, ScriptState> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A configuration that declares these sources, for scripted ones to stand behind.
pub fn config_with_sources<'a>(sources: impl IntoIterator<Item = &'a str>) -> Config {
    let declared = sources.into_iter().filter_map(|name| {
        let id = SourceId::from_name(name).ok()?;
        let kind = SourceKind::Stdio(StdioSource { command: "scripted".into(), ..StdioSource::default() });
        let source = Ok(Source { id: id.clone(), kind, settings: SourceSettings::default() });
        Some(ConfiguredSource { id, original_name: name.to_owned(), source, file: "scripted".into(), line: 1 })
    });
    Config { sources: declared.collect(), ..Config::default() }
}

/// One connection to a scripted source.
#[derive(Debug)]
struct ScriptedConnector(Arc<ScriptedSource>);

#[async_trait]
impl Connector for ScriptedConnector {
    async fn discover(&self, _: Discovery) -> Result<Discovered> {
        self.0.discoveries.fetch_add(1, Ordering::SeqCst);
        // What a slow source answers is what it was when it was asked.
        let tools = self.0.script().tools.clone();
        self.0.wait().await;
        if let Some(error) = self.0.failure() {
            return Err(error);
        }
        let tools: Result<Vec<Box<RawValue>>, _> = tools.iter().map(to_raw_value).collect();
        Ok(Discovered { tools: tools.context(Code::Internal, "write a tool")?, ..Discovered::default() })
    }

    async fn call(&self, call: ToolCall) -> Result<ToolResult, CallFailure> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        let late = || Error::new(Code::ToolExecutionFailed, format!("`{}` did not answer in time", call.tool));
        tokio::select! {
            () = self.0.wait() => {}
            () = call.context.cancel.cancelled() => return Err(CallFailure::cancelled()),
            () = tokio::time::sleep(call.context.timeout) => return Err(CallFailure::TimedOut(late())),
        }
        if let Some(error) = self.0.failure() {
            return Err(CallFailure::Unavailable(error));
        }
        let input = serde_json::from_str(call.arguments.get()).context(Code::Internal, "read the arguments");
        let answers = self.0.script().reply.clone();
        match answers(&call.tool, &input.map_err(CallFailure::Rejected)?) {
            ScriptedReply::Result(said) => {
                let written =
                    build_answer(&said).context(Code::Internal, "write an answer").map_err(CallFailure::Rejected)?;
                let broken = || CallFailure::Rejected(Error::new(Code::Internal, "the answer is no object"));
                written.ok_or_else(broken)
            }
            ScriptedReply::Rejected(message) => {
                Err(CallFailure::Rejected(Error::new(Code::ToolExecutionFailed, message)))
            }
            ScriptedReply::Disconnected(message) => {
                Err(CallFailure::Unavailable(Error::new(Code::ToolUnavailable, message)))
            }
        }
    }

    async fn request(&self, request: SourceRequest) -> Result<Box<RawValue>, CallFailure> {
        let message = format!("a scripted source answers no `{}`", request.method);
        Err(CallFailure::Rejected(Error::new(Code::ToolNotImplemented, message)))
    }

    fn is_connected(&self) -> bool {
        self.0.calls() > 0
    }

    async fn close(&self) {
        self.0.closes.fetch_add(1, Ordering::SeqCst);
    }
}

fn tool_list(tools: impl IntoIterator<Item = impl Into<Value>>) -> Vec<Value> {
    let tool = |tool: Value| match tool.as_str() {
        Some(name) => json!({"name": name, "description": format!("Does {name}"), "inputSchema": {"type": "object"}}),
        None => tool,
    };
    tools.into_iter().map(Into::into).map(tool).collect()
}

fn build_answer(said: &Value) -> serde_json::Result<Option<ToolResult>> {
    let result = match (said.as_object(), said.as_str()) {
        (Some(result), _) => result.clone(),
        (None, Some(text)) => text_result(text),
        (None, None) => text_result(&said.to_string()),
    };
    Ok(ToolResult::parse(to_raw_value(&result)?))
}

fn text_result(text: &str) -> serde_json::Map<String, Value> {
    serde_json::Map::from_iter([("content".to_owned(), json!([{"type": "text", "text": text}]))])
}

impl fmt::Debug for ScriptedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (discoveries, calls) = (self.discoveries(), self.calls());
        f.debug_struct("Scripted").field("discoveries", &discoveries).field("calls", &calls).finish_non_exhaustive()
    }
}
