//! A tool as search reads it: a few fields of text, each with its own weight.

use serde_json::Value;

use crate::outline;
use crate::tool::Tool;

/// Nesting is read so far: what lies deeper says little about what a tool is for.
const DEEPEST: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
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

impl Field {
    pub(super) const ALL: [Field; 8] = [
        Field::Name,
        Field::Summary,
        Field::Details,
        Field::Source,
        Field::About,
        Field::ArgumentName,
        Field::ArgumentDescription,
        Field::Choice,
    ];

    /// How much one word here counts.
    pub(super) fn weight(self) -> f32 {
        match self {
            Field::Name => 2.5,
            Field::Summary => 1.0,
            Field::Details => 0.6,
            Field::Source => 1.2,
            Field::About => 0.3,
            Field::ArgumentName => 0.4,
            Field::ArgumentDescription => 0.25,
            Field::Choice => 0.25,
        }
    }

    /// How many words such a field usually has. A constant, so that a source can be indexed without knowing the others;
    /// measured against averages over the whole catalogue, it finds as well.
    pub(super) fn usual_length(self) -> f32 {
        match self {
            Field::Name => 3.5,
            Field::Summary => 14.0,
            Field::Details => 16.0,
            Field::Source => 2.5,
            Field::About => 35.0,
            Field::ArgumentName => 8.0,
            Field::ArgumentDescription => 50.0,
            Field::Choice => 12.0,
        }
    }

    /// How much a long text is held against its words, from 0 to 1.
    pub(super) fn length_penalty(self) -> f32 {
        match self {
            Field::Summary | Field::Details | Field::About => 0.8,
            Field::Name | Field::Source | Field::ArgumentName | Field::ArgumentDescription | Field::Choice => 0.6,
        }
    }
}

/// Calls `take` with every text of a tool, except what it shares with its whole source.
pub(super) fn texts(tool: &Tool, schema: &Value, mut take: impl FnMut(Field, &str)) {
    take(Field::Name, &tool.name);
    if let Some(title) = &tool.face.title {
        take(Field::Summary, title);
    }
    let (summary, details) = outline::parted(&tool.face.description);
    take(Field::Summary, summary);
    take(Field::Details, details);
    read_schema(schema, 0, &mut take);
}

/// Follows no reference, so every node is read at most once.
fn read_schema(schema: &Value, depth: usize, take: &mut impl FnMut(Field, &str)) {
    let Value::Object(keywords) = schema else { return };
    if depth > DEEPEST {
        return;
    }
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(properties)) => {
                for (name, property) in properties {
                    take(Field::ArgumentName, name);
                    read_schema(property, depth + 1, take);
                }
            }
            ("$defs" | "definitions", Value::Object(definitions)) => {
                definitions.values().for_each(|definition| read_schema(definition, depth + 1, take));
            }
            ("description" | "title", Value::String(text)) if depth > 0 => take(Field::ArgumentDescription, text),
            ("enum", Value::Array(choices)) => {
                choices.iter().filter_map(Value::as_str).for_each(|choice| take(Field::Choice, choice));
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
