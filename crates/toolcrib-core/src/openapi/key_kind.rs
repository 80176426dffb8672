//! What the keys of an object in a document are: words of the specification, names that somebody chose, or data. Only the
//! first say what they mean.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// The specification's: `example` means an example.
    Keywords,
    /// Somebody chose them: `example` may be the name of a property.
    Names,
    /// So are all below, and nothing in there is a reference.
    Data,
}

impl KeyKind {
    /// What the keys of an object under this key are.
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

    /// What the keys of the objects in a list are.
    pub(super) fn in_array(self) -> KeyKind {
        match self {
            KeyKind::Data => KeyKind::Data,
            KeyKind::Keywords | KeyKind::Names => KeyKind::Keywords,
        }
    }
}
