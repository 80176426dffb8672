//! The MCP service of a registry. A client sees either three meta tools that search, describe and call all others, or
//! every tool. Visibility and policies are decided by the registry; transport and sessions are those of `toolcrib_mcp`.
//!
//! Which of the two lists a client gets is its [`ListingMode`]. It follows from `?mode=` in the client's URL, else from
//! `expose.mode`; with `auto` the size of the catalogue decides, so it may change while the client is connected. Any
//! tool can be called by its name in both modes: the list is about what an agent has to read, not about what it may
//! use.

mod meta_tools;

mod call;
mod describe;
mod search;
mod tools_list;

mod prompts;
mod resources;
mod upstream_lists;

mod client_state;
mod instructions;
mod list_changed;
mod listing_cache;
mod response;
mod warmup;

use std::sync::{Arc, LazyLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http::Extensions;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolcrib::call::ClientId;
use toolcrib::catalog::View;
use toolcrib::config::{Expose, ExposeMode};
use toolcrib::core::access_rules::{Defined, Group};
use toolcrib::core::inventory::Actor;
use toolcrib::core::principal::{PrincipalIdentity, ViewNarrowing};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::{HandleOrigin, Principal, Registry, Requester, Trace};
use toolcrib_mcp::RpcError;
use toolcrib_mcp::server::{
    ChangeNotification, HandlePrefix, McpPeer, McpRequest, ServerOptions, Service, ServiceDescription,
};

use crate::auth::{AuthenticatedClient, JWT_NAME_PREFIX};
use crate::position::PositionReport;
use crate::view_cache::ViewCache;

use client_state::ClientStates;
use listing_cache::{ListingMode, ListingParts, Listings};
pub(crate) use response::stopping_result;
use response::{McpResult, to_raw};
use tools_list::EMPTY_LIST_TIMEOUT;
use upstream_lists::{ListKind, PROMPT_LIST, RESOURCE_LIST, TEMPLATE_LIST, UpstreamLists};
use warmup::StatelessClients;

/// Maximum number of times that a response is rendered because the catalogue changed meanwhile.
const MAX_RENDERINGS: usize = 5;

/// MCP service over one registry. Cheap to clone; all clones share their state. One service can serve an HTTP endpoint
/// and byte streams at the same time.
///
/// More than twenty methods: those of the trait, and the handlers of each method of MCP for tools, in a file per topic.
/// All of them need the registry and the state of the client.
#[derive(Debug, Clone)]
pub struct McpService {
    registry: Registry,
    /// The `expose` section of the configuration; replaced on reload.
    expose: Arc<watch::Sender<Arc<Expose>>>,
    /// Rendered lists, shared by all clients that see the same tools.
    listing_cache: Arc<ViewCache<ListingParts>>,
    /// Last list, log level and subscriptions of each connected client.
    clients: Arc<ClientStates>,
    upstream_lists: UpstreamLists,
    /// For `warm: client`.
    stateless_clients: Arc<StatelessClients>,
}

impl McpService {
    /// Creates a service that lists tools as `expose` says.
    pub fn new(registry: Registry, expose: Expose) -> McpService {
        let (expose, exposed) = watch::channel(Arc::new(expose));
        let clients = Arc::<ClientStates>::default();
        McpService {
            upstream_lists: UpstreamLists { registry: registry.clone(), expose: exposed, clients: clients.clone() },
            registry,
            expose: Arc::new(expose),
            listing_cache: Arc::default(),
            clients,
            stateless_clients: Arc::default(),
        }
    }

    /// The registry that this service offers.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the options of an endpoint or byte stream for this service: its name, and handles that begin with the node
    /// id of the registry.
    pub fn server_options(&self) -> ServerOptions {
        let node = self.registry.node().clone();
        let prefix = format!("{}-", node.as_str());
        let is_related = move |prefix: &str| node.classify(prefix) != HandleOrigin::Unknown;
        ServerOptions {
            handles: HandlePrefix::new(prefix, is_related),
            ..ServerOptions::new("toolcrib", env!("CARGO_PKG_VERSION"))
        }
    }

    /// Replaces the `expose` configuration. Clients whose tool list changes by that get `tools/list_changed`.
    pub fn set_expose(&self, expose: Expose) {
        self.expose.send_if_modified(|current| {
            // Watchers are woken only for a real change, but the value is replaced in any case.
            let changed = **current != expose;
            *current = Arc::new(expose);
            changed
        });
    }

    /// Returns the mode that the client requested in its URL, else that of the group at its URL, else the configured one.
    fn effective_mode(&self, peer: &McpPeer) -> ExposeMode {
        let of_group = || self.endpoint_group(&peer.extensions()).and_then(|group| group.definition.mode);
        requested_mode(&peer.query).or_else(of_group).unwrap_or_else(|| self.expose.borrow().mode)
    }

    /// Returns the group at the URL of a client.
    fn endpoint_group(&self, extensions: &Extensions) -> Option<Arc<Defined<Group>>> {
        extensions.get::<EndpointNarrowing>().filter(|narrowing| narrowing.0.group.is_some())?;
        self.registry.scope(&reading_principal(extensions)).endpoint_group().cloned()
    }

    /// Returns the catalogue as a client may see it. `extensions` are those of its request, or of the last one of
    /// its session.
    fn view(&self, extensions: &Extensions) -> View {
        self.registry.view(&reading_principal(extensions))
    }

    /// Decides which of its tool lists a client gets. In `auto` mode a small catalogue is listed in full.
    async fn listing_mode(&self, peer: &McpPeer, listings: &Listings) -> ListingMode {
        match self.effective_mode(peer) {
            ExposeMode::Search => ListingMode::Search,
            ExposeMode::Full => ListingMode::Full,
            // The size is unknown until the sources are discovered; the meta tools work for any size.
            ExposeMode::Auto if self.is_undiscovered() => ListingMode::Search,
            ExposeMode::Auto => {
                // Counting needs the tokenizer, which takes long to load. A catalogue that is too large by its bytes
                // alone spares it.
                if listings.is_small() {
                    self.registry.statistics().count_tokens().await;
                }
                listings.default_mode().await
            }
        }
    }

    /// Describes the service for `initialize` and `server/discover`. In search mode the instructions carry the summary of
    /// the catalogue, in full mode those of the servers. Prompts and lists of resources are offered in full mode only,
    /// and announced where the mode is not decided yet.
    async fn handshake(self, peer: Arc<McpPeer>) -> ServiceDescription {
        self.warm_on_handshake(&peer);
        let extensions = peer.extensions();
        let description = self.render_at_position(&extensions, || self.describe_catalog(&peer).boxed()).await;
        let own = self.endpoint_group(&peer.extensions()).and_then(|group| group.definition.instructions.clone());
        // Those of the group are the administrator's own words and come first.
        let instructions = match (own, description.instructions) {
            (Some(own), Some(others)) => Some(format!("{own}\n\n{others}")),
            (own, others) => own.or(others),
        };
        ServiceDescription { instructions, ..description }
    }

    /// Renders a response from the catalogue and reports its position. Renders again if the catalogue has changed
    /// meanwhile, so that the response shows exactly that position; while changes follow each other too fast, it may
    /// show a later one.
    async fn render_at_position<'a, T>(&self, extensions: &Extensions, render: impl Fn() -> BoxFuture<'a, T>) -> T {
        let mut attempts = 0;
        loop {
            let position = self.registry.position();
            let rendered = render().await;
            attempts += 1;
            if self.registry.position() == position || attempts == MAX_RENDERINGS {
                if let Some(report) = extensions.get::<PositionReport>() {
                    report.record(position);
                }
                return rendered;
            }
        }
    }

    /// Describes the service without the instructions of a group.
    async fn describe_catalog(&self, peer: &McpPeer) -> ServiceDescription {
        let listings = self.listings(&peer.extensions());
        match self.listing_mode(peer, &listings).await {
            ListingMode::Search => ServiceDescription {
                // The sources are not known yet, so that the list may turn out to be a full one.
                capabilities: if self.effective_mode(peer) == ExposeMode::Auto && self.is_undiscovered() {
                    self.full_capabilities(peer)
                // Without a list of resources, but results of APIs may link to one.
                } else if self.registry.sources().can_hold_binaries_for(&reading_principal(&peer.extensions())) {
                    to_raw(&json!({ "tools": { "listChanged": true }, "resources": {}, "logging": {} }))
                } else {
                    to_raw(&json!({ "tools": { "listChanged": true }, "logging": {} }))
                },
                instructions: Some(match self.blocked_sources_note(&reading_principal(&peer.extensions())) {
                    Some(note) => format!("{}\n{note}", listings.summary().await),
                    None => listings.summary().await,
                }),
            },
            ListingMode::Full => ServiceDescription {
                capabilities: self.full_capabilities(peer),
                instructions: instructions::combine(&self.registry.visibility(&reading_principal(&peer.extensions()))),
            },
        }
    }

    /// Returns the capabilities of a full list, with the extensions that sources announce: they describe tools and
    /// resources, which are listed in this mode only.
    fn full_capabilities(&self, peer: &McpPeer) -> Box<RawValue> {
        let mut capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "completions": {},
            "logging": {},
        });
        let extensions = self.registry.sources().extensions_for(&reading_principal(&peer.extensions()));
        if !extensions.is_empty() {
            capabilities["extensions"] = json!(extensions);
        }
        to_raw(&capabilities)
    }

    /// Handles one request by its method. Unknown methods get the JSON-RPC error for that; `ping`, `initialize` and the
    /// like never arrive here.
    async fn dispatch(self, request: McpRequest) -> McpResult {
        self.warm_on_request(&request);
        match request.method.as_str() {
            "tools/list" => self.tools_list(&request).await,
            "tools/call" => self.tools_call(request).await,
            "logging/setLevel" => self.clients.set_log_level(&request),
            "prompts/list" => self.feature_list(&PROMPT_LIST, &request).await,
            "prompts/get" => self.upstream_lists.prompts_get(request).await,
            "resources/list" => self.feature_list(&RESOURCE_LIST, &request).await,
            "resources/templates/list" => self.feature_list(&TEMPLATE_LIST, &request).await,
            "resources/read" => self.upstream_lists.resources_read(request).await,
            "resources/subscribe" => self.upstream_lists.subscribe(request).await,
            "resources/unsubscribe" => self.upstream_lists.unsubscribe(request).await,
            "completion/complete" => self.upstream_lists.complete(request).await,
            other => Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("unknown method `{other}`"))),
        }
    }
}

impl McpService {
    /// Handles `prompts/list` and the lists of resources. Discovers what is missing or stale in the background, like a
    /// list of tools.
    async fn feature_list(&self, list: &ListKind, request: &McpRequest) -> McpResult {
        self.refresh_in_background(request).await;
        // Those of most servers follow their tools at once. Clients learn of later ones by a notification.
        self.registry.refresher().wait_for_first_lists(EMPTY_LIST_TIMEOUT).await;
        self.render_at_position(&request.extensions, || self.render_feature_list(list, request).boxed()).await
    }

    async fn render_feature_list(&self, list: &ListKind, request: &McpRequest) -> McpResult {
        let listings = self.listings(&request.extensions);
        let mode = self.listing_mode(&request.peer, &listings).await;
        self.upstream_lists.list(list, mode, request).await
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
        list_changed::change_stream(self.clone(), peer.clone())
    }

    /// The endpoint compares `Mcp-Param-…` headers of HTTP requests with the arguments, for which it needs the schema.
    fn input_schema(&self, peer: &Arc<McpPeer>, tool: &str) -> Option<Box<RawValue>> {
        meta_tools::input_schema(tool).or_else(|| {
            let view = self.view(&peer.extensions());
            let call_spec = view.find(tool).and_then(|tool| tool.call_spec());
            call_spec.ok().map(|call_spec| (*call_spec.input_schema).to_owned())
        })
    }

    fn shutdown_response(&self, method: &str) -> McpResult {
        stopping_result(method)
    }

    fn on_disconnect(&self, peer: &Arc<McpPeer>) {
        let had_subscriptions = self.clients.remove(peer.id);
        // The registry keeps connections and result pages per session; a stateless client has subscriptions at most.
        if !peer.is_stateless || had_subscriptions {
            self.registry.client_disconnected(ClientId(peer.id));
        }
    }
}

/// How the URL of a client narrows what it sees: `/mcp/{group}`, `?group=`, `?tools=`. In the extensions of its requests.
#[derive(Debug, Clone)]
pub(crate) struct EndpointNarrowing(pub(crate) ViewNarrowing);

/// Reads `mode=…` from the query of the client's URL. The router has rejected unknown modes.
fn requested_mode(query: &str) -> Option<ExposeMode> {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let mode = pairs.find(|(key, _)| key == "mode").map(|(_, value)| value.into_owned());
    mode.and_then(|name| ExposeMode::parse(&name))
}

/// Returns the principal of a request or a session: the one that the auth layer found, or the local one on a byte stream,
/// whose client started this process.
fn request_principal(extensions: &Extensions) -> Principal {
    // Made once, so that its scope is resolved once.
    static STDIO_CLIENT: LazyLock<Principal> = LazyLock::new(|| Principal::local("mcp"));
    let client = extensions.get::<AuthenticatedClient>();
    client.map_or_else(|| STDIO_CLIENT.clone(), |client| client.principal.clone())
}

/// Returns the principal for what a request or a session reads and calls, narrowed by its URL. Clients of MCP are agents,
/// whatever token they have: administrators see denied and hidden tools over REST, in the console and by commands.
fn reading_principal(extensions: &Extensions) -> Principal {
    let narrowing = extensions.get::<EndpointNarrowing>().map(|narrowing| narrowing.0.clone()).unwrap_or_default();
    request_principal(extensions).narrowed(ViewNarrowing { as_agent: true, ..narrowing })
}

/// Prefix of the names of callers with a stored token.
const TOKEN_NAME_PREFIX: &str = "token:";
/// Prefixes of the names of all callers with a token.
const TOKEN_NAME_PREFIXES: [&str; 2] = [TOKEN_NAME_PREFIX, JWT_NAME_PREFIX];

/// Returns the principal for policies, logs and records of calls. It is named by its token, else by the client's name for
/// itself.
fn request_caller(extensions: &Extensions, client_name: Option<&str>) -> Principal {
    let principal = reading_principal(extensions);
    // The name has its prefix already.
    if matches!(principal.identity(), PrincipalIdentity::Jwt { .. }) {
        return principal;
    }
    let is_local = *principal.identity() == PrincipalIdentity::Local;
    let is_like_token = |name: &str| TOKEN_NAME_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let name = match client_name {
        _ if !is_local => format!("{TOKEN_NAME_PREFIX}{}", principal.name()),
        // The client's own name is unverified and must not pass for that of a token.
        Some(name) if !is_like_token(name) => sanitize_truncated(name, 80),
        Some(_) | None => "mcp".to_owned(),
    };
    principal.with_name(name)
}

/// Returns the actor of records that follow from a client's requests: `mcp`, or `mcp:NAME` with the name of its token or
/// its name for itself. The prefix separates it from actors of other interfaces, whatever a client calls itself.
fn peer_actor(extensions: &Extensions, peer: &McpPeer) -> Actor {
    match request_caller(extensions, peer.name.as_deref()).name() {
        "mcp" => Actor::new("mcp"),
        name => Actor::new(format!("mcp:{name}")),
    }
}

/// On whose behalf a request of a client discovers sources.
fn peer_requester(extensions: &Extensions, peer: &McpPeer) -> Requester {
    Requester { actor: Some(peer_actor(extensions, peer)), trace: extensions.get::<Trace>().cloned() }
}

#[cfg(test)]
mod tests {
    use toolcrib::core::access::Role;

    use super::*;

    /// Regression: a local client was given a second principal, without the role and the groups of its own.
    #[test]
    fn the_caller_is_the_authenticated_principal_under_another_name() {
        let caller = |identity: PrincipalIdentity, client_name: Option<&str>| {
            let principal = Principal::new(identity, "ada", Role::Viewer).with_groups(["support".to_owned()]);
            let mut extensions = Extensions::new();
            extensions.insert(AuthenticatedClient { principal, is_local: true, csrf: None });
            request_caller(&extensions, client_name)
        };
        let token = || PrincipalIdentity::Token { id: "0123".into() };
        for (caller, identity, name) in [
            (caller(token(), Some("agent")), token(), "token:ada"),
            (caller(PrincipalIdentity::Local, Some("agent")), PrincipalIdentity::Local, "agent"),
            (caller(PrincipalIdentity::Local, Some("token:ada")), PrincipalIdentity::Local, "mcp"),
            (caller(PrincipalIdentity::Local, Some("jwt:ada")), PrincipalIdentity::Local, "mcp"),
            (caller(PrincipalIdentity::Local, None), PrincipalIdentity::Local, "mcp"),
        ] {
            assert_eq!((caller.name(), caller.identity(), caller.role()), (name, &identity, Role::Viewer));
            assert_eq!(caller.groups(), ["support"]);
        }
        assert_eq!(request_caller(&Extensions::new(), Some("agent")).name(), "agent", "on a byte stream");
    }
}
