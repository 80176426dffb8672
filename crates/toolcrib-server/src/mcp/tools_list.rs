//! `tools/list`: what a client is shown, a page at a time, and what is discovered meanwhile.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolcrib::RequiredFreshness;
use toolcrib::core::config::ExposeMode;
use toolcrib::core::freshness::Freshness;
use toolcrib_mcp::Era;
use toolcrib_mcp::server::McpRequest;

use super::McpService;
use super::listing_cache::RenderedTool;
use super::response::{McpResult, invalid_params, parse_params};

/// How many tools stand on a page. Few clients turn pages, so it is large.
const TOOLS_PER_PAGE: usize = 1000;
/// How long a list waits that would otherwise be empty.
const EMPTY_LIST_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Deserialize)]
pub(super) struct ListParams {
    #[serde(default)]
    pub(super) cursor: Option<String>,
}

impl McpService {
    pub(super) async fn tools_list(&self, request: &McpRequest) -> McpResult {
        let ListParams { cursor } = parse_params(request.params.as_deref())?;
        if self.effective_mode(&request.peer) == ExposeMode::Search {
            self.registry.refresh_in_background();
        } else {
            self.refresh_in_background().await;
        }
        let listings = self.listings();
        let listing = listings.tool_list(self.listing_mode(&request.peer).await).await;
        self.clients.record_list(&request.peer, listing.fingerprint);

        let first = match cursor {
            None => 0,
            Some(cursor) => {
                let last = decode_cursor(&cursor)
                    .ok_or_else(|| invalid_params("no page has this cursor; list from the start"))?;
                listing.tools.partition_point(|tool| tool.name <= last)
            }
        };
        let page = listing.tools.iter().skip(first).take(TOOLS_PER_PAGE);
        let next =
            listing.tools.get(first + TOOLS_PER_PAGE - 1).filter(|_| first + TOOLS_PER_PAGE < listing.tools.len());
        let mut text = String::from("{\"tools\":[");
        for (index, tool) in page.enumerate() {
            text.push_str(if index > 0 { "," } else { "" });
            text.push_str(&tool.json);
        }
        text.push(']');
        if let Some(last) = next {
            text.push_str(&format!(",\"nextCursor\":\"{}\"", encode_cursor(last)));
        }
        text.push_str(&self.cache_hints(request));
        text.push('}');
        RawValue::from_string(text).map_err(|_| invalid_params("the list cannot be written"))
    }

    /// The first list or search makes sure that what is missing or stale is being discovered. With nothing to show,
    /// it waits a little; the rest follows by `list_changed`.
    pub(super) async fn refresh_in_background(&self) {
        if self.is_undiscovered() {
            self.registry.ensure_freshness_within(RequiredFreshness::Discovered, EMPTY_LIST_TIMEOUT).await;
        }
        self.registry.refresh_in_background();
    }

    /// Whether there are sources to discover and none of them has been.
    pub(super) fn is_undiscovered(&self) -> bool {
        let sources = self.registry.sources();
        let mut asked = sources.iter().filter(|source| source.enabled && source.transport.is_some()).peekable();
        asked.peek().is_some() && asked.all(|source| source.freshness == Freshness::Missing)
    }

    /// How long the newest version may keep a list: no longer than any of the sources says.
    pub(super) fn cache_hints(&self, request: &McpRequest) -> String {
        match request.peer.era {
            Era::Legacy(_) => String::new(),
            Era::Modern => {
                let hints = self.registry.list_hints();
                let scope = if hints.private { "private" } else { "public" };
                format!(",\"ttlMs\":{},\"cacheScope\":\"{scope}\"", hints.ttl_ms.unwrap_or_default())
            }
        }
    }
}

fn encode_cursor(tool: &RenderedTool) -> String {
    BASE64.encode(format!("after {}", tool.name))
}

fn decode_cursor(cursor: &str) -> Option<String> {
    let text = String::from_utf8(BASE64.decode(cursor).ok()?).ok()?;
    text.strip_prefix("after ").map(str::to_owned)
}
