//! One catalogue as clients see it: its lists and its summary, each made once, by whoever needs it first, for all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::OnceCell;
use toolcrib::core::catalog::{Caller, Catalog, ToolRef, View};
use toolcrib::core::config::Expose;
use toolcrib::core::fingerprint::Fingerprint;
use toolcrib::core::render::mcp;
use toolcrib::core::summary::Budget;
use toolcrib::core::tool::ToolName;

use super::Surface;
use super::menu::MENU;

/// Which list a client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The menu, and what the configuration calls essential.
    Search,
    /// Every tool.
    Full,
}

/// The newest sight.
#[derive(Debug, Default)]
pub(super) struct Sights(ArcSwapOption<Sight>);

#[derive(Debug)]
pub(super) struct Sight {
    view: View,
    expose: Arc<Expose>,
    search: OnceCell<Listing>,
    full: OnceCell<Listing>,
    usual: OnceCell<Kind>,
    summary: OnceCell<String>,
}

/// A list of tools as one client gets it, in name order.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) tools: Vec<Listed>,
    pub(super) fingerprint: Fingerprint,
    /// Whose names are shown otherwise than the catalogue has them.
    renamed: BTreeMap<String, ToolName>,
}

#[derive(Debug)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) json: Arc<str>,
    /// Of what the source offered.
    fingerprint: Fingerprint,
}

/// No text has as many bytes for each of its tokens: what is longer need not be counted to be known as too long.
const LONGEST_TOKEN: usize = 64;

impl Surface {
    /// The catalogue of this moment.
    pub(super) fn sight(&self) -> Arc<Sight> {
        let (catalog, expose) = (self.registry.catalog(), self.expose.borrow().clone());
        let newest = self.sights.0.load_full();
        if let Some(sight) = newest.filter(|sight| sight.shows(&catalog, &expose)) {
            return sight;
        }
        let view = View { catalog, caller: Caller { name: "mcp".into() } };
        let (search, full, usual, summary) = Default::default();
        let sight = Arc::new(Sight { view, expose, search, full, usual, summary });
        self.sights.0.store(Some(sight.clone()));
        sight
    }
}

impl Sight {
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// A catalogue that shows the same is the same.
    fn shows(&self, catalog: &Arc<Catalog>, expose: &Arc<Expose>) -> bool {
        let same = Arc::ptr_eq(&self.view.catalog, catalog) || self.view.catalog.hash() == catalog.hash();
        same && Arc::ptr_eq(&self.expose, expose)
    }

    /// What a client gets that asks for nothing in particular. With nothing known yet it is the menu, which works
    /// for whatever will be discovered.
    pub(super) async fn usual(self: &Arc<Self>) -> Kind {
        self.made(|sight| &sight.usual, Sight::choose).await.to_owned()
    }

    /// What a system prompt should say about the tools there are.
    pub(super) async fn summary(self: &Arc<Self>) -> String {
        self.made(|sight| &sight.summary, |sight| sight.view.summary_text(Budget::default())).await.to_owned()
    }

    pub(super) async fn listing(self: &Arc<Self>, kind: Kind) -> &Listing {
        match kind {
            Kind::Search => self.made(|sight| &sight.search, Sight::search_listing).await,
            Kind::Full => self.made(|sight| &sight.full, Sight::full_listing).await,
        }
    }

    /// A part of the sight, made now if nobody has, and once for all who wait. To render a long list or to count tokens
    /// takes a while, in which others want to be answered.
    async fn made<T: Send + Sync + 'static>(
        self: &Arc<Self>,
        place: fn(&Sight) -> &OnceCell<T>,
        make: fn(&Sight) -> T,
    ) -> &T {
        let making = || async {
            let sight = self.clone();
            let made = tokio::task::spawn_blocking(move || make(&sight)).await;
            made.unwrap_or_else(|_| make(self))
        };
        place(self).get_or_init(making).await
    }

    /// Whether the whole list may be worth counting.
    pub(super) fn is_small(&self) -> bool {
        let most = self.most_tokens() * LONGEST_TOKEN;
        let mut bytes = 0;
        self.view.offered().all(|tool| {
            bytes += tool.part.segment.listed(tool.entry).len();
            bytes <= most
        })
    }

    fn choose(&self) -> Kind {
        let few = self.is_small() && (1..self.most_tokens()).contains(&self.view.tokens_full());
        if few { Kind::Full } else { Kind::Search }
    }

    fn most_tokens(&self) -> usize {
        self.expose.full_below_tokens as usize
    }

    fn search_listing(&self) -> Listing {
        let menu = MENU.iter().map(|(name, tool)| Listed::written(name, tool.to_string()));
        let essential = self.view.configured_essentials().filter_map(|tool| Listed::of(&tool));
        Listing::new(menu.chain(essential).collect(), BTreeMap::new())
    }

    fn full_listing(&self) -> Listing {
        let mut renamed = BTreeMap::new();
        let free = if self.expose.prefix { BTreeSet::new() } else { self.free_names() };
        let listed = self.view.offered().filter_map(|tool| {
            let own = ToolName::plain("", tool.original());
            if !free.contains(own.as_str()) {
                return Listed::of(&tool);
            }
            renamed.insert(own.to_string(), tool.name().clone());
            let mut json = String::new();
            mcp::push(own.as_str(), &tool.tool().ok()?, &mut json);
            Some(Listed::written(own.as_str(), json))
        });
        let tools = listed.collect();
        Listing::new(tools, renamed)
    }

    /// The names that one tool alone would have without its prefix, and that nobody has in full.
    fn free_names(&self) -> BTreeSet<String> {
        let mut taken: BTreeSet<&str> = MENU.iter().map(|(name, _)| *name).collect();
        taken.extend(self.view.offered().map(|tool| tool.name().as_str()));
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for tool in self.view.offered() {
            *counts.entry(ToolName::plain("", tool.original()).to_string()).or_default() += 1;
        }
        let free = counts.into_iter().filter(|(name, count)| *count == 1 && !taken.contains(name.as_str()));
        free.map(|(name, _)| name).collect()
    }

    /// The name in the catalogue for one that a client was shown.
    pub(super) async fn resolve(self: &Arc<Self>, name: &str) -> Option<ToolName> {
        if self.expose.prefix {
            return None;
        }
        self.listing(Kind::Full).await.renamed.get(name).cloned()
    }
}

impl Listing {
    fn new(mut tools: Vec<Listed>, renamed: BTreeMap<String, ToolName>) -> Listing {
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        let mut text = String::with_capacity(tools.len() * 96);
        for tool in &tools {
            text.push_str(&format!("{} {}\n", tool.name, tool.fingerprint));
        }
        Listing { fingerprint: Fingerprint::of(text), tools, renamed }
    }
}

impl Listed {
    /// As its segment has it, made once. A tool that cannot be read is left out; `verify` tells of it.
    fn of(tool: &ToolRef<'_>) -> Option<Listed> {
        let segment = &tool.part.segment;
        let (name, fingerprint) = (tool.name().to_string(), segment.stored(tool.entry).fingerprint);
        Some(Listed { name, json: segment.mcp(tool.entry)?, fingerprint })
    }

    fn written(name: &str, json: String) -> Listed {
        Listed { name: name.to_owned(), fingerprint: Fingerprint::of(&json), json: json.into() }
    }
}
