//! Cursors of tool lists, over REST and MCP: `after NAME` in Base64. A cursor names a tool and not an index, so that
//! changes of the list do not shift it. It is opaque to clients, so that its content may change.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

/// Returns the cursor of the page after a tool. It needs no escaping in JSON and in URLs.
pub(crate) fn encode_cursor(last_name: &str) -> String {
    BASE64.encode(format!("after {last_name}"))
}

/// Returns the name in a cursor; `None` for anything that [`encode_cursor`] did not make.
pub(crate) fn decode_cursor(cursor: &str) -> Option<String> {
    let text = String::from_utf8(BASE64.decode(cursor).ok()?).ok()?;
    text.strip_prefix("after ").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_to_the_name_and_nothing_else_does() {
        assert_eq!(decode_cursor(&encode_cursor("git__push")).as_deref(), Some("git__push"));
        for wrong in ["", "git__push", "%", &BASE64.encode("git__push"), &BASE64.encode([0xff])] {
            assert_eq!(decode_cursor(wrong), None, "{wrong}");
        }
    }
}
