//! Checks of HTTP headers, as far as possible before references are resolved. Messages never quote a value, which may
//! be a secret.
//!
//! Names and the literal parts of values are checked. What a reference stands for is not known here.

use std::collections::BTreeMap;

use toolcrib_core::text::sanitize_truncated;

use super::reader::{ConfigReader, Section};
use super::syntax::join_key;
use crate::reference::{ReferencePart, split_references};

/// Reads and checks the key `headers` of a source.
/// Invalid headers are reported and still returned: the source has an error then and is not used.
pub(super) fn read(reader: &mut ConfigReader<'_>, section: &Section<'_>) -> BTreeMap<String, String> {
    let headers = reader.read_map(section, "headers");
    let line = section.get("headers").map_or(section.line, |node| node.line);
    let path = join_key(&section.path, "headers");
    for (name, value) in &headers {
        check_header_name(reader, line, &path, name);
        check_header_value(reader, line, &join_key(&path, &sanitize_truncated(name, 80)), value);
    }
    headers
}

/// Reports a name with characters that RFC 9110 does not allow in a field name.
pub(super) fn check_header_name(reader: &mut ConfigReader<'_>, line: usize, path: &str, name: &str) {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_allowed) {
        let shown = sanitize_truncated(name, 80);
        reader.error(line, path, format!("`{shown}` is not a valid header name: use letters, digits and `-`"));
    }
}

/// Reports control characters in the literal parts of a value: a line break could inject another header.
pub(super) fn check_header_value(reader: &mut ConfigReader<'_>, line: usize, path: &str, value: &str) {
    let has_control_character = |part: &ReferencePart<'_>| match part {
        ReferencePart::Literal(text) => text.chars().any(|character| character.is_ascii_control() && character != '\t'),
        ReferencePart::Reference(_) => false,
    };
    if split_references(value).iter().any(has_control_character) {
        reader.error(line, path, "a header cannot contain line breaks or other control characters");
    }
}
