//! A tool as search reads it: a few fields of text, each with its own weight.

use serde_json::Value;

use crate::outline;
use crate::tool::Tool;

/// Nesting is read so far: what lies deeper says little about what a tool is for.
const MAX_SCHEMA_DEPTH: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentField {
    Name,
    /// The title, and the first sentence of the description.
    Summary,
    /// The rest of the description.
    Details,
    Source,
    /// What the source says about itself.
    About,
    ArgumentName,
    ArgumentDescription,
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

    /// How much one word here counts.
    pub(super) fn weight(self) -> f32 {
        match self {
            DocumentField::Name => 2.5,
            DocumentField::Summary => 1.0,
            DocumentField::Details => 0.6,
            DocumentField::Source => 1.2,
            DocumentField::About => 0.3,
            DocumentField::ArgumentName => 0.4,
            DocumentField::ArgumentDescription => 0.25,
            DocumentField::Choice => 0.25,
        }
    }

    /// How many words such a field usually has. A constant, so that a source can be indexed without knowing the others;
    /// measured against averages over the whole catalogue, it finds as well.
    pub(super) fn typical_length(self) -> f32 {
        match self {
            DocumentField::Name => 3.5,
            DocumentField::Summary => 14.0,
            DocumentField::Details => 16.0,
            DocumentField::Source => 2.5,
            DocumentField::About => 35.0,
            DocumentField::ArgumentName => 8.0,
            DocumentField::ArgumentDescription => 50.0,
            DocumentField::Choice => 12.0,
        }
    }

    /// How much a long text is held against its words, from 0 to 1.
    pub(super) fn length_penalty(self) -> f32 {
        match self {
            DocumentField::Summary | DocumentField::Details | DocumentField::About => 0.8,
            DocumentField::Name
            | DocumentField::Source
            | DocumentField::ArgumentName
            | DocumentField::ArgumentDescription
            | DocumentField::Choice => 0.6,
        }
    }
}

/// Calls `take` with every text of a tool, except what it shares with its whole source.
pub(super) fn for_each_text(tool: &Tool, schema: &Value, mut take: impl FnMut(DocumentField, &str)) {
    take(DocumentField::Name, &tool.name);
    if let Some(title) = &tool.listing.title {
        take(DocumentField::Summary, title);
    }
    let (summary, details) = outline::split_first_sentence(&tool.listing.description);
    take(DocumentField::Summary, summary);
    take(DocumentField::Details, details);
    read_schema(schema, 0, &mut take);
}

/// Follows no reference, so every node is read at most once.
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
            ("$defs" | "definitions", Value::Object(definitions)) => {
                definitions.values().for_each(|definition| read_schema(definition, depth + 1, take));
            }
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
