//! Tools that their source no longer offers, with their last definitions. The inventory knows the last manifest that had
//! a removed tool; manifests stay in the store, so its definition is read from there on request.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};
use toolcrib_catalog::filter::{StateFilter, ToolFilter, ToolOrder};
use toolcrib_catalog::render::ListPosition;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::history::ToolMatcher;
use toolcrib_core::inventory::{SourceState, ToolState};
use toolcrib_core::json::RawFields;
use toolcrib_core::policy::Verdict;
use toolcrib_core::principal::Principal;
use toolcrib_core::text::sanitize;
use toolcrib_core::tool::{ToolName, name_prefix};
use toolcrib_core::{Code, Result, ResultExt, Source, SourceId, Timestamp, ToolId};

use super::{ExecutionView, History, ToolView, Visibility};
use crate::connector::run_blocking;
use crate::store::CallCount;

/// How long a reader waits for the manifest of a removed tool. The inventory answers without it.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// A tool that its source no longer offers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RemovedTool {
    /// Name that agents used.
    pub name: ToolName,
    /// Source that offered the tool.
    pub source: SourceId,
    /// Kind of the source: `mcp`, `openapi`, `workflow` or `builtin`.
    pub kind: String,
    /// The source's own name for the tool.
    pub original_name: String,
    /// When the tool was first seen and last changed; the last change is its removal.
    pub history: ToolState,
    /// Verdict of the source's rules.
    pub policy: Verdict,
    /// Calls so far.
    pub usage: CallCount,
    /// Last definition; `None` if it cannot be read from the store, or was not read yet.
    pub definition: Option<ToolView>,
    /// Tokens of the last definition; `None` if they were not counted.
    pub tokens: Option<u32>,
    /// Last manifest with the tool.
    manifest: Option<Fingerprint>,
    /// Current declaration of the source.
    declaration: Option<Arc<Source>>,
}

/// A tool that was found by its name.
#[derive(Debug, Clone)]
pub enum FoundTool {
    /// A tool that its source offers, or offered at the requested time.
    Offered(Box<ToolView>),
    /// A tool that its source no longer offers.
    Removed(Box<RemovedTool>),
}

impl FoundTool {
    /// Returns the definition; `None` for a removed tool whose definition is lost.
    pub fn definition(&self) -> Option<&ToolView> {
        match self {
            FoundTool::Offered(tool) => Some(tool),
            FoundTool::Removed(tool) => tool.definition.as_ref(),
        }
    }

    /// Returns the tool as JSON, with all details.
    pub fn to_json(&self) -> Result<Box<RawValue>> {
        match self {
            FoundTool::Offered(tool) => tool.to_json(),
            FoundTool::Removed(tool) => tool.to_json(),
        }
    }
}

/// Which removed tools to read, in which order.
#[derive(Debug, Clone)]
pub struct RemovedToolsQuery<'a> {
    /// The reader: denied and hidden tools are for administrators alone.
    pub principal: &'a Principal,
    /// Conditions on the tools; the one on the state is ignored.
    pub filter: &'a ToolFilter,
    /// Order of the list.
    pub order: ToolOrder,
    /// Position behind which the page begins.
    pub after: Option<&'a ListPosition>,
    /// Maximum number of tools.
    pub limit: usize,
}

/// A page of removed tools.
#[derive(Debug, Clone)]
pub struct RemovedToolsPage {
    /// The tools with their last definitions.
    pub tools: Vec<RemovedTool>,
    /// Position of the last tool, if more follow.
    pub last: Option<ListPosition>,
    /// Sequence number of the last record that the page shows.
    pub position: u64,
    /// Hash of the tools that are offered at this position, as the reader sees them.
    pub inventory_hash: Fingerprint,
}

impl History<'_> {
    /// Returns a removed tool by any spelling of its name, with its last definition. `None` if no source ever offered
    /// it, it is offered now, or the principal may not see it; `FORBIDDEN` if it is denied. Reads the store.
    pub async fn removed_tool(&self, principal: &Principal, name: &str) -> Result<Option<RemovedTool>> {
        let visibility = self.registry.visibility(principal);
        let inventory = &visibility.snapshot().inventory;
        let matcher = visibility.match_tool(inventory, name, |tool| tool.deprecated)?;
        let ToolMatcher::Tool(ToolId { source, name }) = matcher else { return Ok(None) };
        if !visibility.shows_source(&source) {
            return Ok(None);
        }
        let Some(state) = inventory.source(&source) else { return Ok(None) };
        let Some(tool) = state.tools.get(&name) else { return Ok(None) };
        let shown_name = visibility.snapshot().tool_names(&source).name(&name);
        let mut found = vec![self.describe_removed(&visibility, &source, state, &name, shown_name, *tool)];
        self.load_definitions(&mut found).await?;
        Ok(found.pop())
    }

    /// Returns a tool by any spelling of its name as a principal may see it, see
    /// [`Registry::tool_for`](super::Registry::tool_for); a removed one with its last definition, for which it reads the
    /// store.
    pub async fn find_tool(&self, principal: &Principal, name: &str) -> Result<FoundTool> {
        let error = match self.registry.tool_for(principal, name) {
            Ok(tool) => return Ok(FoundTool::Offered(Box::new(tool))),
            Err(error) if error.code == Code::ToolNotImplemented => error,
            Err(error) => return Err(error),
        };
        let removed = self.removed_tool(principal, name).await?;
        removed.map(|tool| FoundTool::Removed(Box::new(tool))).ok_or(error)
    }

    /// Returns a page of removed tools with their last definitions. Reads the store.
    pub async fn removed_tools(&self, query: &RemovedToolsQuery<'_>) -> Result<RemovedToolsPage> {
        let RemovedToolsQuery { principal, filter, order, after, limit } = query;
        let visibility = self.registry.visibility(principal);
        let sources = visibility.snapshot().inventory.sources().filter(|(id, state)| {
            filter.source.as_ref().is_none_or(|source| source == *id)
                && filter.accepts_kind(&state.kind)
                && visibility.shows_source(id)
        });
        let mut tools: Vec<RemovedTool> = Vec::new();
        for (id, state) in sources {
            let deprecated = state.tools.iter().filter(|(_, tool)| tool.deprecated);
            let visible = deprecated.filter(|(name, _)| visibility.shows_tool(id, name));
            let names = visibility.snapshot().tool_names(id);
            let removed = visible
                .map(|(name, tool)| self.describe_removed(&visibility, id, state, name, names.name(name), *tool));
            tools.extend(removed.filter(|tool| tool.accepts_names(filter)));
        }
        // Definitions are read for the page alone, unless they decide what is on it.
        let needs_definitions = filter.tag.is_some() || *order == ToolOrder::Tokens;
        if needs_definitions {
            self.load_definitions(&mut tools).await?;
            tools.retain(|tool| filter.accepts_tags(tool.tags().iter().map(String::as_str)));
        }
        let rank = |tool: &RemovedTool| match order {
            ToolOrder::Name => 0,
            ToolOrder::Tokens => u64::from(tool.tokens.unwrap_or_default()),
            ToolOrder::Calls => tool.usage.calls,
        };
        tools.retain(|tool| after.is_none_or(|after| after.is_before(rank(tool), tool.name.as_str())));
        tools.sort_by(|a, b| (Reverse(rank(a)), &a.name).cmp(&(Reverse(rank(b)), &b.name)));
        let has_more = tools.len() > *limit;
        tools.truncate(*limit);
        if !needs_definitions {
            self.load_definitions(&mut tools).await?;
        }
        let position = |tool: &RemovedTool| ListPosition { rank: rank(tool), name: tool.name.to_string() };
        let last = tools.last().filter(|_| has_more).map(position);
        let position = visibility.snapshot().inventory.version;
        Ok(RemovedToolsPage { tools, last, position, inventory_hash: visibility.view().hash() })
    }

    /// Collects what the inventory knows of a removed tool.
    fn describe_removed(
        &self,
        visibility: &Visibility,
        id: &SourceId,
        state: &SourceState,
        original: &str,
        name: ToolName,
        history: ToolState,
    ) -> RemovedTool {
        let declaration = self.registry.sources().effective(id);
        let tool = ToolId { source: id.clone(), name: original.to_owned() };
        RemovedTool {
            name,
            source: id.clone(),
            kind: state.kind.clone(),
            original_name: original.to_owned(),
            history,
            policy: visibility.verdict(id, original),
            usage: self.registry.dispatcher.monitoring.usage.tool_count(&tool),
            definition: None,
            tokens: None,
            manifest: state.last_manifests.get(original).copied(),
            declaration,
        }
    }

    /// Reads the last definitions of tools, each manifest once. A manifest that is no longer in the store, or cannot be
    /// read now, leaves its tools without a definition.
    async fn load_definitions(&self, tools: &mut [RemovedTool]) -> Result<()> {
        let mut manifests: Vec<(Fingerprint, bool)> =
            tools.iter().filter_map(|tool| Some((tool.manifest?, tool.kind == "builtin"))).collect();
        manifests.sort_unstable();
        manifests.dedup();
        for (manifest, is_builtin) in manifests {
            let segment = match tokio::time::timeout(READ_TIMEOUT, self.load_segment(manifest, is_builtin)).await {
                Ok(Ok(segment)) => Arc::new(segment),
                Ok(Err(error)) if matches!(error.code, Code::NotFound | Code::StoreUnavailable) => continue,
                Ok(Err(error)) => return Err(error),
                Err(_) => break,
            };
            if !segment.has_token_counts() {
                let uncounted = segment.clone();
                run_blocking(move || {
                    uncounted.with_token_counts();
                    Ok(())
                })
                .await?;
            }
            for tool in tools.iter_mut().filter(|tool| tool.manifest == Some(manifest)) {
                let position = segment.position_of_original(&tool.original_name);
                let Some(entry) = position.and_then(|position| segment.entries().get(position)) else { continue };
                tool.tokens = segment.listed_token_count(entry);
                let declaration = tool.declaration.clone();
                let mut view = ToolView::from_removed(&segment, entry, &tool.kind, tool.history, declaration)?;
                view.policy = Some(tool.policy);
                view.usage = Some(tool.usage.clone());
                tool.definition = Some(view);
            }
        }
        Ok(())
    }
}

impl RemovedTool {
    /// When its source ceased to offer the tool.
    pub fn removed_at(&self) -> Timestamp {
        self.history.updated_at
    }

    /// Tags of the source, then those of the last definition.
    pub fn tags(&self) -> Vec<String> {
        let of_source = || self.declaration.as_ref().map(|source| source.settings.tags.clone()).unwrap_or_default();
        self.definition.as_ref().map_or_else(of_source, ToolView::tags)
    }

    fn accepts_names(&self, filter: &ToolFilter) -> bool {
        let prefix = name_prefix(&self.source, &self.kind);
        filter.accepts_names(&[self.name.as_str(), self.name.without_prefix(&prefix), &self.original_name])
    }

    /// Returns the entry of a list: the fields of any tool, with the time of its removal. Those of the definition are
    /// `null` if it is lost.
    pub fn to_list_json(&self) -> Result<Box<RawValue>> {
        self.list_fields().and_then(|fields| to_raw_value(&fields)).context(Code::Internal, "write a tool as JSON")
    }

    /// Returns the tool with all details, as for a current one.
    pub fn to_json(&self) -> Result<Box<RawValue>> {
        self.detail_fields().and_then(|fields| to_raw_value(&fields)).context(Code::Internal, "write a tool as JSON")
    }

    fn list_fields(&self) -> serde_json::Result<RawFields> {
        let listing = self.definition.as_ref().map(|view| &view.tool.listing);
        let original_name = sanitize(&self.original_name);
        let mut fields = RawFields::default();
        fields.insert("id", to_raw_value(&format!("{}:{original_name}", self.source))?);
        fields.insert("name", to_raw_value(&self.name)?);
        fields.insert("source", to_raw_value(&self.source)?);
        fields.insert("original_name", to_raw_value(&original_name)?);
        fields.insert("kind", to_raw_value(&self.kind)?);
        fields.insert("title", to_raw_value(&listing.and_then(|listing| listing.title.as_ref()))?);
        fields.insert("description", to_raw_value(&listing.map(|listing| &listing.description))?);
        fields.insert("input_schema", to_raw_value(&listing.map(|listing| &listing.input_schema))?);
        fields.insert("annotations", to_raw_value(&listing.and_then(|listing| listing.annotations.as_ref()))?);
        fields.insert("tags", to_raw_value(&self.tags())?);
        fields.insert("policy", to_raw_value(&self.policy)?);
        fields.insert("enabled", to_raw_value(&!self.history.disabled)?);
        fields.insert("state", to_raw_value(StateFilter::Deprecated.as_str())?);
        fields.insert("held", to_raw_value(&())?);
        fields.insert("tokens", to_raw_value(&self.tokens)?);
        fields.insert("fingerprint", to_raw_value(&self.definition.as_ref().map(|view| view.fingerprint))?);
        fields.insert("created_at", to_raw_value(&self.history.created_at)?);
        fields.insert("updated_at", to_raw_value(&self.history.updated_at)?);
        fields.insert("removed_at", to_raw_value(&self.removed_at())?);
        Ok(fields)
    }

    fn detail_fields(&self) -> serde_json::Result<RawFields> {
        let mut fields = self.list_fields()?;
        let lost = || vec!["its last definition cannot be read from the store".to_owned()];
        let execution = self.definition.as_ref().map_or_else(ExecutionView::default, ToolView::execution);
        fields.insert("output_schema", to_raw_value(&self.definition.as_ref().and_then(ToolView::output_schema))?);
        fields.insert("execution", to_raw_value(&execution)?);
        fields.insert("notes", to_raw_value(&self.definition.as_ref().map_or_else(lost, ToolView::notes))?);
        self.usage.insert_into(&mut fields)?;
        Ok(fields)
    }
}
