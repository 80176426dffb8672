//! Media types, as far as requests need them. They come from documents, so they are validated before use. A `\r\n` in
//! one would otherwise begin another header.

/// Returns whether a media type is JSON: `application/json`, `…+json` and the like, with any parameters.
pub(crate) fn is_json(media_type: &str) -> bool {
    let essence = essence(media_type);
    essence.ends_with("/json") || essence.ends_with("+json")
}

/// Returns type and subtype without parameters, in lower case.
pub fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns whether a media type can be sent in a header: two tokens around a slash, and parameters without control
/// characters.
pub fn is_valid(media_type: &str) -> bool {
    let essence = essence(media_type);
    let tokens = essence.split_once('/').is_some_and(|(kind, subtype)| is_token(kind) && is_token(subtype));
    tokens && media_type.chars().all(|character| character == ' ' || character.is_ascii_graphic())
}

/// Returns the first media type of a list (`image/png, image/jpeg`) that is not a range.
pub(super) fn first_concrete(media_types: &str) -> Option<&str> {
    let mut candidates = media_types.split(',').map(str::trim);
    candidates.find(|media_type| is_valid(media_type) && !essence(media_type).contains('*'))
}

/// Returns whether a text is a token of RFC 9110, like the name of a header.
pub fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|character| character.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_media_types_are_recognized() {
        for media_type in
            ["application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json", "text/json"]
        {
            assert!(is_json(media_type), "{media_type}");
        }
        for media_type in ["text/plain", "application/jsonl", "application/json-seq", "application/xml", ""] {
            assert!(!is_json(media_type), "{media_type}");
        }
    }

    #[test]
    fn the_first_concrete_media_type_is_used() {
        assert_eq!(first_concrete("image/*, image/png; q=1, image/jpeg"), Some("image/png; q=1"));
        assert_eq!(first_concrete("image/*"), None);
        assert_eq!(first_concrete("a/b\r\nX-Evil: 1"), None);
        assert_eq!(first_concrete("nonsense"), None);
    }
}
