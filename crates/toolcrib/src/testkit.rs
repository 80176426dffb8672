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
use toolcrib_core::config::{Config, Declaration};
use toolcrib_core::source::{Kind, Settings, Stdio};
use toolcrib_core::{Code, Error, Result, ResultExt, Source, SourceId};

use crate::connections::{Connect, News};
use crate::connector::{Answer, Call, CallFailure, Connector, Discovery, Offer, Request};

type Answers = dyn Fn(&str, &Value) -> Reply + Send + Sync;

/// How a call ends.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Text becomes a text block; an object is the whole result: `content`, `structuredContent`, `isError`, `_meta`.
    Result(Value),
    /// The source is alive and says no, as with a JSON-RPC error.
    Refused(String),
    /// The connection is gone.
    Lost(String),
}

impl From<Value> for Reply {
    fn from(value: Value) -> Reply {
        Reply::Result(value)
    }
}

/// One scripted source. Every method may be called while it is in use.
pub struct Scripted {
    script: Mutex<Script>,
    /// While true, discoveries and calls wait.
    held: watch::Sender<bool>,
    /// How many may pass all the same.
    passes: AtomicUsize,
    released_one: Notify,
    discoveries: AtomicUsize,
    calls: AtomicUsize,
    closes: AtomicUsize,
}

struct Script {
    tools: Vec<Value>,
    failure: Option<Error>,
    delay: Duration,
    answers: Arc<Answers>,
    announce: Option<(News, SourceId)>,
}

impl Scripted {
    /// A source that offers these tools, given by name or as MCP would list them, and answers with their arguments.
    pub fn new(tools: impl IntoIterator<Item = impl Into<Value>>) -> Arc<Scripted> {
        let answers = Arc::new(|tool: &str, input: &Value| json!(format!("{tool} {input}")).into());
        let script = Script { tools: listed(tools), failure: None, delay: Duration::ZERO, answers, announce: None };
        Arc::new(Scripted {
            script: Mutex::new(script),
            held: watch::Sender::new(false),
            passes: AtomicUsize::new(0),
            released_one: Notify::new(),
            discoveries: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            closes: AtomicUsize::new(0),
        })
    }

    /// What [`Options::connect`](crate::Options) takes: these sources are scripted, all others are real.
    pub fn connect<'a>(sources: impl IntoIterator<Item = (&'a str, &'a Arc<Scripted>)>) -> Connect {
        let sources: BTreeMap<String, Arc<Scripted>> =
            sources.into_iter().map(|(id, scripted)| (id.to_owned(), scripted.clone())).collect();
        Connect(Arc::new(move |source, news| {
            let scripted = sources.get(source.id.as_str())?.clone();
            scripted.script().announce = Some((news.clone(), source.id.clone()));
            Some(Arc::new(Line(scripted)))
        }))
    }

    /// From now on these tools.
    pub fn offer(&self, tools: impl IntoIterator<Item = impl Into<Value>>) {
        self.script().tools = listed(tools);
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
    pub fn delay(&self, delay: Duration) {
        self.script().delay = delay;
    }

    /// From now on calls end like this; the arguments are the tool's own name and its input.
    pub fn answer<R: Into<Reply>>(&self, answers: impl Fn(&str, &Value) -> R + Send + Sync + 'static) {
        self.script().answers = Arc::new(move |tool, input| answers(tool, input).into());
    }

    /// Whoever discovers or calls waits until [`Scripted::release`].
    pub fn hold(&self) {
        self.held.send_replace(true);
    }

    /// The next call that begins passes, whatever waits.
    pub fn pass_one(&self) {
        self.passes.fetch_add(1, Ordering::SeqCst);
    }

    /// One that waits goes on.
    pub fn release_one(&self) {
        self.released_one.notify_one();
    }

    pub fn release(&self) {
        self.held.send_replace(false);
    }

    /// Says that its tools changed, as a server does with `list_changed`. Nobody hears it before it was connected to.
    pub fn announce(&self) {
        if let Some((news, id)) = &self.script().announce {
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
        let mut held = self.held.subscribe();
        tokio::select! {
            // It fails only without a sender, and that lives as long as we do.
            _released = held.wait_for(|held| !held) => {}
            () = self.released_one.notified() => {}
        }
    }

    fn failure(&self) -> Option<Error> {
        let script = self.script();
        script.failure.as_ref().map(|error| Error::new(error.code, error.message.clone()))
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A configuration that declares these sources, for scripted ones to stand behind.
pub fn config<'a>(sources: impl IntoIterator<Item = &'a str>) -> Config {
    let declared = sources.into_iter().filter_map(|name| {
        let id = SourceId::from_name(name).ok()?;
        let kind = Kind::Stdio(Stdio { command: "scripted".into(), ..Stdio::default() });
        let source = Ok(Source { id: id.clone(), kind, settings: Settings::default() });
        Some(Declaration { id, name_given: name.to_owned(), source, file: "scripted".into(), line: 1 })
    });
    Config { sources: declared.collect(), ..Config::default() }
}

/// One connection to a scripted source.
#[derive(Debug)]
struct Line(Arc<Scripted>);

#[async_trait]
impl Connector for Line {
    async fn discover(&self, _: Discovery) -> Result<Offer> {
        self.0.discoveries.fetch_add(1, Ordering::SeqCst);
        // What a slow source answers is what it was when it was asked.
        let tools = self.0.script().tools.clone();
        self.0.wait().await;
        if let Some(error) = self.0.failure() {
            return Err(error);
        }
        let tools: Result<Vec<Box<RawValue>>, _> = tools.iter().map(to_raw_value).collect();
        Ok(Offer { tools: tools.context(Code::Internal, "write a tool")?, ..Offer::default() })
    }

    async fn call(&self, call: Call) -> Result<Answer, CallFailure> {
        self.0.calls.fetch_add(1, Ordering::SeqCst);
        let late = || Error::new(Code::ToolExecutionFailed, format!("`{}` did not answer in time", call.tool));
        tokio::select! {
            () = self.0.wait() => {}
            () = call.terms.cancel.cancelled() => return Err(CallFailure::cancelled()),
            () = tokio::time::sleep(call.terms.timeout) => return Err(CallFailure::Late(late())),
        }
        if let Some(error) = self.0.failure() {
            return Err(CallFailure::Lost(error));
        }
        let input = serde_json::from_str(call.arguments.get()).context(Code::Internal, "read the arguments");
        let answers = self.0.script().answers.clone();
        match answers(&call.tool, &input.map_err(CallFailure::Refused)?) {
            Reply::Result(said) => {
                let written = answer(&said).context(Code::Internal, "write an answer").map_err(CallFailure::Refused)?;
                let broken = || CallFailure::Refused(Error::new(Code::Internal, "the answer is no object"));
                written.ok_or_else(broken)
            }
            Reply::Refused(message) => Err(CallFailure::Refused(Error::new(Code::ToolExecutionFailed, message))),
            Reply::Lost(message) => Err(CallFailure::Lost(Error::new(Code::ToolUnavailable, message))),
        }
    }

    async fn request(&self, request: Request) -> Result<Box<RawValue>, CallFailure> {
        let message = format!("a scripted source answers no `{}`", request.method);
        Err(CallFailure::Refused(Error::new(Code::ToolNotImplemented, message)))
    }

    fn connected(&self) -> bool {
        self.0.calls() > 0
    }

    async fn close(&self) {
        self.0.closes.fetch_add(1, Ordering::SeqCst);
    }
}

fn listed(tools: impl IntoIterator<Item = impl Into<Value>>) -> Vec<Value> {
    let tool = |tool: Value| match tool.as_str() {
        Some(name) => json!({"name": name, "description": format!("Does {name}"), "inputSchema": {"type": "object"}}),
        None => tool,
    };
    tools.into_iter().map(Into::into).map(tool).collect()
}

fn answer(said: &Value) -> serde_json::Result<Option<Answer>> {
    let result = match (said.as_object(), said.as_str()) {
        (Some(result), _) => result.clone(),
        (None, Some(text)) => block(text),
        (None, None) => block(&said.to_string()),
    };
    Ok(Answer::read(to_raw_value(&result)?))
}

fn block(text: &str) -> serde_json::Map<String, Value> {
    serde_json::Map::from_iter([("content".to_owned(), json!([{"type": "text", "text": text}]))])
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (discoveries, calls) = (self.discoveries(), self.calls());
        f.debug_struct("Scripted").field("discoveries", &discoveries).field("calls", &calls).finish_non_exhaustive()
    }
}
