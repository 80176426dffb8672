//! MCP sources: one connection per source, made by the first call that needs it, shared by all, and ended when idle.

mod live;
mod overheard;
mod target;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use toolcrib_core::json::Fields;
use toolcrib_core::manifest::SetAside;
use toolcrib_core::source::Lifecycle;
use toolcrib_core::text::{shown, shown_short};
use toolcrib_core::time::format_duration;
use toolcrib_core::{Code, Error, Result, Source, SourceId};
use toolcrib_mcp::{RequestOptions, ServerSays, WireError};

use super::{Answer, Call, CallFailure, Connector, Discovery, Offer};
use crate::registry::Options;
use live::{Live, Stay, Use};

pub(crate) use target::HttpClients;

#[derive(Debug)]
pub(crate) struct McpConnector {
    source: Source,
    options: Options,
    clients: Arc<HttpClients>,
    announce: mpsc::Sender<SourceId>,
    /// The shared connection. Held while one is made, so that one is made for all who wait.
    live: tokio::sync::Mutex<Option<Arc<Live>>>,
    /// The protocol version found last, to save the probe next time.
    era: std::sync::Mutex<Option<String>>,
}

impl McpConnector {
    pub(crate) fn new(
        source: Source,
        options: &Options,
        clients: Arc<HttpClients>,
        announce: mpsc::Sender<SourceId>,
    ) -> McpConnector {
        let (live, era) = (tokio::sync::Mutex::default(), std::sync::Mutex::default());
        McpConnector { source, options: options.clone(), clients, announce, live, era }
    }

    async fn connect(&self, timeout: Duration, stay: Stay) -> Result<Arc<Live>> {
        let era = self.era.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let live = Live::connect(&self.source, &self.options, &self.clients, era, timeout, stay, self.announce.clone())
            .await?;
        *self.era.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(live.era());
        Ok(live)
    }

    /// The shared connection, or a new one in its place.
    async fn shared(&self, timeout: Duration) -> Result<Arc<Live>> {
        let mut live = self.live.lock().await;
        if let Some(standing) = live.as_ref().filter(|live| live.usable()) {
            return Ok(standing.clone());
        }
        let new = self.connect(timeout, Stay::Long).await?;
        *live = Some(new.clone());
        Ok(new)
    }

    /// Calls over a connection of its own, which ends with the call.
    async fn call_transient(&self, call: &Call) -> Result<Answer, CallFailure> {
        let deadline = Instant::now() + call.timeout;
        let live = self.in_time(call, deadline, self.connect(call.timeout, Stay::Short)).await?;
        let answered = self.send(&live, call, deadline).await;
        live.close().await;
        let result = answered.map_err(|error| self.failure(&error, call))?;
        answer(&result).map_err(CallFailure::Refused)
    }

    /// A connection, unless the caller leaves or the call's time is up first.
    async fn in_time(
        &self,
        call: &Call,
        deadline: Instant,
        connecting: impl Future<Output = Result<Arc<Live>>>,
    ) -> Result<Arc<Live>, CallFailure> {
        tokio::select! {
            live = connecting => live.map_err(CallFailure::Lost),
            () = call.cancel.cancelled() => Err(CallFailure::cancelled()),
            () = tokio::time::sleep_until(deadline) => {
                let message =
                    format!("`{}` cannot be reached within {}", self.source.id, format_duration(call.timeout));
                Err(self.late(call, Error::new(Code::ToolUnavailable, message)))
            }
        }
    }

    /// A deadline shorter than the source's own says more about the caller.
    fn late(&self, call: &Call, error: Error) -> CallFailure {
        match call.timeout < self.source.settings.call_timeout() {
            true => CallFailure::Undecided(error),
            false => CallFailure::Lost(error),
        }
    }

    async fn send(&self, live: &Live, call: &Call, deadline: Instant) -> Result<Box<RawValue>, WireError> {
        let mut options = RequestOptions::new(deadline.saturating_duration_since(Instant::now()));
        options.progress = call.progress.clone();
        options.cancel = call.cancel.clone();
        let _in_flight = live.begin(Use::Call);
        live.client.call_tool(&call.tool, &call.arguments, Some(&call.input_schema), None, &options).await
    }

    fn failure(&self, error: &WireError, call: &Call) -> CallFailure {
        let id = &self.source.id;
        match error {
            WireError::Cancelled { .. } => CallFailure::cancelled(),
            WireError::Rpc(rpc) => {
                let message = format!("`{}` of `{id}` failed: {}", call.tool, shown_short(&rpc.message, 400));
                let details = serde_json::json!({ "rpc_code": rpc.code });
                CallFailure::Refused(Error::new(Code::ToolExecutionFailed, message).with_details(details))
            }
            WireError::Timeout { .. } => {
                let message =
                    format!("`{}` of `{id}` did not answer within {}", call.tool, format_duration(call.timeout));
                self.late(call, Error::new(Code::ToolExecutionFailed, message))
            }
            WireError::TooLarge { .. } | WireError::Protocol(_) => {
                CallFailure::Lost(Error::new(Code::ToolExecutionFailed, shown(&format!("`{id}`: {error}"))))
            }
            WireError::Connect(_)
            | WireError::Unauthorized { .. }
            | WireError::Status { .. }
            | WireError::NotMcp(_)
            | WireError::Closed { .. } => {
                let code = if error.sent() { Code::ToolExecutionFailed } else { Code::ToolUnavailable };
                CallFailure::Lost(Error::new(code, shown(&format!("`{id}`: {error}"))))
            }
        }
    }
}

#[async_trait]
impl Connector for McpConnector {
    /// Over the live connection when there is one, else by a temporary start.
    async fn discover(&self, discovery: Discovery) -> Result<Offer> {
        {
            let mut era = self.era.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if era.is_none() {
                *era = discovery.era.clone();
            }
        }
        let deadline = Instant::now() + discovery.timeout;
        let standing = self.live.lock().await.clone().filter(|live| live.usable());
        let keep = discovery.keep && self.source.settings.lifecycle() == Lifecycle::Shared;
        let (live, ends) = match standing {
            Some(live) => (live, false),
            None if keep => (self.shared(discovery.timeout).await?, false),
            None => (self.connect(discovery.timeout, Stay::Short).await?, true),
        };
        let remaining = deadline.saturating_duration_since(Instant::now());
        let listed = {
            let _in_flight = live.begin(Use::Look);
            live.client.list_tools(remaining).await
        };
        let listed = match listed {
            Ok(list) => Ok(list),
            Err(error) => Err(live.explain(&self.source, "listing its tools", discovery.timeout, error).await),
        };
        let (era, about) = (live.era(), about(live.client.server()));
        if ends {
            live.close().await;
        }
        let list = listed?;
        let excluded = list.excluded.into_iter().map(|(name, reason)| SetAside { name, reason }).collect();
        Ok(Offer { tools: list.tools, excluded, era: Some(era), about })
    }

    async fn call(&self, call: Call) -> Result<Answer, CallFailure> {
        match self.source.settings.lifecycle() {
            // Client connections come with the MCP server side; until then each caller is one.
            Lifecycle::Shared | Lifecycle::PerClient => {}
            Lifecycle::Transient => return self.call_transient(&call).await,
        }
        let deadline = Instant::now() + call.timeout;
        let mut tries = 0;
        loop {
            tries += 1;
            let remaining = deadline.saturating_duration_since(Instant::now());
            let live = self.in_time(&call, deadline, self.shared(remaining)).await?;
            match self.send(&live, &call, deadline).await {
                Ok(result) => return answer(&result).map_err(CallFailure::Refused),
                // A dead connection found before sending is replaced; after sending only what may happen twice.
                // Over HTTP only one stream may have ended, and others go on; one that is dead ends by itself.
                Err(WireError::Closed { sent, .. }) if tries < 2 && (!sent || call.repeatable) => {}
                Err(error) => return Err(self.failure(&error, &call)),
            }
        }
    }

    fn connected(&self) -> bool {
        // Somebody is connecting when the lock is taken.
        self.live.try_lock().is_ok_and(|live| live.as_ref().is_some_and(|live| live.usable()))
    }

    async fn close(&self) {
        if let Some(live) = self.live.lock().await.take() {
            live.drain().await;
        }
    }
}

/// What a server says about itself: title, description, instructions.
fn about(server: &ServerSays) -> Option<String> {
    let info = server.info.as_deref().and_then(Fields::parse).unwrap_or_default();
    let said = |key: &str| info.get(key).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let texts = [said("title"), said("description"), server.instructions.clone()];
    Some(texts.into_iter().flatten().collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
}

fn answer(result: &RawValue) -> Result<Answer> {
    let broken = || Error::new(Code::ToolExecutionFailed, "the result of the call is not an object");
    let mut fields = Fields::parse(result).ok_or_else(broken)?;
    let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).unwrap_or_default();
    if fields.get("resultType").is_some_and(|kind| text(kind) == "input_required") {
        let message = "the tool asks for more input, which nobody here can give";
        return Err(Error::new(Code::ToolExecutionFailed, message));
    }
    let content = fields.take("content").filter(|raw| raw.get().starts_with('['));
    Ok(Answer {
        content: content.unwrap_or_else(|| RawValue::from_string("[]".into()).unwrap_or_default()),
        structured: fields.take("structuredContent").filter(|raw| raw.get() != "null"),
        meta: fields.take("_meta"),
        is_error: fields.get("isError").is_some_and(|raw| raw.get() == "true"),
    })
}
