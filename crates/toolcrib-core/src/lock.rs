//! A lockfile: what every source offered at one moment, by names and fingerprints, as text that stays the same byte for
//! byte while nothing changes and that a version control system shows line by line.

mod lines;
mod parts;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalog::Segment;
use crate::compare::Allowance;
use crate::error::{Code, Error, Result, ResultExt};
use crate::fingerprint::Fingerprint;
use crate::json;
use crate::source::SourceId;

pub use lines::Lines;
pub use parts::Parts;

const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lock {
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
    pub parts: Parts,
}

impl Lock {
    pub fn of<'a>(segments: impl Iterator<Item = &'a Segment>) -> Result<Lock> {
        Lock::within(segments, &mut Allowance::for_a_lock())
    }

    /// What is past the allowance is left short. Segments have their tools in the order of names, so that it is always
    /// the same ones.
    pub(crate) fn within<'a>(segments: impl Iterator<Item = &'a Segment>, allowance: &mut Allowance) -> Result<Lock> {
        let sources = segments.map(|segment| Ok((segment.source().clone(), LockedSource::of(segment, allowance)?)));
        Ok(Lock { version: VERSION, sources: sources.collect::<Result<_>>()? })
    }

    /// Reads what [`Lock::text`] wrote.
    pub fn read(text: &str) -> Result<Lock> {
        // What else a newer version may hold is not known.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if let Ok(Versioned { version }) = serde_json::from_str(text) {
            check(version)?;
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
    pub fn checked(self) -> Result<Lock> {
        check(self.version)?;
        Ok(self)
    }

    /// One tool a line, all in the order of their names.
    pub fn text(&self) -> Result<String> {
        let mut text = format!("{{\n  \"version\": {},\n  \"sources\": {{", self.version);
        for (index, (id, source)) in self.sources.iter().enumerate() {
            text.push_str(if index > 0 { ",\n    " } else { "\n    " });
            json::push_string(id.as_str(), &mut text);
            text.push_str(&format!(
                ": {{\n      \"inventory_hash\": \"{}\",\n      \"tools\": {{",
                source.inventory_hash
            ));
            for (index, (name, tool)) in source.tools.iter().enumerate() {
                text.push_str(if index > 0 { ",\n        " } else { "\n        " });
                json::push_string(name, &mut text);
                text.push_str(": ");
                text.push_str(&serde_json::to_string(tool).context(Code::Internal, "write a lockfile")?);
            }
            text.push_str(if source.tools.is_empty() { "}\n    }" } else { "\n      }\n    }" });
        }
        text.push_str(if self.sources.is_empty() { "}\n}\n" } else { "\n  }\n}\n" });
        Ok(text)
    }
}

fn check(version: u32) -> Result<()> {
    if version == VERSION {
        return Ok(());
    }
    let newer = if version > VERSION { "; a newer Toolcrib wrote it" } else { "" };
    let message = format!("this lockfile has version {version}, and this Toolcrib reads version {VERSION}{newer}");
    Err(Error::new(Code::BadRequest, message))
}

impl LockedSource {
    fn of(segment: &Segment, allowance: &mut Allowance) -> Result<LockedSource> {
        let locked = segment.entries().iter().map(|entry| {
            let parts = Parts::of(&segment.tool(entry)?, allowance);
            Ok((entry.name.to_string(), LockedTool { fingerprint: segment.stored(entry).fingerprint, parts }))
        });
        Ok(LockedSource { inventory_hash: segment.fingerprint(), tools: locked.collect::<Result<_>>()? })
    }
}
