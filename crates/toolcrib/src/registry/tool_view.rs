//! [`ToolView`]: one tool with everything that is known of it, now or at a time in the past.
//!
//! Lists omit what most readers do not need: output schemas, parts of large input schemas, statistics, execution. The
//! JSON of a current tool starts with exactly the fields of its list entry and adds to them, so a client can replace an
//! entry by its detail.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_catalog::render::push_json;
use toolcrib_catalog::{CatalogSource, Segment, SegmentEntry, ToolRef, ToolStatus};
use toolcrib_config::show::mask_url;
use toolcrib_core::execution::{ExecutionSpec, RequestOutline, SecurityRequirement};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::inventory::ToolState;
use toolcrib_core::json::RawFields;
use toolcrib_core::manifest::ListTraits;
use toolcrib_core::policy::Verdict;
use toolcrib_core::source::{ArgumentValidation, OpenApiSource, SourceKind};
use toolcrib_core::tool::{TaskMode, ToolListing, ToolName};
use toolcrib_core::{Code, Result, ResultExt, Source, SourceId, Timestamp, Tool};

use super::api_requirements::server_url;
use crate::store::CallCount;

/// A tool, copied out of the catalogue or out of a tool list of the past.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolView {
    /// Name that agents use.
    pub name: ToolName,
    /// Source that offers the tool.
    pub source: SourceId,
    /// Kind of the source: `mcp`, `openapi`, `workflow` or `builtin`.
    pub kind: String,
    /// The tool as its source describes it: its own name, texts, listed schemas, annotations, notes.
    pub tool: Tool,
    /// Execution specification, for tools that are not simply forwarded.
    pub execution_spec: Option<ExecutionSpec>,
    /// Hash of the tool as offered.
    pub fingerprint: Fingerprint,
    /// When the tool was first seen and last changed, and whether it is disabled.
    pub history: ToolState,
    /// The time in the past that is shown; `None` for the present.
    pub at: Option<Timestamp>,
    /// When its source ceased to offer the tool; `None` for a tool that it offers.
    pub removed_at: Option<Timestamp>,
    /// `None` in the past, because rules have no history.
    pub policy: Option<Verdict>,
    /// Calls so far; `None` in the past.
    pub usage: Option<CallCount>,
    /// Current declaration of the source; `None` in the past and for tools of the host program.
    declaration: Option<Arc<Source>>,
    /// Tools of the source in the catalogue, for what is computed on demand; `None` in the past.
    catalog_source: Option<Arc<CatalogSource>>,
}

/// Execution of calls, for display.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct ExecutionView {
    /// `mcp_call`, `builtin`, or the mode of an execution specification.
    pub mode: &'static str,
    /// HTTP method of an operation.
    pub method: Option<String>,
    /// Path template of an operation.
    pub path: Option<String>,
    /// Server and path template of an operation, with masked credentials.
    pub url_template: Option<String>,
    /// Alternative security requirements of an operation, each a map from scheme to scopes.
    pub security: Vec<BTreeMap<String, Vec<String>>>,
    /// Whether an MCP tool runs as a task, if its server says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_support: Option<TaskMode>,
    /// Headers, query and body of an operation as they will be sent: `{name}` for arguments, references for credentials.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestOutline>,
}

impl ToolView {
    /// Copies a tool out of the catalogue. `catalog_source` and `declaration` are those of its source.
    pub(super) fn from_catalog(
        tool: &ToolRef<'_>,
        catalog_source: Option<Arc<CatalogSource>>,
        declaration: Option<Arc<Source>>,
        usage: CallCount,
    ) -> Result<ToolView> {
        let options = &tool.catalog_source.options;
        let copied = ToolView::copy(&tool.catalog_source.segment, tool.entry, &options.kind, tool.inventory_state())?;
        Ok(ToolView { policy: Some(tool.verdict()), usage: Some(usage), declaration, catalog_source, ..copied })
    }

    /// Copies a tool out of a tool list of the past.
    pub(super) fn from_past(
        segment: &Segment,
        entry: &SegmentEntry,
        kind: &str,
        history: ToolState,
        at: Timestamp,
    ) -> Result<ToolView> {
        Ok(ToolView { at: Some(at), ..ToolView::copy(segment, entry, kind, history)? })
    }

    /// Copies a removed tool out of the last tool list that had it.
    pub(super) fn from_removed(
        segment: &Segment,
        entry: &SegmentEntry,
        kind: &str,
        history: ToolState,
        declaration: Option<Arc<Source>>,
    ) -> Result<ToolView> {
        let copied = ToolView::copy(segment, entry, kind, history)?;
        Ok(ToolView { removed_at: Some(history.updated_at), declaration, ..copied })
    }

    /// Copies what present and past have in common.
    fn copy(segment: &Segment, entry: &SegmentEntry, kind: &str, history: ToolState) -> Result<ToolView> {
        let tool = segment.tool(entry)?;
        // As in `ToolRef::execution_spec`: what an MCP server sends in this field is untrusted and ignored.
        let has_spec = matches!(kind, "openapi" | "workflow");
        let spec = if has_spec { tool.parse_execution_spec() } else { None };
        Ok(ToolView {
            name: entry.name.clone(),
            source: segment.source().clone(),
            kind: kind.to_owned(),
            execution_spec: spec.map(ExecutionSpec::sanitized),
            tool,
            fingerprint: segment.packed_tool(entry).fingerprint,
            history,
            at: None,
            removed_at: None,
            policy: None,
            usage: None,
            declaration: None,
            catalog_source: None,
        })
    }

    /// Returns the entry of the tool in the catalogue; `None` in the past.
    fn tool_ref(&self) -> Option<ToolRef<'_>> {
        let catalog_source = self.catalog_source.as_deref()?;
        let position = catalog_source.segment.position_of_original(&self.tool.name)?;
        // The verdict for its reader, which is at least as strict as that of the source's rules.
        let policy_verdict = self.policy.unwrap_or_default();
        Some(ToolRef { catalog_source, entry: catalog_source.segment.entries().get(position)?, policy_verdict })
    }

    /// Whether the tool is enabled.
    pub fn state(&self) -> ToolStatus {
        if self.history.disabled { ToolStatus::Disabled } else { ToolStatus::Active }
    }

    /// Whether the source marks the tool as deprecated.
    pub fn is_deprecated(&self) -> bool {
        self.execution_spec.as_ref().is_some_and(|spec| spec.deprecated)
    }

    /// Whether lists show only a part of the input schema.
    pub fn is_pruned(&self) -> bool {
        self.execution_spec.as_ref().is_some_and(|spec| spec.input_schema.is_some())
    }

    /// Returns the description, as models read it.
    pub fn description(&self) -> &str {
        &self.tool.listing.description
    }

    /// Returns the input schema, complete even where lists have it pruned.
    pub fn input_schema(&self) -> &RawValue {
        let complete = self.execution_spec.as_ref().and_then(|spec| spec.input_schema.as_deref());
        complete.unwrap_or(&self.tool.listing.input_schema)
    }

    /// Returns the output schema, which lists may omit.
    pub fn output_schema(&self) -> Option<&RawValue> {
        let from_spec = || self.execution_spec.as_ref().and_then(|spec| spec.output_schema.as_deref());
        self.tool.output_schema.as_deref().or_else(from_spec)
    }

    /// Returns the tags of the source, then those of the tool, without duplicates.
    pub fn tags(&self) -> Vec<String> {
        let mut tags = self.declaration.as_ref().map(|source| source.settings.tags.clone()).unwrap_or_default();
        let has_spec = self.execution_spec.is_some();
        let own = if has_spec { ListTraits::from_tool(&self.tool).tags } else { Vec::new() };
        let own: Vec<String> = own.into_iter().filter(|tag| !tags.contains(tag)).collect();
        tags.extend(own);
        tags
    }

    /// Returns the changes that made the tool usable; for a current tool, also why its arguments are not validated, if
    /// so.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.tool.notes.iter().map(|note| note.text().to_owned()).collect();
        let call_spec = self.tool_ref().and_then(|tool| tool.call_spec().ok());
        notes.extend(call_spec.and_then(|call_spec| call_spec.validator.note()));
        let settings = self.declaration.as_ref().map(|source| &source.settings);
        if settings.is_some_and(|settings| settings.validate() == ArgumentValidation::Lenient) {
            notes.push("arguments that do not match the schema are sent, with a note (`validate: lenient`)".into());
        }
        notes
    }

    /// Describes how calls are executed. The `base_url` of the declaration replaces the server of the document.
    pub fn execution(&self) -> ExecutionView {
        let Some(spec) = &self.execution_spec else {
            let mode = if self.kind == "builtin" { "builtin" } else { "mcp_call" };
            let task_support = self.tool.extra.get("execution").map(|_| self.tool.task_support());
            return ExecutionView { mode, task_support, ..ExecutionView::default() };
        };
        let execution = ExecutionView { mode: spec.execution.mode(), ..ExecutionView::default() };
        let Some(operation) = spec.execution.operation() else { return execution };
        let undeclared = OpenApiSource::default();
        let declared = self.declaration.as_ref().map(|source| &source.kind);
        let openapi = if let Some(SourceKind::OpenApi(openapi)) = declared { openapi } else { &undeclared };
        let scopes = |requirement: &SecurityRequirement| (requirement.scheme.clone(), requirement.scopes.clone());
        ExecutionView {
            method: Some(operation.method.clone()),
            path: Some(operation.path.clone()),
            url_template: Some(url_template(&mask_url(server_url(openapi, operation)), &operation.path)),
            // In the past the declaration is not known, and so are headers and credentials.
            #[cfg(feature = "openapi")]
            request: declared.map(|_| toolcrib_openapi::client::outline_request(openapi, operation)),
            security: operation.security.iter().map(|schemes| schemes.iter().map(scopes).collect()).collect(),
            ..execution
        }
    }

    /// Returns the tool as JSON. At present: the list entry, whose keys keep their order, with output schema, execution
    /// and counts added. In the past: the fields that have a history, and the definition as the source offered it.
    pub fn to_json(&self) -> Result<Box<RawValue>> {
        let fields = match self.at {
            Some(at) => self.past_fields(at),
            None => self.present_fields(),
        };
        fields.and_then(|fields| to_raw_value(&fields)).context(Code::Internal, "write a tool as JSON")
    }

    fn present_fields(&self) -> serde_json::Result<RawFields> {
        // The same JSON as in lists, so that fields agree.
        let mut list_entry = String::new();
        self.tool_ref().iter().for_each(|tool| push_json(tool, &mut list_entry));
        let mut fields: RawFields = serde_json::from_str(&list_entry)?;
        fields.insert("output_schema", to_raw_value(&self.output_schema())?);
        fields.insert("execution", to_raw_value(&self.execution())?);
        fields.insert("notes", to_raw_value(&self.notes())?);
        if self.is_deprecated() {
            fields.insert("deprecated", to_raw_value(&true)?);
        }
        if let Some(usage) = &self.usage {
            usage.insert_into(&mut fields)?;
        }
        Ok(fields)
    }

    fn past_fields(&self, at: Timestamp) -> serde_json::Result<RawFields> {
        let ToolListing { title, description, input_schema, annotations } = &self.tool.listing;
        let mut fields = RawFields::default();
        fields.insert("id", to_raw_value(&format!("{}:{}", self.source, self.tool.name))?);
        fields.insert("name", to_raw_value(&self.name)?);
        fields.insert("source", to_raw_value(&self.source)?);
        fields.insert("original_name", to_raw_value(&self.tool.name)?);
        fields.insert("title", to_raw_value(title)?);
        fields.insert("description", to_raw_value(description)?);
        fields.insert("input_schema", input_schema.clone());
        fields.insert("output_schema", to_raw_value(&self.tool.output_schema)?);
        fields.insert("annotations", to_raw_value(annotations)?);
        fields.insert("fingerprint", to_raw_value(&self.fingerprint)?);
        fields.insert("at", to_raw_value(&at)?);
        fields.insert("updated_at", to_raw_value(&self.history.updated_at)?);
        fields.insert("definition", to_raw_value(&self.tool.to_offered_fields())?);
        Ok(fields)
    }
}

impl CallCount {
    /// Adds the counters to the JSON of a tool.
    pub(super) fn insert_into(&self, fields: &mut RawFields) -> serde_json::Result<()> {
        fields.insert("calls", to_raw_value(&self.calls)?);
        fields.insert("errors", to_raw_value(&self.errors)?);
        fields.insert("last_called", to_raw_value(&self.last_called)?);
        fields.insert("last_error", to_raw_value(&self.last_error)?);
        Ok(())
    }
}

/// Appends the path of an operation to the URL of its server, before the query of that.
fn url_template(server: &str, path: &str) -> String {
    match server.split_once('?') {
        None => format!("{server}{path}"),
        Some((address, query)) => {
            let separator = if path.contains('?') { '&' } else { '?' };
            format!("{}{path}{separator}{query}", address.trim_end_matches('/'))
        }
    }
}
