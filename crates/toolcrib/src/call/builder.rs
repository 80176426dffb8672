//! The call builder: `registry.call(name, arguments)`, options, `.await`.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use toolcrib_core::Result;
use toolcrib_core::principal::Principal;

use super::{CallContext, CallDeadline, CallOutput, CallRequest, ClientId, ProgressListener, ResultPaging};
use crate::registry::Registry;

/// A call that is made when it is awaited; see [`Registry::call`].
#[derive(Debug)]
#[must_use = "a call is made when it is awaited"]
pub struct Call<'a> {
    registry: &'a Registry,
    name: &'a str,
    arguments: Value,
    meta: Option<Box<RawValue>>,
    paging: ResultPaging,
    skip_discovery: bool,
    /// Replaces the deadline of the context.
    timeout: Option<Duration>,
    context: CallContext,
}

impl Registry {
    /// Calls a tool by any spelling of its name. Waits for the discovery of a source that was never discovered, within
    /// the timeout of the call. A tool that reports an error (`isError`) is an `Ok` output; `Err` means that the call
    /// itself failed. Arguments with integers of more than 64 bits are read with `toolcrib_core::json::parse_exact`.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use serde_json::json;
    /// # async fn example(registry: toolcrib::Registry) -> toolcrib::Result<()> {
    /// let arguments = json!({ "timezone": "Europe/Berlin" });
    /// let output = registry.call("time__get_current_time", arguments).timeout(Duration::from_secs(5)).await?;
    /// println!("{}", output.text());
    /// # Ok(())
    /// # }
    /// ```
    pub fn call<'a>(&'a self, name: &'a str, arguments: Value) -> Call<'a> {
        Call {
            registry: self,
            name,
            arguments,
            meta: None,
            paging: ResultPaging::Pages,
            skip_discovery: false,
            timeout: None,
            context: CallContext::default(),
        }
    }
}

impl<'a> Call<'a> {
    /// Sets the whole context, for a program that makes one per request of its own clients. Replaces what `caller`,
    /// `cancel`, `client`, `with_consent` and `on_progress` set before.
    pub fn context(self, context: CallContext) -> Call<'a> {
        Call { context, ..self }
    }

    /// Sets the caller, named in logs and in records of calls.
    pub fn caller(mut self, caller: impl Into<Principal>) -> Call<'a> {
        self.context.caller = caller.into();
        self
    }

    /// Sets the timeout, which counts from the `.await`; by default the source's `call_timeout` applies.
    pub fn timeout(self, timeout: Duration) -> Call<'a> {
        Call { timeout: Some(timeout), ..self }
    }

    /// Sets the token that cancels the call, at its source too.
    pub fn cancel(mut self, cancel: CancellationToken) -> Call<'a> {
        self.context.cancel = cancel;
        self
    }

    /// Confirms the call in the name of the user, as the policy verdict `ask` demands.
    pub fn with_consent(mut self) -> Call<'a> {
        self.context.consent = true;
        self
    }

    /// Sets the client connection that calls.
    pub fn client(mut self, client: ClientId) -> Call<'a> {
        self.context.client = Some(client);
        self
    }

    /// Sets the receiver of progress notifications.
    pub fn on_progress(mut self, listener: ProgressListener) -> Call<'a> {
        self.context.on_progress = Some(listener);
        self
    }

    /// Sets the caller's `_meta`, a JSON object. Passed on to the source, except for the keys that the protocol
    /// reserves.
    pub fn meta(self, meta: Option<Box<RawValue>>) -> Call<'a> {
        Call { meta, ..self }
    }

    /// Sets how a large result is returned; by default in pages.
    pub fn paging(self, paging: ResultPaging) -> Call<'a> {
        Call { paging, ..self }
    }

    /// Does not discover the source to find the tool; the call itself still contacts its source.
    pub fn without_discovery(self) -> Call<'a> {
        Call { skip_discovery: true, ..self }
    }
}

impl<'a> IntoFuture for Call<'a> {
    type Output = Result<CallOutput>;
    type IntoFuture = BoxFuture<'a, Result<CallOutput>>;

    fn into_future(self) -> BoxFuture<'a, Result<CallOutput>> {
        async move {
            let Call { registry, name, arguments, meta, paging, skip_discovery, timeout, mut context } = self;
            if let Some(timeout) = timeout {
                context.deadline = Some(CallDeadline::after(timeout));
            }
            let request = CallRequest { name, arguments, meta, paging, skip_discovery, response_recorder: None };
            registry.dispatcher.call(request, &context).await
        }
        .boxed()
    }
}
