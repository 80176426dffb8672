//! What HTTP allows as a header, as far as it is known before references are filled. Nothing here repeats a value.

use std::collections::BTreeMap;

use super::node::join_key;
use super::reader::{ConfigReader, Section};
use crate::reference::{ReferencePart, split_references};
use crate::text::sanitize_truncated;

/// `headers` of a source.
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

pub(super) fn check_header_name(reader: &mut ConfigReader<'_>, line: usize, path: &str, name: &str) {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(legal) {
        let shown = sanitize_truncated(name, 80);
        reader.error(line, path, format!("`{shown}` is no name for a header: letters, digits and `-`"));
    }
}

pub(super) fn check_header_value(reader: &mut ConfigReader<'_>, line: usize, path: &str, value: &str) {
    let illegal = |piece: &ReferencePart<'_>| match piece {
        ReferencePart::Literal(text) => text.chars().any(|one| one.is_ascii_control() && one != '\t'),
        ReferencePart::Reference(_) => false,
    };
    if split_references(value).iter().any(illegal) {
        reader.error(line, path, "no header can carry line breaks or other control characters");
    }
}
