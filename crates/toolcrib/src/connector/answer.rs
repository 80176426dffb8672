//! The result of a call as its source sent it, and where in its text the parts lie that are read here. Nothing deeper
//! than one level is parsed, and what is not known here stays.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use toolcrib_core::json::{self, Fields};

#[derive(Clone)]
pub struct Answer {
    pub raw: Box<RawValue>,
    pub(crate) layout: Layout,
}

/// Key of `_meta` under which Toolcrib adds notes about a call: a list of texts.
pub const NOTES: &str = "toolcrib/notes";

impl Answer {
    /// Adds a note to `_meta["toolcrib/notes"]`, behind those of an upstream Toolcrib.
    pub(crate) fn with_note(self, note: &str) -> Answer {
        let noted = || {
            let mut result = Fields::parse(&self.raw)?;
            let mut meta = result.get("_meta").and_then(Fields::parse).unwrap_or_default();
            let mut notes: Vec<Box<RawValue>> =
                meta.get(NOTES).and_then(|notes| serde_json::from_str(notes.get()).ok()).unwrap_or_default();
            notes.push(json::string(note));
            meta.put(NOTES, to_raw_value(&notes).ok()?);
            result.put("_meta", to_raw_value(&meta).ok()?);
            Answer::read(to_raw_value(&result).ok()?)
        };
        noted().unwrap_or_else(|| {
            tracing::warn!(note, "a note could not be added to the result");
            self
        })
    }

    /// `None` for anything but an object.
    pub fn read(raw: Box<RawValue>) -> Option<Answer> {
        let layout = Layout::of(&raw)?;
        Some(Answer { raw, layout })
    }
}

/// Without the result: what a tool said belongs in no log.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("bytes", &self.raw.get().len()).finish_non_exhaustive()
    }
}

/// Where in a result's text its parts lie.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    content: Option<Range<usize>>,
    structured: Option<Range<usize>>,
    meta: Option<Range<usize>>,
    pub(crate) is_error: bool,
    /// The source wants to know more before there is a result.
    pub(crate) input_required: bool,
}

impl Layout {
    pub(crate) fn of(raw: &RawValue) -> Option<Layout> {
        let head: Head<'_> = serde_json::from_str(raw.get()).ok()?;
        let start = raw.get().as_ptr().addr();
        let place = |part: &RawValue| {
            let from = part.get().as_ptr().addr() - start;
            from..from + part.get().len()
        };
        let is = |part: Option<&RawValue>, text: &str| part.is_some_and(|part| part.get() == text);
        Some(Layout {
            content: head.content.filter(|part| part.get().starts_with('[')).map(place),
            structured: head.structured.filter(|part| part.get() != "null").map(place),
            meta: head.meta.filter(|part| part.get() != "null").map(place),
            is_error: is(head.is_error, "true"),
            input_required: is(head.result_type, "\"input_required\""),
        })
    }

    pub(crate) fn content<'a>(&self, raw: &'a RawValue) -> &'a str {
        cut(raw, self.content.as_ref()).unwrap_or("[]")
    }

    pub(crate) fn structured<'a>(&self, raw: &'a RawValue) -> Option<&'a str> {
        cut(raw, self.structured.as_ref())
    }

    pub(crate) fn meta<'a>(&self, raw: &'a RawValue) -> Option<&'a str> {
        cut(raw, self.meta.as_ref())
    }
}

fn cut<'a>(raw: &'a RawValue, place: Option<&Range<usize>>) -> Option<&'a str> {
    raw.get().get(place?.clone())
}

#[derive(Default)]
struct Head<'a> {
    content: Option<&'a RawValue>,
    structured: Option<&'a RawValue>,
    meta: Option<&'a RawValue>,
    is_error: Option<&'a RawValue>,
    result_type: Option<&'a RawValue>,
}

/// Borrowed unless it is written with escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// By hand, because of a name given twice the last counts, and that is no reason to lose a result.
impl<'de: 'a, 'a> Deserialize<'de> for Head<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Head<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Head<'de>, M::Error> {
                let mut head = Head::default();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    match name.as_ref() {
                        "content" => head.content = Some(value),
                        "structuredContent" => head.structured = Some(value),
                        "_meta" => head.meta = Some(value),
                        "isError" => head.is_error = Some(value),
                        "resultType" => head.result_type = Some(value),
                        _ => {}
                    }
                }
                Ok(head)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Answer> {
        Answer::read(RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn parts_are_found_and_the_rest_stays() {
        let text = r#"{"vendor": 1, "content": [ {"type":"text"} ], "isError":true,"structuredContent" : {"a":1},"_meta":{"b":2}}"#;
        let Answer { raw, layout } = read(text).unwrap();
        assert_eq!(raw.get(), text);
        assert_eq!(layout.content(&raw), r#"[ {"type":"text"} ]"#);
        assert_eq!((layout.structured(&raw), layout.meta(&raw)), (Some(r#"{"a":1}"#), Some(r#"{"b":2}"#)));
        assert!(layout.is_error && !layout.input_required);
    }

    #[test]
    fn a_note_stands_behind_those_that_are_there() {
        for (text, expected) in [
            (r#"{"content":[]}"#, r#"{"content":[],"_meta":{"toolcrib/notes":["b"]}}"#),
            (
                r#"{"_meta":{"a":1,"toolcrib/notes":["a"]},"content":[1]}"#,
                r#"{"_meta":{"a":1,"toolcrib/notes":["a","b"]},"content":[1]}"#,
            ),
            (r#"{"_meta":7}"#, r#"{"_meta":{"toolcrib/notes":["b"]}}"#),
        ] {
            let Answer { raw, layout } = read(text).unwrap().with_note("b");
            assert_eq!(raw.get(), expected);
            assert!(layout.meta(&raw).unwrap().contains("toolcrib/notes"));
        }
    }

    #[test]
    fn odd_results_are_read_for_what_they_are() {
        for (text, content, is_error) in [
            ("{}", "[]", false),
            (r#"{"content":"no list","isError":"yes"}"#, "[]", false),
            (r#"{"content":[1],"content":[2],"isError":false,"isError":true}"#, "[2]", true),
            (r#"{"structuredContent":null,"\u0063ontent":[3]}"#, "[3]", false),
        ] {
            let Answer { raw, layout } = read(text).unwrap();
            assert_eq!((layout.content(&raw), layout.is_error, layout.structured(&raw)), (content, is_error, None));
        }
        assert!(read("[]").is_none() && read("null").is_none());
        assert!(read(r#"{"resultType":"input_required"}"#).unwrap().layout.input_required);
    }
}
