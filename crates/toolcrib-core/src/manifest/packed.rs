//! A manifest as it is stored and served: one body of text, and an index of where each tool lies in it.
//! A start reads the index and parses no tool that nobody asks for.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Manifest, SetAsideTool};
use crate::error::{Code, Result, ResultExt};
use crate::fingerprint::Fingerprint;
use crate::source::SourceId;
use crate::tool::Tool;

#[derive(Debug, Clone)]
pub struct PackedManifest {
    pub source: SourceId,
    pub fingerprint: Fingerprint,
    /// In byte order of their own names.
    pub tools: Vec<PackedTool>,
    pub set_aside: Vec<SetAsideTool>,
    /// What the source says about itself, for search.
    pub about: Option<String>,
    /// Each tool's JSON, one after the other.
    pub body: Arc<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackedTool {
    pub name: String,
    pub fingerprint: Fingerprint,
    /// What it costs an agent to be shown it, as MCP lists it; 0 where nobody has counted yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u32,
    start: usize,
    /// From here on stands what lists show.
    face_start: usize,
    end: usize,
}

fn is_zero(tokens: &u32) -> bool {
    *tokens == 0
}

#[derive(Serialize, Deserialize)]
struct ManifestIndex {
    source: SourceId,
    tools: Vec<PackedTool>,
    set_aside: Vec<SetAsideTool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    about: Option<String>,
}

impl PackedManifest {
    pub fn new(manifest: &Manifest) -> Result<PackedManifest> {
        let mut body = String::new();
        let mut tools = Vec::with_capacity(manifest.tools.len());
        for (tool, fingerprint) in &manifest.tools {
            let start = body.len();
            body.push_str(&serde_json::to_string(tool).context(Code::Internal, "write a tool as JSON")?);
            let face = serde_json::to_string(&tool.listing).context(Code::Internal, "write a tool as JSON")?;
            // The face stands last: `…,"face":{…}}`.
            let face_start = body.len() - 1 - face.len();
            let (name, fingerprint) = (tool.name.clone(), *fingerprint);
            tools.push(PackedTool { name, fingerprint, tokens: 0, start, face_start, end: body.len() });
        }
        Ok(PackedManifest {
            source: manifest.source.clone(),
            fingerprint: manifest.fingerprint,
            tools,
            set_aside: manifest.set_aside.clone(),
            about: manifest.about.clone(),
            body: Arc::new(body),
        })
    }

    /// The index as it is stored, beside the body.
    pub fn index_json(&self) -> Result<String> {
        let index = ManifestIndex {
            source: self.source.clone(),
            tools: self.tools.clone(),
            set_aside: self.set_aside.clone(),
            about: self.about.clone(),
        };
        serde_json::to_string(&index).context(Code::Internal, "write a manifest's index")
    }

    pub fn read(fingerprint: Fingerprint, index: &str, body: String) -> Result<PackedManifest> {
        let index: ManifestIndex = serde_json::from_str(index).context(Code::Internal, "read a manifest's index")?;
        let whole = index.tools.iter().all(|tool| {
            tool.start < tool.face_start && tool.face_start + 2 < tool.end && body.get(tool.start..tool.end).is_some()
        });
        if !whole {
            let message = format!("the stored manifest `{}` is damaged", fingerprint.short_hex(12));
            return Err(crate::Error::new(Code::Internal, message));
        }
        let ManifestIndex { source, tools, set_aside, about } = index;
        Ok(PackedManifest { source, fingerprint, tools, set_aside, about, body: Arc::new(body) })
    }

    /// The tool, parsed.
    pub fn tool(&self, packed: &PackedTool) -> Result<Tool> {
        let text = self.slice(packed.start..packed.end);
        serde_json::from_str(text).context(Code::Internal, format!("read the stored tool `{}`", packed.name))
    }

    /// What is wrong with the stored content, if anything: every fingerprint is made again from the text it names.
    pub fn find_damage(&self) -> Option<String> {
        for stored in &self.tools {
            let tool = match self.tool(stored) {
                Ok(tool) => tool,
                Err(error) => return Some(error.message),
            };
            if tool.name != stored.name || tool.to_offered_fields().fingerprint() != stored.fingerprint {
                return Some(format!("the stored tool `{}` is not what its fingerprint names", stored.name));
            }
        }
        let tools = self.tools.iter().map(|tool| (tool.name.as_str(), tool.fingerprint));
        let whole = super::compute_fingerprint(&self.source, tools, &self.set_aside) == self.fingerprint;
        (!whole).then(|| "the stored list is not what its fingerprint names".to_owned())
    }

    /// `"title":…,"description":…,"input_schema":…,"annotations":…`, as lists show it.
    pub fn listing_json(&self, packed: &PackedTool) -> &str {
        self.slice(packed.face_start + 1..packed.end - 2)
    }

    fn slice(&self, range: Range<usize>) -> &str {
        self.body.get(range).unwrap_or_default()
    }
}
