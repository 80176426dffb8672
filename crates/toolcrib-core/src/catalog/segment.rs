//! One source's tools with their names, built once per manifest and shared by every catalogue after it.

mod cost;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;

use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::manifest::{Packed, PackedTool, SetAside};
use crate::render;
use crate::render::Kept;
use crate::schema::Validator;
use crate::search::Postings;
use crate::source::SourceId;
use crate::tool::{Hints, SEPARATOR, Tool, ToolName};

#[derive(Debug)]
pub struct Segment {
    packed: Arc<Packed>,
    prefix: String,
    /// In byte order of the names agents see.
    entries: Vec<Entry>,
    /// Positions in `entries`, in the order of the manifest.
    by_original: Vec<usize>,
    /// Made by the first search.
    postings: OnceLock<Postings>,
    /// Tokens of each tool, in the order of the manifest; counted when somebody first needs them.
    counts: OnceLock<Vec<u32>>,
}

#[derive(Debug)]
pub struct Entry {
    pub name: ToolName,
    packed: usize,
    /// Made when the first call needs it.
    calling: OnceLock<Arc<Calling>>,
    /// Made by the first full list; nothing when it cannot be read.
    mcp: OnceLock<Option<Arc<str>>>,
    pub(crate) strict: Kept,
    pub(crate) gemini: Kept,
}

/// What every call of a tool needs to know about it.
#[derive(Debug)]
pub struct Calling {
    pub validator: Validator,
    /// As it is listed.
    pub input_schema: Arc<RawValue>,
    /// How it is carried out, where this process knows that itself.
    pub backing: Option<Arc<RawValue>>,
    pub hints: Hints,
}

impl Segment {
    /// Tools of a prefixed source are `source__tool`.
    pub fn prefixed(packed: Arc<Packed>) -> Segment {
        let prefix = format!("{}{SEPARATOR}", packed.source);
        Segment::build(packed, prefix)
    }

    /// Built-in tools stand under their own names.
    pub fn bare(packed: Arc<Packed>) -> Segment {
        Segment::build(packed, String::new())
    }

    fn build(packed: Arc<Packed>, prefix: String) -> Segment {
        let plain: Vec<ToolName> = packed.tools.iter().map(|tool| ToolName::plain(&prefix, &tool.name)).collect();
        let is_own = |name: &ToolName, tool: &PackedTool| name.as_str().strip_prefix(&prefix) == Some(&tool.name);
        let all_own = plain.iter().zip(&packed.tools).all(|(name, tool)| is_own(name, tool));
        // A tool whose name needed no change keeps it, whatever the others are made into.
        let kept = |name: &ToolName| {
            let own = name.as_str().strip_prefix(&prefix).unwrap_or_default();
            packed.tools.binary_search_by(|tool| tool.name.as_str().cmp(own)).is_ok()
        };
        let mut taken: BTreeSet<ToolName> = BTreeSet::new();
        let mut entries: Vec<Entry> = Vec::with_capacity(plain.len());
        for (index, (name, tool)) in plain.into_iter().zip(&packed.tools).enumerate() {
            let free = is_own(&name, tool) || (!kept(&name) && taken.insert(name.clone()));
            let name = if free { name } else { ToolName::hashed(&prefix, &tool.name) };
            entries.push(Entry {
                name,
                packed: index,
                calling: OnceLock::new(),
                mcp: OnceLock::new(),
                strict: Kept::default(),
                gemini: Kept::default(),
            });
        }
        if !all_own {
            entries.sort_by(|one, other| one.name.cmp(&other.name));
        }
        let mut by_original: Vec<usize> = vec![0; entries.len()];
        for (position, entry) in entries.iter().enumerate() {
            by_original[entry.packed] = position;
        }
        Segment { packed, prefix, entries, by_original, postings: OnceLock::new(), counts: OnceLock::new() }
    }

    pub fn source(&self) -> &SourceId {
        &self.packed.source
    }

    pub fn fingerprint(&self) -> Fingerprint {
        self.packed.fingerprint
    }

    pub fn packed(&self) -> &Arc<Packed> {
        &self.packed
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn set_aside(&self) -> &[SetAside] {
        &self.packed.set_aside
    }

    pub fn position_of_name(&self, name: &str) -> Option<usize> {
        self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()
    }

    pub fn position_of_original(&self, original: &str) -> Option<usize> {
        let found = self.packed.tools.binary_search_by(|tool| tool.name.as_str().cmp(original)).ok()?;
        self.by_original.get(found).copied()
    }

    /// The source's own name for a tool.
    pub fn original(&self, entry: &Entry) -> &str {
        &self.stored(entry).name
    }

    pub fn stored(&self, entry: &Entry) -> &PackedTool {
        &self.packed.tools[entry.packed]
    }

    pub fn listed(&self, entry: &Entry) -> &str {
        self.packed.listed(self.stored(entry))
    }

    pub fn tool(&self, entry: &Entry) -> Result<Tool> {
        self.packed.tool(self.stored(entry))
    }

    /// What a search reads.
    pub(crate) fn postings(&self) -> &Postings {
        self.postings.get_or_init(|| Postings::build(self))
    }

    /// The tool as MCP lists it.
    pub fn mcp(&self, entry: &Entry) -> Option<Arc<str>> {
        let written = entry.mcp.get_or_init(|| {
            let mut text = String::new();
            render::mcp::push(entry.name.as_str(), &self.tool(entry).ok()?, &mut text);
            Some(text.into())
        });
        written.clone()
    }

    pub fn calling<'a>(&'a self, entry: &'a Entry) -> Result<&'a Arc<Calling>> {
        if let Some(calling) = entry.calling.get() {
            return Ok(calling);
        }
        let tool = self.tool(entry)?;
        // Lists may show a pruned schema; arguments are validated against the whole one.
        let whole = tool.backing().and_then(|backing| backing.input_schema).map(Arc::from);
        let hints = tool.hints();
        let input_schema: Arc<RawValue> = tool.face.input_schema.into();
        Ok(entry.calling.get_or_init(|| {
            Arc::new(Calling {
                validator: Validator::new(whole.unwrap_or_else(|| input_schema.clone())),
                hints,
                input_schema,
                backing: tool.backing.map(Into::into),
            })
        }))
    }
}
