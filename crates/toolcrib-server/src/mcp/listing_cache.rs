//! One catalogue as clients see it: its lists and its summary, each made once, by whoever needs it first, for all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::OnceCell;
use toolcrib::core::catalog::{Caller, Catalog, ToolRef, View};
use toolcrib::core::config::Expose;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::render::mcp;
use toolcrib::core::summary::SummaryBudget;
use toolcrib::core::tool::ToolName;

use super::McpService;
use super::meta_tools::META_TOOLS;

/// Which list a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListingMode {
    /// The menu, and what the configuration calls essential.
    Search,
    /// Every tool.
    Full,
}

/// The newest sight.
#[derive(Debug, Default)]
pub(super) struct ListingCache(ArcSwapOption<Listings>);

#[derive(Debug)]
pub(super) struct Listings {
    view: View,
    expose: Arc<Expose>,
    search: OnceCell<RenderedToolList>,
    full: OnceCell<RenderedToolList>,
    default_mode: OnceCell<ListingMode>,
    summary: OnceCell<String>,
}

/// A list of tools as one client gets it, in name order.
#[derive(Debug)]
pub(super) struct RenderedToolList {
    pub(super) tools: Vec<RenderedTool>,
    pub(super) fingerprint: Fingerprint,
    /// Whose names are shown otherwise than the catalogue has them.
    unprefixed: BTreeMap<String, ToolName>,
}

#[derive(Debug)]
pub(super) struct RenderedTool {
    pub(super) name: String,
    pub(super) json: Arc<str>,
    /// Of what the source offered.
    fingerprint: Fingerprint,
}

/// No text has as many bytes for each of its tokens: what is longer need not be counted to be known as too long.
const MAX_BYTES_PER_TOKEN: usize = 64;

impl McpService {
    /// The catalogue of this moment.
    pub(super) fn listings(&self) -> Arc<Listings> {
        let (catalog, expose) = (self.registry.catalog(), self.expose.borrow().clone());
        let newest = self.listing_cache.0.load_full();
        if let Some(listings) = newest.filter(|listings| listings.is_current(&catalog, &expose)) {
            return listings;
        }
        let view = View { catalog, caller: Caller { name: "mcp".into() } };
        let (search, full, usual, summary) = Default::default();
        let listings = Arc::new(Listings { view, expose, search, full, default_mode: usual, summary });
        self.listing_cache.0.store(Some(listings.clone()));
        listings
    }
}

impl Listings {
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// A catalogue that shows the same is the same.
    fn is_current(&self, catalog: &Arc<Catalog>, expose: &Arc<Expose>) -> bool {
        let same = Arc::ptr_eq(&self.view.catalog, catalog) || self.view.catalog.hash() == catalog.hash();
        same && Arc::ptr_eq(&self.expose, expose)
    }

    /// What a client gets that asks for nothing in particular. With nothing known yet it is the menu, which works
    /// for whatever will be discovered.
    pub(super) async fn default_mode(self: &Arc<Self>) -> ListingMode {
        self.get_or_compute(|listings| &listings.default_mode, Listings::choose_mode).await.to_owned()
    }

    /// What a system prompt should say about the tools there are.
    pub(super) async fn summary(self: &Arc<Self>) -> String {
        self.get_or_compute(
            |listings| &listings.summary,
            |listings| listings.view.summary_text(SummaryBudget::default()),
        )
        .await
        .to_owned()
    }

    pub(super) async fn tool_list(self: &Arc<Self>, kind: ListingMode) -> &RenderedToolList {
        match kind {
            ListingMode::Search => self.get_or_compute(|listings| &listings.search, Listings::build_search_list).await,
            ListingMode::Full => self.get_or_compute(|listings| &listings.full, Listings::build_full_list).await,
        }
    }

    /// A part of the sight, made now if nobody has, and once for all who wait. To render a long list or to count tokens
    /// takes a while, in which others want to be answered.
    async fn get_or_compute<T: Send + Sync + 'static>(
        self: &Arc<Self>,
        place: fn(&Listings) -> &OnceCell<T>,
        make: fn(&Listings) -> T,
    ) -> &T {
        let making = || async {
            let listings = self.clone();
            let made = tokio::task::spawn_blocking(move || make(&listings)).await;
            made.unwrap_or_else(|_| make(self))
        };
        place(self).get_or_init(making).await
    }

    /// Whether the whole list may be worth counting.
    pub(super) fn is_small(&self) -> bool {
        let most = self.max_full_tokens() * MAX_BYTES_PER_TOKEN;
        let mut bytes = 0;
        self.view.offered_tools().all(|tool| {
            bytes += tool.catalog_source.segment.listing_json(tool.entry).len();
            bytes <= most
        })
    }

    fn choose_mode(&self) -> ListingMode {
        let few = self.is_small() && (1..self.max_full_tokens()).contains(&self.view.full_token_count());
        if few { ListingMode::Full } else { ListingMode::Search }
    }

    fn max_full_tokens(&self) -> usize {
        self.expose.full_below_tokens as usize
    }

    fn build_search_list(&self) -> RenderedToolList {
        let menu = META_TOOLS.iter().map(|(name, tool)| RenderedTool::from_json(name, tool.to_string()));
        let essential = self.view.configured_essentials().filter_map(|tool| RenderedTool::from_tool(&tool));
        RenderedToolList::new(menu.chain(essential).collect(), BTreeMap::new())
    }

    fn build_full_list(&self) -> RenderedToolList {
        let mut renamed = BTreeMap::new();
        let free = if self.expose.prefix { BTreeSet::new() } else { self.unprefixed_names() };
        let listed = self.view.offered_tools().filter_map(|tool| {
            let own = ToolName::from_original("", tool.original_name());
            if !free.contains(own.as_str()) {
                return RenderedTool::from_tool(&tool);
            }
            renamed.insert(own.to_string(), tool.name().clone());
            let mut json = String::new();
            mcp::push_tool(own.as_str(), &tool.tool().ok()?, &mut json);
            Some(RenderedTool::from_json(own.as_str(), json))
        });
        let tools = listed.collect();
        RenderedToolList::new(tools, renamed)
    }

    /// The names that one tool alone would have without its prefix, and that nobody has in full.
    fn unprefixed_names(&self) -> BTreeSet<String> {
        let mut taken: BTreeSet<&str> = META_TOOLS.iter().map(|(name, _)| *name).collect();
        taken.extend(self.view.offered_tools().map(|tool| tool.name().as_str()));
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for tool in self.view.offered_tools() {
            *counts.entry(ToolName::from_original("", tool.original_name()).to_string()).or_default() += 1;
        }
        let free = counts.into_iter().filter(|(name, count)| *count == 1 && !taken.contains(name.as_str()));
        free.map(|(name, _)| name).collect()
    }

    /// The name in the catalogue for one that a client was shown.
    pub(super) async fn resolve_name(self: &Arc<Self>, name: &str) -> Option<ToolName> {
        if self.expose.prefix {
            return None;
        }
        self.tool_list(ListingMode::Full).await.unprefixed.get(name).cloned()
    }
}

impl RenderedToolList {
    fn new(mut tools: Vec<RenderedTool>, renamed: BTreeMap<String, ToolName>) -> RenderedToolList {
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        let mut text = String::with_capacity(tools.len() * 96);
        for tool in &tools {
            text.push_str(&format!("{} {}\n", tool.name, tool.fingerprint));
        }
        RenderedToolList { fingerprint: Fingerprint::digest(text), tools, unprefixed: renamed }
    }
}

impl RenderedTool {
    /// As its segment has it, made once. A tool that cannot be read is left out; `verify` tells of it.
    fn from_tool(tool: &ToolRef<'_>) -> Option<RenderedTool> {
        let segment = &tool.catalog_source.segment;
        let (name, fingerprint) = (tool.name().to_string(), segment.packed_tool(tool.entry).fingerprint);
        Some(RenderedTool { name, json: segment.mcp_json(tool.entry)?, fingerprint })
    }

    fn from_json(name: &str, json: String) -> RenderedTool {
        RenderedTool { name: name.to_owned(), fingerprint: Fingerprint::digest(&json), json: json.into() }
    }
}
