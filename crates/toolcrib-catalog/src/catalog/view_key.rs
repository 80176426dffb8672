//! [`ViewKey`]: digest of everything that can be read through a view.
//!
//! It covers the visible tools one by one: what happens to other tools does not change it, and views that show the same
//! have the same key, whether they leave out tools or not. The digests of a source are kept with it, so that a catalogue
//! with one changed source costs the digest of that source.

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
    /// Key and list digest of the full view, computed on first use.
    pub(super) fn full_digests(&self) -> (ViewKey, Fingerprint) {
        *self.view_caches.full_digests.get_or_init(|| view_digests(VisibleTools::all(self), None))
    }
}

impl CatalogSource {
    /// Options that affect the details of tools and the search, without those in the list digest.
    fn details_text(&self) -> String {
        let about = &self.segment.packed().about;
        let SourceOptions { kind, title, internal, .. } = &self.options;
        format!("{kind}\0{title:?}\0{about:?}\0{internal:?}")
    }
}

/// Digests of the visible tools of one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceDigests {
    /// Of what lists of tools show.
    lists: Fingerprint,
    /// Of everything else.
    details: Fingerprint,
}

/// Returns key and list digest of a view. `essential` replaces the globs of the configuration.
pub(super) fn view_digests(tools: VisibleTools<'_>, essential: Option<&[String]>) -> (ViewKey, Fingerprint) {
    let catalog = tools.catalog;
    let globs = essential.unwrap_or(&catalog.essential_globs);
    let is_configured = catalog.essential_configured || essential.is_some();
    let mut lists = format!("{globs:?} {:?} {is_configured}", catalog.essential_patterns);
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
                // A list of an older version may be stored in another form under the same fingerprint.
                push(&mut details, format_args!(" {}", source.segment.packed().tool_text(packed).len()));
            }
            // Only a full view shows which tools are not in the catalogue.
            if self.scope.is_none() && !(source.segment.skipped().is_empty() && self.shadowed.is_empty()) {
                push(&mut details, format_args!(" {:?} {:?}", source.segment.skipped(), self.shadowed));
            }
            SourceDigests { lists: Fingerprint::digest(lists), details: Fingerprint::digest(details) }
        };
        match self.scope {
            Some(scope) => *scope.digests.get_or_init(compute),
            // Which tools are shadowed depends on the catalogue.
            None if self.shadowed.is_empty() => *self.source.full_digests.get_or_init(compute),
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
