//! Splits a result into pages. Text may be cut, at a line end where one is near; any other block stays whole, and one
//! that is too large for a page stands alone on one, to be read only by who asks for it.

use std::borrow::Cow;

use serde_json::value::RawValue;
use toolcrib_core::json::{Fields, string};
use toolcrib_core::text::shown_short;

use super::Shape;
use crate::connector::Answer;

/// What the note on a page may take.
const NOTE: usize = 400;
/// What structured content that stands on each page may take in all.
const REPEATED: usize = 8 * 1024 * 1024;

/// The pages of a result, each a result of its own that ends with a note on where it belongs. `cursor` names the page
/// that a note points to. Fields that are not known here stay on the first page.
pub(super) fn split(answer: &Answer, limit: u64, shape: Shape, cursor: impl Fn(usize) -> String) -> Vec<Answer> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let full = limit.saturating_sub(NOTE).max(limit / 2).max(64);
    let fields = Fields::parse(&answer.raw).unwrap_or_default();
    let first = FirstPage::plan(answer, &fields, Room { full, limit }, shape);
    let drafts = Binder::bind(answer, &first, full);
    let number_of = drafts.len();
    let total = size(answer.raw.get().len());
    let mut pages = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let number = index + 1;
        let mut note = match number_of {
            1 => format!("[{total} in all"),
            _ => format!("[page {number} of {number_of}, {total} in all"),
        };
        if number == 1 {
            first.left_out.iter().for_each(|left_out| note.push_str(&format!("; {left_out}")));
        }
        if first.called_error {
            note.push_str("; no failure, but what the tool declares to give is too large to be given");
        }
        match drafts.get(number) {
            Some(next) => {
                note.push_str(&waiting(next));
                note.push_str(&format!("; the same call with `page: \"{}\"` gives the next]", cursor(number + 1)));
            }
            None if number_of > 1 => note.push_str("; this is the last]"),
            None => note.push(']'),
        }
        let blocks = draft.iter().map(|block| Cow::Borrowed(block.json.as_ref()));
        let blocks = blocks.chain([Cow::Owned(format!("{{\"type\":\"text\",\"text\":{}}}", string(&note)))]);
        let content = format!("[{}]", blocks.collect::<Vec<_>>().join(","));
        // What it is called for the sake of its shape is not the tool's own word.
        let own_word = |mut page: Answer| {
            page.layout.is_error = answer.layout.is_error;
            page
        };
        pages.extend(first.result(&fields, number, content).map(own_word));
    }
    pages
}

/// What a page may take with its note, and without.
#[derive(Clone, Copy)]
struct Room {
    limit: usize,
    full: usize,
}

/// What stands on the first page besides the blocks, and what does not.
struct FirstPage {
    structured: Structured,
    others: bool,
    /// It lacks what its shape wants.
    called_error: bool,
    bytes: usize,
    left_out: Vec<String>,
}

/// Where the structured content is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Structured {
    OnFirst,
    OnEach,
    /// It has no place, and the text says less.
    AsText,
    LeftOut,
}

impl FirstPage {
    fn plan(answer: &Answer, fields: &Fields, Room { limit, full }: Room, shape: Shape) -> FirstPage {
        let others: usize = fields
            .iter()
            .filter(|(name, _)| !matches!(*name, "content" | "structuredContent" | "isError" | "resultType"))
            .map(|(name, value)| name.len() + value.get().len() + 4)
            .sum();
        let structured = answer.layout.structured(&answer.raw).map_or(0, str::len);
        let (unplanned, left_out) = (Structured::LeftOut, Vec::new());
        let mut plan = FirstPage { structured: unplanned, others: false, called_error: false, bytes: 0, left_out };
        // Half a page is for what the tool has to say.
        if others <= full / 2 {
            plan.others = true;
            plan.bytes += others;
        } else {
            plan.left_out.push(format!("what came beside it ({}) does not fit and is left out", size(others)));
        }
        if structured == 0 {
            return plan;
        }
        // Who declared nothing, or failed, owes no structured content.
        let owed = shape == Shape::Declared && !answer.layout.is_error;
        let pages = answer.raw.get().len() / full + 1;
        if owed && structured <= limit && structured.saturating_mul(pages) <= REPEATED {
            plan.structured = Structured::OnEach;
        } else if !owed && plan.bytes + structured <= full / 2 {
            plan.structured = Structured::OnFirst;
            plan.bytes += structured;
        } else if text_bytes(answer) < structured / 2 {
            plan.structured = Structured::AsText;
            plan.left_out.push("its structured content follows as text".to_owned());
        } else {
            plan.left_out.push(format!("its structured content ({}) does not fit and is left out", size(structured)));
        }
        plan.called_error = owed && plan.structured != Structured::OnEach;
        plan
    }

    fn result(&self, fields: &Fields, number: usize, content: String) -> Option<Answer> {
        let mut parts = vec![format!("\"content\":{content}")];
        if self.called_error {
            parts.push("\"isError\":true".to_owned());
        }
        for (name, value) in fields.iter() {
            let stays = match name {
                "content" => false,
                "isError" => !self.called_error,
                "resultType" => true,
                "structuredContent" => match self.structured {
                    Structured::OnFirst => number == 1,
                    Structured::OnEach => true,
                    Structured::AsText | Structured::LeftOut => false,
                },
                _ => number == 1 && self.others,
            };
            if stays {
                parts.push(format!("{}:{}", string(name), value.get()));
            }
        }
        let raw = RawValue::from_string(format!("{{{}}}", parts.join(","))).ok()?;
        Answer::read(raw)
    }
}

struct Block<'a> {
    json: Cow<'a, str>,
    /// What it is, when it is no text.
    kind: Option<String>,
}

/// Puts blocks on pages, one after the other.
struct Binder<'a> {
    pages: Vec<Vec<Block<'a>>>,
    open: Vec<Block<'a>>,
    room: usize,
    full: usize,
}

impl<'a> Binder<'a> {
    fn bind(answer: &'a Answer, first: &FirstPage, full: usize) -> Vec<Vec<Block<'a>>> {
        let room = full.saturating_sub(first.bytes);
        let mut binder = Binder { pages: Vec::new(), open: Vec::new(), room, full };
        for block in blocks(answer) {
            binder.add(block);
        }
        if first.structured == Structured::AsText
            && let Some(structured) = answer.layout.structured(&answer.raw)
        {
            binder.add_text(&Fields::default(), structured);
        }
        if !binder.open.is_empty() || binder.pages.is_empty() {
            binder.turn();
        }
        binder.pages
    }

    fn turn(&mut self) {
        self.pages.push(std::mem::take(&mut self.open));
        self.room = self.full;
    }

    fn add(&mut self, block: &'a RawValue) {
        let fields = Fields::parse(block).unwrap_or_default();
        let fits = block.get().len() < self.room;
        match text_of(&fields) {
            Some(text) if !fits => self.add_text(&fields, &text),
            Some(_) => self.put(Block { json: Cow::Borrowed(block.get()), kind: None }),
            None => self.add_whole(Block { json: Cow::Borrowed(block.get()), kind: Some(kind(&fields, block)) }),
        }
    }

    fn add_whole(&mut self, block: Block<'a>) {
        let oversize = block.json.len() >= self.full;
        let first_page = self.pages.is_empty();
        if block.json.len() >= self.room && (!self.open.is_empty() || first_page) {
            self.turn();
        }
        self.put(block);
        if oversize {
            self.turn();
        }
    }

    fn put(&mut self, block: Block<'a>) {
        self.room = self.room.saturating_sub(block.json.len() + 1);
        self.open.push(block);
    }

    /// Text in as many blocks as it takes, each with the other fields of the block it comes from.
    fn add_text(&mut self, fields: &Fields, text: &str) {
        let mut fields = fields.clone();
        fields.put("type", string("text"));
        let mut written = |piece: &str| {
            fields.put("text", string(piece));
            serde_json::to_string(&fields).unwrap_or_default()
        };
        let around = written("").len() + 1;
        if around > self.full / 2 {
            let json = Cow::Owned(written(text));
            return self.add_whole(Block { json, kind: Some("a text with much around it".to_owned()) });
        }
        let mut rest = text;
        while !rest.is_empty() {
            let room = self.room.saturating_sub(around);
            let end = cut(rest, room);
            // A few words at the foot of a page help nobody.
            if end < rest.len() && room < self.full / 4 {
                self.turn();
                continue;
            }
            let (piece, after) = rest.split_at(end);
            self.put(Block { json: Cow::Owned(written(piece)), kind: None });
            rest = after;
            if !rest.is_empty() {
                self.turn();
            }
        }
    }
}

fn blocks(answer: &Answer) -> Vec<&RawValue> {
    serde_json::from_str(answer.layout.content(&answer.raw)).unwrap_or_default()
}

/// The text of a block that may be cut. One that is no string for us (a lone surrogate, say) may not.
fn text_of(fields: &Fields) -> Option<String> {
    let is_text = fields.get("type").is_some_and(|kind| kind.get() == "\"text\"");
    serde_json::from_str(fields.get("text").filter(|_| is_text)?.get()).ok()
}

fn text_bytes(answer: &Answer) -> usize {
    let parsed = blocks(answer).into_iter().filter_map(Fields::parse);
    parsed.filter_map(|fields| Some(fields.get("text")?.get().len())).sum()
}

/// Where to cut so that what comes before takes at most `room` bytes in JSON: at the end when all of it does, after a
/// line when the last one ends in the second half, else between two characters. Never at the very beginning.
fn cut(text: &str, room: usize) -> usize {
    let mut bytes = 0;
    let too_far = text.bytes().position(|byte| {
        bytes += escaped(byte);
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
fn escaped(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x8 | 0xc => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

/// What the next page has that is no text, for whoever decides whether to ask for it.
fn waiting(next: &[Block<'_>]) -> String {
    let kinds: Vec<&str> = next.iter().filter_map(|block| block.kind.as_deref()).collect();
    match kinds.as_slice() {
        [] => String::new(),
        [kind] => format!("; the next has {kind}"),
        [kind, more @ ..] => format!("; the next has {kind} and {} more", more.len()),
    }
}

fn kind(fields: &Fields, block: &RawValue) -> String {
    let inner = fields.get("resource").and_then(Fields::parse).unwrap_or_default();
    let word = |name: &str| {
        let raw = fields.get(name).or_else(|| inner.get(name))?;
        serde_json::from_str::<String>(raw.get()).ok().map(|text| shown_short(&text, 40))
    };
    let kind = word("type").unwrap_or_else(|| "block of no known type".to_owned());
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    match word("mimeType") {
        Some(mime) => format!("{article} {kind} ({mime}, {})", size(block.get().len())),
        None => format!("{article} {kind} ({})", size(block.get().len())),
    }
}

fn size(bytes: usize) -> String {
    const KIB: f64 = 1024.0;
    match bytes as f64 {
        few if few < KIB => format!("{bytes} bytes"),
        some if some < KIB * KIB => format!("{:.1} KiB", some / KIB),
        many => format!("{:.1} MiB", many / (KIB * KIB)),
    }
}

#[cfg(test)]
mod tests;
