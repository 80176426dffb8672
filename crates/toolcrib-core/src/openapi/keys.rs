//! What the keys of an object in a document are: words of the specification, names that somebody chose, or data. Only the
//! first say what they mean.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// The specification's: `example` means an example.
    Keywords,
    /// Somebody chose them: `example` may be the name of a property.
    Names,
    /// So are all below, and nothing in there is a reference.
    Data,
}

impl Keys {
    /// What the keys of an object under this key are.
    pub(super) fn below(self, key: &str) -> Keys {
        match (self, key) {
            (Keys::Data, _) | (Keys::Keywords, "default" | "enum" | "const" | "security" | "example" | "examples") => {
                Keys::Data
            }
            (Keys::Names, _) => Keys::Keywords,
            (
                Keys::Keywords,
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
            ) => Keys::Names,
            (Keys::Keywords, _) => Keys::Keywords,
        }
    }

    /// What the keys of the objects in a list are.
    pub(super) fn each(self) -> Keys {
        match self {
            Keys::Data => Keys::Data,
            Keys::Keywords | Keys::Names => Keys::Keywords,
        }
    }
}
