//! The tools of one source with their names in the catalogue. Built once per manifest and shared by all later
//! catalogues; everything expensive (schemas, postings, token counts) is computed on first use.
//!
//! Names in the catalogue are made here, see [`ToolName`]. They are unique within the segment: two tools whose names
//! become the same text are told apart by a hash.
//!
//! ```text
//! original        in the catalogue of the source `hub`
//! create_issue    hub__create_issue
//! create.issue    hub__create_issue_152d8b45    (the plain name is taken by the first)
//! ```

mod cost;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;
use toolcrib_core::error::Result;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::manifest::{ListTraits, PackedManifest, PackedTool, SkippedTool};
use toolcrib_core::source::SourceId;
use toolcrib_core::tool::{Hints, SEPARATOR, TaskMode, Tool, ToolName};
use toolcrib_schema::Validator;

use crate::render;
use crate::render::CachedProjection;
use crate::search::Postings;
use crate::search::embeddings::{ByModel, EmbeddingModel, SegmentPieces};

/// Tools of one source.
///
/// More than twenty methods: readers of the packed text, which no other type may slice.
#[derive(Debug)]
pub struct Segment {
    /// Owns the text that entries refer to; nothing of it is copied.
    packed: Arc<PackedManifest>,
    /// `source__`, or empty for a built-in source.
    prefix: String,
    /// Sorted by name in the catalogue.
    entries: Vec<SegmentEntry>,
    /// Position in `entries` of each tool of the manifest.
    positions_by_original: Vec<usize>,
    /// Built by the first search.
    postings: OnceLock<Postings>,
    /// Built by the first search with a model.
    pieces: ByModel<SegmentPieces>,
    /// Tokens of each tool of the manifest; counted on first use where they are not stored.
    token_counts: OnceLock<Vec<u32>>,
    /// Traits of each tool of a manifest whose index has none; parsed on first use.
    parsed_traits: OnceLock<Vec<ListTraits>>,
}

/// One tool of a segment.
#[derive(Debug)]
pub struct SegmentEntry {
    /// Name in the catalogue.
    pub name: ToolName,
    /// Position in the manifest.
    tool_index: usize,
    /// Parsed by the first call.
    call_spec: OnceLock<Arc<CallSpec>>,
    /// Rendered by the first MCP list; `None` inside if the stored tool cannot be parsed.
    mcp_json: OnceLock<Option<Arc<str>>>,
    /// Rendered by the first list in the format `openai-strict`.
    pub(crate) openai_strict: CachedProjection,
    /// Rendered by the first list in the format `gemini`.
    pub(crate) gemini: CachedProjection,
}

/// Whether names are in byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameOrder {
    Sorted,
    Unsorted,
}

/// Parts of a tool that a call needs, parsed once.
#[derive(Debug)]
pub struct CallSpec {
    /// Validates arguments against the full input schema.
    pub validator: Validator,
    /// Input schema as listed, which may be pruned.
    pub input_schema: Arc<RawValue>,
    /// [`ExecutionSpec`](toolcrib_core::execution::ExecutionSpec) as JSON; `None` for tools of MCP servers.
    pub execution_spec: Option<Arc<RawValue>>,
    /// Decide whether a call may be retried after it was sent.
    pub hints: Hints,
    pub task_support: TaskMode,
}

impl Segment {
    /// Builds a segment whose tools are named `source__tool`.
    pub fn with_prefix(packed: Arc<PackedManifest>) -> Segment {
        let prefix = format!("{}{SEPARATOR}", packed.source);
        Segment::build(packed, prefix)
    }

    /// Builds a segment whose tools keep their original names, for built-in sources.
    pub fn without_prefix(packed: Arc<PackedManifest>) -> Segment {
        Segment::build(packed, String::new())
    }

    /// Assigns unique names and sorts the entries by them.
    /// The result depends on the manifest alone, so a tool keeps its name when other sources change.
    fn build(packed: Arc<PackedManifest>, prefix: String) -> Segment {
        let names: Vec<ToolName> =
            packed.tools.iter().map(|tool| ToolName::from_original(&prefix, &tool.name)).collect();
        let is_unchanged = |name: &ToolName, tool: &PackedTool| name.as_str().strip_prefix(&prefix) == Some(&tool.name);
        let all_unchanged = names.iter().zip(&packed.tools).all(|(name, tool)| is_unchanged(name, tool));
        // A tool whose original name is valid keeps it, even if the name of another tool is sanitised to the same text.
        let is_taken_unchanged = |name: &ToolName| {
            let original = name.as_str().strip_prefix(&prefix).unwrap_or_default();
            packed.tools.binary_search_by(|tool| tool.name.as_str().cmp(original)).is_ok()
        };
        // Tools are visited in order of their original names: the first of several that become the same text gets it,
        // the others a hash.
        let mut taken: BTreeSet<ToolName> = BTreeSet::new();
        let unique = names.into_iter().zip(&packed.tools).map(|(name, tool)| {
            let free = is_unchanged(&name, tool) || (!is_taken_unchanged(&name) && taken.insert(name.clone()));
            if free { name } else { ToolName::with_hash(&prefix, &tool.name) }
        });
        let names: Vec<ToolName> = unique.collect();
        // The manifest is sorted by original name, so unchanged names are in order already.
        let order = if all_unchanged { NameOrder::Sorted } else { NameOrder::Unsorted };
        Segment::with_names(packed, prefix, names, order)
    }

    /// Returns the tools of the segment for which `is_visible` is true, by their own names. They keep their names in the
    /// catalogue, and the fingerprint is that of the remaining list.
    #[must_use]
    pub fn restrict(&self, is_visible: impl Fn(&str) -> bool) -> Segment {
        let packed = self.packed.restrict(&is_visible);
        let positions = self.packed.tools.iter().zip(&self.positions_by_original);
        let names = positions.filter(|(tool, _)| is_visible(&tool.name)).map(|(_, at)| self.entries[*at].name.clone());
        Segment::with_names(Arc::new(packed), self.prefix.clone(), names.collect(), NameOrder::Unsorted)
    }

    /// Returns the same tools with another description of their source.
    #[must_use]
    pub(super) fn with_about(&self, about: String) -> Segment {
        let packed = PackedManifest { about: Some(about), ..(*self.packed).clone() };
        let names = self.positions_by_original.iter().map(|at| self.entries[*at].name.clone()).collect();
        Segment::with_names(Arc::new(packed), self.prefix.clone(), names, NameOrder::Unsorted)
    }

    /// Builds a segment from the name in the catalogue of each tool of the manifest.
    fn with_names(packed: Arc<PackedManifest>, prefix: String, names: Vec<ToolName>, order: NameOrder) -> Segment {
        let entries = names.into_iter().enumerate().map(|(tool_index, name)| SegmentEntry {
            name,
            tool_index,
            call_spec: OnceLock::new(),
            mcp_json: OnceLock::new(),
            openai_strict: CachedProjection::default(),
            gemini: CachedProjection::default(),
        });
        let mut entries: Vec<SegmentEntry> = entries.collect();
        if order == NameOrder::Unsorted {
            entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let mut positions_by_original: Vec<usize> = vec![0; entries.len()];
        for (position, entry) in entries.iter().enumerate() {
            positions_by_original[entry.tool_index] = position;
        }
        Segment {
            packed,
            prefix,
            entries,
            positions_by_original,
            postings: OnceLock::new(),
            pieces: ByModel::default(),
            token_counts: OnceLock::new(),
            parsed_traits: OnceLock::new(),
        }
    }

    /// Id of the source.
    pub fn source(&self) -> &SourceId {
        &self.packed.source
    }

    /// Fingerprint of the manifest.
    pub fn fingerprint(&self) -> Fingerprint {
        self.packed.fingerprint
    }

    /// The manifest in its stored form.
    pub fn packed(&self) -> &Arc<PackedManifest> {
        &self.packed
    }

    /// `source__`, or empty for built-in sources.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// All tools, sorted by name.
    pub fn entries(&self) -> &[SegmentEntry] {
        &self.entries
    }

    /// Tools that were skipped when the manifest was built, and faults in parts of usable tools.
    pub fn skipped(&self) -> &[SkippedTool] {
        &self.packed.skipped
    }

    /// Position of a tool by its name in the catalogue.
    /// Logarithmic in the number of tools.
    pub fn position_of_name(&self, name: &str) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()
    }

    /// Position of a tool by its original name. The manifest is sorted by original names, the entries by their names in
    /// the catalogue.
    pub fn position_of_original(&self, original: &str) -> Option<usize> {
        let tool_index = self.packed.tools.binary_search_by(|tool| tool.name.as_str().cmp(original)).ok()?;
        self.positions_by_original.get(tool_index).copied()
    }

    /// The source's own name for a tool, as calls to the source must use it.
    pub fn original_name(&self, entry: &SegmentEntry) -> &str {
        &self.packed_tool(entry).name
    }

    /// The tool as stored in the manifest.
    pub fn packed_tool(&self, entry: &SegmentEntry) -> &PackedTool {
        &self.packed.tools[entry.tool_index]
    }

    /// Tags and visibility of a tool. Parses all tools once if an older version recorded the list.
    pub(super) fn traits(&self, entry: &SegmentEntry) -> &ListTraits {
        if self.packed.has_traits {
            return &self.packed_tool(entry).traits;
        }
        let parsed = self.parsed_traits.get_or_init(|| {
            let parse = |tool: &PackedTool| self.packed.tool(tool).map(|tool| ListTraits::from_tool(&tool));
            self.packed.tools.iter().map(|tool| parse(tool).unwrap_or_default()).collect()
        });
        &parsed[entry.tool_index]
    }

    /// Returns the fields of a tool's listing as JSON text without the enclosing braces.
    pub fn listing_json(&self, entry: &SegmentEntry) -> &str {
        self.packed.listing_json(self.packed_tool(entry))
    }

    /// Parses a stored tool. Fails with `INTERNAL` if the stored text is damaged; MCP lists leave out such a tool.
    pub fn tool(&self, entry: &SegmentEntry) -> Result<Tool> {
        self.packed.tool(self.packed_tool(entry))
    }

    /// Pieces of the tools' texts for semantic search, computed on first use; `None` after too many other models.
    pub(crate) fn pieces(&self, model: &EmbeddingModel) -> Option<&SegmentPieces> {
        self.pieces.get_or_init(model, || SegmentPieces::build(self, model))
    }

    /// Inverted index of the tools, built on first use.
    pub(crate) fn postings(&self) -> &Postings {
        self.postings.get_or_init(|| Postings::build(self))
    }

    /// The tool as `tools/list` of MCP shows it, rendered on first use; `None` if it cannot be parsed.
    pub fn mcp_json(&self, entry: &SegmentEntry) -> Option<Arc<str>> {
        let json = entry.mcp_json.get_or_init(|| {
            let mut text = String::new();
            render::mcp::push_tool(entry.name.as_str(), &self.tool(entry).ok()?, &mut text);
            Some(text.into())
        });
        json.clone()
    }

    /// Returns what a call needs, parsed on first use.
    /// Fails if the stored tool cannot be parsed. Failures are not cached.
    pub fn call_spec<'a>(&'a self, entry: &'a SegmentEntry) -> Result<&'a Arc<CallSpec>> {
        if let Some(call_spec) = entry.call_spec.get() {
            return Ok(call_spec);
        }
        let tool = self.tool(entry)?;
        // Lists may show a pruned schema; arguments are validated against the full one.
        let full_schema = tool.parse_execution_spec().and_then(|spec| spec.input_schema).map(Arc::from);
        // Two calls at once may both get here; the first result is kept and the other one dropped.
        let hints = tool.hints();
        let task_support = tool.task_support();
        let input_schema: Arc<RawValue> = tool.listing.input_schema.into();
        Ok(entry.call_spec.get_or_init(|| {
            Arc::new(CallSpec {
                validator: Validator::new(full_schema.unwrap_or_else(|| input_schema.clone())),
                hints,
                task_support,
                input_schema,
                execution_spec: tool.execution_spec.map(Into::into),
            })
        }))
    }
}
