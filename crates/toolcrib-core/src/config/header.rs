//! What HTTP allows as a header, as far as it is known before references are filled. Nothing here repeats a value.

use std::collections::BTreeMap;

use super::node::joined;
use super::reader::{Reader, Section};
use crate::reference::{Piece, pieces};
use crate::text::shown_short;

/// `headers` of a source.
pub(super) fn read(reader: &mut Reader<'_>, section: &Section<'_>) -> BTreeMap<String, String> {
    let headers = reader.pairs(section, "headers");
    let line = section.get("headers").map_or(section.line, |node| node.line);
    let path = joined(&section.path, "headers");
    for (name, value) in &headers {
        check_name(reader, line, &path, name);
        check_value(reader, line, &joined(&path, &shown_short(name, 80)), value);
    }
    headers
}

pub(super) fn check_name(reader: &mut Reader<'_>, line: usize, path: &str, name: &str) {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(legal) {
        let shown = shown_short(name, 80);
        reader.fault(line, path, format!("`{shown}` is no name for a header: letters, digits and `-`"));
    }
}

pub(super) fn check_value(reader: &mut Reader<'_>, line: usize, path: &str, value: &str) {
    let illegal = |piece: &Piece<'_>| match piece {
        Piece::Text(text) => text.chars().any(|one| one.is_ascii_control() && one != '\t'),
        Piece::Reference(_) => false,
    };
    if pieces(value).iter().any(illegal) {
        reader.fault(line, path, "no header can carry line breaks or other control characters");
    }
}
