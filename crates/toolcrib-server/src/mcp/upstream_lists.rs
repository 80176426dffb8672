//! [`UpstreamLists`]: lists of prompts, resources and resource templates, merged from all sources. Like tools they are
//! read from the catalogue: no request is sent and no server is started.
//!
//! An item keeps every field that its source sent. Names and URIs get the prefix:
//! ```text
//! { "name": "review", "description": "Review a change" }          from the source `git`
//! { "name": "git__review", "description": "Review a change" }     as listed, with `expose.prefix`
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Extensions;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolcrib::call::{ClientId, EraPreference, McpCapability};
use toolcrib::config::Expose;
use toolcrib::core::features::{Feature, FeatureKind, FeatureList, RecordedFeatures};
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::json::{RawFields, raw_string};
use toolcrib::core::text::sanitize_truncated;
use toolcrib::core::tool::SEPARATOR;
use toolcrib::{CallContext, Error, Registry, SourceId};
use toolcrib_mcp::server::McpRequest;
use toolcrib_mcp::{Era, RpcError};

use super::client_state::{ClientList, ClientStates};
use super::listing_cache::ListingMode;
use super::response::{McpResult, invalid_params, list_result, parse_params, to_raw, to_rpc_error};
use super::tools_list::{ListParams, cache_hints};
use super::{peer_actor, request_caller, request_principal};
use crate::page_cursor::{decode_cursor, encode_cursor};

/// Prompts, resources, completions and subscriptions: the requests that are answered by one source, and the lists of all
/// of them. Cheap to clone. The requests are in `prompts` and `resources`.
#[derive(Debug, Clone)]
pub(super) struct UpstreamLists {
    pub(super) registry: Registry,
    /// The `expose` section of the configuration.
    pub(super) expose: watch::Receiver<Arc<Expose>>,
    /// Has the lists and subscriptions of each client.
    pub(super) clients: Arc<ClientStates>,
}

/// One kind of list.
pub(super) struct ListKind {
    pub(super) feature: FeatureKind,
    /// Capability that a source needs to have such a list.
    pub(super) capability: McpCapability,
    /// Name of the array in the result.
    items: &'static str,
    /// Notification about changes of the list.
    changes: ClientList,
}

/// Prompts are identified by their name.
pub(super) const PROMPT_LIST: ListKind = ListKind {
    feature: FeatureKind::Prompt,
    capability: McpCapability::Prompts,
    items: "prompts",
    changes: ClientList::Prompts,
};
/// Resources are identified by their URI.
pub(super) const RESOURCE_LIST: ListKind = ListKind {
    feature: FeatureKind::Resource,
    capability: McpCapability::Resources,
    items: "resources",
    changes: ClientList::Resources,
};
/// Templates are listed by sources with the capability for resources, under a method of their own.
pub(super) const TEMPLATE_LIST: ListKind = ListKind {
    feature: FeatureKind::ResourceTemplate,
    capability: McpCapability::Resources,
    items: "resourceTemplates",
    changes: ClientList::Resources,
};

/// Items per page. Large, because few clients follow cursors.
const ITEMS_PER_PAGE: usize = 1000;

/// One item of a merged list.
struct ListItem<'a> {
    /// Name or URI that clients see.
    public_key: String,
    features: &'a FeatureList,
    feature: &'a Feature,
}

impl ListItem<'_> {
    /// Position in the list. Without prefixes several sources may have an item with the same key.
    fn position(&self) -> String {
        format!("{}\n{}", self.public_key, self.features.summary.source)
    }
}

impl UpstreamLists {
    /// Handles a list request: one page of the items of all sources, sorted by key so that an unchanged list is
    /// byte-identical.
    pub(super) async fn list(&self, list: &ListKind, mode: ListingMode, request: &McpRequest) -> McpResult {
        let ListParams { cursor } = parse_params(request.params.as_deref())?;
        // Computed before the lists are read, so that a change meanwhile leads to a notification; recorded after, so that
        // a client whose request fails is not taken for one that has the lists.
        let digest = self.list_digest(list.changes, mode, &request.extensions);
        let sources = self.visible_lists(list, &request.extensions).await?;
        self.clients.record_list(&request.peer, list.changes, digest);
        let mut items: Vec<ListItem<'_>> = Vec::new();
        for features in &sources {
            items.extend(features.features(list.feature).iter().map(|feature| ListItem {
                public_key: self.public_key(list.feature, &features.summary.source, &feature.key),
                features,
                feature,
            }));
        }
        items.sort_by_cached_key(ListItem::position);
        let first = match cursor {
            None => 0,
            Some(cursor) => {
                let last = decode_cursor(&cursor)
                    .ok_or_else(|| invalid_params("unknown or expired cursor; list from the start"))?;
                items.partition_point(|item| item.position() <= last)
            }
        };
        let page = items.iter().skip(first).take(ITEMS_PER_PAGE);
        // A cursor is sent only if there are items after this page.
        let last_of_page = items.get(first + ITEMS_PER_PAGE - 1).filter(|_| first + ITEMS_PER_PAGE < items.len());
        let cursor = last_of_page.map(|last| format!(",\"nextCursor\":\"{}\"", encode_cursor(&last.position())));
        let others = cursor.unwrap_or_default() + &cache_hints(&self.registry, request);
        list_result(list.items, page.map(|item| self.render_item(list.feature, item)), &others)
    }

    /// Returns an item under its public key. The name of a resource gets the prefix too.
    fn render_item(&self, kind: FeatureKind, item: &ListItem<'_>) -> Box<str> {
        let json = item.features.json(item.feature);
        let Ok(mut fields) = serde_json::from_str::<RawFields>(json) else { return json.into() };
        set_text_field(&mut fields, kind.key(), &item.public_key);
        if let Some(name) = text_field(&fields, "name").filter(|_| kind != FeatureKind::Prompt && self.has_prefixes()) {
            set_text_field(&mut fields, "name", &format!("{}{SEPARATOR}{name}", item.features.summary.source));
        }
        Box::<str>::from(to_raw(&fields))
    }

    /// Returns the name or URI under which clients see an item of a source.
    fn public_key(&self, kind: FeatureKind, source: &SourceId, key: &str) -> String {
        match kind {
            FeatureKind::Prompt if self.has_prefixes() => format!("{source}{SEPARATOR}{key}"),
            FeatureKind::Prompt => key.to_owned(),
            FeatureKind::Resource | FeatureKind::ResourceTemplate => self.public_uri(source, key),
        }
    }

    /// Digest of the prompts, or of the resources and templates, that a client sees. Clients in search mode see none.
    pub(super) fn list_digest(&self, list: ClientList, mode: ListingMode, extensions: &Extensions) -> Fingerprint {
        let (capability, kinds): (McpCapability, &[FeatureKind]) = match list {
            ClientList::Prompts => (McpCapability::Prompts, &[FeatureKind::Prompt]),
            ClientList::Resources => {
                (McpCapability::Resources, &[FeatureKind::Resource, FeatureKind::ResourceTemplate])
            }
            ClientList::Tools => (McpCapability::Resources, &[]),
        };
        let mut text = String::new();
        let sources = match mode {
            ListingMode::Full => self.visible_sources(capability, extensions),
            ListingMode::Search => Vec::new(),
        };
        for features in sources {
            let summary = &features.summary;
            for kind in kinds.iter().filter(|kind| *summary.counts.get(**kind) > 0) {
                let digest = summary.digests.get(*kind);
                text.push_str(&format!("{} {} {} {digest}\n", self.has_prefixes(), kind.as_str(), summary.source));
            }
        }
        Fingerprint::digest(text)
    }

    /// Features of the sources that a client may see and that have a capability.
    fn visible_sources(&self, capability: McpCapability, extensions: &Extensions) -> Vec<Arc<RecordedFeatures>> {
        // Not through a view, which leaves out sources without tools.
        let catalog = self.registry.unrestricted_catalog();
        // Leaves out sources that must not be contacted: their items could not be read.
        let capable: BTreeSet<SourceId> = self.capable_sources(capability, extensions).into_iter().collect();
        let features = catalog.sources().filter_map(|source| source.features.clone());
        features.filter(|features| capable.contains(&features.summary.source)).collect()
    }

    /// Sources that a client may know of and that have a capability.
    fn capable_sources(&self, capability: McpCapability, extensions: &Extensions) -> Vec<SourceId> {
        self.registry.sources().with_capability_for(&request_principal(extensions), capability)
    }

    /// Lists of a kind of the sources that a client may see. One that the store has lost is left out.
    async fn visible_lists(&self, list: &ListKind, extensions: &Extensions) -> Result<Vec<Arc<FeatureList>>, RpcError> {
        let mut lists = Vec::new();
        for features in self.visible_sources(list.capability, extensions) {
            if *features.summary.counts.get(list.feature) > 0 {
                let read = self.registry.sources().feature_list(&features).await;
                lists.extend(read.map_err(|error| to_rpc_error(&error))?);
            }
        }
        Ok(lists)
    }

    /// Finds the source of an item by its upstream key: the only source with such a list, or the only one that lists
    /// the item. When several do, the error names them with `full_name`.
    pub(super) async fn find_owner(
        &self,
        list: &ListKind,
        upstream_key: &str,
        request: &McpRequest,
        full_name: impl Fn(&SourceId) -> String,
    ) -> Result<Option<SourceId>, RpcError> {
        let sources = self.capable_sources(list.capability, &request.extensions);
        if sources.len() < 2 {
            return Ok(sources.into_iter().next());
        }
        let mut owners = self.visible_lists(list, &request.extensions).await?;
        owners.retain(|features| features.find(list.feature, upstream_key).is_some());
        if owners.len() < 2 {
            return Ok(owners.first().map(|features| features.summary.source.clone()));
        }
        let names: Vec<String> =
            owners.iter().map(|features| format!("`{}`", full_name(&features.summary.source))).collect();
        Err(invalid_params(&format!(
            "`{}` is offered by several sources: {}",
            sanitize_truncated(upstream_key, 200),
            names.join(", ")
        )))
    }

    /// Returns the source with this id, if it has the capability and the client may know of it.
    pub(super) fn find_capable_source(
        &self,
        capability: McpCapability,
        id: &str,
        request: &McpRequest,
    ) -> Option<SourceId> {
        self.capable_sources(capability, &request.extensions).into_iter().find(|source| source.as_str() == id)
    }

    /// True when names and URIs carry their source (`expose.prefix`).
    pub(super) fn has_prefixes(&self) -> bool {
        self.expose.borrow().prefix
    }
}

/// Returns a string field.
pub(super) fn text_field(fields: &RawFields, key: &str) -> Option<String> {
    fields.get(key).and_then(|raw| serde_json::from_str(raw.get()).ok())
}

/// Sets a string field, at its place if it exists.
pub(super) fn set_text_field(fields: &mut RawFields, key: &str, value: &str) {
    fields.insert(key, raw_string(value));
}

/// Returns the context of a request to a source on behalf of the client.
pub(super) fn client_context(request: &McpRequest) -> CallContext {
    CallContext {
        actor: Some(peer_actor(&request.extensions, &request.peer)),
        caller: request_caller(&request.extensions, request.peer.name.as_deref()),
        cancel: request.cancel.clone(),
        cancel_reason: Some(request.client.cancel_reason()),
        client: Some(ClientId(request.peer.id)),
        stateless: request.peer.is_stateless,
        era: preferred_era(request),
        capabilities: Some(request.peer.capabilities.clone().into()),
        ..CallContext::default()
    }
}

/// Returns the era of a source in which the client has all that it supports. Every source has what a legacy client uses
/// that answers no questions; for a client of 2026-07-28 also the capabilities that a source sees depend on it.
fn preferred_era(request: &McpRequest) -> EraPreference {
    let is_subscription = matches!(request.method.as_str(), "resources/subscribe" | "resources/unsubscribe");
    match request.peer.era {
        Era::Modern => EraPreference::Modern,
        Era::Legacy(_) if is_subscription || answers_questions(&request.peer.capabilities) => EraPreference::Legacy,
        Era::Legacy(_) => EraPreference::Any,
    }
}

/// True when a client can be asked for something. A search in the text, because this runs with each call; a match at a
/// deeper level only prefers an era without need.
fn answers_questions(capabilities: &RawValue) -> bool {
    [r#""sampling""#, r#""elicitation""#, r#""roots""#].iter().any(|key| capabilities.get().contains(key))
}

/// `NOT_FOUND` for an item that no source offers; `what` is its kind, such as `prompt`.
pub(super) fn not_found_error(what: &str, name: &str) -> Error {
    let name = sanitize_truncated(name, 200);
    Error::new(toolcrib::Code::NotFound, format!("no {what} named `{name}`"))
}
