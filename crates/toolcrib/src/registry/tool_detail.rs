//! One tool in full: what lists show of it, and what only a question about this one tool asks for.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::catalog::ToolRef;
use toolcrib_core::config::show::mask_url;
use toolcrib_core::execution::{ExecutionSpec, Operation, SecurityRequirement};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::json::RawFields;
use toolcrib_core::render::push_json;
use toolcrib_core::source::{OpenApiSource, SourceKind};
use toolcrib_core::{Code, Error, Result, ResultExt, Timestamp};

use super::Registry;
use super::api_requirements::server_url;
use super::tools::ToolView;
use crate::store::{CallCount, ErrorSummary};

#[derive(Debug, Clone)]
pub struct ToolDetail {
    pub view: ToolView,
    pub kind: String,
    pub tags: Vec<String>,
    pub fingerprint: Fingerprint,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub execution: ExecutionView,
    pub calls: u64,
    pub errors: u64,
    pub last_called: Option<Timestamp>,
    pub last_error: Option<ErrorSummary>,
    /// What had to be changed or left out to make it usable, and why its arguments are not validated where they are not.
    pub notes: Vec<String>,
    /// The tool as its source offered it.
    pub definition: RawFields,
    /// What lies behind it, where this process carries it out itself.
    pub execution_spec: Option<ExecutionSpec>,
    /// The entry that lists have for it.
    list_entry: RawFields,
}

/// How a call reaches the tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExecutionView {
    pub mode: &'static str,
    pub method: Option<String>,
    pub path: Option<String>,
    pub url_template: Option<String>,
    /// The alternatives of an operation, each by its schemes and their scopes.
    pub security: Vec<BTreeMap<String, Vec<String>>>,
}

impl Registry {
    /// A tool by any spelling of its name, from what is known. Contacts nobody.
    pub fn tool_detail(&self, name: &str) -> Result<ToolDetail> {
        let catalog = self.catalog();
        let tool = self.shared.find_tool(&catalog, name)?;
        let count = self.shared.usage.tool_count(&tool.id());
        let definition = self.effective_source(tool.source());
        ToolDetail::from_tool(&tool, definition.as_ref().map(|source| &source.kind), count)
    }
}

impl ToolDetail {
    fn from_tool(tool: &ToolRef<'_>, kind: Option<&SourceKind>, count: Option<CallCount>) -> Result<ToolDetail> {
        let (manner, dates, backing) = (&tool.catalog_source.options, tool.inventory_state(), tool.execution_spec()?);
        let mut listed = String::new();
        push_json(tool, &mut listed);
        let mut tags = manner.tags.clone();
        tags.extend(backing.iter().flat_map(|backing| &backing.tags).filter(|tag| !manner.tags.contains(tag)).cloned());
        let view = ToolView::from_tool(tool)?;
        let mut notes: Vec<String> = view.notes.iter().map(|note| note.text().to_owned()).collect();
        notes.extend(tool.call_spec()?.validator.note());
        Ok(ToolDetail {
            view,
            notes,
            kind: manner.kind.clone(),
            tags,
            fingerprint: tool.catalog_source.segment.packed_tool(tool.entry).fingerprint,
            created_at: dates.created_at,
            updated_at: dates.updated_at,
            execution: match &backing {
                Some(backing) => ExecutionView::from_spec(backing, kind),
                None => ExecutionView::from_mode(if manner.builtin { "builtin" } else { "mcp_call" }),
            },
            calls: count.as_ref().map_or(0, |count| count.calls),
            errors: count.as_ref().map_or(0, |count| count.errors),
            last_called: count.as_ref().and_then(|count| count.last_called),
            last_error: count.and_then(|count| count.last_error),
            definition: tool.tool()?.to_offered_fields(),
            execution_spec: backing,
            list_entry: serde_json::from_str(&listed).context(Code::Internal, "read a listed tool")?,
        })
    }

    /// The input schema, whole even where lists have it pruned.
    pub fn input_schema(&self) -> &RawValue {
        self.execution_spec
            .as_ref()
            .and_then(|backing| backing.input_schema.as_deref())
            .unwrap_or(&self.view.input_schema)
    }

    /// The output schema, which lists may leave out.
    pub fn output_schema(&self) -> Option<&RawValue> {
        let behind = || self.execution_spec.as_ref().and_then(|backing| backing.output_schema.as_deref());
        self.view.output_schema.as_deref().or_else(behind)
    }

    /// Whether the source advises against it.
    pub fn is_deprecated(&self) -> bool {
        self.execution_spec.as_ref().is_some_and(|backing| backing.deprecated)
    }

    /// The entry that lists have, with the output schema, the execution and the counters added.
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
    fn from_mode(mode: &'static str) -> ExecutionView {
        ExecutionView { mode, method: None, path: None, url_template: None, security: Vec::new() }
    }

    fn from_spec(backing: &ExecutionSpec, kind: Option<&SourceKind>) -> ExecutionView {
        let execution = ExecutionView::from_mode(backing.execution.mode());
        let Some(operation) = backing.execution.operation() else { return execution };
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

fn security_view(operation: &Operation) -> Vec<BTreeMap<String, Vec<String>>> {
    let named = |needed: &SecurityRequirement| (needed.scheme.clone(), needed.scopes.clone());
    operation.security.iter().map(|alternative| alternative.iter().map(named).collect()).collect()
}
