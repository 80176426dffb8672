//! Result of a call as the tool returned it, or one page of it. Content, structured content and `_meta` are slices of
//! the raw JSON, so a result that is only forwarded is never parsed into values.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use toolcrib_core::SourceId;

use crate::tool_result::{ResultLayout, ToolResult};

/// Result of a call.
#[derive(Clone)]
#[non_exhaustive]
pub struct CallOutput {
    /// The whole MCP result as the source sent it, unknown fields included. For a paged result, the result of this
    /// page.
    pub raw: Box<RawValue>,
    /// Duration of the call, in milliseconds.
    pub elapsed_ms: u64,
    /// The source that answered.
    pub source: SourceId,
    /// Set for a page of a result that is too large for one response.
    pub page: Option<ResultPage>,
    /// Byte ranges of the result's fields within `raw`.
    layout: ResultLayout,
}

/// Position of a page within a large result.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ResultPage {
    /// Number of this page, starting at 1.
    pub number: usize,
    /// Number of pages in total.
    #[serde(rename = "of")]
    pub page_count: usize,
    /// Cursor of the next page, for `Registry::result_page`.
    pub next: Option<String>,
    /// Size of the whole result.
    pub total_bytes: u64,
}

impl CallOutput {
    /// Wraps a tool's result. `elapsed_ms` is set when the call has ended.
    pub fn new(source: SourceId, result: ToolResult, page: Option<ResultPage>) -> CallOutput {
        CallOutput { raw: result.raw, elapsed_ms: 0, source, page, layout: result.layout }
    }

    /// Returns the content blocks, a JSON array.
    pub fn content(&self) -> &str {
        self.layout.content(&self.raw)
    }

    /// Returns the text blocks of the content, one per line; empty if there is none.
    pub fn text(&self) -> String {
        #[derive(serde::Deserialize)]
        struct ContentBlock {
            #[serde(default)]
            text: Option<String>,
        }
        let blocks: Vec<ContentBlock> = serde_json::from_str(self.content()).unwrap_or_default();
        blocks.into_iter().filter_map(|block| block.text).collect::<Vec<_>>().join("\n")
    }

    /// Returns the structured content, as JSON.
    pub fn structured(&self) -> Option<&str> {
        self.layout.structured(&self.raw)
    }

    /// Returns the result's `_meta`, as JSON.
    pub fn meta(&self) -> Option<&str> {
        self.layout.meta(&self.raw)
    }

    /// Whether the tool itself reported an error (`isError`).
    pub fn is_error(&self) -> bool {
        self.layout.is_error
    }
}

/// Serialized as `{"content", "structured", "is_error", "elapsed_ms", "source"}`, with `meta` and `page` if present.
impl Serialize for CallOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fn parse_raw<E: serde::ser::Error>(text: &str) -> Result<&RawValue, E> {
            serde_json::from_str(text).map_err(E::custom)
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("content", parse_raw::<S::Error>(self.content())?)?;
        map.serialize_entry("structured", &self.structured().map(parse_raw::<S::Error>).transpose()?)?;
        map.serialize_entry("is_error", &self.is_error())?;
        map.serialize_entry("elapsed_ms", &self.elapsed_ms)?;
        map.serialize_entry("source", &self.source)?;
        if let Some(meta) = self.meta() {
            map.serialize_entry("meta", parse_raw::<S::Error>(meta)?)?;
        }
        if let Some(page) = &self.page {
            map.serialize_entry("page", page)?;
        }
        map.end()
    }
}

/// Omits the content: results may hold sensitive data and do not belong in logs.
impl fmt::Debug for CallOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("CallOutput");
        debug.field("source", &self.source).field("is_error", &self.is_error()).field("bytes", &self.raw.get().len());
        debug.field("page", &self.page).finish_non_exhaustive()
    }
}
