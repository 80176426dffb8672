//! A strict parser for `multipart/form-data` bodies (RFC 7578).
//!
//! Accepts exactly what the specification describes: lines end in CRLF, the body begins and ends with the boundary,
//! and every part has a name. A lenient parser would hide mistakes of Toolcrib's client.

/// One part of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FormPart {
    /// Name of the form field.
    pub(super) name: String,
    /// File name, for a part that is a file.
    pub(super) file_name: Option<String>,
    /// In lower case; `text/plain` by default.
    pub(super) content_type: String,
    /// The content, without the line break in front of the boundary.
    pub(super) bytes: Vec<u8>,
}

/// Forms with more parts are rejected. The document has forms of two parts.
const MAX_FORM_PARTS: usize = 20;

/// Parses a body; `content_type` carries the boundary. The error is a predicate for a message about the body.
pub(super) fn parse_form_parts(content_type: &str, body: &[u8]) -> Result<Vec<FormPart>, &'static str> {
    // RFC 2046 limits a boundary to 70 characters.
    let boundary = header_parameter(content_type, "boundary").filter(|boundary| (1..=70).contains(&boundary.len()));
    let boundary = format!("--{}", boundary.ok_or("has no boundary")?);
    // Each part ends where the next boundary starts on a line of its own.
    let between = format!("\r\n{boundary}");
    let mut rest = body.strip_prefix(boundary.as_bytes()).ok_or("does not begin with its boundary")?;
    let mut parts = Vec::new();
    while let Some(after) = rest.strip_prefix(b"\r\n") {
        if parts.len() == MAX_FORM_PARTS {
            return Err("has too many parts");
        }
        let end = find_bytes(after, between.as_bytes()).ok_or("ends in the middle of a part")?;
        parts.push(parse_form_part(&after[..end])?);
        rest = &after[end + between.len()..];
    }
    let ended = rest == b"--" || rest.starts_with(b"--\r\n");
    if ended { Ok(parts) } else { Err("does not end with its boundary") }
}

/// Parses headers and content of one part.
fn parse_form_part(bytes: &[u8]) -> Result<FormPart, &'static str> {
    let end = find_bytes(bytes, b"\r\n\r\n").ok_or("has a part without headers")?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "has a part whose headers are no text")?;
    let header = |header_name: &str| {
        let mut lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim().eq_ignore_ascii_case(header_name)).map(|(_, value)| value.trim())
    };
    let disposition = header("content-disposition").filter(|value| value.starts_with("form-data"));
    let disposition = disposition.ok_or("has a part that is not of a form")?;
    Ok(FormPart {
        name: header_parameter(disposition, "name").ok_or("has a part without a name")?,
        file_name: header_parameter(disposition, "filename"),
        content_type: header("content-type").unwrap_or("text/plain").to_ascii_lowercase(),
        bytes: bytes[end + 4..].to_vec(),
    })
}

/// Returns a parameter of a header value, quoted or not.
fn header_parameter(value: &str, parameter_name: &str) -> Option<String> {
    let mut rest = value.split_once(';')?.1;
    loop {
        let (name, after) = rest.trim_start().split_once('=')?;
        let (found, left) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (found, left) = quoted.split_once('"')?;
                (found, left.trim_start().strip_prefix(';').unwrap_or_default())
            }
            None => after.split_once(';').unwrap_or((after, "")),
        };
        if name.trim().eq_ignore_ascii_case(parameter_name) {
            return Some(found.trim().to_owned());
        }
        rest = left;
    }
}

/// Returns the position of the first occurrence of `needle`, which must not be empty.
fn find_bytes(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_parts_at_the_boundary() {
        let body = "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a;b.png\"\r\n\
                    Content-Type: image/png\r\n\r\nx\r\n--\r\n--b\r\ncontent-disposition: form-data; name=caption\r\n\r\n\r\n--b--\r\n";
        let part = |name: &str, file: Option<&str>, content_type: &str, bytes: &str| FormPart {
            name: name.into(),
            file_name: file.map(str::to_owned),
            content_type: content_type.into(),
            bytes: bytes.into(),
        };
        assert_eq!(
            parse_form_parts("multipart/form-data; boundary=\"b\"", body.as_bytes()),
            Ok(vec![part("image", Some("a;b.png"), "image/png", "x\r\n--"), part("caption", None, "text/plain", "")])
        );
    }

    #[test]
    fn rejects_truncated_and_unnamed_parts() {
        for (content_type, body, reason) in [
            ("multipart/form-data", "--b--", "has no boundary"),
            ("multipart/form-data; boundary=b", "x", "does not begin with its boundary"),
            ("multipart/form-data; boundary=b", "--b\r\nx", "ends in the middle of a part"),
            ("multipart/form-data; boundary=b", "--b\r\nx\r\n--b--", "has a part without headers"),
            ("multipart/form-data; boundary=b", "--b", "does not end with its boundary"),
        ] {
            assert_eq!(parse_form_parts(content_type, body.as_bytes()), Err(reason), "{body}");
        }
    }
}
