//! Names that agents see of the tools of one source: of those in the catalogue, and of those that it does not have because
//! they were removed or their source is disabled.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use toolcrib_catalog::Segment;
use toolcrib_core::SourceId;
use toolcrib_core::inventory::SourceState;
use toolcrib_core::tool::{ToolName, name_prefix};

use super::Snapshot;

/// Names of the tools of one source, by the source's own names.
#[derive(Debug)]
pub(crate) struct SourceToolNames<'a> {
    segment: Option<&'a Arc<Segment>>,
    state: Option<&'a Arc<SourceState>>,
    prefix: String,
    /// Names by the inventory, derived when the first tool that is not in the catalogue is asked for.
    recorded: OnceCell<HashMap<&'a str, ToolName>>,
}

impl Snapshot {
    /// Returns the names that agents see of the tools of a source.
    pub(crate) fn tool_names(&self, id: &SourceId) -> SourceToolNames<'_> {
        let segment = self.catalog.source(id).map(|source| &source.segment);
        let state = self.inventory.source(id).or_else(|| self.inventory.removed_source(id));
        let prefix = name_prefix(id, state.map_or("", |state| &state.kind));
        let prefix = segment.map_or(prefix, |segment| segment.prefix().to_owned());
        SourceToolNames { segment, state, prefix, recorded: OnceCell::new() }
    }
}

impl SourceToolNames<'_> {
    /// Returns the name of a tool.
    pub(crate) fn name(&self, original: &str) -> ToolName {
        let position = self.segment.and_then(|segment| segment.position_of_original(original));
        let entry = self.segment.zip(position).and_then(|(segment, position)| segment.entries().get(position));
        if let Some(entry) = entry {
            return entry.name.clone();
        }
        let derive = || self.state.map(|state| state.tool_names(&self.prefix)).unwrap_or_default();
        let recorded = self.recorded.get_or_init(derive).get(original);
        recorded.cloned().unwrap_or_else(|| ToolName::from_original(&self.prefix, original))
    }
}
