//! References to secrets and settings inside configured text: `${env:NAME}`, `${env:NAME:-default}`, `${file:PATH}`
//! and, as other clients write them, `${NAME}` and `${NAME:-default}`. This parses and fills; the library looks values up.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference<'a> {
    Env { name: &'a str, default: Option<&'a str> },
    File { path: &'a str },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferencePart<'a> {
    Literal(&'a str),
    Reference(Reference<'a>),
}

/// Cuts text into plain pieces and references. What is not a well-formed reference is text.
pub fn split_references(text: &str) -> Vec<ReferencePart<'_>> {
    let mut pieces = Vec::new();
    let (mut plain, mut at) = (0, 0);
    while let Some(start) = text[at..].find("${").map(|found| at + found) {
        let Some(end) = text[start..].find('}').map(|found| start + found) else { break };
        at = end + 1;
        let Some(reference) = parse_reference(&text[start + 2..end]) else { continue };
        if plain < start {
            pieces.push(ReferencePart::Literal(&text[plain..start]));
        }
        pieces.push(ReferencePart::Reference(reference));
        plain = at;
    }
    if plain < text.len() {
        pieces.push(ReferencePart::Literal(&text[plain..]));
    }
    pieces
}

/// Fills every reference by `look_up`; the first that fails ends it.
pub fn resolve_references<E>(
    text: &str,
    mut look_up: impl FnMut(&Reference<'_>) -> Result<String, E>,
) -> Result<String, E> {
    let mut resolved = String::with_capacity(text.len());
    for piece in split_references(text) {
        match piece {
            ReferencePart::Literal(text) => resolved.push_str(text),
            ReferencePart::Reference(reference) => resolved.push_str(&look_up(&reference)?),
        }
    }
    Ok(resolved)
}

/// The same text with the paths of its `${file:…}` references made absolute by `absolute`.
pub fn map_file_paths(text: &str, absolute: impl Fn(&str) -> String) -> String {
    let pieces = split_references(text).into_iter().map(|piece| match piece {
        ReferencePart::Literal(text) => text.to_owned(),
        ReferencePart::Reference(Reference::File { path }) => format!("${{file:{}}}", absolute(path)),
        ReferencePart::Reference(Reference::Env { name, default: None }) => format!("${{env:{name}}}"),
        ReferencePart::Reference(Reference::Env { name, default: Some(default) }) => {
            format!("${{env:{name}:-{default}}}")
        }
    });
    pieces.collect()
}

fn parse_reference(inside: &str) -> Option<Reference<'_>> {
    if let Some(path) = inside.strip_prefix("file:") {
        return (!path.is_empty()).then_some(Reference::File { path });
    }
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let legal = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
    };
    legal(name).then_some(Reference::Env { name, default })
}

impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Env { name, default: None } => write!(f, "${{env:{name}}}"),
            // A default may be a secret somebody wrote down in haste.
            Reference::Env { name, default: Some(_) } => write!(f, "${{env:{name}:-***}}"),
            Reference::File { path } => write!(f, "${{file:{path}}}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_filled_and_the_rest_stays() {
        let check = |text: &str, expected: &str| {
            let filled = resolve_references(text, |reference| {
                Ok::<_, ()>(match reference {
                    Reference::Env { name, default } => format!("<{name}|{}>", default.unwrap_or("")),
                    Reference::File { path } => format!("<file {path}>"),
                })
            });
            assert_eq!(filled.unwrap(), expected);
        };
        check("plain", "plain");
        check("Bearer ${env:TOKEN}", "Bearer <TOKEN|>");
        check("${TOKEN:-none}/${file:/etc/x}!", "<TOKEN|none>/<file /etc/x>!");
        check("${input:thing} ${} ${ open", "${input:thing} ${} ${ open");
    }
}
