//! [`ToolRef`]: one tool in a catalogue, with what its source's options and state say about it.

use std::sync::Arc;

use serde::Serialize;
use toolcrib_core::access_rules::RiskSet;
use toolcrib_core::error::Result;
use toolcrib_core::execution::ExecutionSpec;
use toolcrib_core::inventory::ToolState;
use toolcrib_core::manifest::OperationTraits;
use toolcrib_core::policy::{Rule, Verdict};
use toolcrib_core::source::SourceId;
use toolcrib_core::tool::{Tool, ToolId, ToolName};

use super::{CallSpec, CatalogSource, SegmentEntry};

/// Reference to a tool in a catalogue. Cheap to copy; parses nothing.
#[derive(Debug, Clone, Copy)]
pub struct ToolRef<'a> {
    pub catalog_source: &'a CatalogSource,
    pub entry: &'a SegmentEntry,
    /// Strictest verdict of the policies that apply to the caller; `allow` without any.
    pub policy_verdict: Verdict,
}

/// Whether a tool is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    Active,
    Disabled,
}

// Names in JSON lists.
toolcrib_core::name_variants!(ToolStatus { Active => "active", Disabled => "disabled" });

impl<'a> ToolRef<'a> {
    /// Name in the catalogue.
    pub fn name(&self) -> &'a ToolName {
        &self.entry.name
    }

    /// Id of its source.
    pub fn source(&self) -> &'a SourceId {
        self.catalog_source.segment.source()
    }

    /// The source's own name for the tool.
    pub fn original_name(&self) -> &'a str {
        self.catalog_source.segment.original_name(self.entry)
    }

    /// Name in the catalogue without the prefix `source__`.
    pub fn unprefixed_name(&self) -> &'a str {
        self.entry.name.without_prefix(self.catalog_source.segment.prefix())
    }

    /// Identity of the tool: source and original name.
    pub fn id(&self) -> ToolId {
        ToolId { source: self.source().clone(), name: self.original_name().to_owned() }
    }

    /// Whether users who manage tools see it: denied and hidden ones too, with their policy.
    pub fn is_listed(&self) -> bool {
        !self.is_internal()
    }

    /// Whether agents see it. Denied tools are left out: every call to them fails, and an agent that saw one would spend
    /// a call on it.
    pub fn is_offered(&self) -> bool {
        self.verdict() < Verdict::Deny && !self.is_internal() && self.status() == ToolStatus::Active
    }

    /// Whether it is offered to models, in search, summaries and provider formats. Tools for the views of MCP Apps alone
    /// are offered to MCP clients, which pass them to those views.
    pub fn is_for_models(&self) -> bool {
        self.is_offered() && !self.is_app_only()
    }

    /// Whether it is for the views of MCP Apps alone, see [`Tool::is_app_only`].
    pub fn is_app_only(&self) -> bool {
        self.catalog_source.segment.traits(self.entry).app_only
    }

    /// Tags of the source, then those of the tool itself, without duplicates.
    pub fn tags(&self) -> impl Iterator<Item = &'a str> {
        let source = &self.catalog_source.options.tags;
        // As in `execution_spec`: what an MCP server sends in that field is untrusted and ignored.
        let own: &'a [String] = if self.has_execution_spec() {
            &self.catalog_source.segment.traits(self.entry).tags
        } else {
            Default::default()
        };
        source.iter().chain(own.iter().filter(|tag| !source.contains(tag))).map(String::as_str)
    }

    /// Tokens of the tool as MCP lists it; `None` if they were not counted yet.
    pub fn tokens(&self) -> Option<u32> {
        self.catalog_source.segment.listed_token_count(self.entry)
    }

    /// Method and path of an OpenAPI operation.
    pub fn operation(&self) -> Option<&'a OperationTraits> {
        let operation = || self.catalog_source.segment.traits(self.entry).operation.as_ref();
        if self.has_execution_spec() { operation() } else { None }
    }

    /// Risks of calling the tool: of an operation by its method, of others by their hints if those are trusted.
    pub fn risk(&self) -> RiskSet {
        match self.operation() {
            Some(operation) => RiskSet::of_method(&operation.method),
            None if self.catalog_source.options.trust_hints => {
                self.catalog_source.segment.traits(self.entry).hints.into()
            }
            None => RiskSet::UNKNOWN,
        }
    }

    /// Verdict on the tool: the strictest of its source's rules and of the policies for the caller.
    pub fn verdict(&self) -> Verdict {
        self.source_verdict().max(self.policy_verdict)
    }

    /// Verdict of the source's own rules.
    pub fn source_verdict(&self) -> Verdict {
        self.catalog_source.options.verdict(self.original_name(), self.unprefixed_name())
    }

    /// Rule of the source that led to its [`source_verdict`](ToolRef::source_verdict); `None` if it is the default.
    pub fn deciding_rule(&self) -> Option<&'a Rule> {
        self.catalog_source.options.deciding_rule(self.original_name(), self.unprefixed_name())
    }

    /// Whether it is a built-in tool that appears in no list.
    pub fn is_internal(&self) -> bool {
        self.catalog_source.options.internal.contains(self.original_name())
    }

    /// Whether it is enabled.
    pub fn status(&self) -> ToolStatus {
        if self.inventory_state().disabled { ToolStatus::Disabled } else { ToolStatus::Active }
    }

    /// State of the tool in the inventory: enabled or not, when created and updated.
    pub fn inventory_state(&self) -> ToolState {
        self.catalog_source.tool_state(self.original_name())
    }

    /// Parses the stored tool. Parses on each call; lists use the stored text instead where they can.
    pub fn tool(&self) -> Result<Tool> {
        self.catalog_source.segment.tool(self.entry)
    }

    /// Returns how Toolcrib itself executes the tool, with sanitised schemas. `None` for MCP servers: whatever such a
    /// server sends in this field is untrusted and ignored.
    pub fn execution_spec(&self) -> Result<Option<ExecutionSpec>> {
        if !self.has_execution_spec() {
            return Ok(None);
        }
        Ok(self.tool()?.parse_execution_spec().map(ExecutionSpec::sanitized))
    }

    /// Whether the source is of a kind whose execution specifications Toolcrib made itself. The kind is that of the
    /// declaration: the field itself cannot be trusted to tell where it came from.
    fn has_execution_spec(&self) -> bool {
        matches!(self.catalog_source.options.kind.as_str(), "openapi" | "workflow")
    }

    /// Returns the tool with what lists leave out: the full input schema and the output schema.
    pub fn with_full_schemas(&self) -> Result<Tool> {
        let mut tool = self.tool()?;
        if let Some(ExecutionSpec { input_schema, output_schema, .. }) = self.execution_spec()? {
            tool.listing.input_schema = input_schema.unwrap_or(tool.listing.input_schema);
            tool.output_schema = tool.output_schema.or(output_schema);
        }
        Ok(tool)
    }

    /// Returns what a call needs, see [`CallSpec`].
    pub fn call_spec(&self) -> Result<&'a Arc<CallSpec>> {
        self.catalog_source.segment.call_spec(self.entry)
    }
}
