//! Classifies the keys of objects in a document: keywords of the specification, names chosen by the author, or data.
//! Only keywords have a meaning, so `example` may be removed as a keyword but not as the name of a property.
//!
//! ```json
//! {"properties": {"example": {"type": "string", "example": "x"}}}
//! ```
//!
//! The first `example` is a name, the second a keyword. The kind is derived from the keys above, without a model of
//! the whole specification: an unknown keyword is taken for an object of keywords.

/// Kind of the keys of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// Defined by the specification: `example` means an example.
    Keywords,
    /// Chosen by the author: `example` may be the name of a property.
    Names,
    /// Plain data, including everything below: contains no keywords and no references.
    Data,
}

impl KeyKind {
    /// Returns the kind of the keys of the object under `key`.
    pub(super) fn under_key(self, key: &str) -> KeyKind {
        match (self, key) {
            (KeyKind::Data, _)
            | (KeyKind::Keywords, "default" | "enum" | "const" | "security" | "example" | "examples") => KeyKind::Data,
            (KeyKind::Names, _) => KeyKind::Keywords,
            (
                KeyKind::Keywords,
                "properties"
                | "patternProperties"
                | "dependentSchemas"
                | "$defs"
                | "definitions"
                | "schemas"
                | "paths"
                | "parameters"
                | "responses"
                | "requestBodies"
                | "headers"
                | "securitySchemes"
                | "securityDefinitions"
                | "pathItems"
                | "callbacks"
                | "variables"
                | "content"
                | "encoding"
                | "mapping"
                | "additionalOperations",
            ) => KeyKind::Names,
            (KeyKind::Keywords, _) => KeyKind::Keywords,
        }
    }

    /// Returns the kind of the keys of objects in an array.
    pub(super) fn in_array(self) -> KeyKind {
        match self {
            KeyKind::Data => KeyKind::Data,
            KeyKind::Keywords | KeyKind::Names => KeyKind::Keywords,
        }
    }
}
