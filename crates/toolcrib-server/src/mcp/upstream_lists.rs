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
use toolcrib::{CallContext, Code, Error, Registry, SourceId};
use toolcrib_mcp::server::McpRequest;
use toolcrib_mcp::{Era, RpcError};

use super::client_state::{ClientList, ClientStates};
use super::listing_cache::ListingMode;
use super::resources::prefixed_uri;
use super::response::{McpResult, invalid_params, list_result, parse_params, to_raw, to_rpc_error};
use super::tools_list::{ListParams, cache_hints, wait_for_missing_sources};
use super::{peer_actor, reading_principal, request_caller};
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

/// Maximum number of items per page. Large, because few clients follow cursors.
const MAX_PAGE_ITEMS: usize = 1000;
/// Maximum size of the items of a page. A single item may be larger.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

/// One item of a merged list.
struct ListItem<'a> {
    /// Name or URI that clients see. No two items of a list have the same.
    public_key: String,
    features: &'a FeatureList,
    feature: &'a Feature,
}

impl UpstreamLists {
    /// Handles a list request: one page of the items of all sources, sorted by key so that an unchanged list is
    /// byte-identical.
    pub(super) async fn list(&self, list: &ListKind, mode: ListingMode, request: &McpRequest) -> McpResult {
        let ListParams { cursor } = parse_params(request.params.as_deref())?;
        // Computed before the lists are read, so that a change meanwhile leads to a notification; recorded after, so that
        // a client whose request fails is not taken for one that has the lists.
        let digest = self.list_digest(list.changes, mode, &request.extensions).await?;
        let sources = self.visible_lists(list, &request.extensions).await?;
        let shared_keys = self.shared_keys(list).await.map_err(|error| to_rpc_error(&error))?;
        self.clients.record_list(&request.peer, list.changes, digest);
        let mut items: Vec<ListItem<'_>> = Vec::new();
        for features in &sources {
            items.extend(features.features(list.feature).iter().map(|feature| ListItem {
                public_key: self.public_key(list.feature, &features.summary.source, &feature.key, &shared_keys),
                features,
                feature,
            }));
        }
        items.sort_by(|a, b| a.public_key.cmp(&b.public_key));
        let first = match cursor {
            None => 0,
            Some(cursor) => {
                let last = decode_cursor(&cursor)
                    .ok_or_else(|| invalid_params("unknown or expired cursor; list from the start"))?;
                items.partition_point(|item| item.public_key <= last)
            }
        };
        let (page, following) = split_page(&items[first..]);
        // A cursor is sent only if there are items after this page.
        let cursor = page
            .last()
            .filter(|_| !following.is_empty())
            .map(|last| format!(",\"nextCursor\":\"{}\"", encode_cursor(&last.public_key)));
        let others = cursor.unwrap_or_default() + &cache_hints(&self.registry, request);
        list_result(list.items, page.iter().map(|item| self.render_item(list.feature, item)), &others)
    }

    /// Returns an item under its public key. The name of a resource gets the prefix with it.
    fn render_item(&self, kind: FeatureKind, item: &ListItem<'_>) -> Box<str> {
        let json = item.features.json(item.feature);
        let Ok(mut fields) = serde_json::from_str::<RawFields>(json) else { return json.into() };
        set_text_field(&mut fields, kind.key(), &item.public_key);
        let has_prefix = item.public_key != item.feature.key;
        if let Some(name) = text_field(&fields, "name").filter(|_| kind != FeatureKind::Prompt && has_prefix) {
            set_text_field(&mut fields, "name", &format!("{}{SEPARATOR}{name}", item.features.summary.source));
        }
        Box::<str>::from(to_raw(&fields))
    }

    /// Returns the name or URI under which clients see an item of a source.
    pub(super) fn public_key(
        &self,
        kind: FeatureKind,
        source: &SourceId,
        key: &str,
        shared_keys: &BTreeSet<String>,
    ) -> String {
        let has_prefix = self.has_prefixes() || shared_keys.contains(key);
        match kind {
            _ if !has_prefix => key.to_owned(),
            FeatureKind::Prompt => format!("{source}{SEPARATOR}{key}"),
            FeatureKind::Resource | FeatureKind::ResourceTemplate => prefixed_uri(source, key),
        }
    }

    /// Returns the keys that more than one source has, which get a prefix where others have none. Like the names of tools
    /// they are decided on the whole catalogue, so that a key means the same item for every client.
    pub(super) async fn shared_keys(&self, list: &ListKind) -> Result<BTreeSet<String>, Error> {
        let mut shared = BTreeSet::new();
        if self.has_prefixes() {
            return Ok(shared);
        }
        let capable = self.registry.sources().with_capability(list.capability);
        let lists = self.read_lists(list, self.recorded_features(&capable)).await?;
        let mut seen = BTreeSet::new();
        for feature in lists.iter().flat_map(|features| features.features(list.feature)) {
            if !seen.insert(feature.key.as_str()) {
                shared.insert(feature.key.clone());
            }
        }
        Ok(shared)
    }

    /// Returns the URI under which clients see a resource of a source.
    pub(super) async fn public_uri(&self, source: &SourceId, upstream_uri: &str) -> String {
        // A store that cannot be read now leaves the URI as the source knows it, which resolves too.
        let shared_keys = self.shared_keys(&RESOURCE_LIST).await.unwrap_or_default();
        self.public_key(FeatureKind::Resource, source, upstream_uri, &shared_keys)
    }

    /// Digest of the prompts, or of the resources and templates, that a client sees. Clients in search mode see none. Fails
    /// if the store cannot be read.
    pub(super) async fn list_digest(
        &self,
        list: ClientList,
        mode: ListingMode,
        extensions: &Extensions,
    ) -> Result<Fingerprint, RpcError> {
        let lists: &[ListKind] = match (list, mode) {
            (ClientList::Prompts, ListingMode::Full) => &[PROMPT_LIST],
            (ClientList::Resources, ListingMode::Full) => &[RESOURCE_LIST, TEMPLATE_LIST],
            (ClientList::Tools, _) | (_, ListingMode::Search) => &[],
        };
        let mut text = String::new();
        for list in lists {
            let kind = list.feature;
            for features in self.visible_sources(list.capability, extensions) {
                let summary = &features.summary;
                if *summary.counts.get(kind) > 0 {
                    let digest = summary.digests.get(kind);
                    text.push_str(&format!("{} {} {} {digest}\n", self.has_prefixes(), kind.as_str(), summary.source));
                }
            }
            let shared_keys = self.shared_keys(list).await.map_err(|error| to_rpc_error(&error))?;
            if shared_keys.is_empty() {
                continue;
            }
            // Only keys of items that the client sees: others change nothing for it.
            let visible = self.visible_lists(list, extensions).await?;
            let visible = visible.iter().flat_map(|features| features.features(kind));
            let shared = visible.filter(|feature| shared_keys.contains(&feature.key));
            text.extend(shared.map(|feature| format!("{} {:?}\n", kind.as_str(), feature.key)));
        }
        Ok(Fingerprint::digest(text))
    }

    /// Features of the sources that a client may see and that have a capability.
    fn visible_sources(&self, capability: McpCapability, extensions: &Extensions) -> Vec<Arc<RecordedFeatures>> {
        // Leaves out sources that must not be contacted: their items could not be read.
        self.recorded_features(&self.capable_sources(capability, extensions))
    }

    /// Features of these sources.
    fn recorded_features(&self, ids: &[SourceId]) -> Vec<Arc<RecordedFeatures>> {
        // Not through a view, which leaves out sources without tools.
        let catalog = self.registry.unrestricted_catalog();
        ids.iter().filter_map(|id| catalog.source(id)?.features.clone()).collect()
    }

    /// Sources that a client may know of and that have a capability.
    fn capable_sources(&self, capability: McpCapability, extensions: &Extensions) -> Vec<SourceId> {
        self.registry.sources().with_capability_for(&reading_principal(extensions), capability)
    }

    /// Lists of a kind of the sources that a client may see. One that the store has lost is left out.
    async fn visible_lists(&self, list: &ListKind, extensions: &Extensions) -> Result<Vec<Arc<FeatureList>>, RpcError> {
        let lists = self.read_lists(list, self.visible_sources(list.capability, extensions)).await;
        lists.map_err(|error| to_rpc_error(&error))
    }

    async fn read_lists(
        &self,
        list: &ListKind,
        sources: Vec<Arc<RecordedFeatures>>,
    ) -> Result<Vec<Arc<FeatureList>>, Error> {
        let mut lists = Vec::new();
        for features in sources.iter().filter(|features| *features.summary.counts.get(list.feature) > 0) {
            lists.extend(self.registry.sources().feature_list(features).await?);
        }
        Ok(lists)
    }

    /// Finds the source of an item by its upstream key: the only one that lists the item, or else the only source with
    /// such a list, which may have items that it does not list. When several list it, the error names them with
    /// `full_name`.
    pub(super) async fn find_owner(
        &self,
        list: &ListKind,
        upstream_key: &str,
        request: &McpRequest,
        full_name: impl Fn(&SourceId) -> String,
    ) -> Result<Option<SourceId>, RpcError> {
        let mut owners = self.listing_sources(list, upstream_key, request).await?;
        if owners.is_empty() {
            // The item may be one of a source that is not discovered yet.
            wait_for_missing_sources(&self.registry, request).await;
            owners = self.listing_sources(list, upstream_key, request).await?;
        }
        match owners.as_slice() {
            [owner] => return Ok(Some(owner.clone())),
            [] => {
                let capable = self.capable_sources(list.capability, &request.extensions);
                return Ok(<[SourceId; 1]>::try_from(capable).ok().map(|[only]| only));
            }
            [_, _, ..] => {}
        }
        let names: Vec<String> = owners.iter().map(|source| format!("`{}`", full_name(source))).collect();
        Err(invalid_params(&format!(
            "`{}` is offered by several sources: {}",
            sanitize_truncated(upstream_key, 200),
            names.join(", ")
        )))
    }

    /// Returns the sources that list an item under this upstream key.
    async fn listing_sources(
        &self,
        list: &ListKind,
        upstream_key: &str,
        request: &McpRequest,
    ) -> Result<Vec<SourceId>, RpcError> {
        let lists = self.visible_lists(list, &request.extensions).await?;
        let owners = lists.iter().filter(|features| features.find(list.feature, upstream_key).is_some());
        Ok(owners.map(|features| features.summary.source.clone()).collect())
    }

    /// Returns the source with this id, if it has the capability and the client may know of it. Its capabilities are known
    /// after a discovery, which runs first if there was none; `item` is the name or URI that the client requested.
    pub(super) async fn find_capable_source(
        &self,
        capability: McpCapability,
        id: &str,
        item: &str,
        request: &McpRequest,
    ) -> Result<Option<SourceId>, RpcError> {
        let find =
            || self.capable_sources(capability, &request.extensions).into_iter().find(|source| source.as_str() == id);
        if let Some(source) = find() {
            return Ok(Some(source));
        }
        let principal = reading_principal(&request.extensions);
        let is_visible = |id: &SourceId| self.registry.visibility(&principal).shows_source(id);
        let Some(id) = SourceId::parse(id).ok().filter(is_visible) else { return Ok(None) };
        let discovered = self.registry.sources().discover_for_request(&id, item, &client_context(request)).await;
        discovered.map_err(|error| to_rpc_error(&error))?;
        // A discovery that failed says more than that the item is unknown. A disabled source has no items.
        let failure = self.registry.sources().failure(&id).filter(|failure| failure.code != Code::ToolNotImplemented);
        match failure.filter(|_| is_visible(&id)) {
            Some(failure) => Err(to_rpc_error(&failure)),
            None => Ok(find()),
        }
    }

    /// True when names and URIs carry their source (`expose.prefix`).
    pub(super) fn has_prefixes(&self) -> bool {
        self.expose.borrow().prefix
    }
}

/// Splits items into those of the next page, at least one, and those after it.
fn split_page<'a, 'i>(items: &'a [ListItem<'i>]) -> (&'a [ListItem<'i>], &'a [ListItem<'i>]) {
    let mut bytes = 0;
    let is_over = |(index, item): (usize, &ListItem<'_>)| {
        bytes += item.features.json(item.feature).len();
        index >= MAX_PAGE_ITEMS || (index > 0 && bytes > MAX_PAGE_BYTES)
    };
    let end = items.iter().enumerate().position(is_over).unwrap_or(items.len());
    items.split_at(end)
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
    Error::new(Code::NotFound, format!("no {what} named `{name}`"))
}
