//! A tool as search reads it: a few fields of text, each with its own weight.

use serde_json::Value;

use crate::tool::Tool;

/// Nesting is read so far: what lies deeper says little about what a tool is for.
const DEEPEST: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Name,
    Description,
    Source,
    About,
    ArgumentName,
    ArgumentDescription,
    Choice,
}

impl Field {
    pub(super) const COUNT: usize = 7;

    /// How much one word here counts.
    pub(super) fn weight(self) -> f32 {
        match self {
            Field::Name => 2.5,
            Field::Description => 1.0,
            Field::Source => 1.2,
            Field::About => 0.3,
            Field::ArgumentName => 0.4,
            Field::ArgumentDescription => 0.25,
            Field::Choice => 0.25,
        }
    }

    /// How many words such a field usually has. A constant, so that a source can be indexed without knowing the others.
    pub(super) fn usual_length(self) -> f32 {
        match self {
            Field::Name => 3.0,
            Field::Description => 25.0,
            Field::Source => 3.0,
            Field::About => 30.0,
            Field::ArgumentName => 6.0,
            Field::ArgumentDescription => 40.0,
            Field::Choice => 8.0,
        }
    }
}

/// Calls `take` with every text of a tool, except what it shares with its whole source.
pub(super) fn texts(tool: &Tool, mut take: impl FnMut(Field, &str)) {
    take(Field::Name, &tool.name);
    if let Some(title) = &tool.face.title {
        take(Field::Description, title);
    }
    take(Field::Description, &tool.face.description);
    let schema: Value = serde_json::from_str(tool.face.input_schema.get()).unwrap_or_default();
    read_schema(&schema, 0, &mut take);
}

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
