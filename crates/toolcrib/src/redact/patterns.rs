//! The forms in which a value may appear in a text, beyond what decoding undoes: Base64, hexadecimal, quoted for a shell.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use url::{Url, form_urlencoded};

/// Shorter values are found as they are only: a few characters of Base64 or hexadecimal occur by chance.
const MIN_ENCODED_LEN: usize = 6;
/// Bytes of all encoded forms. Beyond it, values are found as they are only; that is a matter of very large files.
const MAX_ENCODED_BYTES: usize = 512 * 1024;

/// Matching ignores case: hexadecimal and names of hosts come in both.
pub(super) fn build_patterns(values: &BTreeSet<String>) -> Vec<String> {
    let mut patterns: BTreeSet<String> = values.clone();
    let mut room = MAX_ENCODED_BYTES;
    // The shortest first, so that one large file does not take the room of all others.
    let mut by_length: Vec<&String> = values.iter().collect();
    by_length.sort_by_key(|value| value.len());
    for value in by_length {
        patterns.extend(alternate_spellings(value));
        let mut encoded = Vec::new();
        if value.len() >= MIN_ENCODED_LEN {
            // Also as part of an address that is encoded as a whole.
            encoded.extend(url_encodings(value).iter().flat_map(|form| binary_encodings(form.as_bytes())));
        }
        let Some(rest) = room.checked_sub(encoded.iter().map(String::len).sum()) else { break };
        room = rest;
        patterns.extend(encoded);
    }
    patterns.into_iter().filter(|pattern| !pattern.is_empty()).collect()
}

/// As a form, a shell or a message on one line has it.
fn alternate_spellings(value: &str) -> Vec<String> {
    let forms = [
        value.replace(' ', "+"),
        value.replace('\'', r"'\''"),
        value.replace('\'', r#"'"'"'"#),
        value.split_whitespace().collect::<Vec<_>>().join(" "),
    ];
    forms.into_iter().filter(|form| form != value).collect()
}

/// The value, and what becomes of it in a path, a query and a form.
fn url_encodings(value: &str) -> BTreeSet<String> {
    let form: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
    let mut path = value.to_owned();
    if let Ok(mut url) = Url::parse("http://h/") {
        url.set_path(value);
        path = url.path().trim_start_matches('/').to_owned();
    }
    BTreeSet::from([value.to_owned(), value.replace(' ', "+"), form.replace('+', "%20"), form, path])
}

fn binary_encodings(value: &[u8]) -> Vec<String> {
    let mut forms = vec![value.iter().map(|byte| format!("{byte:02x}")).collect()];
    for engine in [&STANDARD, &URL_SAFE] {
        let whole = engine.encode(value);
        forms.push(whole.trim_end_matches('=').to_owned());
        forms.push(whole);
        forms.extend((0..3).map(|before| base64_fragment(value, before, engine)));
    }
    forms
}

/// The characters of Base64 that depend on the value alone, when `before` bytes stand in front of it in its group of three:
/// so it is found in the encoding of something larger.
fn base64_fragment(value: &[u8], before: usize, engine: &impl Engine) -> String {
    let mut padded = vec![0; before];
    padded.extend_from_slice(value);
    let encoded = engine.encode(&padded);
    let first = (before * 8).div_ceil(6);
    let end = padded.len() * 8 / 6;
    encoded.get(first..end).unwrap_or_default().to_owned()
}
