//! What an MCP client sees of a registry: three tools that find, describe and call all others, or every tool there is.
//! It decides nothing about tools: what may be seen and called is the registry's word.

mod call;
mod changes;
mod client_state;
mod describe;
mod listing_cache;
mod meta_tools;
mod prompts;
mod resources;
mod response;
mod search;
mod tools_list;
mod upstream_lists;
mod warmup;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolcrib::call::ClientId;
use toolcrib::core::config::{Expose, ExposeMode};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::{Caller, Registry};
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::{ChangeNotification, McpPeer, McpRequest, Service, ServiceDescription};

use crate::auth;

use client_state::ClientStates;
use listing_cache::{ListingCache, ListingMode};
pub(crate) use response::stopping_result;
use response::{McpResult, to_raw};
use warmup::StatelessClients;

/// Cheap to clone; all clones are one surface.
#[derive(Debug, Clone)]
pub struct McpService {
    registry: Registry,
    /// What agents are shown; replaced when the configuration is read again.
    expose: Arc<watch::Sender<Arc<Expose>>>,
    listing_cache: Arc<ListingCache>,
    clients: Arc<ClientStates>,
    stateless_clients: Arc<StatelessClients>,
}

impl McpService {
    pub fn new(registry: Registry, expose: Expose) -> McpService {
        let (expose, _) = watch::channel(Arc::new(expose));
        McpService {
            registry,
            expose: Arc::new(expose),
            listing_cache: Arc::default(),
            clients: Arc::default(),
            stateless_clients: Arc::default(),
        }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Shows tools in another way from now on. Clients hear of it when that changes their list.
    pub fn set_expose(&self, expose: Expose) {
        self.expose.send_if_modified(|current| {
            let changed = **current != expose;
            *current = Arc::new(expose);
            changed
        });
    }

    /// What a client asks for by its address, else the configuration.
    fn effective_mode(&self, peer: &McpPeer) -> ExposeMode {
        let usual = self.expose.borrow().mode;
        requested_mode(&peer.query).unwrap_or(usual)
    }

    /// Which surface a client gets. Where nothing is asked for, a small catalogue is shown in full.
    async fn listing_mode(&self, peer: &McpPeer) -> ListingMode {
        match self.effective_mode(peer) {
            ExposeMode::Search => ListingMode::Search,
            ExposeMode::Full => ListingMode::Full,
            // How many there will be is not known yet; the menu works for however many.
            ExposeMode::Auto if self.is_undiscovered() => ListingMode::Search,
            ExposeMode::Auto => {
                let listings = self.listings();
                if listings.is_small() {
                    self.registry.count_tokens().await;
                }
                listings.default_mode().await
            }
        }
    }

    async fn handshake(self, peer: Arc<McpPeer>) -> ServiceDescription {
        self.warm_on_handshake();
        match self.listing_mode(&peer).await {
            ListingMode::Search => ServiceDescription {
                capabilities: to_raw(&json!({ "tools": { "listChanged": true }, "logging": {} })),
                instructions: Some(match self.blocked_sources_note() {
                    Some(unused) => format!("{}\n{unused}", self.listings().summary().await),
                    None => self.listings().summary().await,
                }),
            },
            ListingMode::Full => ServiceDescription {
                capabilities: to_raw(&json!({
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

    async fn dispatch(self, request: McpRequest) -> McpResult {
        self.warm_on_request(&request.peer);
        match request.method.as_str() {
            "tools/list" => self.tools_list(&request).await,
            "tools/call" => self.tools_call(request).await,
            "logging/setLevel" => self.clients.set_log_level(&request),
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

impl Service for McpService {
    fn describe(&self, peer: &Arc<McpPeer>) -> BoxFuture<'static, ServiceDescription> {
        Box::pin(self.clone().handshake(peer.clone()))
    }

    fn handle_request(&self, request: McpRequest) -> BoxFuture<'static, McpResult> {
        Box::pin(self.clone().dispatch(request))
    }

    fn changes(&self, peer: &Arc<McpPeer>) -> BoxStream<'static, ChangeNotification> {
        changes::change_stream(self.clone(), peer.clone())
    }

    fn input_schema(&self, _peer: &Arc<McpPeer>, tool: &str) -> Option<Box<RawValue>> {
        meta_tools::input_schema(tool).or_else(|| {
            let catalog = self.registry.catalog();
            let calling = catalog.find(tool).and_then(|tool| tool.call_spec());
            calling.ok().map(|calling| (*calling.input_schema).to_owned())
        })
    }

    fn shutdown_response(&self, method: &str) -> McpResult {
        stopping_result(method)
    }

    fn on_disconnect(&self, peer: &Arc<McpPeer>) {
        let watched = self.clients.remove(peer.id);
        // Nothing else is kept for one that was there for a request.
        if !peer.is_stateless || watched {
            self.registry.client_disconnected(ClientId(peer.id));
        }
    }
}

/// `mode=search` or `mode=full` in a query; anything else was refused at the door.
fn requested_mode(query: &str) -> Option<ExposeMode> {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let asked = pairs.find(|(key, _)| key == "mode").map(|(_, value)| value.into_owned());
    asked.and_then(|name| ExposeMode::parse(&name))
}

/// Who asks, as rules and logs know them: by the token that was shown, else by what a client says of itself.
fn request_caller(request: &McpRequest) -> Caller {
    let shown = request.extensions.get::<auth::Principal>().filter(|principal| principal.is_authenticated());
    let name = match (shown, request.peer.name.as_deref()) {
        (Some(principal), _) => format!("token:{}", principal.name),
        // Nobody gives themselves the name of a token.
        (None, Some(name)) if !name.starts_with("token:") => sanitize_truncated(name, 80),
        (None, Some(_) | None) => "mcp".into(),
    };
    Caller { name }
}
