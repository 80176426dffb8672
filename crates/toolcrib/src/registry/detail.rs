//! One tool in full: what lists show of it, and what only a question about this one tool asks for.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::catalog::ToolRef;
use toolcrib_core::config::show::shown_url;
use toolcrib_core::execution::{Backing, Needed, Operation};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::json::Fields;
use toolcrib_core::render::push_json;
use toolcrib_core::source::{Kind, OpenApi};
use toolcrib_core::{Code, Error, Result, ResultExt, Timestamp};

use super::Registry;
use super::needs::server;
use super::tools::ToolView;
use crate::store::{CallCount, Failure};

#[derive(Debug, Clone)]
pub struct ToolDetail {
    pub view: ToolView,
    pub kind: String,
    pub tags: Vec<String>,
    pub fingerprint: Fingerprint,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub execution: Execution,
    pub calls: u64,
    pub errors: u64,
    pub last_called: Option<Timestamp>,
    pub last_error: Option<Failure>,
    /// What had to be changed or left out to make it usable, and why its arguments are not validated where they are not.
    pub notes: Vec<String>,
    /// The tool as its source offered it.
    pub definition: Fields,
    /// What lies behind it, where this process carries it out itself.
    pub backing: Option<Backing>,
    /// The entry that lists have for it.
    listed: Fields,
}

/// How a call reaches the tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Execution {
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
        let tool = self.shared.look_up(&catalog, name)?;
        let count = self.shared.counters.of_tool(&tool.id());
        let definition = self.definition(tool.source());
        ToolDetail::of(&tool, definition.as_ref().map(|source| &source.kind), count)
    }
}

impl ToolDetail {
    fn of(tool: &ToolRef<'_>, kind: Option<&Kind>, count: Option<CallCount>) -> Result<ToolDetail> {
        let (manner, dates, backing) = (&tool.part.manner, tool.dates(), tool.backing()?);
        let mut listed = String::new();
        push_json(tool, &mut listed);
        let mut tags = manner.tags.clone();
        tags.extend(backing.iter().flat_map(|backing| &backing.tags).filter(|tag| !manner.tags.contains(tag)).cloned());
        let view = ToolView::of(tool)?;
        let mut notes: Vec<String> = view.notes.iter().map(|note| note.text().to_owned()).collect();
        notes.extend(tool.calling()?.validator.note());
        Ok(ToolDetail {
            view,
            notes,
            kind: manner.kind.clone(),
            tags,
            fingerprint: tool.part.segment.stored(tool.entry).fingerprint,
            created_at: dates.created_at,
            updated_at: dates.updated_at,
            execution: match &backing {
                Some(backing) => Execution::of(backing, kind),
                None => Execution::named(if manner.builtin { "builtin" } else { "mcp_call" }),
            },
            calls: count.as_ref().map_or(0, |count| count.calls),
            errors: count.as_ref().map_or(0, |count| count.errors),
            last_called: count.as_ref().and_then(|count| count.last_called),
            last_error: count.and_then(|count| count.last_error),
            definition: tool.tool()?.as_offered(),
            backing,
            listed: serde_json::from_str(&listed).context(Code::Internal, "read a listed tool")?,
        })
    }

    /// The input schema, whole even where lists have it pruned.
    pub fn input_schema(&self) -> &RawValue {
        self.backing.as_ref().and_then(|backing| backing.input_schema.as_deref()).unwrap_or(&self.view.input_schema)
    }

    /// The output schema, which lists may leave out.
    pub fn output_schema(&self) -> Option<&RawValue> {
        let behind = || self.backing.as_ref().and_then(|backing| backing.output_schema.as_deref());
        self.view.output_schema.as_deref().or_else(behind)
    }

    /// Whether the source advises against it.
    pub fn deprecated(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.deprecated)
    }

    /// The entry that lists have, with the output schema, the execution and the counters added.
    pub fn json(&self) -> Result<Box<RawValue>> {
        let mut fields = self.listed.clone();
        let mut put = |key: &str, value: serde_json::Result<Box<RawValue>>| {
            fields.put(key, value.context(Code::Internal, "write a tool as JSON")?);
            Ok::<_, Error>(())
        };
        put("tags", to_raw_value(&self.tags))?;
        put("output_schema", to_raw_value(&self.output_schema()))?;
        put("execution", to_raw_value(&self.execution))?;
        put("notes", to_raw_value(&self.notes))?;
        if self.deprecated() {
            put("deprecated", to_raw_value(&true))?;
        }
        put("calls", to_raw_value(&self.calls))?;
        put("errors", to_raw_value(&self.errors))?;
        put("last_called", to_raw_value(&self.last_called))?;
        put("last_error", to_raw_value(&self.last_error))?;
        to_raw_value(&fields).context(Code::Internal, "write a tool as JSON")
    }
}

impl Execution {
    fn named(mode: &'static str) -> Execution {
        Execution { mode, method: None, path: None, url_template: None, security: Vec::new() }
    }

    fn of(backing: &Backing, kind: Option<&Kind>) -> Execution {
        let execution = Execution::named(backing.execution.mode());
        let Some(operation) = backing.execution.operation() else { return execution };
        let declared = match kind {
            Some(Kind::OpenApi(openapi)) => openapi.clone(),
            Some(Kind::Stdio(_) | Kind::Http(_) | Kind::Sse(_) | Kind::Workflow(_) | Kind::Builtin(_)) | None => {
                OpenApi::default()
            }
        };
        Execution {
            method: Some(operation.method.clone()),
            path: Some(operation.path.clone()),
            url_template: Some(shown_url(&format!("{}{}", server(&declared, operation), operation.path))),
            security: security(operation),
            ..execution
        }
    }
}

fn security(operation: &Operation) -> Vec<BTreeMap<String, Vec<String>>> {
    let named = |needed: &Needed| (needed.scheme.clone(), needed.scopes.clone());
    operation.security.iter().map(|alternative| alternative.iter().map(named).collect()).collect()
}
