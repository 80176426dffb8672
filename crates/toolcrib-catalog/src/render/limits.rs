//! Limits of the providers, as data. `docs/formats.md` has the same as a table, with the evidence for each. Change both
//! together.

/// Whether Gemini accepts a tool name. All names match `[A-Za-z0-9_-]{1,64}` already; Gemini also restricts the first
/// character.
pub(super) fn is_gemini_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// Whether Anthropic accepts the name of a top-level argument.
pub(super) fn is_anthropic_argument_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// Whether Gemini accepts the name of a top-level argument.
pub(super) fn is_gemini_argument_name(name: &str) -> bool {
    is_gemini_name(name) && name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Maximum number of characters of a function's description.
pub(super) const MAX_OPENAI_DESCRIPTION_CHARS: usize = 1_024;

/// Keywords that Anthropic rejects at the top level of a schema.
pub(super) const ANTHROPIC_FORBIDDEN_AT_ROOT: [&str; 3] = ["oneOf", "anyOf", "allOf"];
/// Keywords that OpenAI rejects at the top level of a schema.
pub(super) const OPENAI_FORBIDDEN_AT_ROOT: [&str; 5] = ["oneOf", "anyOf", "allOf", "enum", "not"];

/// Limits of OpenAI's Structured Outputs.
pub(super) mod strict {
    /// Maximum number of schema parts. Toolcrib's own limit, which bounds the work before the result is measured.
    pub(in super::super) const MAX_PARTS: usize = 10_000;
    /// Maximum nesting of objects.
    pub(in super::super) const MAX_OBJECT_DEPTH: usize = 10;
    /// Maximum number of properties in the whole schema.
    pub(in super::super) const MAX_PROPERTIES: usize = 5_000;
    /// Maximum number of `enum` values in the whole schema.
    pub(in super::super) const MAX_ENUM_VALUES: usize = 1_000;
    /// `(values, characters)`: an `enum` with more than this many values may have only this many characters in total.
    pub(in super::super) const LONG_ENUM_LIMIT: (usize, usize) = (250, 15_000);
    /// Maximum number of characters in names, `enum` values and constants of the whole schema.
    pub(in super::super) const MAX_CHARACTERS: usize = 120_000;
    /// Supported values of `format` for strings.
    pub(in super::super) const SUPPORTED_FORMATS: [&str; 9] =
        ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

    /// Keywords supported for a type, besides those that the projection handles itself.
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

/// Limits of Gemini.
pub(super) mod gemini {
    /// Numbers of nested references to inline, tried in this order while the schema is too large. Fewer levels describe
    /// less and are smaller.
    pub(in super::super) const REFERENCE_DEPTHS: [usize; 4] = [8, 4, 2, 1];
    /// Maximum number of schema parts. Inlining can expand a small schema without end.
    pub(in super::super) const MAX_PARTS: usize = 2_000;

    /// Supported values of `format` for a type.
    pub(in super::super) fn supported_formats(kind: &str) -> &'static [&'static str] {
        match kind {
            "string" => &["enum", "date-time"],
            "number" => &["float", "double"],
            "integer" => &["int32", "int64"],
            _ => &[],
        }
    }

    /// Keywords supported for a type, besides those that the projection handles itself.
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
