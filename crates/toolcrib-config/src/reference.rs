//! References in configuration values: `${env:NAME}`, `${env:NAME:-default}`, `${file:PATH}` and, as in other clients,
//! `${NAME}` and `${NAME:-default}`. This module parses and substitutes them; the library looks the values up.
//!
//! ```text
//! Bearer ${env:TOKEN}       ─▶ Literal("Bearer "), Reference(Env { name: "TOKEN" })
//! ${input:key}, ${1x}, ${   ─▶ literal text
//! ```
//!
//! There is no escape for `${` and no nesting: a reference ends at the first `}`. Substituted values are not searched
//! for references again, so the content of a variable cannot read another one.

use std::fmt;

use toolcrib_core::source::TextRole;

use super::path;

/// Reference to an environment variable or a file.
/// Borrows from the text that it was parsed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference<'a> {
    /// The default applies where the variable is not set or empty.
    Env { name: &'a str, default: Option<&'a str> },
    /// Content of a file; the path may be relative to the configuration file until it is made absolute.
    File { path: &'a str },
}

/// Part of a text with references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferencePart<'a> {
    Literal(&'a str),
    Reference(Reference<'a>),
}

/// Splits a text into literals and references. A malformed reference is literal text.
/// The parts in order cover the whole text. Empty literals are left out.
pub fn split_references(text: &str) -> Vec<ReferencePart<'_>> {
    let mut parts = Vec::new();
    let mut literal_start = 0;
    let mut at = 0;
    while let Some(start) = text[at..].find("${").map(|offset| at + offset) {
        let Some(end) = text[start..].find('}').map(|offset| start + offset) else { break };
        at = end + 1;
        // Other `${…}`, such as `${input:…}`, stay part of the literal.
        let Some(reference) = parse_reference(&text[start + 2..end]) else { continue };
        if literal_start < start {
            parts.push(ReferencePart::Literal(&text[literal_start..start]));
        }
        parts.push(ReferencePart::Reference(reference));
        literal_start = at;
    }
    if literal_start < text.len() {
        parts.push(ReferencePart::Literal(&text[literal_start..]));
    }
    parts
}

/// Whether a text contains a reference.
pub fn has_reference(text: &str) -> bool {
    text.contains("${") && split_references(text).iter().any(|part| matches!(part, ReferencePart::Reference(_)))
}

/// Returns the kind in a text such as `${vault:KEY}`, which looks like a reference of an unknown kind.
pub(super) fn find_unknown_kind(text: &str) -> Option<&str> {
    let (_, inside) = text.split_once("${")?;
    let (kind, _) = inside.split_once('}')?.0.split_once(':')?;
    let is_word = !kind.is_empty() && kind.chars().all(|character| character.is_ascii_alphanumeric());
    (is_word && !["env", "file"].contains(&kind)).then_some(kind)
}

/// Substitutes every reference by the result of `look_up`. Stops at the first error.
/// Literal text is copied unchanged.
pub fn resolve_references<E>(
    text: &str,
    mut look_up: impl FnMut(&Reference<'_>) -> Result<String, E>,
) -> Result<String, E> {
    let mut resolved = String::with_capacity(text.len());
    for part in split_references(text) {
        match part {
            ReferencePart::Literal(text) => resolved.push_str(text),
            ReferencePart::Reference(reference) => resolved.push_str(&look_up(&reference)?),
        }
    }
    Ok(resolved)
}

/// Like [`resolve_references`], for a text of a source: a value that is a relative path is joined to the directory of
/// the configuration file, and `~/` at its start is the home directory, as in a literal path.
pub fn resolve_text<E>(
    role: TextRole,
    text: &str,
    mut look_up: impl FnMut(&Reference<'_>) -> Result<String, E>,
) -> Result<String, E> {
    let Some((base, path)) = path::split_base(text).filter(|_| role != TextRole::Plain) else {
        return resolve_references(text, look_up);
    };
    let value = resolve_references(path, &mut look_up)?;
    if let Some(rest) = value.strip_prefix("~/") {
        let home = look_up(&Reference::Env { name: "HOME", default: None })?;
        return Ok(format!("{home}/{rest}"));
    }
    Ok(path::join_to_base(base, role, &value))
}

/// Replaces the paths of `${file:…}` references by `absolute`. Other references are written in their full form.
pub fn map_file_paths(text: &str, absolute: impl Fn(&str) -> String) -> String {
    let parts = split_references(text).into_iter().map(|part| match part {
        ReferencePart::Literal(text) => text.to_owned(),
        ReferencePart::Reference(Reference::File { path }) => format!("${{file:{}}}", absolute(path)),
        ReferencePart::Reference(Reference::Env { name, default: None }) => format!("${{env:{name}}}"),
        ReferencePart::Reference(Reference::Env { name, default: Some(default) }) => {
            format!("${{env:{name}:-{default}}}")
        }
    });
    parts.collect()
}

/// Parses the text between `${` and `}`.
fn parse_reference(inside: &str) -> Option<Reference<'_>> {
    if let Some(path) = inside.strip_prefix("file:") {
        return (!path.is_empty()).then_some(Reference::File { path });
    }
    let inside = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_valid_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && name.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
    };
    is_valid_name(name).then_some(Reference::Env { name, default })
}

/// Formats the reference for display, with its default value masked.
impl fmt::Display for Reference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Env { name, default: None } => write!(f, "${{env:{name}}}"),
            // A default value may be a literal secret.
            Reference::Env { name, default: Some(_) } => write!(f, "${{env:{name}:-***}}"),
            Reference::File { path } => write!(f, "${{file:{path}}}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_substituted_and_other_text_stays() {
        let check = |text: &str, expected: &str| {
            let resolved = resolve_references(text, |reference| {
                Ok::<_, ()>(match reference {
                    Reference::Env { name, default } => format!("<{name}|{}>", default.unwrap_or("")),
                    Reference::File { path } => format!("<file {path}>"),
                })
            });
            assert_eq!(resolved.unwrap(), expected);
        };
        check("plain", "plain");
        check("Bearer ${env:TOKEN}", "Bearer <TOKEN|>");
        check("${TOKEN:-none}/${file:/etc/x}!", "<TOKEN|none>/<file /etc/x>!");
        check("${input:thing} ${} ${ open", "${input:thing} ${} ${ open");
    }

    #[test]
    fn a_path_that_begins_with_a_reference_is_relative_to_the_file() {
        let check = |role: TextRole, text: &str, value: &str, expected: &str| {
            let look_up = |reference: &Reference<'_>| match reference {
                Reference::Env { name: "HOME", .. } => Ok::<_, ()>("/home/me".to_owned()),
                Reference::Env { .. } | Reference::File { .. } => Ok(value.to_owned()),
            };
            assert_eq!(resolve_text(role, text, look_up).unwrap(), expected, "{role:?} {text} {value}");
        };
        let text = "/p/./${env:X}";
        check(TextRole::Path, text, "../api.yaml", "/api.yaml");
        check(TextRole::Path, text, "api.yaml", "/p/api.yaml");
        check(TextRole::Path, text, "~/api.yaml", "/home/me/api.yaml");
        check(TextRole::Path, text, "/etc/./x", "/etc/./x");
        check(TextRole::Path, text, "https://h/x", "https://h/x");
        check(TextRole::Path, "/p/./${env:X}/y", ".", "/p/y");
        check(TextRole::Path, "//./${env:X}", "y", "/y");
        check(TextRole::Path, "/opt/${env:X}", "/y", "/opt//y");
        check(TextRole::Program, text, "./run.sh", "/p/run.sh");
        check(TextRole::Program, text, "npx", "npx");
        check(TextRole::Plain, text, "/y", "/p/.//y");
    }
}
