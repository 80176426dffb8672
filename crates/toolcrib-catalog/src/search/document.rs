//! A tool as a search document: text fields with their BM25F weights and length normalisation.
//!
//! The name says most about a tool, its arguments least. A change of the weights is measured with `toolcrib eval`.

use serde_json::Value;
use toolcrib_core::tool::Tool;

use crate::outline;

/// Maximum depth of schema nesting that is indexed; deeper texts say little about the purpose of a tool.
const MAX_SCHEMA_DEPTH: usize = 6;

/// Field of a tool's document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentField {
    Name,
    /// The title, and the first sentence of the description.
    Summary,
    /// The description after its first sentence.
    Details,
    /// The source id, shared by all of its tools.
    Source,
    /// The source's description of itself, e.g. title and `instructions` of an MCP server; shared by all of its tools.
    About,
    /// Down to [`MAX_SCHEMA_DEPTH`].
    ArgumentName,
    ArgumentDescription,
    /// A value of an `enum`.
    Choice,
}

impl DocumentField {
    pub(super) const ALL: [DocumentField; 8] = [
        DocumentField::Name,
        DocumentField::Summary,
        DocumentField::Details,
        DocumentField::Source,
        DocumentField::About,
        DocumentField::ArgumentName,
        DocumentField::ArgumentDescription,
        DocumentField::Choice,
    ];

    /// Parameters of this field in the score.
    pub(super) fn scoring(self) -> FieldScoring {
        let (weight, typical_length, length_penalty) = match self {
            DocumentField::Name => (2.5, 3.5, 0.6),
            DocumentField::Summary => (1.0, 14.0, 0.8),
            DocumentField::Details => (0.6, 16.0, 0.8),
            DocumentField::Source => (1.2, 2.5, 0.6),
            DocumentField::About => (0.3, 35.0, 0.8),
            DocumentField::ArgumentName => (0.4, 8.0, 0.6),
            DocumentField::ArgumentDescription => (0.25, 50.0, 0.6),
            DocumentField::Choice => (0.25, 12.0, 0.6),
        };
        FieldScoring { weight, typical_length, length_penalty }
    }
}

/// Parameters of one field in the score of a tool.
pub(super) struct FieldScoring {
    /// Weight of one occurrence of a word in the field.
    pub(super) weight: f32,
    /// Typical number of words in the field, for length normalisation. A constant instead of the average over the
    /// catalogue, so that a segment is indexed independently of the others; measured, it ranks as well.
    pub(super) typical_length: f32,
    /// Strength of length normalisation (`b` in BM25), from 0 to 1. At 0 a long text counts like a short one, at 1 only
    /// the share of the term counts.
    pub(super) length_penalty: f32,
}

/// Calls `take` with each text of a tool. Texts shared by the whole source are left to the caller.
pub(super) fn for_each_text(tool: &Tool, schema: &Value, mut take: impl FnMut(DocumentField, &str)) {
    // The source's own name: the prefix is indexed once, as the field `Source`.
    take(DocumentField::Name, &tool.name);
    if let Some(title) = &tool.listing.title {
        take(DocumentField::Summary, title);
    }
    let (summary, details) = outline::split_first_sentence(&tool.listing.description);
    take(DocumentField::Summary, summary);
    take(DocumentField::Details, details);
    read_schema(schema, 0, &mut take);
}

/// Reads names, descriptions and choices of a schema. Follows no references, so each node is visited once.
fn read_schema(schema: &Value, depth: usize, take: &mut impl FnMut(DocumentField, &str)) {
    let Value::Object(keywords) = schema else { return };
    if depth > MAX_SCHEMA_DEPTH {
        return;
    }
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(properties)) => {
                for (name, property) in properties {
                    take(DocumentField::ArgumentName, name);
                    read_schema(property, depth + 1, take);
                }
            }
            // Definitions are read where they stand, so references need not be followed.
            ("$defs" | "definitions", Value::Object(definitions)) => {
                definitions.values().for_each(|definition| read_schema(definition, depth + 1, take));
            }
            // At the top level these describe the schema as a whole and no argument.
            ("description" | "title", Value::String(text)) if depth > 0 => {
                take(DocumentField::ArgumentDescription, text)
            }
            ("enum", Value::Array(choices)) => {
                choices.iter().filter_map(Value::as_str).for_each(|choice| take(DocumentField::Choice, choice));
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter().for_each(|schema| read_schema(schema, depth + 1, take));
            }
            ("items" | "additionalProperties" | "not" | "if" | "then" | "else", schema) => {
                read_schema(schema, depth + 1, take);
            }
            _ => {}
        }
    }
}
