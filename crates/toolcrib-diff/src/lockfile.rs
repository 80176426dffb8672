//! The lockfile: names and fingerprints of all tools at one point in time. Its text is byte-identical while nothing
//! changes, with one line per tool, so that version control shows each change.
//!
//! ```json
//! {"version": 1,
//!  "sources": {"github": {"inventory_hash": "9f86…", "tools": {
//!    "github__push": {"fingerprint": "ba78…", "text": "3e23…", "input": "44bd…", "hints": "destructive"}}}}}
//! ```
//!
//! Writing and parsing are here; comparing a lockfile with the current tools is in `compare` and `diff`. A lockfile has
//! descriptions as fingerprints only, and short schemas in full.

mod line_index;
mod parts;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toolcrib_catalog::Segment;
use toolcrib_core::error::{Code, Error, Result, ResultExt};
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::json;
use toolcrib_core::source::SourceId;
use toolcrib_schema::WorkBudget;

pub use line_index::LockfileLines;
pub use parts::ToolParts;

/// Version of the format, raised when older versions of Toolcrib could misread it.
const LOCKFILE_VERSION: u32 = 1;

/// Returns the budget for a lockfile of a whole catalogue: tens of thousands of ordinary schemas.
pub(crate) fn new_budget() -> WorkBudget {
    WorkBudget::new(5_000_000)
}

/// Content of a lockfile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lockfile {
    /// Version of the format.
    pub version: u32,
    /// Sorted by id, like all maps here, which keeps the text stable.
    pub sources: BTreeMap<SourceId, LockedSource>,
}

/// The tools of one source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockedSource {
    /// Fingerprint of its manifest.
    pub inventory_hash: Fingerprint,
    /// By the name that agents see.
    pub tools: BTreeMap<String, LockedTool>,
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockedTool {
    /// Fingerprint of the whole definition: equal means unchanged.
    pub fingerprint: Fingerprint,
    /// Tells how the tool changed when the definition itself is not in the store.
    #[serde(flatten)]
    pub parts: ToolParts,
}

impl Lockfile {
    /// Locks all tools of a catalogue. Includes hidden and disabled tools. Fails if a stored tool cannot be parsed.
    pub fn from_segments<'a>(segments: impl Iterator<Item = &'a Segment>) -> Result<Lockfile> {
        Lockfile::with_budget(segments, &mut new_budget())
    }

    /// Locks all tools within a budget. Once it is spent, schemas are stored as verbatim fingerprints only. Segments
    /// are sorted by name, so that it is always the same tools.
    pub(crate) fn with_budget<'a>(
        segments: impl Iterator<Item = &'a Segment>,
        budget: &mut WorkBudget,
    ) -> Result<Lockfile> {
        let sources =
            segments.map(|segment| Ok((segment.source().clone(), LockedSource::from_segment(segment, budget)?)));
        Ok(Lockfile { version: LOCKFILE_VERSION, sources: sources.collect::<Result<_>>()? })
    }

    /// Parses what [`Lockfile::to_text`] wrote. Any formatting is accepted. Fails with `BAD_REQUEST` and the place of
    /// the error for other text and other versions.
    pub fn parse(text: &str) -> Result<Lockfile> {
        // Checks the version first, since a newer format may not parse at all.
        #[derive(Deserialize)]
        struct VersionField {
            version: u32,
        }
        if let Ok(VersionField { version }) = serde_json::from_str(text) {
            check_version(version)?;
        }
        serde_json::from_str(text).map_err(|error| {
            let message = if text.trim().is_empty() {
                "not a lockfile: it is empty".to_owned()
            } else {
                format!("not a lockfile (line {}, column {})", error.line(), error.column())
            };
            Error::new(Code::BadRequest, message).with_cause(error)
        })
    }

    /// Returns an error if the version is not supported. For lockfiles that were not parsed by [`Lockfile::parse`].
    pub fn validate(self) -> Result<Lockfile> {
        check_version(self.version)?;
        Ok(self)
    }

    /// Renders the file with one tool per line, sorted by name.
    /// Written by hand, because serde's pretty printer would spread a tool over many lines.
    pub fn to_text(&self) -> Result<String> {
        let mut text = format!("{{\n  \"version\": {},\n  \"sources\": {{", self.version);
        for (index, (id, source)) in self.sources.iter().enumerate() {
            text.push_str(if index > 0 { ",\n    " } else { "\n    " });
            json::push_json_string(id.as_str(), &mut text);
            text.push_str(&format!(
                ": {{\n      \"inventory_hash\": \"{}\",\n      \"tools\": {{",
                source.inventory_hash
            ));
            for (index, (name, tool)) in source.tools.iter().enumerate() {
                text.push_str(if index > 0 { ",\n        " } else { "\n        " });
                json::push_json_string(name, &mut text);
                text.push_str(": ");
                text.push_str(&serde_json::to_string(tool).context(Code::Internal, "cannot serialize the lockfile")?);
            }
            text.push_str(if source.tools.is_empty() { "}\n    }" } else { "\n      }\n    }" });
        }
        text.push_str(if self.sources.is_empty() { "}\n}\n" } else { "\n  }\n}\n" });
        Ok(text)
    }
}

/// Returns an error for a version that this build does not read.
fn check_version(version: u32) -> Result<()> {
    if version == LOCKFILE_VERSION {
        return Ok(());
    }
    let newer = if version > LOCKFILE_VERSION { "; a newer Toolcrib wrote it" } else { "" };
    let message =
        format!("this lockfile has version {version}, and this Toolcrib reads version {LOCKFILE_VERSION}{newer}");
    Err(Error::new(Code::BadRequest, message))
}

impl LockedSource {
    /// Locks the tools of one source.
    fn from_segment(segment: &Segment, budget: &mut WorkBudget) -> Result<LockedSource> {
        let tools = segment.entries().iter().map(|entry| {
            let parts = ToolParts::from_tool(&segment.tool(entry)?, None, budget);
            Ok((entry.name.to_string(), LockedTool { fingerprint: segment.packed_tool(entry).fingerprint, parts }))
        });
        Ok(LockedSource { inventory_hash: segment.fingerprint(), tools: tools.collect::<Result<_>>()? })
    }
}
