//! One source's tools with their names, built once per manifest and shared by every catalogue after it.

mod cost;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;

use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::manifest::{PackedManifest, PackedTool, SetAsideTool};
use crate::render;
use crate::render::CachedProjection;
use crate::schema::Validator;
use crate::search::Postings;
use crate::source::SourceId;
use crate::tool::{Hints, SEPARATOR, Tool, ToolName};

#[derive(Debug)]
pub struct Segment {
    packed: Arc<PackedManifest>,
    prefix: String,
    /// In byte order of the names agents see.
    entries: Vec<SegmentEntry>,
    /// Positions in `entries`, in the order of the manifest.
    positions_by_original: Vec<usize>,
    /// Made by the first search.
    postings: OnceLock<Postings>,
    /// Tokens of each tool, in the order of the manifest; counted when somebody first needs them.
    token_counts: OnceLock<Vec<u32>>,
}

#[derive(Debug)]
pub struct SegmentEntry {
    pub name: ToolName,
    tool_index: usize,
    /// Made when the first call needs it.
    call_spec: OnceLock<Arc<CallSpec>>,
    /// Made by the first full list; nothing when it cannot be read.
    mcp_json: OnceLock<Option<Arc<str>>>,
    pub(crate) openai_strict: CachedProjection,
    pub(crate) gemini: CachedProjection,
}

/// What every call of a tool needs to know about it.
#[derive(Debug)]
pub struct CallSpec {
    pub validator: Validator,
    /// As it is listed.
    pub input_schema: Arc<RawValue>,
    /// How it is carried out, where this process knows that itself.
    pub execution_spec: Option<Arc<RawValue>>,
    pub hints: Hints,
}

impl Segment {
    /// Tools of a prefixed source are `source__tool`.
    pub fn with_prefix(packed: Arc<PackedManifest>) -> Segment {
        let prefix = format!("{}{SEPARATOR}", packed.source);
        Segment::build(packed, prefix)
    }

    /// Built-in tools stand under their own names.
    pub fn without_prefix(packed: Arc<PackedManifest>) -> Segment {
        Segment::build(packed, String::new())
    }

    fn build(packed: Arc<PackedManifest>, prefix: String) -> Segment {
        let plain: Vec<ToolName> =
            packed.tools.iter().map(|tool| ToolName::from_original(&prefix, &tool.name)).collect();
        let is_own = |name: &ToolName, tool: &PackedTool| name.as_str().strip_prefix(&prefix) == Some(&tool.name);
        let all_own = plain.iter().zip(&packed.tools).all(|(name, tool)| is_own(name, tool));
        // A tool whose name needed no change keeps it, whatever the others are made into.
        let kept = |name: &ToolName| {
            let own = name.as_str().strip_prefix(&prefix).unwrap_or_default();
            packed.tools.binary_search_by(|tool| tool.name.as_str().cmp(own)).is_ok()
        };
        let mut taken: BTreeSet<ToolName> = BTreeSet::new();
        let mut entries: Vec<SegmentEntry> = Vec::with_capacity(plain.len());
        for (index, (name, tool)) in plain.into_iter().zip(&packed.tools).enumerate() {
            let free = is_own(&name, tool) || (!kept(&name) && taken.insert(name.clone()));
            let name = if free { name } else { ToolName::with_hash(&prefix, &tool.name) };
            entries.push(SegmentEntry {
                name,
                tool_index: index,
                call_spec: OnceLock::new(),
                mcp_json: OnceLock::new(),
                openai_strict: CachedProjection::default(),
                gemini: CachedProjection::default(),
            });
        }
        if !all_own {
            entries.sort_by(|one, other| one.name.cmp(&other.name));
        }
        let mut by_original: Vec<usize> = vec![0; entries.len()];
        for (position, entry) in entries.iter().enumerate() {
            by_original[entry.tool_index] = position;
        }
        Segment {
            packed,
            prefix,
            entries,
            positions_by_original: by_original,
            postings: OnceLock::new(),
            token_counts: OnceLock::new(),
        }
    }

    pub fn source(&self) -> &SourceId {
        &self.packed.source
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.packed.fingerprint
    }

    pub fn packed(&self) -> &Arc<PackedManifest> {
        &self.packed
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn entries(&self) -> &[SegmentEntry] {
        &self.entries
    }

    pub fn excluded(&self) -> &[SetAsideTool] {
        &self.packed.set_aside
    }

    pub fn position_of_name(&self, name: &str) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()
    }

    pub fn position_of_original(&self, original: &str) -> Option<usize> {
        let found = self.packed.tools.binary_search_by(|tool| tool.name.as_str().cmp(original)).ok()?;
        self.positions_by_original.get(found).copied()
    }

    /// The source's own name for a tool.
    pub fn original_name(&self, entry: &SegmentEntry) -> &str {
        &self.packed_tool(entry).name
    }

    pub fn packed_tool(&self, entry: &SegmentEntry) -> &PackedTool {
        &self.packed.tools[entry.tool_index]
    }

    pub fn listing_json(&self, entry: &SegmentEntry) -> &str {
        self.packed.listing_json(self.packed_tool(entry))
    }

    pub fn tool(&self, entry: &SegmentEntry) -> Result<Tool> {
        self.packed.tool(self.packed_tool(entry))
    }

    /// What a search reads.
    pub(crate) fn postings(&self) -> &Postings {
        self.postings.get_or_init(|| Postings::build(self))
    }

    /// The tool as MCP lists it.
    pub fn mcp_json(&self, entry: &SegmentEntry) -> Option<Arc<str>> {
        let written = entry.mcp_json.get_or_init(|| {
            let mut text = String::new();
            render::mcp::push_tool(entry.name.as_str(), &self.tool(entry).ok()?, &mut text);
            Some(text.into())
        });
        written.clone()
    }

    pub fn call_spec<'a>(&'a self, entry: &'a SegmentEntry) -> Result<&'a Arc<CallSpec>> {
        if let Some(calling) = entry.call_spec.get() {
            return Ok(calling);
        }
        let tool = self.tool(entry)?;
        // Lists may show a pruned schema; arguments are validated against the whole one.
        let whole = tool.parse_execution_spec().and_then(|backing| backing.input_schema).map(Arc::from);
        let hints = tool.hints();
        let input_schema: Arc<RawValue> = tool.listing.input_schema.into();
        Ok(entry.call_spec.get_or_init(|| {
            Arc::new(CallSpec {
                validator: Validator::new(whole.unwrap_or_else(|| input_schema.clone())),
                hints,
                input_schema,
                execution_spec: tool.execution_spec.map(Into::into),
            })
        }))
    }
}
