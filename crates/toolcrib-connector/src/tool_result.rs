//! Result of a tool call as the source sent it, with the byte ranges of the fields that Toolcrib reads. Only the top
//! level is parsed; unknown fields and the formatting of the JSON are preserved.
//!
//! ```json
//! { "content": [{ "type": "text", "text": "…" }], "structuredContent": {}, "isError": false, "_meta": {} }
//! ```
//!
//! Results may have megabytes, and most pass through unread. So the text is scanned once for the five known keys, and
//! code that needs one slices it out. Whatever changes a result builds a new text and parses the layout again.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::json::{self, RawFields};
use toolcrib_core::text::{may_contain_hidden, sanitize_result};

use crate::redact::{RedactedJson, Redactor};

/// Raw MCP `CallToolResult` with its parsed layout.
#[derive(Clone)]
pub struct ToolResult {
    /// The result exactly as it is passed on to the client.
    pub raw: Box<RawValue>,
    /// Ranges into `raw`; must be parsed again whenever `raw` changes.
    pub layout: ResultLayout,
}

/// Key of `_meta` under which Toolcrib adds notes about a call: a list of strings.
pub const NOTES_KEY: &str = "toolcrib/notes";
/// Key of `_meta` for the status and the headers of an API's response. `"empty": true` in it says that the response had no
/// content: the text of the result is then only its status.
pub const HTTP_KEY: &str = "toolcrib/http";
/// Key of `_meta` for the next page of a list and the number of all items. The last text block of such a result says the
/// same for people and models.
pub const PAGINATION_KEY: &str = "toolcrib/pagination";

/// Start of the protocol's own keys of `_meta`, without the slash, which may be escaped.
const PROTOCOL_NAMESPACE: &str = "io.modelcontextprotocol";
/// Value of `resultType` in an ordinary result of 2026-07-28.
const COMPLETE: &str = "\"complete\"";

impl ToolResult {
    /// Appends a note to `_meta["toolcrib/notes"]`, after those of an upstream Toolcrib. A result that cannot be
    /// changed is returned as it is.
    pub fn with_note(self, note: &str) -> ToolResult {
        let add_note = || {
            let mut result = RawFields::parse(&self.raw)?;
            let mut meta = result.get("_meta").and_then(RawFields::parse).unwrap_or_default();
            // Anything but a list is replaced: the key is Toolcrib's own.
            let mut notes: Vec<Box<RawValue>> =
                meta.get(NOTES_KEY).and_then(|notes| serde_json::from_str(notes.get()).ok()).unwrap_or_default();
            notes.push(json::raw_string(note));
            meta.insert(NOTES_KEY, to_raw_value(&notes).ok()?);
            result.insert("_meta", to_raw_value(&meta).ok()?);
            ToolResult::parse(to_raw_value(&result).ok()?)
        };
        add_note().unwrap_or_else(|| {
            tracing::warn!(note, "a note could not be added to the result");
            self
        })
    }

    /// Removes the fields that concern the source's own connection, see [`without_protocol_fields`]. Parses nothing if
    /// there are none.
    pub fn without_protocol_fields(self) -> ToolResult {
        let names_protocol = |meta: &str| meta.contains(PROTOCOL_NAMESPACE);
        if !self.layout.is_complete && !self.layout.meta(&self.raw).is_some_and(names_protocol) {
            return self;
        }
        let raw = strip_protocol_fields(&self.raw).and_then(ToolResult::parse);
        raw.unwrap_or(self)
    }

    /// Removes control, bidirectional and invisible characters from text for people and models: text blocks, embedded
    /// resources, titles and descriptions of links. Structured content is unchanged. One pass over the bytes decides
    /// whether there is anything to parse.
    pub fn without_hidden_characters(self) -> ToolResult {
        if may_contain_hidden(self.layout.content(&self.raw)) { self.sanitize_content().unwrap_or(self) } else { self }
    }

    /// Returns `None` if nothing has to be removed.
    fn sanitize_content(&self) -> Option<ToolResult> {
        let range = self.layout.content.clone()?;
        let content = self.layout.content(&self.raw);
        // An unpaired surrogate is invalid for serde and would hide the whole block from sanitising.
        let repaired = json::replace_lone_surrogates(content);
        let blocks: Vec<&RawValue> = serde_json::from_str(repaired.as_deref().unwrap_or(content)).ok()?;
        // `None` for each block that stays as it is.
        let clean: Vec<Option<Box<RawValue>>> = blocks.iter().map(|block| sanitize_block(block)).collect();
        if repaired.is_none() && clean.iter().all(Option::is_none) {
            return None;
        }
        let blocks: Vec<&RawValue> =
            blocks.into_iter().zip(&clean).map(|(block, clean)| clean.as_deref().unwrap_or(block)).collect();
        let text = self.raw.get();
        let content = serde_json::to_string(&blocks).ok()?;
        // Replace only the `content` array, so that the rest of the JSON stays byte-identical.
        let text = [&text[..range.start], &content, &text[range.end..]].concat();
        ToolResult::parse(RawValue::from_string(text).ok()?)
    }

    /// Masks secrets of the source. Used for results with `isError`: a tool's error may repeat its arguments or
    /// environment. If the JSON cannot be redacted, a generic error result takes its place.
    pub fn redact(self, redactor: &Redactor) -> ToolResult {
        let redacted = match redactor.redact_json(&self.raw) {
            RedactedJson::Unchanged => return self,
            RedactedJson::Changed(raw) => ToolResult::parse(raw),
            RedactedJson::Unmaskable => None,
        };
        redacted.unwrap_or_else(|| {
            let text = "the tool's error contains a secret of its source and is withheld";
            let result = serde_json::json!({ "content": [{ "type": "text", "text": text }], "isError": true });
            let raw = to_raw_value(&result).unwrap_or_default();
            let layout = ResultLayout::parse(&raw).unwrap_or_default();
            ToolResult { raw, layout }
        })
    }

    /// Returns `None` for anything but a JSON object.
    pub fn parse(raw: Box<RawValue>) -> Option<ToolResult> {
        let layout = ResultLayout::parse(&raw)?;
        Some(ToolResult { raw, layout })
    }
}

/// Removes the fields of a result that concern the source's own connection: the keys of the protocol in `_meta`, and
/// `resultType` of a complete result. Those for the client are made anew, in the form of its version.
pub fn without_protocol_fields(raw: Box<RawValue>) -> Box<RawValue> {
    // A search in the text spares parsing most results. A match at a deeper level costs no more than that.
    let may_have = raw.get().contains(PROTOCOL_NAMESPACE) || raw.get().contains("\"resultType\"");
    let stripped = if may_have { strip_protocol_fields(&raw) } else { None };
    stripped.unwrap_or(raw)
}

/// Returns a result without the fields of the protocol; `None` for anything but an object.
fn strip_protocol_fields(raw: &RawValue) -> Option<Box<RawValue>> {
    let mut result = RawFields::parse(raw)?;
    if result.get("resultType").is_some_and(|kind| kind.get() == COMPLETE) {
        result.remove("resultType");
    }
    if let Some(mut meta) = result.get("_meta").and_then(RawFields::parse) {
        let is_protocol = |key: &str| key.strip_prefix(PROTOCOL_NAMESPACE).is_some_and(|key| key.starts_with('/'));
        let keys: Vec<String> =
            meta.iter().map(|(key, _)| key).filter(|key| is_protocol(key)).map(str::to_owned).collect();
        for key in &keys {
            meta.remove(key);
        }
        if !keys.is_empty() && meta.is_empty() {
            result.remove("_meta");
        } else if !keys.is_empty() {
            result.insert("_meta", to_raw_value(&meta).ok()?);
        }
    }
    to_raw_value(&result).ok()
}

/// Removes hidden characters from one content block. Returns `None` if nothing has to be removed.
fn sanitize_block(block: &RawValue) -> Option<Box<RawValue>> {
    if !may_contain_hidden(block.get()) {
        return None;
    }
    let mut fields = RawFields::parse(block)?;
    let mut changed = false;
    // Fields that are shown or read. URIs, names and MIME types are used for lookups and stay as they are.
    for key in ["text", "title", "description"] {
        changed |= sanitize_field(&mut fields, key);
    }
    if let Some(mut resource) = fields.get("resource").and_then(RawFields::parse)
        && sanitize_field(&mut resource, "text")
    {
        fields.insert("resource", to_raw_value(&resource).ok()?);
        changed = true;
    }
    if changed { to_raw_value(&fields).ok() } else { None }
}

/// Returns whether the field was changed.
fn sanitize_field(fields: &mut RawFields, key: &str) -> bool {
    let text = fields.get(key).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let Some(clean) = text.and_then(|text| sanitize_result(&text)) else { return false };
    fields.insert(key, json::raw_string(&clean));
    true
}

/// Omits the content: results of tools do not belong in logs.
impl fmt::Debug for ToolResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolResult").field("bytes", &self.raw.get().len()).finish_non_exhaustive()
    }
}

/// Byte ranges of the known fields in the text of a result.
#[derive(Debug, Clone, Default)]
pub struct ResultLayout {
    /// `content`, if it is a list.
    content: Option<Range<usize>>,
    /// `structuredContent`, unless it is null.
    structured: Option<Range<usize>>,
    /// `_meta`, unless it is null.
    meta: Option<Range<usize>>,
    /// Value of `isError`; anything but `true` counts as false.
    pub is_error: bool,
    /// The server asks for more input before there is a result (`resultType: "input_required"`).
    pub input_required: bool,
    /// The server marks the result as an ordinary one (`resultType: "complete"`).
    is_complete: bool,
}

impl ResultLayout {
    /// Returns `None` for anything but a JSON object.
    pub fn parse(raw: &RawValue) -> Option<ResultLayout> {
        let fields_found: ResultFields<'_> = serde_json::from_str(raw.get()).ok()?;
        // The borrowed values point into `raw`, so their addresses give the ranges.
        let start = raw.get().as_ptr().addr();
        let range_of = |part: &RawValue| {
            let from = part.get().as_ptr().addr() - start;
            from..from + part.get().len()
        };
        // Compared as text, so a value with JSON escapes is not recognised.
        let is = |part: Option<&RawValue>, text: &str| part.is_some_and(|part| part.get() == text);
        Some(ResultLayout {
            content: fields_found.content.filter(|part| part.get().starts_with('[')).map(range_of),
            structured: fields_found.structured.filter(|part| part.get() != "null").map(range_of),
            meta: fields_found.meta.filter(|part| part.get() != "null").map(range_of),
            is_error: is(fields_found.is_error, "true"),
            input_required: is(fields_found.result_type, "\"input_required\""),
            is_complete: is(fields_found.result_type, COMPLETE),
        })
    }

    /// Text of the `content` array, `[]` if there is none.
    pub fn content<'a>(&self, raw: &'a RawValue) -> &'a str {
        slice_at(raw, self.content.as_ref()).unwrap_or("[]")
    }

    /// Text of `structuredContent`, unless absent or null.
    pub fn structured<'a>(&self, raw: &'a RawValue) -> Option<&'a str> {
        slice_at(raw, self.structured.as_ref())
    }

    /// Text of `_meta`, unless absent or null.
    pub fn meta<'a>(&self, raw: &'a RawValue) -> Option<&'a str> {
        slice_at(raw, self.meta.as_ref())
    }
}

fn slice_at<'a>(raw: &'a RawValue, range: Option<&Range<usize>>) -> Option<&'a str> {
    raw.get().get(range?.clone())
}

/// Known top-level fields, borrowed from the text of a result.
#[derive(Default)]
struct ResultFields<'a> {
    content: Option<&'a RawValue>,
    structured: Option<&'a RawValue>,
    meta: Option<&'a RawValue>,
    is_error: Option<&'a RawValue>,
    result_type: Option<&'a RawValue>,
}

/// Field name, borrowed unless it is written with JSON escapes.
#[derive(Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

/// Implemented by hand because derived code rejects duplicate keys. The last value wins, as in most JSON parsers; a
/// duplicate is no reason to lose a result.
impl<'de: 'a, 'a> Deserialize<'de> for ResultFields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ResultFieldsVisitor;
        impl<'de> Visitor<'de> for ResultFieldsVisitor {
            type Value = ResultFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ResultFields<'de>, M::Error> {
                let mut fields_found = ResultFields::default();
                while let Some((FieldName(name), value)) = map.next_entry::<FieldName<'de>, &'de RawValue>()? {
                    match name.as_ref() {
                        "content" => fields_found.content = Some(value),
                        "structuredContent" => fields_found.structured = Some(value),
                        "_meta" => fields_found.meta = Some(value),
                        "isError" => fields_found.is_error = Some(value),
                        "resultType" => fields_found.result_type = Some(value),
                        _ => {}
                    }
                }
                Ok(fields_found)
            }
        }
        deserializer.deserialize_map(ResultFieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ToolResult> {
        ToolResult::parse(RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn an_error_that_cannot_be_redacted_is_replaced() {
        let redactor = Redactor::new(&["12345678".to_owned()].into());
        let nested = format!("{}12345678{}", "[".repeat(200), "]".repeat(200));
        let raw = RawValue::from_string(format!(r#"{{"content":[],"isError":true,"x":{nested}}}"#)).unwrap();
        let result = ToolResult::parse(raw).unwrap().redact(&redactor);
        assert!(result.layout.is_error && !result.raw.get().contains("12345678"), "{}", result.raw.get());
    }

    #[test]
    fn known_fields_are_found_and_the_rest_is_unchanged() {
        let text = r#"{"vendor": 1, "content": [ {"type":"text"} ], "isError":true,"structuredContent" : {"a":1},"_meta":{"b":2}}"#;
        let ToolResult { raw, layout } = parse(text).unwrap();
        assert_eq!(raw.get(), text);
        assert_eq!(layout.content(&raw), r#"[ {"type":"text"} ]"#);
        assert_eq!((layout.structured(&raw), layout.meta(&raw)), (Some(r#"{"a":1}"#), Some(r#"{"b":2}"#)));
        assert!(layout.is_error && !layout.input_required);
    }

    #[test]
    fn the_protocols_own_fields_are_removed() {
        for (text, expected) in [
            (r#"{"content":[],"resultType":"complete"}"#, r#"{"content":[]}"#),
            (r#"{"content":[],"resultType":"input_required"}"#, r#"{"content":[],"resultType":"input_required"}"#),
            (r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"7"}},"content":[]}"#, r#"{"content":[]}"#),
            (r#"{"_meta":{"io.modelcontextprotocol\/serverInfo":{},"x/y":1}}"#, r#"{"_meta":{"x/y":1}}"#),
            (
                r#"{"_meta":{"io.modelcontextprotocol.x/y":1}, "a":1}"#,
                r#"{"_meta":{"io.modelcontextprotocol.x/y":1},"a":1}"#,
            ),
            (r#"{"content":["resultType"], "_meta":{ }}"#, r#"{"content":["resultType"], "_meta":{ }}"#),
        ] {
            assert_eq!(parse(text).unwrap().without_protocol_fields().raw.get(), expected);
            let raw = without_protocol_fields(RawValue::from_string(text.to_owned()).unwrap());
            assert_eq!(raw.get().replace(' ', ""), expected.replace(' ', ""));
        }
    }

    #[test]
    fn a_note_is_appended_to_existing_notes() {
        for (text, expected) in [
            (r#"{"content":[]}"#, r#"{"content":[],"_meta":{"toolcrib/notes":["b"]}}"#),
            (
                r#"{"_meta":{"a":1,"toolcrib/notes":["a"]},"content":[1]}"#,
                r#"{"_meta":{"a":1,"toolcrib/notes":["a","b"]},"content":[1]}"#,
            ),
            (r#"{"_meta":7}"#, r#"{"_meta":{"toolcrib/notes":["b"]}}"#),
        ] {
            let ToolResult { raw, layout } = parse(text).unwrap().with_note("b");
            assert_eq!(raw.get(), expected);
            assert!(layout.meta(&raw).unwrap().contains("toolcrib/notes"));
        }
    }

    #[test]
    fn text_blocks_are_sanitized_and_the_rest_is_unchanged() {
        for (text, expected) in [
            (
                r#"{"content":[{"type":"text","text":"a\u202eb"}],"structuredContent":{"a":"\u202e"},"n":1.50}"#,
                r#"{"content":[{"type":"text","text":"ab"}],"structuredContent":{"a":"\u202e"},"n":1.50}"#,
            ),
            (
                "{\"content\":[{\"type\":\"text\",\"text\":\"a\u{200b}\",\"_meta\":{\"n\":1.50}},  7]}",
                r#"{"content":[{"type":"text","text":"a","_meta":{"n":1.50}},7]}"#,
            ),
            (
                r#"{"content":[{"type":"resource","resource":{"uri":"u\u200b","text":"\udb40\udc41x"}}]}"#,
                r#"{"content":[{"type":"resource","resource":{"uri":"u\u200b","text":"x"}}]}"#,
            ),
            (
                r#"{"content":[{"type":"resource_link","uri":"u","name":"n","title":"\u001b[1mt","description":"d\u3164"}]}"#,
                r#"{"content":[{"type":"resource_link","uri":"u","name":"n","title":"t","description":"d"}]}"#,
            ),
            (
                r#"{"content":[{"type":"text","text":"\ud800\u202ex"}]}"#,
                "{\"content\":[{\"type\":\"text\",\"text\":\"\u{fffd}x\"}]}",
            ),
        ] {
            let clean = parse(text).unwrap().without_hidden_characters();
            assert_eq!(clean.raw.get(), expected);
            assert_eq!(clean.layout.content(&clean.raw), parse(expected).unwrap().layout.content(&clean.raw));
        }
        for text in [
            "{ \"content\": [ {\"type\":\"text\", \"text\":\"⚠\u{fe0f} 👩\u{200d}💻 می\u{200c}خواهم \\r\\n\"} ] }",
            r#"{"content":[{"type":"image","data":"AA=="}],"_meta":{"x":"\u202e"},"structuredContent":{"\u200b":1}}"#,
            r#"{"content":"\u202e"}"#,
        ] {
            assert_eq!(parse(text).unwrap().without_hidden_characters().raw.get(), text);
        }
    }

    #[test]
    fn malformed_results_are_parsed_leniently() {
        for (text, content, is_error) in [
            ("{}", "[]", false),
            (r#"{"content":"no list","isError":"yes"}"#, "[]", false),
            (r#"{"content":[1],"content":[2],"isError":false,"isError":true}"#, "[2]", true),
            (r#"{"structuredContent":null,"\u0063ontent":[3]}"#, "[3]", false),
        ] {
            let ToolResult { raw, layout } = parse(text).unwrap();
            assert_eq!((layout.content(&raw), layout.is_error, layout.structured(&raw)), (content, is_error, None));
        }
        assert!(parse("[]").is_none() && parse("null").is_none());
        assert!(parse(r#"{"resultType":"input_required"}"#).unwrap().layout.input_required);
    }
}
