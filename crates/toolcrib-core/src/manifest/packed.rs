//! Stored form of a manifest: one text with all tools, and an index of their positions.
//!
//! Startup reads only the index; a tool is parsed when it is first used.
//!
//! ```text
//! body    {"name":"push",…,"face":{"title":…}}{"name":"tag",…,"face":{…}}
//!         ^ start                 ^ listing_start
//! index   {"source":"git","tools":[{"name":"push","fingerprint":"…","start":0,"face_start":24,"end":36}, …]}
//! ```
//!
//! The part that lists show (`face`) is the last field of each tool, so a list is made by cutting it out of the body.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Manifest, SkippedTool};
use crate::access_rules::RiskHints;
use crate::error::{Code, Result, ResultExt};
use crate::execution::ExecutionMode;
use crate::fingerprint::Fingerprint;
use crate::json;
use crate::source::SourceId;
use crate::text::sanitize_truncated;
use crate::tool::Tool;

/// Manifest with its tools as unparsed JSON.
#[derive(Debug, Clone)]
pub struct PackedManifest {
    pub source: SourceId,
    pub fingerprint: Fingerprint,
    /// Index of the tools, in byte order of their own names.
    pub tools: Vec<PackedTool>,
    pub skipped: Vec<SkippedTool>,
    /// Description of the source by itself, for search. See [`PackedManifest::with_recorded_fingerprint`].
    pub about: Option<String>,
    /// Whether the index has the traits of its tools. Lists recorded by an older version have none, or not all.
    pub has_traits: bool,
    /// JSON of all tools, concatenated.
    pub body: Arc<String>,
}

/// Index entry of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedTool {
    /// The tool's own name.
    pub name: String,
    pub fingerprint: Fingerprint,
    /// Number of tokens of the tool as MCP lists it; 0 if not counted yet.
    pub tokens: u32,
    /// Traits of the tool; incomplete without [`PackedManifest::has_traits`].
    pub traits: ListTraits,
    /// Start of the tool's JSON in the body.
    start: usize,
    /// Start of the part that tool lists show.
    listing_start: usize,
    /// End of the tool's JSON, exclusive.
    end: usize,
}

/// Properties of a tool that filters and access rules need, kept in the index so that no list has to parse the tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListTraits {
    /// Tags of the OpenAPI operation. For tools of MCP servers the caller must ignore them, as the execution
    /// specification.
    pub tags: Vec<String>,
    /// Whether the tool is for MCP Apps alone, see [`Tool::is_app_only`].
    pub app_only: bool,
    /// Method and path of the OpenAPI operation. For tools of MCP servers the caller must ignore it, like the tags.
    pub operation: Option<OperationTraits>,
    /// Hints of the source about the risk of calling the tool.
    pub hints: RiskHints,
}

/// Method and path template of an OpenAPI operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationTraits {
    /// In upper case.
    pub method: String,
    pub path: String,
}

impl ListTraits {
    /// Maximum number of tags of a tool, and of bytes of each: they come from the source and are in every list.
    const MAX_TAGS: usize = 32;
    const MAX_TAG_LEN: usize = 100;

    /// Reads the traits of a tool.
    pub fn from_tool(tool: &Tool) -> ListTraits {
        let mut tags: Vec<String> = Vec::new();
        let (spec_tags, mode) = tool.parse_execution_spec().map(|spec| (spec.tags, spec.execution)).unzip();
        for tag in spec_tags.unwrap_or_default() {
            let tag = sanitize_truncated(&tag, ListTraits::MAX_TAG_LEN);
            if tags.len() < ListTraits::MAX_TAGS && !tag.is_empty() && !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        let operation = match mode {
            Some(ExecutionMode::SyncHttp(operation) | ExecutionMode::AsyncPoll { operation, .. }) => {
                Some(OperationTraits { method: operation.method, path: operation.path })
            }
            Some(ExecutionMode::McpCall | ExecutionMode::Workflow { .. }) | None => None,
        };
        ListTraits { tags, app_only: tool.is_app_only(), operation, hints: tool.risk_hints() }
    }
}

/// Stored form of the index.
#[derive(Serialize, Deserialize)]
struct StoredIndex<'a> {
    source: Cow<'a, SourceId>,
    tools: Vec<StoredTool<'a>>,
    #[serde(rename = "set_aside")]
    skipped: Cow<'a, [SkippedTool]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    about: Option<Cow<'a, str>>,
    /// Whether tags and visibility are there.
    #[serde(default, skip_serializing_if = "is_false")]
    traits: bool,
    /// Whether operations and hints are there, which were added later.
    #[serde(default, skip_serializing_if = "is_false")]
    risk_traits: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredTool<'a> {
    name: Cow<'a, str>,
    fingerprint: Fingerprint,
    #[serde(default, skip_serializing_if = "is_zero")]
    tokens: u32,
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    tags: Cow<'a, [String]>,
    #[serde(default, skip_serializing_if = "is_false")]
    app_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation: Option<Cow<'a, OperationTraits>>,
    #[serde(default, skip_serializing_if = "is_default_hints")]
    hints: RiskHints,
    start: usize,
    #[serde(rename = "face_start")]
    listing_start: usize,
    end: usize,
}

fn is_zero(tokens: &u32) -> bool {
    *tokens == 0
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_default_hints(hints: &RiskHints) -> bool {
    *hints == RiskHints::default()
}

impl PackedManifest {
    /// Serialises a parsed manifest.
    pub fn new(manifest: &Manifest) -> Result<PackedManifest> {
        let mut body = String::new();
        let mut tools = Vec::with_capacity(manifest.tools.len());
        for (tool, fingerprint) in &manifest.tools {
            let start = body.len();
            body.push_str(&serde_json::to_string(tool).context(Code::Internal, "cannot serialize a tool")?);
            let listing = serde_json::to_string(&tool.listing).context(Code::Internal, "cannot serialize a tool")?;
            // The listing is the last field of a tool: `…,"face":{…}}`.
            let listing_start = body.len() - 1 - listing.len();
            tools.push(PackedTool {
                name: tool.name.clone(),
                fingerprint: *fingerprint,
                tokens: 0,
                traits: ListTraits::from_tool(tool),
                start,
                listing_start,
                end: body.len(),
            });
        }
        Ok(PackedManifest {
            source: manifest.source.clone(),
            fingerprint: manifest.fingerprint,
            tools,
            skipped: manifest.skipped.clone(),
            about: manifest.about.clone(),
            has_traits: true,
            body: Arc::new(body),
        })
    }

    /// Identifies the list by its description too, so that a changed one is recorded like a changed tool. A list that is
    /// the same as the `known` one keeps its fingerprint, which does not cover the description if an older version
    /// recorded it; nor does that of a list without one.
    #[must_use]
    pub fn with_recorded_fingerprint(self, known: Option<&PackedManifest>) -> PackedManifest {
        let tools_alone = self.fingerprint;
        let with_about = self.fingerprint_with_about();
        let same_tools = known.filter(|known| [tools_alone, with_about].contains(&known.fingerprint));
        let fingerprint = match same_tools {
            Some(known) if known.about == self.about => known.fingerprint,
            Some(known) if known.fingerprint == tools_alone => with_about,
            Some(_) | None if self.about.is_none() => tools_alone,
            Some(_) | None => with_about,
        };
        PackedManifest { fingerprint, ..self }
    }

    /// Hashes tools, skipped tools and description. The text must never change: fingerprints are stored.
    fn fingerprint_with_about(&self) -> Fingerprint {
        let about = self.about.as_deref().unwrap_or_default();
        Fingerprint::digest(format!("{} {about}", self.tools_fingerprint()))
    }

    /// Hashes tools and skipped tools, without the description.
    pub fn tools_fingerprint(&self) -> Fingerprint {
        let tools = self.tools.iter().map(|tool| (tool.name.as_str(), tool.fingerprint));
        super::compute_fingerprint(&self.source, tools, &self.skipped)
    }

    /// Whether two stored forms differ in the order of keys at most, which no fingerprint covers: a source may send the
    /// keys of its schemas in another order each time. False if one of them is damaged, or if an older version stored
    /// what it shows in another form.
    pub fn has_same_content(&self, other: &PackedManifest) -> bool {
        let is_same_tool = |(one, another): (&PackedTool, &PackedTool)| {
            one.name == another.name
                && one.fingerprint == another.fingerprint
                && match (self.canonical_tool(one), other.canonical_tool(another)) {
                    (Some(one), Some(another)) => one == another,
                    (None, _) | (_, None) => false,
                }
        };
        self.fingerprint == other.fingerprint
            && self.about == other.about
            && self.tools.len() == other.tools.len()
            && (self.body == other.body || self.tools.iter().zip(&other.tools).all(is_same_tool))
    }

    /// Returns the JSON of a tool with sorted keys; `None` if it is not valid.
    fn canonical_tool(&self, packed: &PackedTool) -> Option<String> {
        let mut canonical = String::new();
        json::push_canonical(serde_json::from_str(self.tool_text(packed)).ok()?, &mut canonical);
        Some(canonical)
    }

    /// Returns the index in its stored form. The body is stored separately.
    pub fn index_json(&self) -> Result<String> {
        let index = StoredIndex {
            source: Cow::Borrowed(&self.source),
            tools: self.tools.iter().map(StoredTool::new).collect(),
            skipped: Cow::Borrowed(&self.skipped),
            about: self.about.as_deref().map(Cow::Borrowed),
            traits: self.has_traits,
            risk_traits: self.has_traits,
        };
        serde_json::to_string(&index).context(Code::Internal, "cannot serialize the index of a manifest")
    }

    /// Restores a manifest from its stored index and body. Checks offsets, not contents: see [`Self::find_damage`].
    pub fn read(fingerprint: Fingerprint, index: &str, body: String) -> Result<PackedManifest> {
        let index: StoredIndex<'_> =
            serde_json::from_str(index).context(Code::Internal, "cannot read the index of a manifest")?;
        let is_valid = index.tools.iter().all(|tool| {
            tool.start < tool.listing_start
                && tool.listing_start + 2 < tool.end
                && body.get(tool.start..tool.end).is_some()
        });
        if !is_valid {
            let message = format!("the stored manifest `{}` is damaged", fingerprint.short_hex(12));
            return Err(crate::Error::new(Code::Internal, message));
        }
        let StoredIndex { source, tools, skipped, about, traits, risk_traits } = index;
        Ok(PackedManifest {
            source: source.into_owned(),
            fingerprint,
            tools: tools.into_iter().map(StoredTool::into_packed).collect(),
            skipped: skipped.into_owned(),
            about: about.map(Cow::into_owned),
            has_traits: traits && risk_traits,
            body: Arc::new(body),
        })
    }

    /// Parses a tool.
    pub fn tool(&self, packed: &PackedTool) -> Result<Tool> {
        serde_json::from_str(self.tool_text(packed))
            .context(Code::Internal, format!("cannot read the stored tool `{}`", packed.name))
    }

    /// Verifies the stored content by computing every fingerprint again. Returns a description of the first damage.
    /// Parses all tools, so it is for `verify` and not for a start.
    pub fn find_damage(&self) -> Option<String> {
        for stored in &self.tools {
            let tool = match self.tool(stored) {
                Ok(tool) => tool,
                Err(error) => return Some(error.message),
            };
            if tool.name != stored.name || tool.to_offered_fields().fingerprint() != stored.fingerprint {
                return Some(format!("the stored tool `{}` does not match its fingerprint", stored.name));
            }
        }
        let matches = [self.tools_fingerprint(), self.fingerprint_with_about()].contains(&self.fingerprint);
        (!matches).then(|| "the stored manifest does not match its fingerprint".to_owned())
    }

    /// Returns the manifest without the tools and skipped tools for which `is_visible` is false, by their own names.
    /// Shares the body; the fingerprint is that of the remaining list.
    #[must_use]
    pub fn restrict(&self, is_visible: impl Fn(&str) -> bool) -> PackedManifest {
        let tools: Vec<PackedTool> = self.tools.iter().filter(|tool| is_visible(&tool.name)).cloned().collect();
        let skipped: Vec<SkippedTool> = self.skipped.iter().filter(|tool| is_visible(&tool.name)).cloned().collect();
        let restricted = PackedManifest { tools, skipped, ..self.clone() };
        PackedManifest { fingerprint: restricted.tools_fingerprint(), ..restricted }
    }

    /// Returns the fields that tool lists show, without parsing:
    /// `"title":…,"description":…,"input_schema":…,"annotations":…`.
    pub fn listing_json(&self, packed: &PackedTool) -> &str {
        self.slice(packed.listing_start + 1..packed.end - 2)
    }

    /// Returns the stored JSON of a tool.
    pub fn tool_text(&self, packed: &PackedTool) -> &str {
        self.slice(packed.start..packed.end)
    }

    /// Returns a part of the body; empty for an invalid range, which `read` rules out.
    fn slice(&self, range: Range<usize>) -> &str {
        self.body.get(range).unwrap_or_default()
    }
}

impl<'a> StoredTool<'a> {
    fn new(tool: &'a PackedTool) -> StoredTool<'a> {
        let PackedTool { name, fingerprint, tokens, traits, start, listing_start, end } = tool;
        StoredTool {
            name: Cow::Borrowed(name),
            fingerprint: *fingerprint,
            tokens: *tokens,
            tags: Cow::Borrowed(&traits.tags),
            app_only: traits.app_only,
            operation: traits.operation.as_ref().map(Cow::Borrowed),
            hints: traits.hints,
            start: *start,
            listing_start: *listing_start,
            end: *end,
        }
    }

    fn into_packed(self) -> PackedTool {
        let StoredTool { name, fingerprint, tokens, tags, app_only, operation, hints, start, listing_start, end } =
            self;
        let operation = operation.map(Cow::into_owned);
        let traits = ListTraits { tags: tags.into_owned(), app_only, operation, hints };
        PackedTool { name: name.into_owned(), fingerprint, tokens, traits, start, listing_start, end }
    }
}
