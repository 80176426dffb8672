//! A catalogue as one caller may see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{Calling, Catalog, Entry, Part, Placed};
use crate::error::Result;
use crate::execution::Backing;
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
    pub part: &'a Part,
    pub entry: &'a Entry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Active,
    Disabled,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Active => "active",
            State::Disabled => "disabled",
        }
    }
}

impl View {
    /// What somebody who manages tools sees: disabled ones too, hidden ones not.
    pub fn listed(&self) -> impl Iterator<Item = ToolRef<'_>> {
        self.catalog.tools().filter(ToolRef::is_listed)
    }

    /// The names an agent may be offered, by their sources.
    pub fn by_source(&self) -> BTreeMap<SourceId, Vec<ToolName>> {
        let mut sources: BTreeMap<SourceId, Vec<ToolName>> = BTreeMap::new();
        for tool in self.offered() {
            sources.entry(tool.source().clone()).or_default().push(tool.name().clone());
        }
        sources
    }

    /// What an agent may be offered.
    pub fn offered(&self) -> impl Iterator<Item = ToolRef<'_>> {
        self.catalog.tools().filter(ToolRef::is_offered)
    }
}

impl Catalog {
    /// Every tool, in byte order of the names, built-ins among the others.
    pub fn tools(&self) -> impl Iterator<Item = ToolRef<'_>> {
        let mut builtin: Vec<ToolRef<'_>> = self.builtin.iter().flat_map(Placed::tools).collect();
        builtin.sort_by(|one, other| one.name().cmp(other.name()));
        let mut builtin = builtin.into_iter().peekable();
        let mut prefixed = self.prefixed.iter().flat_map(Placed::tools).peekable();
        std::iter::from_fn(move || match (builtin.peek(), prefixed.peek()) {
            (Some(one), Some(other)) if one.name() < other.name() => builtin.next(),
            (_, Some(_)) => prefixed.next(),
            (_, None) => builtin.next(),
        })
    }
}

impl Placed {
    pub(super) fn tools(&self) -> impl Iterator<Item = ToolRef<'_>> {
        let part = &*self.part;
        let entries = part.segment.entries().iter().enumerate();
        entries.filter(|(index, _)| self.masked.binary_search(index).is_err()).map(|(_, entry)| ToolRef { part, entry })
    }
}

impl<'a> ToolRef<'a> {
    pub fn name(&self) -> &'a ToolName {
        &self.entry.name
    }

    pub fn source(&self) -> &'a SourceId {
        self.part.segment.source()
    }

    /// The source's own name for it.
    pub fn original(&self) -> &'a str {
        self.part.segment.original(self.entry)
    }

    pub fn id(&self) -> ToolId {
        ToolId { source: self.source().clone(), name: self.original().to_owned() }
    }

    /// Whether somebody who manages tools sees it.
    pub fn is_listed(&self) -> bool {
        self.verdict() != Verdict::Hide && !self.internal()
    }

    /// Whether an agent may be offered it.
    pub fn is_offered(&self) -> bool {
        self.is_listed() && self.state() == State::Active
    }

    /// Whether a search may find it: one that every call refuses would only lead an agent astray.
    pub fn is_findable(&self) -> bool {
        self.is_offered() && self.verdict() != Verdict::Deny
    }

    pub fn verdict(&self) -> Verdict {
        let shown = self.name().as_str();
        let shown = shown.strip_prefix(self.part.segment.prefix()).unwrap_or(shown);
        self.part.manner.verdict(self.original(), shown)
    }

    pub fn internal(&self) -> bool {
        self.part.manner.internal.contains(self.original())
    }

    pub fn state(&self) -> State {
        if self.dates().disabled { State::Disabled } else { State::Active }
    }

    pub fn dates(&self) -> ToolState {
        self.part.tool_state(self.original())
    }

    /// The tool's content, parsed.
    pub fn tool(&self) -> Result<Tool> {
        self.part.segment.tool(self.entry)
    }

    /// What lies behind it, where this process carries it out itself. What a server says there counts for nothing.
    pub fn backing(&self) -> Result<Option<Backing>> {
        if !matches!(self.part.manner.kind.as_str(), "openapi" | "workflow") {
            return Ok(None);
        }
        Ok(self.tool()?.backing().map(Backing::fit_to_be_shown))
    }

    /// The tool with what lists leave out: the whole input schema and the output schema.
    pub fn whole(&self) -> Result<Tool> {
        let mut tool = self.tool()?;
        if let Some(Backing { input_schema, output_schema, .. }) = self.backing()? {
            tool.face.input_schema = input_schema.unwrap_or(tool.face.input_schema);
            tool.output_schema = tool.output_schema.or(output_schema);
        }
        Ok(tool)
    }

    pub fn calling(&self) -> Result<&'a Arc<Calling>> {
        self.part.segment.calling(self.entry)
    }
}
