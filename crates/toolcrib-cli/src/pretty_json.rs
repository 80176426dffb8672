//! Indents JSON text without parsing it, so that key order, number precision and duplicate keys stay as the source
//! wrote them.
//!
//! A parsed `serde_json::Value` would round integers of 30 digits and keep one of several equal keys.

/// Returns the text with one value per line, indented by two spaces. Expects valid JSON; drops control characters, which
/// valid JSON escapes within strings.
pub(crate) fn pretty_print(text: &str) -> String {
    let mut pretty = String::with_capacity(text.len() * 2);
    let mut depth = 0usize;
    let mut characters = text.chars().filter(|character| !character.is_control()).peekable();
    let newline = |depth: usize, pretty: &mut String| {
        pretty.push('\n');
        pretty.push_str(&"  ".repeat(depth));
    };
    while let Some(character) = characters.next() {
        match character {
            // Copy strings unchanged: braces and commas in them are not structure.
            '"' => {
                pretty.push('"');
                while let Some(inside) = characters.next() {
                    pretty.push(inside);
                    match inside {
                        // The character behind a backslash may be a quote that does not end the string.
                        '\\' => pretty.extend(characters.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '{' | '[' => {
                pretty.push(character);
                // Keep an empty object or array on one line.
                while characters.next_if(|next| next.is_whitespace()).is_some() {}
                if let Some(close) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    pretty.push(close);
                } else {
                    depth += 1;
                    newline(depth, &mut pretty);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                newline(depth, &mut pretty);
                pretty.push(character);
            }
            ',' => {
                pretty.push(',');
                newline(depth, &mut pretty);
            }
            // White space between tokens is dropped, so that the result does not depend on the layout of the input.
            ':' => pretty.push_str(": "),
            _ if character.is_whitespace() => {}
            _ => pretty.push(character),
        }
    }
    pretty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indents_json_and_keeps_everything_else() {
        let text = r#"{"b":[1,{"x":"a,{\"\\"}],"a":{},"a":[ ],"n":123456789012345678901234567890}"#;
        let expected = r#"{
  "b": [
    1,
    {
      "x": "a,{\"\\"
    }
  ],
  "a": {},
  "a": [],
  "n": 123456789012345678901234567890
}"#;
        assert_eq!(pretty_print(text), expected);
    }
}
