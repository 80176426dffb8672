//! A manifest: everything a source offered at one moment, normalised, bounded, sorted and named by its fingerprint.
//! One bad tool is set aside with its reason; its siblings stay.

mod delta;
mod normalise;
mod packed;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::fingerprint::Fingerprint;
use crate::json;
use crate::source::SourceId;
use crate::text::sanitize_truncated;
use crate::tool::Tool;

pub use delta::{Delta, ToolChange};
pub(crate) use normalise::sanitize_schema;
pub use packed::{PackedManifest, PackedTool};

#[derive(Debug, Clone)]
pub struct Manifest {
    pub source: SourceId,
    pub fingerprint: Fingerprint,
    /// In byte order of their own names.
    pub tools: Vec<(Tool, Fingerprint)>,
    pub set_aside: Vec<SetAsideTool>,
    /// What the source says about itself, for search. No part of any fingerprint.
    pub about: Option<String>,
}

/// A tool that a source offers and agents do not get, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SetAsideTool {
    pub name: String,
    pub reason: String,
}

/// How large a tool may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimits {
    pub max_schema_bytes: usize,
    pub max_schema_depth: usize,
    pub max_tool_bytes: usize,
}

impl Default for ToolLimits {
    fn default() -> Self {
        ToolLimits { max_schema_bytes: 256 * 1024, max_schema_depth: 64, max_tool_bytes: 1024 * 1024 }
    }
}

impl Manifest {
    /// Takes what a source offered, tool by tool, as it came. `excluded` were refused before they got here.
    pub fn new(
        source: &SourceId,
        offered: &[Box<RawValue>],
        excluded: Vec<SetAsideTool>,
        bounds: &ToolLimits,
    ) -> Manifest {
        let (mut tools, mut set_aside) = (Vec::new(), excluded);
        let mut seen = BTreeSet::new();
        for (position, raw) in offered.iter().enumerate() {
            match normalise::normalise_tool(source, raw, position, bounds) {
                Ok((tool, _)) if !seen.insert(tool.name.clone()) => {
                    let reason = "the source offers this name twice; the first one is kept".into();
                    set_aside.push(SetAsideTool { name: tool.name, reason });
                }
                Ok(tool) => tools.push(tool),
                Err(refused) => set_aside.push(refused),
            }
        }
        tools.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        set_aside.sort();
        let named = tools.iter().map(|(tool, fingerprint)| (tool.name.as_str(), *fingerprint));
        let fingerprint = compute_fingerprint(source, named, &set_aside);
        Manifest { source: source.clone(), fingerprint, tools, set_aside, about: None }
    }

    /// With what the source says about itself, cleaned and cut short.
    pub fn with_about(self, about: Option<&str>) -> Manifest {
        const MAX_ABOUT_LEN: usize = 600;
        let about = about.map(|about| sanitize_truncated(about, MAX_ABOUT_LEN)).filter(|about| !about.is_empty());
        Manifest { about, ..self }
    }
}

fn compute_fingerprint<'a>(
    source: &SourceId,
    tools: impl Iterator<Item = (&'a str, Fingerprint)>,
    set_aside: &[SetAsideTool],
) -> Fingerprint {
    let mut canonical = String::from("{\"set_aside\":[");
    for (index, refused) in set_aside.iter().enumerate() {
        canonical.push_str(if index > 0 { ",[" } else { "[" });
        json::push_json_string(&refused.name, &mut canonical);
        canonical.push(',');
        json::push_json_string(&refused.reason, &mut canonical);
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
