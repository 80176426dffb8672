//! References within a schema: `#/$defs/place`. The only place where they are parsed and followed.
//!
//! A fragment is percent-decoded (RFC 3986) and is then a JSON pointer (RFC 6901) or the name of an anchor. Anchors need
//! an index of the whole schema, which only [`cost`](super::cost) builds, since validation supports them; all other
//! readers take an anchor for an unknown target. References to other documents are never followed.

use std::borrow::Cow;

use serde_json::{Map, Value};
use toolcrib_core::percent;

/// Maximum length of a reference in bytes. A lookup takes time in proportion to the length, and a short schema may refer
/// to the same long name thousands of times.
const MAX_REFERENCE_LEN: usize = 1_000;
/// Maximum length of a chain of references. A longer chain, such as a cycle, ends at the schema that was reached.
const MAX_REFERENCE_HOPS: usize = 8;
/// Beginning of the references that Toolcrib itself writes.
const DEFINITIONS_PREFIX: &str = "#/$defs/";

/// A place in the same document, with escapes of the URL removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalReference<'a> {
    /// JSON pointer; empty for the whole document.
    Pointer(Cow<'a, str>),
    /// Name in an `$anchor`.
    Anchor(Cow<'a, str>),
}

impl<'a> LocalReference<'a> {
    /// Parses a reference. `None` if it leads to another document or is not valid UTF-8 once decoded.
    pub fn parse(reference: &'a str) -> Option<LocalReference<'a>> {
        LocalReference::parse_fragment(reference.strip_prefix('#')?)
    }

    /// Parses what follows the `#`.
    pub fn parse_fragment(fragment: &'a str) -> Option<LocalReference<'a>> {
        let decoded = percent::decode(fragment)?;
        let is_pointer = decoded.is_empty() || decoded.starts_with('/');
        Some(if is_pointer { LocalReference::Pointer(decoded) } else { LocalReference::Anchor(decoded) })
    }
}

/// Returns the target of a reference in `root`. `None` for an unknown target and for references that are not JSON
/// pointers.
pub fn resolve_reference<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    if reference.len() > MAX_REFERENCE_LEN {
        return None;
    }
    match LocalReference::parse(reference)? {
        LocalReference::Pointer(pointer) => root.pointer(&pointer),
        LocalReference::Anchor(_) => None,
    }
}

/// Follows `$ref` from a schema to one without. An unresolvable reference is returned itself.
pub fn follow_references<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut current = schema;
    for _ in 0..MAX_REFERENCE_HOPS {
        match reference_text(current).and_then(|reference| resolve_reference(root, reference)) {
            Some(target) => current = target,
            None => return current,
        }
    }
    current
}

/// Returns the text of a schema's `$ref`.
pub fn reference_text(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()
}

/// Returns the reference to an entry of `$defs` whose name needs no escapes.
pub fn definition_reference(name: &str) -> String {
    format!("{DEFINITIONS_PREFIX}{name}")
}

/// Returns the name in a reference that [`definition_reference`] wrote.
pub fn referenced_definition(keywords: &Map<String, Value>) -> Option<&str> {
    keywords.get("$ref")?.as_str()?.strip_prefix(DEFINITIONS_PREFIX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_local_reference_is_followed_unless_it_is_long() {
        let long = "n".repeat(MAX_REFERENCE_LEN);
        let root = json!({ "a/b": { "c~": [7] }, "d e": 8, "100%": 9, &long: 7 });
        assert_eq!(resolve_reference(&root, "#"), Some(&root));
        for (reference, expected) in [
            ("#/a~1b/c~0/0", Some(7)),
            // Percent-encoding is removed before the pointer is split into tokens.
            ("#/a~1b/c%7E0/0", Some(7)),
            ("#/d%20e", Some(8)),
            ("#%2Fd%20e", Some(8)),
            ("#/d e", Some(8)),
            ("#/100%", Some(9)),
            ("#/100%25", Some(9)),
            ("#/a%2Fb/c~0/0", None),
            ("#/%ff", None),
            ("#d e", None),
            ("", None),
            ("/a~1b", None),
            ("#/nowhere", None),
            ("https://x.y/z", None),
            (&format!("#/{long}"), None),
        ] {
            assert_eq!(resolve_reference(&root, reference), expected.map(Value::from).as_ref(), "{reference}");
        }
    }

    #[test]
    fn a_chain_of_references_ends() {
        let root = json!({ "a": { "$ref": "#/b" }, "b": { "$ref": "#/c" }, "c": 1, "loop": { "$ref": "#/loop" } });
        assert_eq!(follow_references(&root, &root["a"]), &json!(1));
        assert_eq!(follow_references(&root, &root["loop"]), &root["loop"]);
    }
}
