//! A client's byte stream, led to a Toolcrib that runs elsewhere on this machine: many clients share one set of servers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::HeaderMap;
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use toolcrib::core::ResultExt;
use toolcrib::{Code, Error, Result};
use toolcrib_mcp::server::{Change, Greeting, Outlet, Peer, Request, Service};
use toolcrib_mcp::{
    Client, Era, Handler, Notice, Options, RequestOptions, RpcError, ServerRequest, Target, Version, WireError,
};
use url::Url;

/// Longer than any call is allowed to take at the other end.
const LONGEST: Duration = Duration::from_secs(3600);
/// Before looking again for one that went away.
const PAUSE: Duration = Duration::from_secs(1);

/// Cheap to clone; all clones are one bridge.
#[derive(Debug, Clone)]
pub struct Bridge {
    url: Url,
    remote: Arc<tokio::sync::Mutex<Option<Arc<Client>>>>,
    /// Requests under way, the newest last: whoever is asked something is asked through one of them.
    open: Arc<Mutex<Vec<(u64, Outlet)>>>,
}

impl Bridge {
    /// Makes sure that somebody serves there.
    pub async fn to(url: Url) -> Result<Bridge> {
        let bridge = Bridge { url, remote: Arc::default(), open: Arc::default() };
        let nobody = || format!("nobody serves MCP at `{}`; start `toolcrib serve` there", bridge.url);
        let found = bridge.connect(&RawValue::from_string("{}".into()).context(Code::Internal, "connect")?).await;
        let client = found.map_err(|error| Error::new(Code::ToolUnavailable, nobody()).with_cause(error))?;
        client.close().await;
        Ok(bridge)
    }

    async fn connect(&self, capabilities: &RawValue) -> std::result::Result<Client, WireError> {
        let mut options = Options::new("toolcrib", env!("CARGO_PKG_VERSION"));
        options.capabilities = capabilities.to_owned();
        options.handler = Some(self.asked());
        // With a session, so that this client stays one client to the other end.
        options.era = Some(Era::Legacy(Version::LATEST));
        Client::connect(Target::Http { url: self.url.clone(), headers: HeaderMap::new() }, options).await
    }

    /// The connection for a client, made anew when the other end went away.
    async fn remote(&self, peer: &Peer) -> std::result::Result<Arc<Client>, WireError> {
        let mut remote = self.remote.lock().await;
        if let Some(client) = remote.as_ref().filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        let client = Arc::new(self.connect(&peer.capabilities).await?);
        *remote = Some(client.clone());
        Ok(client)
    }

    /// What the other end asks goes to the client.
    fn asked(&self) -> Handler {
        let open = self.open.clone();
        Arc::new(move |asked: ServerRequest| {
            let newest = open.lock().unwrap_or_else(PoisonError::into_inner).last().map(|(_, outlet)| outlet.clone());
            Box::pin(async move {
                match newest {
                    Some(outlet) => outlet.ask(&asked.method, asked.params.as_deref()).await,
                    None => Err(RpcError::new(RpcError::INTERNAL, "nobody is there to be asked")),
                }
            })
        })
    }

    async fn pass(self, request: Request) -> std::result::Result<Box<RawValue>, RpcError> {
        let remote = self.remote(&request.peer).await.map_err(RpcError::from)?;
        let open = Open::new(&self, &request.outlet);
        let (progress, mut progressed) = tokio::sync::mpsc::channel(256);
        let mut options = RequestOptions::new(LONGEST);
        options.progress = request.outlet.wants_progress().then_some(progress);
        options.cancel = request.cancel.clone();
        let mut asking = std::pin::pin!(remote.request(&request.method, request.params.as_deref(), &options));
        let answer = loop {
            tokio::select! {
                biased;
                Some(params) = progressed.recv() => request.outlet.progress(&params),
                answer = &mut asking => break answer,
            }
        };
        drop(open);
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
    async fn next(&self, peer: &Peer, heard: &mut Option<broadcast::Receiver<Notice>>) -> Change {
        loop {
            let Some(notices) = heard else {
                match self.remote(peer).await {
                    Ok(remote) => *heard = Some(remote.notices()),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
                continue;
            };
            match notices.recv().await {
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
                    *heard = None;
                    if let Ok(remote) = self.remote(peer).await {
                        *heard = Some(remote.notices());
                        return Change::Tools;
                    }
                }
            }
        }
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
        stream::unfold(begin, |(bridge, peer, mut heard)| async move {
            let change = bridge.next(&peer, &mut heard).await;
            Some((change, (bridge, peer, heard)))
        })
        .boxed()
    }

    /// Over a byte stream no header repeats an argument.
    fn input_schema(&self, _peer: &Arc<Peer>, _tool: &str) -> Option<Box<RawValue>> {
        None
    }

    /// Dropping the last clone ends the connection.
    fn gone(&self, _peer: &Arc<Peer>) {}
}

/// A request under way, for as long as it is.
struct Open<'a> {
    bridge: &'a Bridge,
    id: u64,
}

impl<'a> Open<'a> {
    fn new(bridge: &'a Bridge, outlet: &Outlet) -> Open<'a> {
        let mut open = bridge.open.lock().unwrap_or_else(PoisonError::into_inner);
        let id = open.last().map_or(0, |(id, _)| id + 1);
        open.push((id, outlet.clone()));
        Open { bridge, id }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.bridge.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| *id != self.id);
    }
}

fn uri(params: Option<&RawValue>) -> Option<String> {
    let params: serde_json::Value = serde_json::from_str(params?.get()).ok()?;
    Some(params.get("uri")?.as_str()?.to_owned())
}
