//! What a tool answered, as it answered; or one page of it.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use toolcrib_core::SourceId;

use crate::connector::{ResultLayout, ToolResult};
use crate::result_pages::is_cursor;

#[derive(Clone)]
pub struct CallOutput {
    /// The whole result as its source sent it, what nobody here understands included. Of a paged result, the result
    /// that this page is.
    pub raw: Box<RawValue>,
    pub elapsed_ms: u64,
    pub source: SourceId,
    /// Of a result too large to be given at once.
    pub page: Option<ResultPage>,
    layout: ResultLayout,
}

/// Which part of a large result this is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ResultPage {
    /// From one.
    pub number: usize,
    #[serde(rename = "of")]
    pub page_count: usize,
    /// What [`Registry::page`](crate::Registry::page) takes for the next one.
    pub next: Option<String>,
    /// Of the whole result.
    pub total_bytes: u64,
}

impl ResultPage {
    /// Whether a text has the form of a cursor, so that it is no argument for a tool.
    pub fn is_cursor(text: &str) -> bool {
        is_cursor(text)
    }
}

impl CallOutput {
    pub(crate) fn new(source: SourceId, answer: ToolResult, page: Option<ResultPage>) -> CallOutput {
        CallOutput { raw: answer.raw, elapsed_ms: 0, source, page, layout: answer.layout }
    }

    /// The content blocks, a JSON array.
    pub fn content(&self) -> &str {
        self.layout.content(&self.raw)
    }

    /// The structured content, as JSON.
    pub fn structured(&self) -> Option<&str> {
        self.layout.structured(&self.raw)
    }

    /// The result's `_meta`, as JSON.
    pub fn meta(&self) -> Option<&str> {
        self.layout.meta(&self.raw)
    }

    /// The tool's own word that it failed.
    pub fn is_error(&self) -> bool {
        self.layout.is_error
    }
}

/// `{"content", "structured", "is_error", "elapsed_ms", "source"}`, and `meta` and `page` where there are such.
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

/// Without the result: what a tool said belongs in no log.
impl fmt::Debug for CallOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Output");
        shown.field("source", &self.source).field("is_error", &self.is_error()).field("bytes", &self.raw.get().len());
        shown.field("page", &self.page).finish_non_exhaustive()
    }
}
