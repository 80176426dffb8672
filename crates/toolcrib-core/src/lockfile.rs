//! A lockfile: what every source offered at one moment, by names and fingerprints, as text that stays the same byte for
//! byte while nothing changes and that a version control system shows line by line.

mod line_index;
mod parts;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalog::Segment;
use crate::compare::WorkBudget;
use crate::error::{Code, Error, Result, ResultExt};
use crate::fingerprint::Fingerprint;
use crate::json;
use crate::source::SourceId;

pub use line_index::LockfileLines;
pub use parts::ToolParts;

const LOCKFILE_VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lockfile {
    pub version: u32,
    pub sources: BTreeMap<SourceId, LockedSource>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockedSource {
    pub inventory_hash: Fingerprint,
    /// By the names agents see.
    pub tools: BTreeMap<String, LockedTool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LockedTool {
    pub fingerprint: Fingerprint,
    /// What can be told of a change when the definition itself is not at hand.
    #[serde(flatten)]
    pub parts: ToolParts,
}

impl Lockfile {
    pub fn from_segments<'a>(segments: impl Iterator<Item = &'a Segment>) -> Result<Lockfile> {
        Lockfile::with_budget(segments, &mut WorkBudget::for_lockfile())
    }

    /// What is past the allowance is left short. Segments have their tools in the order of names, so that it is always
    /// the same ones.
    pub(crate) fn with_budget<'a>(
        segments: impl Iterator<Item = &'a Segment>,
        allowance: &mut WorkBudget,
    ) -> Result<Lockfile> {
        let sources =
            segments.map(|segment| Ok((segment.source().clone(), LockedSource::from_segment(segment, allowance)?)));
        Ok(Lockfile { version: LOCKFILE_VERSION, sources: sources.collect::<Result<_>>()? })
    }

    /// Reads what [`Lock::text`] wrote.
    pub fn parse(text: &str) -> Result<Lockfile> {
        // What else a newer version may hold is not known.
        #[derive(Deserialize)]
        struct VersionField {
            version: u32,
        }
        if let Ok(VersionField { version }) = serde_json::from_str(text) {
            check_version(version)?;
        }
        serde_json::from_str(text).map_err(|error| {
            let message = match text.trim().is_empty() {
                true => "this is no lockfile, it is empty".to_owned(),
                false => format!("this is no lockfile (line {}, column {})", error.line(), error.column()),
            };
            Error::new(Code::BadRequest, message).with_cause(error)
        })
    }

    /// One of a version that is known here.
    pub fn validate(self) -> Result<Lockfile> {
        check_version(self.version)?;
        Ok(self)
    }

    /// One tool a line, all in the order of their names.
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
                text.push_str(&serde_json::to_string(tool).context(Code::Internal, "write a lockfile")?);
            }
            text.push_str(if source.tools.is_empty() { "}\n    }" } else { "\n      }\n    }" });
        }
        text.push_str(if self.sources.is_empty() { "}\n}\n" } else { "\n  }\n}\n" });
        Ok(text)
    }
}

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
    fn from_segment(segment: &Segment, allowance: &mut WorkBudget) -> Result<LockedSource> {
        let locked = segment.entries().iter().map(|entry| {
            let parts = ToolParts::from_tool(&segment.tool(entry)?, allowance);
            Ok((entry.name.to_string(), LockedTool { fingerprint: segment.packed_tool(entry).fingerprint, parts }))
        });
        Ok(LockedSource { inventory_hash: segment.fingerprint(), tools: locked.collect::<Result<_>>()? })
    }
}
