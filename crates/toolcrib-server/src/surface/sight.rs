//! One catalogue as clients see it: its lists and its summary, each made once, by whoever needs it first, for all.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
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
    search: OnceLock<Listing>,
    full: OnceLock<Listing>,
    usual: OnceLock<Kind>,
    summary: OnceLock<String>,
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
    pub(super) json: String,
}

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

    fn shows(&self, catalog: &Arc<Catalog>, expose: &Arc<Expose>) -> bool {
        Arc::ptr_eq(&self.view.catalog, catalog) && Arc::ptr_eq(&self.expose, expose)
    }

    /// What a client gets that asks for nothing in particular. With nothing known yet it is the menu, which works
    /// for whatever will be discovered.
    pub(super) async fn usual(self: &Arc<Self>) -> Kind {
        self.made(|sight| &sight.usual, Sight::choose).await.to_owned()
    }

    /// What a system prompt should say about the tools there are.
    pub(super) async fn summary(self: &Arc<Self>) -> String {
        self.made(|sight| &sight.summary, |sight| sight.view.summary(Budget::default()).text).await.to_owned()
    }

    pub(super) async fn listing(self: &Arc<Self>, kind: Kind) -> &Listing {
        match kind {
            Kind::Search => self.made(|sight| &sight.search, Sight::search_listing).await,
            Kind::Full => self.made(|sight| &sight.full, Sight::full_listing).await,
        }
    }

    /// A part of the sight, made now if nobody has. To render a long list or to count tokens takes a while, in which
    /// others want to be answered.
    async fn made<T: Send + Sync + 'static>(
        self: &Arc<Self>,
        place: fn(&Sight) -> &OnceLock<T>,
        make: fn(&Sight) -> T,
    ) -> &T {
        if place(self).get().is_none() {
            let sight = self.clone();
            let making = move || {
                place(&sight).get_or_init(|| make(&sight));
            };
            // Should it fail, the next line tries again.
            let _made = tokio::task::spawn_blocking(making).await;
        }
        place(self).get_or_init(|| make(self))
    }

    fn choose(&self) -> Kind {
        let tokens = self.view.tokens_full();
        let few = tokens > 0 && tokens < self.expose.full_below_tokens as usize;
        if few { Kind::Full } else { Kind::Search }
    }

    fn search_listing(&self) -> Listing {
        let menu = MENU.iter().map(|(name, tool)| Listed { name: (*name).to_owned(), json: tool.to_string() });
        let essential = self.view.configured_essentials().filter_map(|tool| listed(&tool, tool.name().as_str()));
        Listing::new(menu.chain(essential).collect(), BTreeMap::new())
    }

    fn full_listing(&self) -> Listing {
        let mut renamed = BTreeMap::new();
        let bare = if self.expose.prefix { BTreeMap::new() } else { self.bare_names() };
        let listed = self.view.offered().filter_map(|tool| {
            let own = ToolName::plain("", tool.original());
            match bare.get(own.as_str()) {
                Some(1) => {
                    renamed.insert(own.to_string(), tool.name().clone());
                    listed(&tool, own.as_str())
                }
                _ => listed(&tool, tool.name().as_str()),
            }
        });
        let tools = listed.collect();
        Listing::new(tools, renamed)
    }

    /// How often each name would occur without its prefix. Those of the menu are taken.
    fn bare_names(&self) -> BTreeMap<String, usize> {
        let mut names: BTreeMap<String, usize> = MENU.iter().map(|(name, _)| ((*name).to_owned(), 1)).collect();
        for tool in self.view.offered() {
            *names.entry(ToolName::plain("", tool.original()).to_string()).or_default() += 1;
            // A name that another tool has in full is taken too.
            if tool.part.segment.prefix().is_empty() {
                continue;
            }
            if let Some(count) = names.get_mut(tool.name().as_str()) {
                *count += 1;
            }
        }
        names
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
        let texts: Vec<&str> = tools.iter().map(|tool| tool.json.as_str()).collect();
        Listing { fingerprint: Fingerprint::of(texts.join("\n")), tools, renamed }
    }
}

/// A tool that cannot be read is left out; `verify` tells of it.
fn listed(tool: &ToolRef<'_>, name: &str) -> Option<Listed> {
    let mut json = String::new();
    mcp::push(name, &tool.tool().ok()?, &mut json);
    Some(Listed { name: name.to_owned(), json })
}
