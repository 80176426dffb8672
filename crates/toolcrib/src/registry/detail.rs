//! One tool in full: what lists show of it, and what only a question about this one tool asks for.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::catalog::ToolRef;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::json::Fields;
use toolcrib_core::render::push_json;
use toolcrib_core::{Code, Result, ResultExt, Timestamp};

use super::Registry;
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
    /// The tool as its source offered it.
    pub definition: Fields,
    /// The entry that lists have for it.
    listed: String,
}

/// How a call reaches the tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Execution {
    pub mode: &'static str,
    pub method: Option<String>,
    pub path: Option<String>,
    pub url_template: Option<String>,
    pub security: Vec<Value>,
}

impl Registry {
    /// A tool by any spelling of its name, from what is known. Contacts nobody.
    pub async fn tool_detail(&self, name: &str) -> Result<ToolDetail> {
        let catalog = self.catalog();
        let tool = self.shared.look_up(&catalog, name)?;
        self.shared.counters.flush(&*self.shared.store).await;
        let counts = self.shared.store.call_counts().await?;
        let count = counts.into_iter().find(|count| count.source == *tool.source() && count.tool == tool.original());
        ToolDetail::of(&tool, count)
    }
}

impl ToolDetail {
    fn of(tool: &ToolRef<'_>, count: Option<CallCount>) -> Result<ToolDetail> {
        let (manner, dates) = (&tool.part.manner, tool.dates());
        let mut listed = String::new();
        push_json(tool, &mut listed);
        let mode = if manner.builtin { "builtin" } else { "mcp_call" };
        Ok(ToolDetail {
            view: ToolView::of(tool)?,
            kind: manner.kind.clone(),
            tags: manner.tags.clone(),
            fingerprint: tool.part.segment.stored(tool.entry).fingerprint,
            created_at: dates.created_at,
            updated_at: dates.updated_at,
            execution: Execution { mode, method: None, path: None, url_template: None, security: Vec::new() },
            calls: count.as_ref().map_or(0, |count| count.calls),
            errors: count.as_ref().map_or(0, |count| count.errors),
            last_called: count.as_ref().and_then(|count| count.last_called),
            last_error: count.and_then(|count| count.last_error),
            definition: tool.tool()?.as_offered(),
            listed,
        })
    }

    /// The entry that lists have, with the output schema, the execution and the counters added.
    pub fn json(&self) -> Result<Box<RawValue>> {
        #[derive(Serialize)]
        struct Added<'a> {
            output_schema: &'a Option<Box<RawValue>>,
            execution: &'a Execution,
            calls: u64,
            errors: u64,
            last_called: Option<Timestamp>,
            last_error: &'a Option<Failure>,
        }
        let added = Added {
            output_schema: &self.view.output_schema,
            execution: &self.execution,
            calls: self.calls,
            errors: self.errors,
            last_called: self.last_called,
            last_error: &self.last_error,
        };
        let added = serde_json::to_string(&added).context(Code::Internal, "write a tool as JSON")?;
        // Both are objects; one's end and the other's beginning make way for a comma.
        let listed = self.listed.strip_suffix('}').unwrap_or(&self.listed);
        let text = format!("{listed},{}", added.strip_prefix('{').unwrap_or(&added));
        RawValue::from_string(text).context(Code::Internal, "write a tool as JSON")
    }
}
