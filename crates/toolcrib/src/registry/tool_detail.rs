//! One tool in full: its list entry, and what only a request for this tool returns.
//!
//! Lists omit what most readers do not need: output schemas, parts of large input schemas, statistics, execution. The
//! JSON here starts with exactly the fields of the list entry and adds to them, so a client can replace an entry by its
//! detail.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_catalog::ToolRef;
use toolcrib_catalog::render::push_json;
use toolcrib_config::show::mask_url;
use toolcrib_core::execution::{ExecutionSpec, Operation, SecurityRequirement};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::json::RawFields;
use toolcrib_core::source::{OpenApiSource, SourceKind};
use toolcrib_core::{Code, Error, Result, ResultExt, Timestamp};

use super::Registry;
use super::api_requirements::server_url;
use super::tools::ToolView;
use crate::call::find_tool;
use crate::store::{CallCount, ErrorSummary};

/// Everything that is known of one tool.
#[derive(Debug, Clone)]
pub struct ToolDetail {
    pub view: ToolView,
    /// Kind of the source.
    pub kind: String,
    /// Tags of the source and of the tool. Those of the source come first, without duplicates.
    pub tags: Vec<String>,
    pub fingerprint: Fingerprint,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub execution: ExecutionView,
    pub calls: u64,
    pub errors: u64,
    pub last_called: Option<Timestamp>,
    pub last_error: Option<ErrorSummary>,
    /// Changes that made the tool usable, and the reason why its arguments are not validated, if so.
    pub notes: Vec<String>,
    /// The definition as the source offered it.
    pub definition: RawFields,
    /// Execution specification, for tools that are not simply forwarded.
    pub execution_spec: Option<ExecutionSpec>,
    /// The tool's entry in lists.
    list_entry: RawFields,
}

/// Execution of calls, for display.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExecutionView {
    /// `mcp_call`, `builtin`, or the mode of an execution specification.
    pub mode: &'static str,
    pub method: Option<String>,
    pub path: Option<String>,
    pub url_template: Option<String>,
    /// Alternative security requirements of an operation, each a map from scheme to scopes.
    pub security: Vec<BTreeMap<String, Vec<String>>>,
}

impl Registry {
    /// Returns a tool by any spelling of its name, from what is known. Makes no requests. Fails like a call that finds
    /// no tool; a denied or disabled tool is found.
    pub fn tool_detail(&self, name: &str) -> Result<ToolDetail> {
        let snapshot = self.state.snapshot();
        let tool = find_tool(&snapshot, name, self.state.now())?;
        let count = self.dispatcher.monitoring.usage.tool_count(&tool.id());
        let definition = self.sources().effective(tool.source());
        ToolDetail::from_tool(&tool, definition.as_ref().map(|source| &source.kind), count)
    }
}

impl ToolDetail {
    /// Collects the details of a tool.
    fn from_tool(tool: &ToolRef<'_>, kind: Option<&SourceKind>, count: Option<CallCount>) -> Result<ToolDetail> {
        let options = &tool.catalog_source.options;
        let history = tool.inventory_state();
        let spec = tool.execution_spec()?;
        // The same JSON as in lists, so that fields agree.
        let mut list_entry = String::new();
        push_json(tool, &mut list_entry);
        let mut tags = options.tags.clone();
        tags.extend(spec.iter().flat_map(|spec| &spec.tags).filter(|tag| !options.tags.contains(tag)).cloned());
        let view = ToolView::from_tool(tool)?;
        let mut notes: Vec<String> = view.notes.iter().map(|note| note.text().to_owned()).collect();
        notes.extend(tool.call_spec()?.validator.note());
        Ok(ToolDetail {
            view,
            notes,
            kind: options.kind.clone(),
            tags,
            fingerprint: tool.catalog_source.segment.packed_tool(tool.entry).fingerprint,
            created_at: history.created_at,
            updated_at: history.updated_at,
            execution: match &spec {
                Some(spec) => ExecutionView::from_spec(spec, kind),
                None => ExecutionView::from_mode(if options.builtin { "builtin" } else { "mcp_call" }),
            },
            calls: count.as_ref().map_or(0, |count| count.calls),
            errors: count.as_ref().map_or(0, |count| count.errors),
            last_called: count.as_ref().and_then(|count| count.last_called),
            last_error: count.and_then(|count| count.last_error),
            definition: tool.tool()?.to_offered_fields(),
            execution_spec: spec,
            list_entry: serde_json::from_str(&list_entry).context(Code::Internal, "read a listed tool")?,
        })
    }

    /// Returns the input schema, complete even where lists have it pruned.
    pub fn input_schema(&self) -> &RawValue {
        self.execution_spec.as_ref().and_then(|spec| spec.input_schema.as_deref()).unwrap_or(&self.view.input_schema)
    }

    /// Returns the output schema, which lists may omit.
    pub fn output_schema(&self) -> Option<&RawValue> {
        let from_spec = || self.execution_spec.as_ref().and_then(|spec| spec.output_schema.as_deref());
        self.view.output_schema.as_deref().or_else(from_spec)
    }

    /// Whether the source marks the tool as deprecated.
    pub fn is_deprecated(&self) -> bool {
        self.execution_spec.as_ref().is_some_and(|spec| spec.deprecated)
    }

    /// Returns the list entry with output schema, execution and counts added. Keys keep the order of the list entry,
    /// new ones follow.
    pub fn to_json(&self) -> Result<Box<RawValue>> {
        let mut fields = self.list_entry.clone();
        let mut put = |key: &str, value: serde_json::Result<Box<RawValue>>| {
            fields.insert(key, value.context(Code::Internal, "write a tool as JSON")?);
            Ok::<_, Error>(())
        };
        put("tags", to_raw_value(&self.tags))?;
        put("output_schema", to_raw_value(&self.output_schema()))?;
        put("execution", to_raw_value(&self.execution))?;
        put("notes", to_raw_value(&self.notes))?;
        if self.is_deprecated() {
            put("deprecated", to_raw_value(&true))?;
        }
        put("calls", to_raw_value(&self.calls))?;
        put("errors", to_raw_value(&self.errors))?;
        put("last_called", to_raw_value(&self.last_called))?;
        put("last_error", to_raw_value(&self.last_error))?;
        to_raw_value(&fields).context(Code::Internal, "write a tool as JSON")
    }
}

impl ExecutionView {
    /// A mode without further details.
    fn from_mode(mode: &'static str) -> ExecutionView {
        ExecutionView { mode, method: None, path: None, url_template: None, security: Vec::new() }
    }

    /// Describes the operation of an execution specification, if it has one. `kind` is the current declaration, whose
    /// `base_url` replaces the server of the document.
    fn from_spec(spec: &ExecutionSpec, kind: Option<&SourceKind>) -> ExecutionView {
        let execution = ExecutionView::from_mode(spec.execution.mode());
        let Some(operation) = spec.execution.operation() else { return execution };
        let declared = match kind {
            Some(SourceKind::OpenApi(openapi)) => openapi.clone(),
            Some(
                SourceKind::Stdio(_)
                | SourceKind::Http(_)
                | SourceKind::Sse(_)
                | SourceKind::Workflow(_)
                | SourceKind::Builtin(_),
            )
            | None => OpenApiSource::default(),
        };
        ExecutionView {
            method: Some(operation.method.clone()),
            path: Some(operation.path.clone()),
            url_template: Some(mask_url(&format!("{}{}", server_url(&declared, operation), operation.path))),
            security: security_view(operation),
            ..execution
        }
    }
}

/// Returns the security requirements of an operation.
fn security_view(operation: &Operation) -> Vec<BTreeMap<String, Vec<String>>> {
    let scopes = |requirement: &SecurityRequirement| (requirement.scheme.clone(), requirement.scopes.clone());
    operation.security.iter().map(|alternative| alternative.iter().map(scopes).collect()).collect()
}
