//! Spellings of a secret that decoding does not undo: Base64, hexadecimal, shell quoting.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use url::{Url, form_urlencoded};

/// Shorter values are searched only as they are: a few characters of Base64 or hexadecimal occur by chance.
const MIN_ENCODED_LEN: usize = 6;
/// Limit for all encoded spellings of a source. Beyond it, values are searched only as they are; only very large secret
/// files reach it.
const MAX_ENCODED_BYTES: usize = 512 * 1024;

/// Builds the search patterns for all values. Matching ignores case, since hexadecimal digits and host names come in
/// both.
pub(super) fn build_patterns(values: &BTreeSet<String>) -> Vec<String> {
    let mut patterns: BTreeSet<String> = values.clone();
    let mut remaining = MAX_ENCODED_BYTES;
    // Shortest first, so that one large file does not use up the limit for all others.
    let mut by_length: Vec<&String> = values.iter().collect();
    by_length.sort_by_key(|value| value.len());
    for value in by_length {
        patterns.extend(alternate_spellings(value));
        let mut encoded = Vec::new();
        if value.len() >= MIN_ENCODED_LEN {
            // Also as part of a URL that is encoded as a whole.
            encoded.extend(url_encodings(value).iter().flat_map(|spelling| binary_encodings(spelling.as_bytes())));
        }
        // Values are sorted by length, so all that follow are too large as well.
        let Some(left) = remaining.checked_sub(encoded.iter().map(String::len).sum()) else { break };
        remaining = left;
        patterns.extend(encoded);
    }
    patterns.into_iter().filter(|pattern| !pattern.is_empty()).collect()
}

/// The value as HTML forms, shells and single-line messages write it.
fn alternate_spellings(value: &str) -> Vec<String> {
    let spellings = [
        value.replace(' ', "+"),
        value.replace('\'', r"'\''"),
        value.replace('\'', r#"'"'"'"#),
        value.split_whitespace().collect::<Vec<_>>().join(" "),
    ];
    spellings.into_iter().filter(|spelling| spelling != value).collect()
}

/// The value as it appears in paths, queries and forms.
fn url_encodings(value: &str) -> BTreeSet<String> {
    let spelling: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
    let mut path = value.to_owned();
    if let Ok(mut url) = Url::parse("http://h/") {
        url.set_path(value);
        path = url.path().trim_start_matches('/').to_owned();
    }
    BTreeSet::from([value.to_owned(), value.replace(' ', "+"), spelling.replace('+', "%20"), spelling, path])
}

/// Hexadecimal and Base64 spellings.
fn binary_encodings(value: &[u8]) -> Vec<String> {
    let mut spellings = vec![value.iter().map(|byte| format!("{byte:02x}")).collect()];
    for engine in [&STANDARD, &URL_SAFE] {
        let encoded = engine.encode(value);
        spellings.push(encoded.trim_end_matches('=').to_owned());
        spellings.push(encoded);
        spellings.extend((0..3).map(|before| base64_fragment(value, before, engine)));
    }
    spellings
}

/// Base64 characters that depend on the value alone, if `before` bytes precede it in its group of three. Finds the
/// value within the encoding of a larger text.
fn base64_fragment(value: &[u8], before: usize, engine: &impl Engine) -> String {
    let mut padded = vec![0; before];
    padded.extend_from_slice(value);
    let encoded = engine.encode(&padded);
    // Each Base64 character stands for 6 bits. Those at both ends that share bits with a neighbour are left out.
    let first = (before * 8).div_ceil(6);
    let end = padded.len() * 8 / 6;
    encoded.get(first..end).unwrap_or_default().to_owned()
}
