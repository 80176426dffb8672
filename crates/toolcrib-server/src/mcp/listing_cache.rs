//! Rendered tool lists and summary of a view, shared by all clients that see the same. Each part is computed on first use,
//! once for all concurrent requests.
//!
//! There is one entry per view of the newest catalogue, under the current `expose` settings. When either changes, the
//! next request replaces it; a request that holds the old entry finishes with it. An entry whose parts are above the limit
//! of the cache is used by the requests that hold it and then dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::Extensions;
use tokio::sync::OnceCell;
use toolcrib::catalog::render::mcp;
use toolcrib::catalog::summary::SummaryBudget;
use toolcrib::catalog::{ToolRef, View};
use toolcrib::config::Expose;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::tool::ToolName;

use super::McpService;
use super::meta_tools::META_TOOLS;
use crate::view_cache::{CachedSize, ViewCache};

/// Which tool list a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListingMode {
    /// The meta tools, and the tools that the configuration marks as essential.
    Search,
    /// Every tool.
    Full,
}

/// Listings of one view under one `expose` configuration. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Listings {
    view: View,
    parts: Arc<ListingParts>,
    cache: Arc<ViewCache<ListingParts>>,
}

/// Cached parts of the listings. They do not hold the view, whose catalogue may be replaced meanwhile.
#[derive(Debug)]
pub(super) struct ListingParts {
    expose: Arc<Expose>,
    /// See [`View::catalog_hash`].
    catalog_hash: Fingerprint,
    search: OnceCell<RenderedToolList>,
    full: OnceCell<RenderedToolList>,
    /// The mode of `auto`.
    default_mode: OnceCell<ListingMode>,
    summary: OnceCell<String>,
}

/// A tool list as a client gets it, in name order.
#[derive(Debug)]
pub(super) struct RenderedToolList {
    pub(super) tools: Vec<RenderedTool>,
    /// Digest of the names and definitions; changes exactly when the list does.
    pub(super) fingerprint: Fingerprint,
    /// Listed names without a prefix, with the names that the catalogue has for these tools.
    unprefixed: BTreeMap<String, ToolName>,
    /// Size of the list. Includes the definitions that it shares with the catalogue: it keeps them when the catalogue is
    /// replaced.
    bytes: usize,
}

/// One tool of a list.
#[derive(Debug)]
pub(super) struct RenderedTool {
    pub(super) name: String,
    /// The tool as in the `tools` array of the result; shared with the catalogue.
    pub(super) json: Arc<str>,
    /// Fingerprint of the definition.
    fingerprint: Fingerprint,
}

/// Upper bound of bytes per token. A list with more bytes exceeds the token limit for certain and need not be counted.
/// Set far above real texts, so that the shortcut never decides wrongly.
const MAX_BYTES_PER_TOKEN: usize = 64;

impl McpService {
    /// Returns the current listings for a client, see [`McpService::view`].
    pub(super) fn listings(&self, extensions: &Extensions) -> Listings {
        self.listings_for(self.view(extensions))
    }

    /// Returns the listings of a view. Two requests that miss at the same time may both make an entry; the last one stays,
    /// and both are right.
    fn listings_for(&self, view: View) -> Listings {
        let expose = self.expose.borrow().clone();
        let catalog_hash = view.catalog_hash();
        let cache = self.listing_cache.clone();
        // Names without prefix are decided on the whole catalogue, which may change without the view.
        let is_current = |parts: &Arc<ListingParts>| {
            Arc::ptr_eq(&parts.expose, &expose) && (expose.prefix || parts.catalog_hash == catalog_hash)
        };
        if let Some(parts) = cache.get(view.key()).filter(is_current) {
            return Listings { view, parts, cache };
        }
        let parts = Arc::new(ListingParts {
            expose,
            catalog_hash,
            search: OnceCell::new(),
            full: OnceCell::new(),
            default_mode: OnceCell::new(),
            summary: OnceCell::new(),
        });
        // Those of older catalogues are hardly ever requested again.
        let is_of_same_catalog = |other: &ListingParts| {
            other.catalog_hash == parts.catalog_hash && Arc::ptr_eq(&other.expose, &parts.expose)
        };
        cache.insert(view.key(), &parts, is_of_same_catalog);
        Listings { view, parts, cache }
    }
}

impl CachedSize for ListingParts {
    fn cached_bytes(&self) -> usize {
        let lists = [&self.search, &self.full].map(|list| list.get().map_or(0, |list| list.bytes));
        lists.iter().sum::<usize>() + self.summary.get().map_or(0, String::len)
    }
}

impl Listings {
    /// The view that these listings show.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Returns the mode of `auto`: the full list if it is below the configured token limit. An empty catalogue gets the meta
    /// tools, which work for whatever is discovered later.
    pub(super) async fn default_mode(&self) -> ListingMode {
        self.get_or_compute(|parts| &parts.default_mode, Listings::choose_mode).await.to_owned()
    }

    /// Returns the summary of the catalogue for a system prompt.
    pub(super) async fn summary(&self) -> String {
        self.get_or_compute(|parts| &parts.summary, |listings| listings.view.summary_text(SummaryBudget::default()))
            .await
            .to_owned()
    }

    /// Returns the tool list of a mode.
    pub(super) async fn tool_list(&self, mode: ListingMode) -> &RenderedToolList {
        match mode {
            ListingMode::Search => self.get_or_compute(|parts| &parts.search, Listings::build_search_list).await,
            ListingMode::Full => self.get_or_compute(|parts| &parts.full, Listings::build_full_list).await,
        }
    }

    /// Returns a part of the listings, computing it if necessary. Rendering a long list and counting tokens take long, so
    /// they run on a blocking thread; concurrent requests wait for the same computation.
    async fn get_or_compute<T: Send + Sync + 'static>(
        &self,
        cell: fn(&ListingParts) -> &OnceCell<T>,
        compute: fn(&Listings) -> T,
    ) -> &T {
        let cell = cell(&self.parts);
        if let Some(part) = cell.get() {
            return part;
        }
        let computing = || async {
            let listings = self.clone();
            let computed = tokio::task::spawn_blocking(move || compute(&listings)).await;
            // The task fails only when the runtime shuts down.
            computed.unwrap_or_else(|_| compute(self))
        };
        let part = cell.get_or_init(computing).await;
        // The size of the entry is known only now.
        self.cache.evict();
        part
    }

    /// True when the full list may be below the token limit, judged by its size in bytes. Stops adding up as soon as
    /// the limit is exceeded.
    pub(super) fn is_small(&self) -> bool {
        let max_bytes = self.max_full_tokens() * MAX_BYTES_PER_TOKEN;
        let mut bytes = 0;
        self.view.offered_tools().all(|tool| {
            bytes += tool.catalog_source.segment.listing_json(tool.entry).len();
            bytes <= max_bytes
        })
    }

    /// Compares the tokens of the full list with `expose.full_below_tokens`.
    fn choose_mode(&self) -> ListingMode {
        // The lower bound of 1 excludes an empty catalogue.
        let fits = self.is_small() && (1..self.max_full_tokens()).contains(&self.view.full_token_count());
        if fits { ListingMode::Full } else { ListingMode::Search }
    }

    fn max_full_tokens(&self) -> usize {
        self.parts.expose.full_below_tokens as usize
    }

    /// Renders the meta tools and the essential tools. The latter keep their full names, whatever `expose.prefix` says.
    fn build_search_list(&self) -> RenderedToolList {
        let meta_tools = META_TOOLS.iter().map(|(name, tool)| RenderedTool::from_json(name, tool.to_string()));
        let essential = self.view.configured_essentials().filter_map(|tool| RenderedTool::from_tool(&tool));
        RenderedToolList::new(meta_tools.chain(essential).collect(), BTreeMap::new())
    }

    /// Renders every tool that is offered to agents. The meta tools are not among them.
    fn build_full_list(&self) -> RenderedToolList {
        let mut unprefixed = BTreeMap::new();
        let available = if self.parts.expose.prefix { BTreeSet::new() } else { self.unprefixed_names() };
        let tools = self.view.offered_tools().filter_map(|tool| {
            // A name without prefix is used only where it is unambiguous; all other tools keep theirs.
            let short_name = ToolName::from_original("", tool.original_name());
            if !available.contains(short_name.as_str()) {
                return RenderedTool::from_tool(&tool);
            }
            unprefixed.insert(short_name.to_string(), tool.name().clone());
            let mut json = String::new();
            mcp::push_tool(short_name.as_str(), &tool.tool().ok()?, &mut json);
            Some(RenderedTool::from_json(short_name.as_str(), json))
        });
        let tools = tools.collect();
        RenderedToolList::new(tools, unprefixed)
    }

    /// Returns the names without prefix that exactly one tool would have and that no tool has as its full name. Otherwise a
    /// source could take over the name of another source's tool, or of a meta tool. Tools outside the view count too, so
    /// that a name means the same tool for every client.
    fn unprefixed_names(&self) -> BTreeSet<String> {
        let mut taken: BTreeSet<&str> = META_TOOLS.iter().map(|(name, _)| *name).collect();
        taken.extend(self.view.catalog_names().map(|(name, _)| name.as_str()));
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (_, original_name) in self.view.catalog_names() {
            *counts.entry(ToolName::from_original("", original_name).to_string()).or_default() += 1;
        }
        let available = counts.into_iter().filter(|(name, count)| *count == 1 && !taken.contains(name.as_str()));
        available.map(|(name, _)| name).collect()
    }

    /// Returns the catalogue's name of a tool that is listed without its prefix.
    pub(super) async fn resolve_name(&self, name: &str) -> Option<ToolName> {
        if self.parts.expose.prefix {
            return None;
        }
        self.tool_list(ListingMode::Full).await.unprefixed.get(name).cloned()
    }
}

impl RenderedToolList {
    /// Sorts the tools and computes the fingerprint of the list.
    fn new(mut tools: Vec<RenderedTool>, unprefixed: BTreeMap<String, ToolName>) -> RenderedToolList {
        // Pages are cut by name, and an unchanged list must be byte-identical.
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let mut text = String::with_capacity(tools.len() * 96);
        for tool in &tools {
            text.push_str(&format!("{} {}\n", tool.name, tool.fingerprint));
        }
        let tool_bytes = |tool: &RenderedTool| size_of::<RenderedTool>() + tool.name.len() + tool.json.len();
        let name_bytes = |(name, full_name): (&String, &ToolName)| name.len() + full_name.as_str().len();
        let bytes = tools.iter().map(tool_bytes).chain(unprefixed.iter().map(name_bytes)).sum();
        RenderedToolList { fingerprint: Fingerprint::digest(text), tools, unprefixed, bytes }
    }
}

impl RenderedTool {
    /// Uses the JSON that the catalogue segment caches. `None` for a tool that cannot be read from the store, which
    /// `toolcrib verify` reports.
    fn from_tool(tool: &ToolRef<'_>) -> Option<RenderedTool> {
        let segment = &tool.catalog_source.segment;
        let name = tool.name().to_string();
        let fingerprint = segment.packed_tool(tool.entry).fingerprint;
        Some(RenderedTool { name, json: segment.mcp_json(tool.entry)?, fingerprint })
    }

    /// Makes a tool from its own JSON, for meta tools and for tools under another name than in the catalogue.
    fn from_json(name: &str, json: String) -> RenderedTool {
        RenderedTool { name: name.to_owned(), fingerprint: Fingerprint::digest(&json), json: json.into() }
    }
}

#[cfg(test)]
mod tests {
    use toolcrib::catalog::Catalog;
    use toolcrib::config::Config;
    use toolcrib::{Registry, RegistryOptions};

    use super::*;
    use crate::view_cache::tests::{MASKS, full_view, masked_view, one_source_view, visible_names};

    async fn build_service(expose: Expose) -> McpService {
        McpService::new(Registry::open(Config::default(), RegistryOptions::default()).await.unwrap(), expose)
    }

    fn listed_names(list: &RenderedToolList) -> Vec<String> {
        list.tools.iter().map(|tool| tool.name.clone()).collect()
    }

    #[tokio::test]
    async fn clients_with_equal_views_share_listings_and_no_others() {
        let service = build_service(Expose::default()).await;
        let full = full_view(1);
        // Newest first in the cache, which holds fewer views than there are masks.
        for masks in [0..MASKS, 0..MASKS] {
            for mask in masks {
                let listings = service.listings_for(masked_view(&full, mask));
                let names = visible_names(&masked_view(&full, mask));
                assert_eq!(listed_names(listings.tool_list(ListingMode::Full).await), names);
                assert!(Arc::ptr_eq(&listings.parts, &service.listings_for(masked_view(&full, mask)).parts));
                let other = service.listings_for(masked_view(&full, mask ^ 1));
                assert!(!Arc::ptr_eq(&listings.parts, &other.parts));
                assert_ne!(listings.summary().await, other.summary().await);
            }
        }
    }

    #[tokio::test]
    async fn listings_of_another_catalogue_are_dropped_unless_they_show_the_same() {
        let service = build_service(Expose::default()).await;
        let (old, same, other) = (full_view(1), full_view(2), one_source_view(3));
        let shared = service.listings_for(masked_view(&old, 1));
        let unshared = Arc::downgrade(&service.listings_for(masked_view(&old, 2)).parts);
        assert!(Arc::ptr_eq(&shared.parts, &service.listings_for(masked_view(&same, 1)).parts));
        assert!(Arc::ptr_eq(&shared.parts, &service.listings_for(masked_view(&other, 1)).parts));
        service.listings_for(masked_view(&other, 4));
        assert!(unshared.upgrade().is_none());
    }

    #[tokio::test]
    async fn cached_listings_keep_no_catalogue_alive() {
        let service = build_service(Expose::default()).await;
        let catalog = Arc::new(Catalog::default());
        let replaced = Arc::downgrade(&catalog);
        service.listings_for(View::full(catalog)).tool_list(ListingMode::Full).await;
        assert!(replaced.upgrade().is_none());
    }

    #[tokio::test]
    async fn names_without_prefix_are_decided_on_the_whole_catalogue() {
        let service = build_service(Expose { prefix: false, ..Expose::default() }).await;
        let names = async |view| listed_names(service.listings_for(view).tool_list(ListingMode::Full).await);
        // Two sources have each of these tools, of which the view shows one.
        assert_eq!(names(masked_view(&full_view(1), 1)).await, ["git__push"]);
        assert_eq!(names(masked_view(&one_source_view(2), 1)).await, ["push"], "the same view of another catalogue");
    }
}
