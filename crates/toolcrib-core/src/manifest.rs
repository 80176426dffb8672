//! Manifests: the tool list of a source at one moment, normalised, bounded, sorted and identified by its fingerprint.
//!
//! An invalid tool is skipped with a reason and does not affect the others: one tool without a usable schema
//! must not lose the whole list, as it does in clients that parse a list as one typed value.
//!
//! The flow: raw definitions ─▶ `normalize` (one tool at a time) ─▶ [`Manifest`] ─▶ [`PackedManifest`] (stored form) ─▶
//! [`Delta`](crate::delta::Delta) against the previous one.
//!
//! Limits: [`ToolLimits`] bounds each single tool here. The maximum size of a tool list is enforced before, while the
//! list is read: for MCP servers by `toolcrib_mcp::ClientLimits` (number of tools, of pages, and bytes of all pages),
//! for OpenAPI documents by `openapi::convert` (number of operations and bytes of all tools).

mod normalize;
mod packed;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::fingerprint::Fingerprint;
use crate::json;
use crate::source::SourceId;
use crate::text::sanitize_truncated;
use crate::tool::Tool;

pub(crate) use normalize::sanitize_schema;
pub use packed::{ListTraits, OperationTraits, PackedManifest, PackedTool};

/// Parsed tool list of a source. [`PackedManifest`] is its stored form.
#[derive(Debug, Clone)]
pub struct Manifest {
    pub source: SourceId,
    pub fingerprint: Fingerprint,
    /// Tools with their fingerprints, in byte order of their own names.
    pub tools: Vec<(Tool, Fingerprint)>,
    /// Tools that were offered and cannot be used, and faults in parts of usable tools, which OpenAPI sources report.
    /// Sorted by name.
    pub skipped: Vec<SkippedTool>,
    /// Description of the source by itself, for search. Not part of the fingerprint.
    pub about: Option<String>,
}

/// Tool that a source offers but that is not exposed, with the reason. For OpenAPI sources also a part of the document
/// that was left out because of a fault, while the tool itself is usable.
///
/// The reason is part of the manifest's fingerprint: rewording one looks like a changed tool list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SkippedTool {
    /// Name of the tool, or its position such as `#3` where it has no usable name; for OpenAPI a JSON pointer.
    pub name: String,
    pub reason: String,
}

/// Size limits of a single tool. A tool beyond them is skipped with a reason; the others of its list stay.
///
/// Not the maximum size of a tool list: that is enforced on the wire, by `toolcrib_mcp::ClientLimits` (`max_tools`,
/// `max_pages`, `max_list_bytes`), where a list beyond it fails as a whole. OpenAPI documents are bounded by
/// `openapi::convert`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimits {
    /// Size of the input schema and of the output schema, each, in bytes of JSON text as received.
    pub max_schema_bytes: usize,
    /// Nesting depth of a schema. Everything that recurses over a schema relies on it.
    pub max_schema_depth: usize,
    /// Size of the whole definition in bytes of JSON text as received.
    pub max_tool_bytes: usize,
}

impl Default for ToolLimits {
    fn default() -> Self {
        ToolLimits { max_schema_bytes: 256 * 1024, max_schema_depth: 64, max_tool_bytes: 1024 * 1024 }
    }
}

impl Manifest {
    /// Builds a manifest from the tool definitions of a source as they were received. `already_skipped` are tools that
    /// were rejected before. The number of tools is not limited here: the maximum size of a tool list is enforced where
    /// the list is read, see [`ToolLimits`]. Never fails; a list of invalid tools is a manifest without tools.
    pub fn new(
        source: &SourceId,
        offered: &[Box<RawValue>],
        already_skipped: Vec<SkippedTool>,
        limits: &ToolLimits,
    ) -> Manifest {
        let mut tools = Vec::new();
        let mut skipped = already_skipped;
        let mut seen = BTreeSet::new();
        for (position, raw) in offered.iter().enumerate() {
            match normalize::normalize_tool(source, raw, position, limits) {
                Ok((tool, _)) if !seen.insert(tool.name.clone()) => {
                    let reason = "the source offers this name twice; the first one is kept".into();
                    skipped.push(SkippedTool { name: tool.name, reason });
                }
                Ok(tool) => tools.push(tool),
                Err(rejected) => skipped.push(rejected),
            }
        }
        // Servers may list their tools in any order. Sorted, the same tools have the same fingerprint, and lookups can
        // use binary search.
        tools.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
        skipped.sort();
        let fingerprints = tools.iter().map(|(tool, fingerprint)| (tool.name.as_str(), *fingerprint));
        let fingerprint = compute_fingerprint(source, fingerprints, &skipped);
        Manifest { source: source.clone(), fingerprint, tools, skipped, about: None }
    }

    /// Sets the description of the source, sanitised and truncated.
    pub fn with_about(self, about: Option<&str>) -> Manifest {
        // Enough for search, and bounded since the text comes from the source.
        const MAX_ABOUT_LEN: usize = 600;
        let about = about.map(|about| sanitize_truncated(about, MAX_ABOUT_LEN)).filter(|about| !about.is_empty());
        Manifest { about, ..self }
    }
}

/// Hashes source, tools and skipped tools as canonical JSON. The text must never change: fingerprints are stored.
fn compute_fingerprint<'a>(
    source: &SourceId,
    tools: impl Iterator<Item = (&'a str, Fingerprint)>,
    skipped: &[SkippedTool],
) -> Fingerprint {
    let mut canonical = String::from("{\"set_aside\":[");
    for (index, tool) in skipped.iter().enumerate() {
        canonical.push_str(if index > 0 { ",[" } else { "[" });
        json::push_json_string(&tool.name, &mut canonical);
        canonical.push(',');
        json::push_json_string(&tool.reason, &mut canonical);
        canonical.push(']');
    }
    canonical.push_str("],\"source\":");
    json::push_json_string(source.as_str(), &mut canonical);
    canonical.push_str(",\"tools\":[");
    for (index, (name, fingerprint)) in tools.enumerate() {
        canonical.push_str(if index > 0 { ",[" } else { "[" });
        json::push_json_string(name, &mut canonical);
        canonical.push_str(&format!(",\"{fingerprint}\"]"));
    }
    canonical.push_str("]}");
    Fingerprint::digest(canonical)
}

#[cfg(test)]
mod tests;
