//! What providers take, as data. `docs/formats.md` has the same as a table, with where it was learnt.

/// Names of tools are `[A-Za-z0-9_-]{1,64}` already, which every provider takes; this one also minds how they begin.
pub(super) fn is_gemini_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Names of arguments, at the top of a schema.
pub(super) fn is_anthropic_argument_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

pub(super) fn is_gemini_argument_name(name: &str) -> bool {
    is_gemini_name(name) && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Characters of a function's description.
pub(super) const MAX_OPENAI_DESCRIPTION_CHARS: usize = 1_024;

/// Keywords that may not stand at the top of a schema.
pub(super) const ANTHROPIC_FORBIDDEN_AT_ROOT: [&str; 3] = ["oneOf", "anyOf", "allOf"];
pub(super) const OPENAI_FORBIDDEN_AT_ROOT: [&str; 5] = ["oneOf", "anyOf", "allOf", "enum", "not"];

pub(super) mod strict {
    /// Our own bound on what is written before it is measured.
    pub(in super::super) const MAX_PARTS: usize = 10_000;
    pub(in super::super) const MAX_OBJECT_DEPTH: usize = 10;
    pub(in super::super) const MAX_PROPERTIES: usize = 5_000;
    pub(in super::super) const MAX_ENUM_VALUES: usize = 1_000;
    /// An enumeration with more values than this may have only so many characters.
    pub(in super::super) const LONG_ENUM_LIMIT: (usize, usize) = (250, 15_000);
    /// Characters of all names, values of enumerations and constants.
    pub(in super::super) const MAX_CHARACTERS: usize = 120_000;
    pub(in super::super) const SUPPORTED_FORMATS: [&str; 9] =
        ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

    pub(in super::super) fn supported_keywords(kind: &str) -> &'static [&'static str] {
        match kind {
            "string" => &["enum", "const", "pattern", "format"],
            "number" | "integer" => {
                &["enum", "const", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"]
            }
            "array" => &["minItems", "maxItems"],
            _ => &["enum", "const"],
        }
    }
}

pub(super) mod gemini {
    /// References are written out; so deep or, where that makes a schema too large, less deep.
    pub(in super::super) const REFERENCE_DEPTHS: [usize; 4] = [8, 4, 2, 1];
    /// A schema of more parts is too large.
    pub(in super::super) const MAX_PARTS: usize = 2_000;

    pub(in super::super) fn supported_formats(kind: &str) -> &'static [&'static str] {
        match kind {
            "string" => &["enum", "date-time"],
            "number" => &["float", "double"],
            "integer" => &["int32", "int64"],
            _ => &[],
        }
    }

    pub(in super::super) fn supported_keywords(kind: &str) -> &'static [&'static str] {
        match kind {
            "string" => &["enum", "format", "minLength", "maxLength", "pattern", "default", "example"],
            "number" | "integer" => &["format", "minimum", "maximum", "default", "example"],
            "array" => &["minItems", "maxItems", "default", "example"],
            "object" => &["minProperties", "maxProperties", "default", "example"],
            _ => &["default", "example"],
        }
    }
}
