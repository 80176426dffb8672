//! `tools/list`: pages of the tool list, and the background discovery that a first list triggers.
//!
//! Each tool was rendered before (`listing_cache`), so a page is a concatenation of texts.

use std::time::Duration;

use futures_util::FutureExt;
use serde::Deserialize;
use toolcrib::config::ExposeMode;
use toolcrib::core::freshness::Freshness;
use toolcrib::{Registry, RequiredFreshness};
use toolcrib_mcp::Era;
use toolcrib_mcp::server::McpRequest;

use super::client_state::ClientList;
use super::response::{McpResult, invalid_params, list_result, parse_params};
use super::{McpService, peer_requester, reading_principal};
use crate::page_cursor::{decode_cursor, encode_cursor};

/// Tools per page. Large, because few clients follow cursors.
const TOOLS_PER_PAGE: usize = 1000;
/// How long the first list waits for a discovery, when it would otherwise be empty. A client that does not follow
/// `tools/list_changed` would stay without tools after an empty list.
pub(super) const EMPTY_LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// Parameters of `tools/list`.
#[derive(Deserialize)]
pub(super) struct ListParams {
    #[serde(default)]
    pub(super) cursor: Option<String>,
}

impl McpService {
    /// Handles `tools/list`.
    pub(super) async fn tools_list(&self, request: &McpRequest) -> McpResult {
        let ListParams { cursor } = parse_params(request.params.as_deref())?;
        // The meta tools do not depend on the sources, so a list in search mode never waits.
        if self.effective_mode(&request.peer) == ExposeMode::Search {
            self.registry.refresher().refresh_in_background(peer_requester(&request.extensions, &request.peer));
        } else {
            self.refresh_in_background(request).await;
        }
        self.render_at_position(&request.extensions, || self.render_tools_list(request, cursor.as_deref()).boxed())
            .await
    }

    /// Renders the page after a cursor.
    async fn render_tools_list(&self, request: &McpRequest, cursor: Option<&str>) -> McpResult {
        let listings = self.listings(&request.extensions);
        let list = listings.tool_list(self.listing_mode(&request.peer, &listings).await).await;
        // Recorded for the whole list, not for the page: a change is a change of the whole list.
        self.clients.record_list(&request.peer, ClientList::Tools, list.fingerprint);

        let first = match cursor {
            None => 0,
            Some(cursor) => {
                let last = decode_cursor(cursor)
                    .ok_or_else(|| invalid_params("unknown or expired cursor; list from the start"))?;
                list.tools.partition_point(|tool| tool.name <= last)
            }
        };
        let page = list.tools.iter().skip(first).take(TOOLS_PER_PAGE);
        // A cursor is sent only if there are tools after this page.
        let last_of_page =
            list.tools.get(first + TOOLS_PER_PAGE - 1).filter(|_| first + TOOLS_PER_PAGE < list.tools.len());
        let cursor = last_of_page.map(|last| format!(",\"nextCursor\":\"{}\"", encode_cursor(&last.name)));
        let others = cursor.unwrap_or_default() + &cache_hints(&self.registry, request);
        list_result("tools", page.map(|tool| &*tool.json), &others)
    }

    /// Starts a background refresh of missing and stale sources. When no source was ever discovered, waits up to
    /// [`EMPTY_LIST_TIMEOUT`] for the first results; clients learn of later ones by `tools/list_changed`.
    pub(super) async fn refresh_in_background(&self, request: &McpRequest) {
        let refresher = self.registry.refresher();
        let requester = peer_requester(&request.extensions, &request.peer);
        if self.is_undiscovered() {
            let required = RequiredFreshness::Discovered;
            refresher.ensure_freshness_within(required, EMPTY_LIST_TIMEOUT, requester.clone()).await;
        }
        refresher.refresh_in_background(requester);
    }

    /// True when there are enabled sources with a connection and none of them was ever discovered.
    pub(super) fn is_undiscovered(&self) -> bool {
        let sources = self.registry.sources().list();
        let mut connected = sources.iter().filter(|source| source.enabled && source.transport.is_some()).peekable();
        connected.peek().is_some() && connected.all(|source| source.freshness == Freshness::Missing)
    }
}

/// Discovers sources that were never discovered, with their prompts and resources, before a key that no known list has is
/// answered as unknown. Waits for each of both as long as an empty list does.
pub(super) async fn wait_for_missing_sources(registry: &Registry, request: &McpRequest) {
    let refresher = registry.refresher();
    if !refresher.due_sources().is_empty() {
        let requester = peer_requester(&request.extensions, &request.peer);
        refresher.ensure_freshness_within(RequiredFreshness::Discovered, EMPTY_LIST_TIMEOUT, requester).await;
    }
    refresher.wait_for_first_lists(EMPTY_LIST_TIMEOUT).await;
}

/// Returns the cache hints of a list for protocol 2026-07-28, as JSON members: the strictest of all sources.
pub(super) fn cache_hints(registry: &Registry, request: &McpRequest) -> String {
    match request.peer.era {
        // Earlier versions do not know these members.
        Era::Legacy(_) => String::new(),
        Era::Modern => {
            let principal = reading_principal(&request.extensions);
            let hints = registry.sources().list_hints_for(&principal);
            // What rules give to one caller must not be served to another.
            let is_private = hints.private || registry.scope(&principal).has_rules();
            let scope = if is_private { "private" } else { "public" };
            format!(",\"ttlMs\":{},\"cacheScope\":\"{scope}\"", hints.ttl_ms.unwrap_or_default())
        }
    }
}
