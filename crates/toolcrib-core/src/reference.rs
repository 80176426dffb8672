//! References to secrets and settings inside configured text: `${env:NAME}`, `${env:NAME:-default}`, `${file:PATH}`
//! and, as other clients write them, `${NAME}` and `${NAME:-default}`. This parses and fills; the library looks values up.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference<'a> {
    Env { name: &'a str, default: Option<&'a str> },
    File { path: &'a str },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'a> {
    Text(&'a str),
    Reference(Reference<'a>),
}

/// Cuts text into plain pieces and references. What is not a well-formed reference is text.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut plain, mut at) = (0, 0);
    while let Some(start) = text[at..].find("${").map(|found| at + found) {
        let Some(end) = text[start..].find('}').map(|found| start + found) else { break };
        at = end + 1;
        let Some(reference) = parse(&text[start + 2..end]) else { continue };
        if plain < start {
            pieces.push(Piece::Text(&text[plain..start]));
        }
        pieces.push(Piece::Reference(reference));
        plain = at;
    }
    if plain < text.len() {
        pieces.push(Piece::Text(&text[plain..]));
    }
    pieces
}

/// Fills every reference by `look_up`; the first that fails ends it.
pub fn resolve<E>(text: &str, mut look_up: impl FnMut(&Reference<'_>) -> Result<String, E>) -> Result<String, E> {
    let mut resolved = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => resolved.push_str(text),
            Piece::Reference(reference) => resolved.push_str(&look_up(&reference)?),
        }
    }
    Ok(resolved)
}

/// The same text with the paths of its `${file:…}` references made absolute by `absolute`.
pub fn with_paths(text: &str, absolute: impl Fn(&str) -> String) -> String {
    let pieces = pieces(text).into_iter().map(|piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Reference(Reference::File { path }) => format!("${{file:{}}}", absolute(path)),
        Piece::Reference(Reference::Env { name, default: None }) => format!("${{env:{name}}}"),
        Piece::Reference(Reference::Env { name, default: Some(default) }) => format!("${{env:{name}:-{default}}}"),
    });
    pieces.collect()
}

fn parse(inside: &str) -> Option<Reference<'_>> {
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
            let filled = resolve(text, |reference| {
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
