//! Splits a result into pages. Text may be cut, at a line end where one is near; any other block stays whole, and one
//! that is too large for a page stands alone on one, to be read only by who asks for it.

use std::borrow::Cow;

use serde_json::value::RawValue;
use toolcrib_core::json::{RawFields, raw_string};
use toolcrib_core::text::sanitize_truncated;

use super::PageShape;
use crate::connector::ToolResult;

/// What the note on a page may take.
const MAX_NOTE_BYTES: usize = 400;
/// What structured content that stands on each page may take in all.
const MAX_REPEATED_BYTES: usize = 8 * 1024 * 1024;

/// The pages of a result, each a result of its own that ends with a note on where it belongs. `cursor` names the page
/// that a note points to. Fields that are not known here stay on the first page.
pub(super) fn split_into_pages(
    answer: &ToolResult,
    limit: u64,
    shape: PageShape,
    cursor: impl Fn(usize) -> String,
) -> Vec<ToolResult> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let full = limit.saturating_sub(MAX_NOTE_BYTES).max(limit / 2).max(64);
    let fields = RawFields::parse(&answer.raw).unwrap_or_default();
    let first = FirstPage::plan(answer, &fields, PageBudget { without_note: full, limit }, shape);
    let drafts = PageBuilder::build(answer, &first, full);
    let number_of = drafts.len();
    let total = format_size(answer.raw.get().len());
    let mut pages = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let number = index + 1;
        let mut note = match number_of {
            1 => format!("[{total} in all"),
            _ => format!("[page {number} of {number_of}, {total} in all"),
        };
        if number == 1 {
            first.omissions.iter().for_each(|left_out| note.push_str(&format!("; {left_out}")));
        }
        if first.marked_as_error {
            note.push_str("; no failure, but what the tool declares to give is too large to be given");
        }
        match drafts.get(number) {
            Some(next) => {
                note.push_str(&describe_next(next));
                note.push_str(&format!("; the same call with `page: \"{}\"` gives the next]", cursor(number + 1)));
            }
            None if number_of > 1 => note.push_str("; this is the last]"),
            None => note.push(']'),
        }
        let blocks = draft.iter().map(|block| Cow::Borrowed(block.json.as_ref()));
        let blocks = blocks.chain([Cow::Owned(format!("{{\"type\":\"text\",\"text\":{}}}", raw_string(&note)))]);
        let content = format!("[{}]", blocks.collect::<Vec<_>>().join(","));
        // What it is called for the sake of its shape is not the tool's own word.
        let own_word = |mut page: ToolResult| {
            page.layout.is_error = answer.layout.is_error;
            page
        };
        pages.extend(first.build_page(&fields, number, content).map(own_word));
    }
    pages
}

/// What a page may take with its note, and without.
#[derive(Clone, Copy)]
struct PageBudget {
    limit: usize,
    without_note: usize,
}

/// What stands on the first page besides the blocks, and what does not.
struct FirstPage {
    structured: StructuredPlacement,
    keep_others: bool,
    /// It lacks what its shape wants.
    marked_as_error: bool,
    bytes: usize,
    omissions: Vec<String>,
}

/// Where the structured content is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StructuredPlacement {
    FirstPage,
    EveryPage,
    /// It has no place, and the text says less.
    AsText,
    Omitted,
}

impl FirstPage {
    fn plan(
        answer: &ToolResult,
        fields: &RawFields,
        PageBudget { limit, without_note: full }: PageBudget,
        shape: PageShape,
    ) -> FirstPage {
        let others: usize = fields
            .iter()
            .filter(|(name, _)| !matches!(*name, "content" | "structuredContent" | "isError" | "resultType"))
            .map(|(name, value)| name.len() + value.get().len() + 4)
            .sum();
        let structured = answer.layout.structured(&answer.raw).map_or(0, str::len);
        let unplanned = StructuredPlacement::Omitted;
        let left_out = Vec::new();
        let mut plan = FirstPage {
            structured: unplanned,
            keep_others: false,
            marked_as_error: false,
            bytes: 0,
            omissions: left_out,
        };
        // Half a page is for what the tool has to say.
        if others <= full / 2 {
            plan.keep_others = true;
            plan.bytes += others;
        } else {
            plan.omissions.push(format!("what came beside it ({}) does not fit and is left out", format_size(others)));
        }
        if structured == 0 {
            return plan;
        }
        // Who declared nothing, or failed, owes no structured content.
        let owed = shape == PageShape::Declared && !answer.layout.is_error;
        let pages = answer.raw.get().len() / full + 1;
        if owed && structured <= limit && structured.saturating_mul(pages) <= MAX_REPEATED_BYTES {
            plan.structured = StructuredPlacement::EveryPage;
        } else if !owed && plan.bytes + structured <= full / 2 {
            plan.structured = StructuredPlacement::FirstPage;
            plan.bytes += structured;
        } else if text_bytes(answer) < structured / 2 {
            plan.structured = StructuredPlacement::AsText;
            plan.omissions.push("its structured content follows as text".to_owned());
        } else {
            plan.omissions
                .push(format!("its structured content ({}) does not fit and is left out", format_size(structured)));
        }
        plan.marked_as_error = owed && plan.structured != StructuredPlacement::EveryPage;
        plan
    }

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

struct PageBlock<'a> {
    json: Cow<'a, str>,
    /// What it is, when it is no text.
    description: Option<String>,
}

/// Puts blocks on pages, one after the other.
struct PageBuilder<'a> {
    pages: Vec<Vec<PageBlock<'a>>>,
    current: Vec<PageBlock<'a>>,
    remaining: usize,
    capacity: usize,
}

impl<'a> PageBuilder<'a> {
    fn build(answer: &'a ToolResult, first: &FirstPage, full: usize) -> Vec<Vec<PageBlock<'a>>> {
        let room = full.saturating_sub(first.bytes);
        let mut binder = PageBuilder { pages: Vec::new(), current: Vec::new(), remaining: room, capacity: full };
        for block in parse_blocks(answer) {
            binder.add(block);
        }
        if first.structured == StructuredPlacement::AsText
            && let Some(structured) = answer.layout.structured(&answer.raw)
        {
            binder.add_text(&RawFields::default(), structured);
        }
        if !binder.current.is_empty() || binder.pages.is_empty() {
            binder.finish_page();
        }
        binder.pages
    }

    fn finish_page(&mut self) {
        self.pages.push(std::mem::take(&mut self.current));
        self.remaining = self.capacity;
    }

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

    fn add_whole(&mut self, block: PageBlock<'a>) {
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

    fn push(&mut self, block: PageBlock<'a>) {
        self.remaining = self.remaining.saturating_sub(block.json.len() + 1);
        self.current.push(block);
    }

    /// Text in as many blocks as it takes, each with the other fields of the block it comes from.
    fn add_text(&mut self, fields: &RawFields, text: &str) {
        let mut fields = fields.clone();
        fields.insert("type", raw_string("text"));
        let mut written = |piece: &str| {
            fields.insert("text", raw_string(piece));
            serde_json::to_string(&fields).unwrap_or_default()
        };
        let around = written("").len() + 1;
        if around > self.capacity / 2 {
            let json = Cow::Owned(written(text));
            return self.add_whole(PageBlock { json, description: Some("a text with much around it".to_owned()) });
        }
        let mut rest = text;
        while !rest.is_empty() {
            let room = self.remaining.saturating_sub(around);
            let end = find_split(rest, room);
            // A few words at the foot of a page help nobody.
            if end < rest.len() && room < self.capacity / 4 {
                self.finish_page();
                continue;
            }
            let (piece, after) = rest.split_at(end);
            self.push(PageBlock { json: Cow::Owned(written(piece)), description: None });
            rest = after;
            if !rest.is_empty() {
                self.finish_page();
            }
        }
    }
}

fn parse_blocks(answer: &ToolResult) -> Vec<&RawValue> {
    serde_json::from_str(answer.layout.content(&answer.raw)).unwrap_or_default()
}

/// The text of a block that may be cut. One that is no string for us (a lone surrogate, say) may not.
fn block_text(fields: &RawFields) -> Option<String> {
    let is_text = fields.get("type").is_some_and(|kind| kind.get() == "\"text\"");
    serde_json::from_str(fields.get("text").filter(|_| is_text)?.get()).ok()
}

fn text_bytes(answer: &ToolResult) -> usize {
    let parsed = parse_blocks(answer).into_iter().filter_map(RawFields::parse);
    parsed.filter_map(|fields| Some(fields.get("text")?.get().len())).sum()
}

/// Where to cut so that what comes before takes at most `room` bytes in JSON: at the end when all of it does, after a
/// line when the last one ends in the second half, else between two characters. Never at the very beginning.
fn find_split(text: &str, room: usize) -> usize {
    let mut bytes = 0;
    let too_far = text.bytes().position(|byte| {
        bytes += escaped_len(byte);
        bytes > room
    });
    let Some(end) = too_far else { return text.len() };
    let end = (0..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    if end == 0 {
        return text.chars().next().map_or(0, char::len_utf8);
    }
    let line = text[..end].rfind('\n').map(|at| at + 1).filter(|at| *at > end / 2);
    line.unwrap_or(end)
}

/// How many bytes a byte of text takes in a JSON string.
fn escaped_len(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x8 | 0xc => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

/// What the next page has that is no text, for whoever decides whether to ask for it.
fn describe_next(next: &[PageBlock<'_>]) -> String {
    let kinds: Vec<&str> = next.iter().filter_map(|block| block.description.as_deref()).collect();
    match kinds.as_slice() {
        [] => String::new(),
        [kind] => format!("; the next has {kind}"),
        [kind, more @ ..] => format!("; the next has {kind} and {} more", more.len()),
    }
}

fn describe_block(fields: &RawFields, block: &RawValue) -> String {
    let inner = fields.get("resource").and_then(RawFields::parse).unwrap_or_default();
    let word = |name: &str| {
        let raw = fields.get(name).or_else(|| inner.get(name))?;
        serde_json::from_str::<String>(raw.get()).ok().map(|text| sanitize_truncated(&text, 40))
    };
    let kind = word("type").unwrap_or_else(|| "block of no known type".to_owned());
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    match word("mimeType") {
        Some(mime) => format!("{article} {kind} ({mime}, {})", format_size(block.get().len())),
        None => format!("{article} {kind} ({})", format_size(block.get().len())),
    }
}

fn format_size(bytes: usize) -> String {
    const KIB: f64 = 1024.0;
    match bytes as f64 {
        few if few < KIB => format!("{bytes} bytes"),
        some if some < KIB * KIB => format!("{:.1} KiB", some / KIB),
        many => format!("{:.1} MiB", many / (KIB * KIB)),
    }
}

#[cfg(test)]
mod tests;
