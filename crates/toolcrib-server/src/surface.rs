//! What an MCP client sees of a registry: three tools that find, describe and call all others, or every tool there is.
//! It decides nothing about tools: what may be seen and called is the registry's word.

mod answer;
mod call;
mod changes;
mod describe;
mod listing;
mod menu;
mod prompts;
mod resources;
mod search;
mod shelf;
mod sight;
mod visitors;
mod warming;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolcrib::call::ClientId;
use toolcrib::core::config::{Expose, Mode};
use toolcrib::core::text::shown_short;
use toolcrib::{Caller, Registry};
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::{Change, Greeting, Peer, Request, Service};

use crate::access;

pub(crate) use answer::unfinished;
use answer::{Answer, raw};
use sight::{Kind, Sights};
use visitors::Visitors;
use warming::Sessionless;

/// Cheap to clone; all clones are one surface.
#[derive(Debug, Clone)]
pub struct Surface {
    registry: Registry,
    /// What agents are shown; replaced when the configuration is read again.
    expose: Arc<watch::Sender<Arc<Expose>>>,
    sights: Arc<Sights>,
    visitors: Arc<Visitors>,
    sessionless: Arc<Sessionless>,
}

impl Surface {
    pub fn new(registry: Registry, expose: Expose) -> Surface {
        let (expose, _) = watch::channel(Arc::new(expose));
        Surface {
            registry,
            expose: Arc::new(expose),
            sights: Arc::default(),
            visitors: Arc::default(),
            sessionless: Arc::default(),
        }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Shows tools in another way from now on. Clients hear of it when that changes their list.
    pub fn show(&self, expose: Expose) {
        self.expose.send_if_modified(|current| {
            let changed = **current != expose;
            *current = Arc::new(expose);
            changed
        });
    }

    /// What a client asks for by its address, else the configuration.
    fn mode(&self, peer: &Peer) -> Mode {
        let usual = self.expose.borrow().mode;
        asked_mode(&peer.query).unwrap_or(usual)
    }

    /// Which surface a client gets. Where nothing is asked for, a small catalogue is shown in full.
    async fn kind(&self, peer: &Peer) -> Kind {
        match self.mode(peer) {
            Mode::Search => Kind::Search,
            Mode::Full => Kind::Full,
            // How many there will be is not known yet; the menu works for however many.
            Mode::Auto if self.knows_nobody() => Kind::Search,
            Mode::Auto => {
                let sight = self.sight();
                if sight.is_small() {
                    self.registry.count_tokens().await;
                }
                sight.usual().await
            }
        }
    }

    async fn greet(self, peer: Arc<Peer>) -> Greeting {
        self.warm_at_greeting();
        match self.kind(&peer).await {
            Kind::Search => Greeting {
                capabilities: raw(&json!({ "tools": { "listChanged": true }, "logging": {} })),
                instructions: Some(match self.unused() {
                    Some(unused) => format!("{}\n{unused}", self.sight().summary().await),
                    None => self.sight().summary().await,
                }),
            },
            Kind::Full => Greeting {
                capabilities: raw(&json!({
                    "tools": { "listChanged": true },
                    "prompts": { "listChanged": true },
                    "resources": { "listChanged": true, "subscribe": true },
                    "completions": {},
                    "logging": {},
                })),
                instructions: None,
            },
        }
    }

    async fn answer(self, request: Request) -> Answer {
        self.warm_at_request(&request.peer);
        match request.method.as_str() {
            "tools/list" => self.tools_list(&request).await,
            "tools/call" => self.tools_call(request).await,
            "logging/setLevel" => self.visitors.set_level(&request),
            "prompts/list" => self.prompts_list(&request).await,
            "prompts/get" => self.prompts_get(request).await,
            "resources/list" => self.resources_list(&request).await,
            "resources/templates/list" => self.templates_list(&request).await,
            "resources/read" => self.resources_read(request).await,
            "resources/subscribe" => self.subscribe(request).await,
            "resources/unsubscribe" => self.unsubscribe(request).await,
            "completion/complete" => self.complete(request).await,
            other => Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("there is no method `{other}` here"))),
        }
    }
}

impl Service for Surface {
    fn greeting(&self, peer: &Arc<Peer>) -> BoxFuture<'static, Greeting> {
        Box::pin(self.clone().greet(peer.clone()))
    }

    fn request(&self, request: Request) -> BoxFuture<'static, Answer> {
        Box::pin(self.clone().answer(request))
    }

    fn changes(&self, peer: &Arc<Peer>) -> BoxStream<'static, Change> {
        changes::stream(self.clone(), peer.clone())
    }

    fn input_schema(&self, _peer: &Arc<Peer>, tool: &str) -> Option<Box<RawValue>> {
        menu::input_schema(tool).or_else(|| {
            let catalog = self.registry.catalog();
            let calling = catalog.find(tool).and_then(|tool| tool.calling());
            calling.ok().map(|calling| (*calling.input_schema).to_owned())
        })
    }

    fn unfinished(&self, method: &str) -> Answer {
        unfinished(method)
    }

    fn gone(&self, peer: &Arc<Peer>) {
        let watched = self.visitors.forget(peer.id);
        // Nothing else is kept for one that was there for a request.
        if !peer.fleeting || watched {
            self.registry.client_gone(ClientId(peer.id));
        }
    }
}

/// `mode=search` or `mode=full` in a query; anything else was refused at the door.
fn asked_mode(query: &str) -> Option<Mode> {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let asked = pairs.find(|(key, _)| key == "mode").map(|(_, value)| value.into_owned());
    asked.and_then(|name| Mode::parse(&name))
}

/// Who asks, as rules and logs know them: by the token that was shown, else by what a client says of itself.
fn caller(request: &Request) -> Caller {
    let shown = request.extensions.get::<access::Visitor>().filter(|visitor| visitor.showed_who());
    let name = match (shown, request.peer.name.as_deref()) {
        (Some(visitor), _) => format!("token:{}", visitor.name),
        // Nobody gives themselves the name of a token.
        (None, Some(name)) if !name.starts_with("token:") => shown_short(name, 80),
        (None, Some(_) | None) => "mcp".into(),
    };
    Caller { name }
}
