//! Splits a result into pages. Text may be cut, preferably at a line end. Any other block stays whole; one that is too
//! large for a page gets a page of its own, which only a client that asks for it receives.
//!
//! ```text
//! {"content":[{"type":"text","text":"…first part"},
//!             {"type":"text","text":"[page 1 of 3, 2.1 MiB in total; repeat the call with `page: …` for the next]"}]}
//! ```
//!
//! Works on raw JSON: fields that are kept are copied byte by byte, only text that is cut is decoded. Sizes are those
//! of the JSON, because that is what the limit of a response counts.

use std::borrow::Cow;

use serde_json::value::RawValue;
use toolcrib_core::json::{RawFields, raw_string};
use toolcrib_core::text::sanitize_truncated;

use super::PageShape;
use crate::connector::{PAGINATION_KEY, ToolResult};

/// Space reserved on each page for its note. A note has a few parts of bounded length.
const MAX_NOTE_BYTES: usize = 400;
/// Limit for structured content repeated on every page, counted over all pages. Without it, a large structured content
/// times many pages would multiply the memory of one result.
const MAX_REPEATED_BYTES: usize = 8 * 1024 * 1024;

/// Splits a result into pages, each a complete result that ends with a note about its position. `cursor` names the page
/// that a note points to. Unknown fields stay on the first page.
pub(super) fn split_into_pages(
    result: &ToolResult,
    limit: u64,
    shape: PageShape,
    cursor: impl Fn(usize) -> String,
) -> Vec<ToolResult> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let capacity = page_capacity(limit);
    // Plan the fields, distribute the blocks, then write each page with its note.
    let fields = RawFields::parse(&result.raw).unwrap_or_default();
    let mut first = FirstPage::plan(result, &fields, limit, shape);
    // The line about the API's next page is the last block, which many agents never read.
    let api_page = api_page_block(result).filter(|block| block.len() <= capacity / 4);
    first.bytes += api_page.as_ref().map_or(0, String::len);
    let drafts = PageBuilder::build(result, &first, capacity);
    let page_count = drafts.len();
    let total = format_size(result.raw.get().len());
    let mut pages = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let number = index + 1;
        // The note tells agents where they are, what is missing and how to continue. It is the last block, so it does
        // not come between parts of a text.
        let mut note = match page_count {
            1 => format!("[{total} in total"),
            _ => format!("[page {number} of {page_count}, {total} in total"),
        };
        if number == 1 {
            first.omissions.iter().for_each(|omission| note.push_str(&format!("; {omission}")));
        }
        if first.marked_as_error {
            note.push_str("; the call succeeded, but its structured content is too large for one page");
        }
        match drafts.get(number) {
            Some(next) => {
                note.push_str(&describe_next(next));
                note.push_str(&format!("; repeat the call with `page: \"{}\"` for the next]", cursor(number + 1)));
            }
            None if page_count > 1 => note.push_str("; this is the last page]"),
            None => note.push(']'),
        }
        let blocks = draft.iter().map(|block| Cow::Borrowed(block.json.as_ref()));
        let is_repeated = number == 1 && page_count > 1;
        let blocks = blocks.chain(api_page.as_deref().filter(|_| is_repeated).map(Cow::Borrowed));
        let blocks = blocks.chain([Cow::Owned(format!("{{\"type\":\"text\",\"text\":{}}}", raw_string(&note)))]);
        let content = format!("[{}]", blocks.collect::<Vec<_>>().join(","));
        // `isError` may be set only to satisfy the output schema. Statistics and the breaker must see the tool's own
        // flag.
        let with_original_flag = |mut page: ToolResult| {
            page.layout.is_error = result.layout.is_error;
            page
        };
        pages.extend(first.build_page(&fields, number, content).map(with_original_flag));
    }
    pages
}

/// Size of a page without its note. Leaves room for the note, but at least half of a small limit for content.
fn page_capacity(limit: usize) -> usize {
    limit.saturating_sub(MAX_NOTE_BYTES).max(limit / 2).max(64)
}

/// Plan for the fields besides content blocks: kept on the first page, or omitted.
struct FirstPage {
    structured: StructuredPlacement,
    /// Whether fields other than content and structured content are kept.
    keep_others: bool,
    /// The structured content that the output schema requires does not fit, so the pages are marked as errors.
    marked_as_error: bool,
    /// Bytes of the kept fields.
    bytes: usize,
    /// Descriptions of omitted parts, for the note.
    omissions: Vec<String>,
}

/// Placement of the structured content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StructuredPlacement {
    /// Small enough for the first page; not required.
    FirstPage,
    /// Required by the output schema, and small enough to repeat.
    EveryPage,
    /// Does not fit, and the text blocks are much shorter: it follows as text.
    AsText,
    /// Does not fit, and the text blocks say about the same.
    Omitted,
}

impl FirstPage {
    /// Decides what the first page holds.
    fn plan(result: &ToolResult, fields: &RawFields, limit: usize, shape: PageShape) -> FirstPage {
        let capacity = page_capacity(limit);
        let others: usize = fields
            .iter()
            .filter(|(name, _)| !matches!(*name, "content" | "structuredContent" | "isError" | "resultType"))
            .map(|(name, value)| name.len() + value.get().len() + 4)
            .sum();
        let structured = result.layout.structured(&result.raw).map_or(0, str::len);
        let mut plan = FirstPage {
            structured: StructuredPlacement::Omitted,
            keep_others: false,
            marked_as_error: false,
            bytes: 0,
            omissions: Vec::new(),
        };
        // At least half of the page is for content.
        if others <= capacity / 2 {
            plan.keep_others = true;
            plan.bytes += others;
        } else {
            plan.omissions.push(format!("its other fields ({}) do not fit and are left out", format_size(others)));
        }
        if structured == 0 {
            return plan;
        }
        // Results without declared output schema, and errors, need no structured content. Clients reject a result that
        // its tool's output schema does not match, but not an error.
        let needs_structured = shape == PageShape::Declared && !result.layout.is_error;
        // Estimated number of pages, to bound the memory for repeated content.
        let pages = result.raw.get().len() / capacity + 1;
        if needs_structured && structured <= limit && structured.saturating_mul(pages) <= MAX_REPEATED_BYTES {
            plan.structured = StructuredPlacement::EveryPage;
        } else if !needs_structured && plan.bytes + structured <= capacity / 2 {
            plan.structured = StructuredPlacement::FirstPage;
            plan.bytes += structured;
        } else if text_bytes(result) < structured / 2 {
            // The protocol recommends to repeat structured content as text. Where the source does not, it is appended as
            // text.
            plan.structured = StructuredPlacement::AsText;
            plan.omissions.push("its structured content follows as text".to_owned());
        } else {
            plan.omissions
                .push(format!("its structured content ({}) does not fit and is left out", format_size(structured)));
        }
        plan.marked_as_error = needs_structured && plan.structured != StructuredPlacement::EveryPage;
        plan
    }

    /// Assembles the JSON of a page from its content and the fields it keeps.
    fn build_page(&self, fields: &RawFields, number: usize, content: String) -> Option<ToolResult> {
        let mut parts = vec![format!("\"content\":{content}")];
        if self.marked_as_error {
            parts.push("\"isError\":true".to_owned());
        }
        for (name, value) in fields.iter() {
            let stays = match name {
                "content" => false,
                "isError" => !self.marked_as_error,
                "resultType" => true,
                "structuredContent" => match self.structured {
                    StructuredPlacement::FirstPage => number == 1,
                    StructuredPlacement::EveryPage => true,
                    StructuredPlacement::AsText | StructuredPlacement::Omitted => false,
                },
                _ => number == 1 && self.keep_others,
            };
            if stays {
                parts.push(format!("{}:{}", raw_string(name), value.get()));
            }
        }
        let raw = RawValue::from_string(format!("{{{}}}", parts.join(","))).ok()?;
        ToolResult::parse(raw)
    }
}

/// Content block on a page.
struct PageBlock<'a> {
    json: Cow<'a, str>,
    /// Description for the note of the previous page; `None` for text.
    description: Option<String>,
}

/// Distributes blocks over pages in order.
struct PageBuilder<'a> {
    pages: Vec<Vec<PageBlock<'a>>>,
    /// Blocks of the page being filled.
    current: Vec<PageBlock<'a>>,
    /// Bytes left on the page being filled.
    remaining: usize,
    /// Bytes of an empty page.
    capacity: usize,
}

impl<'a> PageBuilder<'a> {
    /// Distributes the blocks of a result over pages. Always returns at least one page.
    fn build(result: &'a ToolResult, first: &FirstPage, capacity: usize) -> Vec<Vec<PageBlock<'a>>> {
        let remaining = capacity.saturating_sub(first.bytes);
        let mut builder = PageBuilder { pages: Vec::new(), current: Vec::new(), remaining, capacity };
        for block in parse_blocks(result) {
            builder.add(block);
        }
        if first.structured == StructuredPlacement::AsText
            && let Some(structured) = result.layout.structured(&result.raw)
        {
            builder.add_text(&RawFields::default(), structured);
        }
        if !builder.current.is_empty() || builder.pages.is_empty() {
            builder.finish_page();
        }
        builder.pages
    }

    /// Starts a new page.
    fn finish_page(&mut self) {
        self.pages.push(std::mem::take(&mut self.current));
        self.remaining = self.capacity;
    }

    /// Adds a block: text may be split, other blocks stay whole.
    fn add(&mut self, block: &'a RawValue) {
        let fields = RawFields::parse(block).unwrap_or_default();
        let fits = block.get().len() < self.remaining;
        match block_text(&fields) {
            Some(text) if !fits => self.add_text(&fields, &text),
            Some(_) => self.push(PageBlock { json: Cow::Borrowed(block.get()), description: None }),
            None => self.add_whole(PageBlock {
                json: Cow::Borrowed(block.get()),
                description: Some(describe_block(&fields, block)),
            }),
        }
    }

    /// Adds a block that must not be split, on a page of its own if it is too large. The first page never holds an
    /// oversized block, since it is returned without being requested.
    fn add_whole(&mut self, block: PageBlock<'a>) {
        // Images and other binary content cannot be cut; an oversized block is read only by a client that asks for its
        // page.
        let oversize = block.json.len() >= self.capacity;
        let first_page = self.pages.is_empty();
        if block.json.len() >= self.remaining && (!self.current.is_empty() || first_page) {
            self.finish_page();
        }
        self.push(block);
        if oversize {
            self.finish_page();
        }
    }

    /// Adds a block to the current page.
    fn push(&mut self, block: PageBlock<'a>) {
        self.remaining = self.remaining.saturating_sub(block.json.len() + 1);
        self.current.push(block);
    }

    /// Adds text in as many blocks as necessary, each with the other fields of the original block.
    fn add_text(&mut self, fields: &RawFields, text: &str) {
        let mut fields = fields.clone();
        fields.insert("type", raw_string("text"));
        let mut block_json = |piece: &str| {
            fields.insert("text", raw_string(piece));
            serde_json::to_string(&fields).unwrap_or_default()
        };
        let overhead = block_json("").len() + 1;
        // Repeating large annotations with each piece would leave no room for the text.
        if overhead > self.capacity / 2 {
            let json = Cow::Owned(block_json(text));
            let description = Some("a text with large annotations".to_owned());
            return self.add_whole(PageBlock { json, description });
        }
        let mut rest = text;
        while !rest.is_empty() {
            let available = self.remaining.saturating_sub(overhead);
            let end = find_split(rest, available);
            // A short piece at the end of a page is not useful: start on the next page instead.
            if end < rest.len() && available < self.capacity / 4 {
                self.finish_page();
                continue;
            }
            let (piece, after) = rest.split_at(end);
            self.push(PageBlock { json: Cow::Owned(block_json(piece)), description: None });
            rest = after;
            if !rest.is_empty() {
                self.finish_page();
            }
        }
    }
}

/// Text block for the first page that repeats how to get the next page of the API's list, which the last block of a
/// result with that `_meta` says.
fn api_page_block(result: &ToolResult) -> Option<String> {
    let meta: RawFields = serde_json::from_str(result.layout.meta(&result.raw)?).ok()?;
    meta.get(PAGINATION_KEY)?;
    let line = block_text(&RawFields::parse(parse_blocks(result).last()?)?)?;
    let line = raw_string(&format!("about the whole result: {line}"));
    Some(format!("{{\"type\":\"text\",\"text\":{line}}}"))
}

/// Content blocks of a result.
fn parse_blocks(result: &ToolResult) -> Vec<&RawValue> {
    serde_json::from_str(result.layout.content(&result.raw)).unwrap_or_default()
}

/// Text of a block that may be split. `None` if it is not a valid string, for example with an unpaired surrogate.
fn block_text(fields: &RawFields) -> Option<String> {
    let is_text = fields.get("type").is_some_and(|kind| kind.get() == "\"text\"");
    serde_json::from_str(fields.get("text").filter(|_| is_text)?.get()).ok()
}

/// Total size of the text blocks.
fn text_bytes(result: &ToolResult) -> usize {
    let parsed = parse_blocks(result).into_iter().filter_map(RawFields::parse);
    parsed.filter_map(|fields| Some(fields.get("text")?.get().len())).sum()
}

/// Position at which to split so that the part before takes at most `available` bytes in JSON: the end if all fits,
/// after a line break in the second half, else between two characters. Never at the very beginning.
fn find_split(text: &str, available: usize) -> usize {
    let mut bytes = 0;
    let first_excess = text.bytes().position(|byte| {
        bytes += escaped_len(byte);
        bytes > available
    });
    let Some(end) = first_excess else { return text.len() };
    let end = text.floor_char_boundary(end);
    // Not even one character fits: take it anyway, so that the loop ends.
    if end == 0 {
        return text.chars().next().map_or(0, char::len_utf8);
    }
    let line = text[..end].rfind('\n').map(|at| at + 1).filter(|at| *at > end / 2);
    line.unwrap_or(end)
}

/// Bytes that a byte of text takes in a JSON string.
fn escaped_len(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x8 | 0xc => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

/// Describes the blocks of the next page that are no text, so that the client can decide whether to read it.
fn describe_next(next: &[PageBlock<'_>]) -> String {
    let kinds: Vec<&str> = next.iter().filter_map(|block| block.description.as_deref()).collect();
    match kinds.as_slice() {
        [] => String::new(),
        [kind] => format!("; the next page has {kind}"),
        [kind, more @ ..] => format!("; the next page has {kind} and {} more", more.len()),
    }
}

/// Type, media type and size of a block.
fn describe_block(fields: &RawFields, block: &RawValue) -> String {
    let inner = fields.get("resource").and_then(RawFields::parse).unwrap_or_default();
    let text_field = |name: &str| {
        let raw = fields.get(name).or_else(|| inner.get(name))?;
        serde_json::from_str::<String>(raw.get()).ok().map(|text| sanitize_truncated(&text, 40))
    };
    let kind = text_field("type").unwrap_or_else(|| "block of unknown type".to_owned());
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    match text_field("mimeType") {
        Some(mime) => format!("{article} {kind} ({mime}, {})", format_size(block.get().len())),
        None => format!("{article} {kind} ({})", format_size(block.get().len())),
    }
}

/// Size in bytes, KiB or MiB.
fn format_size(bytes: usize) -> String {
    const KIB: f64 = 1024.0;
    let size = bytes as f64;
    if size < KIB {
        format!("{bytes} bytes")
    } else if size < KIB * KIB {
        format!("{:.1} KiB", size / KIB)
    } else {
        format!("{:.1} MiB", size / (KIB * KIB))
    }
}

#[cfg(test)]
mod tests;
