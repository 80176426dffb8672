//! A catalogue as one caller may see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{CallSpec, Catalog, CatalogSource, PositionedSource, SegmentEntry};
use crate::error::Result;
use crate::execution::ExecutionSpec;
use crate::inventory::ToolState;
use crate::policy::Verdict;
use crate::source::SourceId;
use crate::tool::{Tool, ToolId, ToolName};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub name: String,
}

#[derive(Debug, Clone)]
pub struct View {
    pub catalog: Arc<Catalog>,
    pub caller: Caller,
}

/// One tool in its catalogue.
#[derive(Debug, Clone, Copy)]
pub struct ToolRef<'a> {
    pub catalog_source: &'a CatalogSource,
    pub entry: &'a SegmentEntry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    Active,
    Disabled,
}

impl ToolStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            ToolStatus::Active => "active",
            ToolStatus::Disabled => "disabled",
        }
    }
}

impl View {
    /// What somebody who manages tools sees: disabled ones too, hidden ones not.
    pub fn listed_tools(&self) -> impl Iterator<Item = ToolRef<'_>> {
        self.catalog.tools().filter(ToolRef::is_listed)
    }

    /// The names an agent may be offered, by their sources.
    pub fn by_source(&self) -> BTreeMap<SourceId, Vec<ToolName>> {
        let mut sources: BTreeMap<SourceId, Vec<ToolName>> = BTreeMap::new();
        for tool in self.offered_tools() {
            sources.entry(tool.source().clone()).or_default().push(tool.name().clone());
        }
        sources
    }

    /// What an agent may be offered.
    pub fn offered_tools(&self) -> impl Iterator<Item = ToolRef<'_>> {
        self.catalog.tools().filter(ToolRef::is_offered)
    }
}

impl Catalog {
    /// Every tool, in byte order of the names, built-ins among the others.
    pub fn tools(&self) -> impl Iterator<Item = ToolRef<'_>> {
        let mut builtin: Vec<ToolRef<'_>> = self.builtin_sources.iter().flat_map(PositionedSource::tools).collect();
        builtin.sort_by(|one, other| one.name().cmp(other.name()));
        let mut builtin = builtin.into_iter().peekable();
        let mut prefixed = self.prefixed_sources.iter().flat_map(PositionedSource::tools).peekable();
        std::iter::from_fn(move || match (builtin.peek(), prefixed.peek()) {
            (Some(one), Some(other)) if one.name() < other.name() => builtin.next(),
            (_, Some(_)) => prefixed.next(),
            (_, None) => builtin.next(),
        })
    }
}

impl PositionedSource {
    pub(super) fn tools(&self) -> impl Iterator<Item = ToolRef<'_>> {
        let part = &*self.source;
        let entries = part.segment.entries().iter().enumerate();
        entries
            .filter(|(index, _)| self.masked.binary_search(index).is_err())
            .map(|(_, entry)| ToolRef { catalog_source: part, entry })
    }
}

impl<'a> ToolRef<'a> {
    pub fn name(&self) -> &'a ToolName {
        &self.entry.name
    }

    pub fn source(&self) -> &'a SourceId {
        self.catalog_source.segment.source()
    }

    /// The source's own name for it.
    pub fn original_name(&self) -> &'a str {
        self.catalog_source.segment.original_name(self.entry)
    }

    pub fn id(&self) -> ToolId {
        ToolId { source: self.source().clone(), name: self.original_name().to_owned() }
    }

    /// Whether somebody who manages tools sees it.
    pub fn is_listed(&self) -> bool {
        self.verdict() != Verdict::Hide && !self.is_internal()
    }

    /// Whether an agent may be offered it.
    pub fn is_offered(&self) -> bool {
        self.is_listed() && self.status() == ToolStatus::Active
    }

    /// Whether a search may find it: one that every call refuses would only lead an agent astray.
    pub fn is_searchable(&self) -> bool {
        self.is_offered() && self.verdict() != Verdict::Deny
    }

    pub fn verdict(&self) -> Verdict {
        let shown = self.name().as_str();
        let shown = shown.strip_prefix(self.catalog_source.segment.prefix()).unwrap_or(shown);
        self.catalog_source.options.verdict(self.original_name(), shown)
    }

    pub fn is_internal(&self) -> bool {
        self.catalog_source.options.internal.contains(self.original_name())
    }

    pub fn status(&self) -> ToolStatus {
        if self.inventory_state().disabled { ToolStatus::Disabled } else { ToolStatus::Active }
    }

    pub fn inventory_state(&self) -> ToolState {
        self.catalog_source.tool_state(self.original_name())
    }

    /// The tool's content, parsed.
    pub fn tool(&self) -> Result<Tool> {
        self.catalog_source.segment.tool(self.entry)
    }

    /// What lies behind it, where this process carries it out itself. What a server says there counts for nothing.
    pub fn execution_spec(&self) -> Result<Option<ExecutionSpec>> {
        if !matches!(self.catalog_source.options.kind.as_str(), "openapi" | "workflow") {
            return Ok(None);
        }
        Ok(self.tool()?.parse_execution_spec().map(ExecutionSpec::sanitized))
    }

    /// The tool with what lists leave out: the whole input schema and the output schema.
    pub fn with_full_schemas(&self) -> Result<Tool> {
        let mut tool = self.tool()?;
        if let Some(ExecutionSpec { input_schema, output_schema, .. }) = self.execution_spec()? {
            tool.listing.input_schema = input_schema.unwrap_or(tool.listing.input_schema);
            tool.output_schema = tool.output_schema.or(output_schema);
        }
        Ok(tool)
    }

    pub fn call_spec(&self) -> Result<&'a Arc<CallSpec>> {
        self.catalog_source.segment.call_spec(self.entry)
    }
}
