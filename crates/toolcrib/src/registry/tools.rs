//! Tools as an embedder reads them: a list that discovers what is missing, one by name, and lists recorded by a host.

use serde::Serialize;
use serde_json::value::RawValue;
use toolcrib_core::catalog::{Caller, State, ToolRef};
use toolcrib_core::policy::Verdict;
use toolcrib_core::tool::{Note, ToolName};
use toolcrib_core::{Result, SourceId};

use super::Registry;
use crate::connector::Offer;
use crate::refresh::{Need, Outcome};
use crate::secret::connects_to;
use crate::store::{Check, Standing};

/// Which tools to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub source: Option<SourceId>,
}

/// One tool, taken out of its catalogue.
#[derive(Debug, Clone, Serialize)]
pub struct ToolView {
    pub name: ToolName,
    pub source: SourceId,
    pub original_name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Box<RawValue>,
    pub output_schema: Option<Box<RawValue>>,
    pub annotations: Option<Box<RawValue>>,
    pub policy: Verdict,
    pub state: State,
    pub notes: Vec<Note>,
}

impl Registry {
    /// What agents may be offered, in name order. Discovers sources that are missing first, each within its deadline;
    /// one that fails leaves the others' tools in the list.
    pub async fn tools(&self, filter: Filter) -> Result<Vec<ToolView>> {
        let among = filter.source.as_ref().map(std::slice::from_ref);
        self.ensure(Need::Known, among, false).await;
        let view = self.view(&Caller { name: "embedder".into() });
        let wanted = view.offered().filter(|tool| filter.source.as_ref().is_none_or(|source| source == tool.source()));
        wanted.map(|tool| ToolView::of(&tool)).collect()
    }

    /// A tool by any spelling of its name, from what is known.
    pub fn tool(&self, name: &str) -> Result<ToolView> {
        let catalog = self.catalog();
        ToolView::of(&self.shared.look_up(&catalog, name)?)
    }

    /// Takes a list that the host discovered by its own means; as if the source had been contacted just now.
    pub async fn record(&self, id: &SourceId, tools: Vec<Box<RawValue>>) -> Result<Outcome> {
        let source = self.definition(id).ok_or_else(|| self.shared.unknown_source(id.as_str()))?;
        let now = self.shared.options.clock.now();
        let connects_to = connects_to(&self.shared.key, &source.kind);
        let standing =
            Standing { started_at: now, checked_at: Some(now), connects_to, tried: connects_to, ..Standing::default() };
        let offer = Offer { tools, ..Offer::default() };
        let check = |count| Check { source: id.clone(), at: now, duration_ms: 0, tool_count: Some(count), error: None };
        self.shared.record(&source, offer, standing, check).await
    }
}

impl ToolView {
    pub(super) fn of(tool: &ToolRef<'_>) -> Result<ToolView> {
        let content = tool.tool()?;
        Ok(ToolView {
            name: tool.name().clone(),
            source: tool.source().clone(),
            original_name: tool.original().to_owned(),
            title: content.face.title,
            description: content.face.description,
            input_schema: content.face.input_schema,
            output_schema: content.output_schema,
            annotations: content.face.annotations,
            policy: tool.verdict(),
            state: tool.state(),
            notes: content.notes,
        })
    }
}
