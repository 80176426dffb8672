//! [`ViewKey`]: digest of everything that can be read through a view.
//!
//! The key of a full view covers whole sources, whose digests are kept with them, so that a catalogue with one changed
//! source costs the digest of that source. The key of a restricted view covers its visible tools one by one: what
//! happens to the others does not change it.

use std::fmt::{self, Write};

use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::ToolState;

use super::view::{VisibleSource, VisibleTools};
use super::{Catalog, CatalogSource, SourceOptions};

/// Digest of everything that can be read through a view. See [`View::key`](super::View::key).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ViewKey(Fingerprint);

impl fmt::Display for ViewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Catalog {
    /// Key of the full view, computed on first use.
    pub(super) fn view_key(&self) -> ViewKey {
        *self.view_caches.full_key.get_or_init(|| {
            let mut text = format!("full {} {:?}", self.hash(), self.search_model);
            for source in self.sources() {
                push(&mut text, format_args!(" {}", source.details_digest()));
            }
            ViewKey(Fingerprint::digest(text))
        })
    }
}

impl CatalogSource {
    /// Digest of what responses show of the source and its tools, and what [`CatalogSource::digest`] leaves out because
    /// lists for agents do not have it.
    fn details_digest(&self) -> Fingerprint {
        *self.details_digest.get_or_init(|| {
            let mut text = self.details_text();
            // In a restricted view, the verdicts of the visible tools are part of their digests.
            push(&mut text, format_args!("\0{:?}", self.options.verdicts));
            for tool in &self.segment.packed().tools {
                push_details(&mut text, self.tool_state(&tool.name));
            }
            Fingerprint::digest(text)
        })
    }

    /// Options that affect the details of tools and the search, without those in the list digest.
    fn details_text(&self) -> String {
        let about = &self.segment.packed().about;
        let revision = self.segment.revision();
        let SourceOptions { kind, title, internal, .. } = &self.options;
        format!("{kind}\0{title:?}\0{about:?}\0{internal:?}\0{revision}")
    }
}

/// Digests of the visible tools of one source in a restricted view.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceDigests {
    /// Of what lists of tools show.
    lists: Fingerprint,
    /// Of everything else.
    details: Fingerprint,
}

/// Returns key and list digest of a restricted view. `essential` replaces the globs of the configuration.
pub(super) fn restricted_key(tools: VisibleTools<'_>, essential: Option<&[String]>) -> (ViewKey, Fingerprint) {
    let catalog = tools.catalog;
    let globs = essential.unwrap_or(&catalog.essential_globs);
    let is_configured = catalog.essential_configured || essential.is_some();
    let mut lists = format!("restricted {globs:?} {:?} {is_configured}", catalog.essential_patterns);
    let mut details = format!("{:?} {}", catalog.search_model, essential.is_some());
    for visible in tools.sources() {
        let digests = visible.digests();
        push(&mut lists, format_args!("\n{}", digests.lists));
        push(&mut details, format_args!("\n{}", digests.details));
    }
    let hash = Fingerprint::digest(lists);
    (ViewKey(Fingerprint::digest(format!("{hash}{details}"))), hash)
}

impl VisibleSource<'_> {
    /// Digests of the visible tools, computed once per source and scope.
    fn digests(self) -> SourceDigests {
        let compute = || {
            let source = self.source;
            let SourceOptions { tags, essential, .. } = &source.options;
            let mut lists = format!("{} {tags:?} {essential:?}", source.segment.source());
            let mut details = source.details_text();
            for tool in self.tools() {
                let state = tool.inventory_state();
                let packed = source.segment.packed_tool(tool.entry);
                let (name, original_name, verdict) = (tool.name(), &packed.name, tool.verdict().as_str());
                push(
                    &mut lists,
                    format_args!("\0{name} {} {verdict} {original_name:?} {}", state.disabled, packed.fingerprint),
                );
                push_details(&mut details, state);
            }
            SourceDigests { lists: Fingerprint::digest(lists), details: Fingerprint::digest(details) }
        };
        match self.scope {
            Some(scope) => *scope.digests.get_or_init(compute),
            None => compute(),
        }
    }
}

/// Appends what the fingerprint of a tool does not cover: its dates, which lists for people show.
fn push_details(text: &mut String, state: ToolState) {
    push(text, format_args!(" {} {}", state.created_at.0, state.updated_at.0));
}

/// Appends formatted text.
fn push(text: &mut String, arguments: fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = text.write_fmt(arguments);
}
