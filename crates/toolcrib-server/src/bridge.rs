//! A client's byte stream, led to a Toolcrib that runs elsewhere on this machine: many clients share one set of servers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use toolcrib::core::ResultExt;
use toolcrib::{Code, Error, Result};
use toolcrib_mcp::server::{Change, Greeting, Outlet, Peer, Request, Service};
use toolcrib_mcp::{
    Client, Era, Handler, Heard, Notice, Options, RequestOptions, RpcError, ServerRequest, Target, Version, WireError,
};
use url::Url;

use crate::surface::unfinished;

/// Longer than any call is allowed to take at the other end.
const LONGEST: Duration = Duration::from_secs(3600);
/// Before looking again for one that went away.
const PAUSE: Duration = Duration::from_secs(1);
/// For one that should be there to say so.
const PING: Duration = Duration::from_secs(5);
/// To wait for a connection that is still being made, before leaving.
const FAREWELL: Duration = Duration::from_secs(2);

/// Cheap to clone; all clones are one bridge.
#[derive(Debug, Clone)]
pub struct Bridge {
    url: Url,
    /// What is shown to be let in.
    headers: HeaderMap,
    remote: Arc<tokio::sync::Mutex<Remote>>,
}

/// The other end.
#[derive(Debug, Default)]
enum Remote {
    #[default]
    Away,
    There(Arc<Client>),
    /// Our client is gone, and nobody is to be reached for it any more.
    Left,
}

/// What the other end says, and who hears it.
struct Listener {
    remote: Arc<Client>,
    notices: broadcast::Receiver<Notice>,
}

impl Bridge {
    /// Makes sure that somebody serves there.
    pub async fn to(url: Url) -> Result<Bridge> {
        Bridge::with(url, HeaderMap::new()).await
    }

    /// The same, with a token for those who ask for one.
    pub async fn with_token(url: Url, token: &str) -> Result<Bridge> {
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            Error::new(Code::ConfigInvalid, "the token has characters that no token has; check where it comes from")
        })?;
        value.set_sensitive(true);
        Bridge::with(url, HeaderMap::from_iter([(AUTHORIZATION, value)])).await
    }

    async fn with(url: Url, headers: HeaderMap) -> Result<Bridge> {
        let bridge = Bridge { url, headers, remote: Arc::default() };
        let nobody = || format!("nobody serves MCP at `{}`; start `toolcrib serve` there", bridge.url);
        let found = bridge.connect(&RawValue::from_string("{}".into()).context(Code::Internal, "connect")?).await;
        let client = found.map_err(|error| match error {
            WireError::Unauthorized { status: 403, .. } => {
                let message = format!(
                    "`{}` knows us and does not let us in: the token needs the role agent, and the address must be one \
                     that it answers on",
                    bridge.url
                );
                Error::new(Code::Forbidden, message)
            }
            WireError::Unauthorized { .. } => {
                let message = format!(
                    "`{}` does not let us in; give a token of the role agent with `--token '${{env:NAME}}'`, or in TOOLCRIB_TOKEN",
                    bridge.url
                );
                Error::new(Code::Unauthorized, message)
            }
            WireError::Connect(_)
            | WireError::Status { .. }
            | WireError::NotMcp(_)
            | WireError::Timeout { .. }
            | WireError::Closed { .. }
            | WireError::TooLarge { .. }
            | WireError::Rpc(_)
            | WireError::Protocol(_)
            | WireError::Cancelled { .. } => Error::new(Code::ToolUnavailable, nobody()).with_cause(error),
        })?;
        client.close().await;
        Ok(bridge)
    }

    async fn connect(&self, capabilities: &RawValue) -> std::result::Result<Client, WireError> {
        let mut options = Options::new("toolcrib", env!("CARGO_PKG_VERSION"));
        options.capabilities = capabilities.to_owned();
        // With a session, so that this client stays one client to the other end.
        options.era = Some(Era::Legacy(Version::LATEST));
        Client::connect(Target::Http { url: self.url.clone(), headers: self.headers.clone() }, options).await
    }

    /// The connection for a client, made anew when the other end went away.
    async fn remote(&self, peer: &Peer) -> std::result::Result<Arc<Client>, WireError> {
        let mut remote = self.remote.lock().await;
        match &*remote {
            Remote::There(client) if !client.is_closed() => return Ok(client.clone()),
            Remote::There(_) | Remote::Away => {}
            Remote::Left => return Err(WireError::Closed { sent: false, reason: "the client left".to_owned() }),
        }
        let client = Arc::new(self.connect(&peer.capabilities).await?);
        *remote = Remote::There(client.clone());
        Ok(client)
    }

    /// Takes leave of the other end, so that nothing there outlives this client.
    pub async fn close(&self) {
        // Who is still being looked for need not be told.
        let Ok(mut remote) = tokio::time::timeout(FAREWELL, self.remote.lock()).await else { return };
        if let Remote::There(client) = std::mem::replace(&mut *remote, Remote::Left) {
            client.close().await;
        }
    }

    async fn pass(self, request: Request) -> std::result::Result<Box<RawValue>, RpcError> {
        let remote = self.remote(&request.peer).await.map_err(RpcError::from)?;
        let (progress, mut progressed) = tokio::sync::mpsc::channel(256);
        let mut options = RequestOptions::new(LONGEST);
        options.progress = request.outlet.wants_progress().then_some(progress);
        options.cancel = request.cancel.clone();
        options.handler = Some(asking(&request.outlet));
        options.heard = Some(telling(&request.outlet));
        let mut asking = std::pin::pin!(remote.request(&request.method, request.params.as_deref(), &options));
        let answer = loop {
            tokio::select! {
                biased;
                Some(params) = progressed.recv() => request.outlet.progress(&params),
                answer = &mut asking => break answer,
            }
        };
        // What was said before the end is told before the answer.
        while let Ok(params) = progressed.try_recv() {
            request.outlet.progress(&params);
        }
        answer.map_err(RpcError::from)
    }

    async fn greet(self, peer: Arc<Peer>) -> Greeting {
        let nothing = || RawValue::from_string("{\"tools\":{\"listChanged\":true}}".into()).unwrap_or_default();
        match self.remote(&peer).await {
            Ok(remote) => Greeting {
                capabilities: remote.server().capabilities.clone(),
                instructions: remote.server().instructions.clone(),
            },
            Err(error) => {
                tracing::warn!(%error, "`{}` went away", self.url);
                Greeting { capabilities: nothing(), instructions: None }
            }
        }
    }

    /// What the other end says of its own accord; when it was away, everything may have changed.
    async fn next(&self, peer: &Peer, listener: &mut Option<Listener>) -> Change {
        loop {
            let Some(Listener { remote, notices }) = listener else {
                match self.remote(peer).await {
                    Ok(remote) => *listener = Some(Listener::new(remote)),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
                continue;
            };
            let heard = tokio::select! {
                biased;
                heard = notices.recv() => heard,
                () = tokio::time::sleep(PAUSE) => {
                    if !remote.is_listening() {
                        // One that was started anew answers in a new session, and that is a notice.
                        let _away = remote.request("ping", None, &RequestOptions::new(PING)).await;
                    }
                    continue;
                }
            };
            match heard {
                Ok(Notice::ToolsChanged) | Err(broadcast::error::RecvError::Lagged(_)) => return Change::Tools,
                Ok(Notice::Other { method, params }) => match method.as_str() {
                    "notifications/prompts/list_changed" => return Change::Prompts,
                    "notifications/resources/list_changed" => return Change::Resources,
                    "notifications/resources/updated" => {
                        if let Some(uri) = uri(params.as_deref()) {
                            return Change::Resource { uri };
                        }
                    }
                    _ => {}
                },
                Ok(Notice::Closed) | Err(broadcast::error::RecvError::Closed) => {
                    tokio::time::sleep(PAUSE).await;
                    *listener = None;
                    if let Ok(remote) = self.remote(peer).await {
                        *listener = Some(Listener::new(remote));
                        return Change::Tools;
                    }
                }
            }
        }
    }
}

impl Listener {
    fn new(remote: Arc<Client>) -> Listener {
        Listener { notices: remote.notices(), remote }
    }
}

impl Service for Bridge {
    fn greeting(&self, peer: &Arc<Peer>) -> BoxFuture<'static, Greeting> {
        Box::pin(self.clone().greet(peer.clone()))
    }

    fn request(&self, request: Request) -> BoxFuture<'static, std::result::Result<Box<RawValue>, RpcError>> {
        Box::pin(self.clone().pass(request))
    }

    fn changes(&self, peer: &Arc<Peer>) -> BoxStream<'static, Change> {
        let begin = (self.clone(), peer.clone(), None);
        stream::unfold(begin, |(bridge, peer, mut listener)| async move {
            let change = bridge.next(&peer, &mut listener).await;
            Some((change, (bridge, peer, listener)))
        })
        .boxed()
    }

    /// Over a byte stream no header repeats an argument.
    fn input_schema(&self, _peer: &Arc<Peer>, _tool: &str) -> Option<Box<RawValue>> {
        None
    }

    fn unfinished(&self, method: &str) -> std::result::Result<Box<RawValue>, RpcError> {
        unfinished(method)
    }

    /// Whoever serves the stream ends the bridge with it: [`Bridge::close`].
    fn gone(&self, _peer: &Arc<Peer>) {}
}

/// What the other end asks for a request, it asks on the stream of its answer; so the client is asked through that
/// request. One that cannot be asked knows what to say instead.
fn asking(outlet: &Outlet) -> Handler {
    let outlet = outlet.clone();
    Arc::new(move |asked: ServerRequest| {
        let outlet = outlet.clone();
        Box::pin(async move { outlet.ask(&asked.method, asked.params.as_deref()).await })
    })
}

/// And so is what it says about one; the lists that change are told by [`Bridge::next`].
fn telling(outlet: &Outlet) -> Heard {
    let outlet = outlet.clone();
    Arc::new(move |method: &str, params: Option<&RawValue>| {
        if matches!(method, "notifications/message" | "notifications/elicitation/complete") {
            outlet.notify(method, params);
        }
    })
}

fn uri(params: Option<&RawValue>) -> Option<String> {
    let params: serde_json::Value = serde_json::from_str(params?.get()).ok()?;
    Some(params.get("uri")?.as_str()?.to_owned())
}
