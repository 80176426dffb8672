//! Tokens of JSON pointers (RFC 6901), in which `/` separates and `~` escapes. Looking up a whole pointer is
//! `serde_json::Value::pointer`.

/// Escapes a key for use in a JSON pointer.
pub fn escape_pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Returns the key that a token of a JSON pointer stands for.
pub fn unescape_pointer_token(token: &str) -> String {
    // `~1` first: the other order would read `~01`, an escaped `~1`, as `/`.
    token.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_survives_escaping() {
        for (key, token) in [("a", "a"), ("a/b", "a~1b"), ("~1", "~01"), ("~/~", "~0~1~0"), ("", "")] {
            assert_eq!(escape_pointer_token(key), token);
            assert_eq!(unescape_pointer_token(token), key);
        }
    }
}
