//! Which tools a list has, and in which order: the filters of `tools`, of `GET /api/tools` and of the library.

use std::cmp::Reverse;
use std::collections::HashMap;

use toolcrib_core::error::{Code, Error, Result};
use toolcrib_core::policy::glob_matches;
use toolcrib_core::source::SourceId;
use toolcrib_core::text::{did_you_mean, sanitize_truncated};

use crate::{ToolRef, ToolStatus};

/// Conditions on tools; all of them hold for the tools of a list. The default accepts every tool.
#[derive(Debug, Clone, Default)]
pub struct ToolFilter {
    /// Only the tools of this source.
    pub source: Option<SourceId>,
    /// Only tools of sources of this kind, one of [`ToolFilter::KINDS`].
    pub kind: Option<String>,
    /// Only tools with this tag, of their own or of their source.
    pub tag: Option<String>,
    /// Only tools in this state.
    pub state: Option<StateFilter>,
    /// Globs on names, of which one must match; empty accepts every name.
    pub names: Vec<String>,
}

/// State of a tool, as lists are filtered by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFilter {
    Active,
    Disabled,
    /// No longer offered by its source. Such tools are in the inventory and not in the catalogue.
    Deprecated,
    /// Waiting for approval. Reserved: no tool is in this state yet.
    Held,
}

toolcrib_core::name_variants!(StateFilter {
    Active => "active",
    Disabled => "disabled",
    Deprecated => "deprecated",
    Held => "held",
});

/// Order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolOrder {
    /// In byte order of the names.
    #[default]
    Name,
    /// Most tokens first.
    Tokens,
    /// Most calls first.
    Calls,
}

toolcrib_core::name_variants!(ToolOrder { Name => "name", Tokens => "tokens", Calls => "calls" });

impl ToolFilter {
    /// Kinds of sources.
    pub const KINDS: [&str; 4] = ["builtin", "mcp", "openapi", "workflow"];

    /// Whether there is any condition besides that on the source.
    pub fn has_conditions(&self) -> bool {
        self.kind.is_some() || self.tag.is_some() || self.state.is_some() || !self.names.is_empty()
    }

    /// Whether a tool of the catalogue meets the conditions.
    pub fn accepts(&self, tool: &ToolRef<'_>) -> bool {
        let has_state = |state| match state {
            StateFilter::Active => tool.status() == ToolStatus::Active,
            StateFilter::Disabled => tool.status() == ToolStatus::Disabled,
            StateFilter::Deprecated | StateFilter::Held => false,
        };
        let names = || [tool.name().as_str(), tool.unprefixed_name(), tool.original_name()];
        self.source.as_ref().is_none_or(|source| source == tool.source())
            && self.accepts_kind(&tool.catalog_source.options.kind)
            && self.state.is_none_or(has_state)
            && (self.names.is_empty() || self.accepts_names(&names()))
            && self.accepts_tags(tool.tags())
    }

    /// Whether a source of this kind meets the condition on kinds.
    pub fn accepts_kind(&self, kind: &str) -> bool {
        self.kind.as_deref().is_none_or(|wanted| wanted == kind)
    }

    /// Whether a tool with any of these names meets the condition on names.
    pub fn accepts_names(&self, names: &[&str]) -> bool {
        self.names.is_empty() || self.names.iter().any(|glob| names.iter().any(|name| glob_matches(glob, name)))
    }

    /// Whether a tool with these tags meets the condition on tags.
    pub fn accepts_tags<'a>(&self, mut tags: impl Iterator<Item = &'a str>) -> bool {
        self.tag.as_deref().is_none_or(|wanted| tags.any(|tag| tag == wanted))
    }

    /// Returns the kind of this name.
    ///
    /// # Errors
    /// `BAD_REQUEST` with the known kinds.
    pub fn parse_kind(text: &str) -> Result<String> {
        parse_word("kind", text, &ToolFilter::KINDS, |kind| ToolFilter::KINDS.contains(&kind).then(|| kind.to_owned()))
    }
}

impl StateFilter {
    /// Returns the state of this name.
    ///
    /// # Errors
    /// `BAD_REQUEST` with the known states.
    pub fn from_name(text: &str) -> Result<StateFilter> {
        parse_word("state", text, &StateFilter::ALL.map(StateFilter::as_str), StateFilter::parse)
    }
}

impl ToolOrder {
    /// Returns the order of this name.
    ///
    /// # Errors
    /// `BAD_REQUEST` with the known orders.
    pub fn from_name(text: &str) -> Result<ToolOrder> {
        parse_word("order", text, &ToolOrder::ALL.map(ToolOrder::as_str), ToolOrder::parse)
    }
}

/// Parses one of a few words; the error lists all of them.
fn parse_word<T>(field: &str, text: &str, known: &[&str], parse: impl Fn(&str) -> Option<T>) -> Result<T> {
    parse(text).ok_or_else(|| {
        let near = did_you_mean(text, known.iter().copied());
        let message = format!("`{field}` is one of {}, not `{}`{near}", known.join(", "), sanitize_truncated(text, 40));
        Error::new(Code::BadRequest, message)
    })
}

/// Order of a list, with the counts that it needs.
#[derive(Debug, Clone, Copy)]
pub enum ListOrder<'a> {
    /// [`ToolOrder::Name`].
    Name,
    /// [`ToolOrder::Tokens`]. Counts lists that an older version recorded without counts.
    Tokens,
    /// [`ToolOrder::Calls`], with the calls of tools by their names in the catalogue; other tools were not called.
    Calls(&'a HashMap<String, u64>),
}

impl ListOrder<'_> {
    /// Returns what a tool is ranked by, largest first.
    pub fn rank(&self, tool: &ToolRef<'_>) -> u64 {
        match self {
            ListOrder::Name => 0,
            ListOrder::Tokens => u64::from(tool.catalog_source.segment.token_count(tool.entry)),
            ListOrder::Calls(calls) => calls.get(tool.name().as_str()).copied().unwrap_or_default(),
        }
    }

    /// Returns the tokens of a tool as a list in this order shows them.
    pub(crate) fn tokens(&self, tool: &ToolRef<'_>) -> Option<u32> {
        match self {
            ListOrder::Tokens => Some(tool.catalog_source.segment.token_count(tool.entry)),
            ListOrder::Name | ListOrder::Calls(_) => tool.tokens(),
        }
    }

    /// Sorts tools that are in name order. Tools of equal rank stay in that order.
    pub fn sort(&self, tools: &mut [ToolRef<'_>]) {
        if !matches!(self, ListOrder::Name) {
            tools.sort_by_cached_key(|tool| Reverse(self.rank(tool)));
        }
    }
}
