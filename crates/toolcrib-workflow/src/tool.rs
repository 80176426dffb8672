//! Builds the tool that agents see from a workflow.
//!
//! The listed input schema is an object with `properties` at the top, because providers reject `anyOf`, `$ref` and
//! the like there. Alternatives are merged, so it can accept combinations that the workflow rejects.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use toolcrib_core::execution::{ExecutionMode, ExecutionSpec};
use toolcrib_core::tool::EXECUTION_SPEC_KEY;
use toolcrib_schema::{array_keyword, declared_types, referenced_definition};

use super::Workflow;

/// Returns the tool as its source offers it, with the [`ExecutionSpec`] of the workflow.
pub fn build_workflow_tool(workflow: &Workflow) -> Value {
    let execution = ExecutionMode::Workflow { id: workflow.id.clone() };
    let spec =
        ExecutionSpec { execution, input_schema: None, output_schema: None, tags: Vec::new(), deprecated: false };
    let mut tool = Map::new();
    tool.insert("name".into(), workflow.tool.as_str().into());
    tool.insert("description".into(), describe_workflow(workflow).into());
    tool.insert("inputSchema".into(), input_schema(&workflow.inputs));
    tool.insert(EXECUTION_SPEC_KEY.into(), serde_json::to_value(spec).unwrap_or_default());
    Value::Object(tool)
}

/// Description from summary and description, or from the step ids.
fn describe_workflow(workflow: &Workflow) -> String {
    let summary = workflow.summary.as_deref().unwrap_or_default().trim();
    let description = workflow.description.as_deref().unwrap_or_default().trim();
    let text = match (summary, description) {
        ("", "") => format!("Workflow {}: {}", workflow.id, step_ids(workflow)),
        (only, "") | ("", only) => only.to_owned(),
        // The description repeats the summary already.
        (summary, description) if description.starts_with(summary) => description.to_owned(),
        (summary, description) => format!("{summary}\n\n{description}"),
    };
    shorten_description(text)
}

/// Ids of the steps, separated by commas.
fn step_ids(workflow: &Workflow) -> String {
    workflow.steps.iter().map(|step| step.id.as_str()).collect::<Vec<_>>().join(", ")
}

/// Truncates a text after a sentence or, if that would lose more than half, after a word.
fn shorten_description(text: String) -> String {
    // Descriptions are part of every tool list that an agent reads.
    const MAX_DESCRIPTION_CHARS: usize = 1000;
    let Some((end, _)) = text.char_indices().nth(MAX_DESCRIPTION_CHARS) else { return text };
    let prefix = &text[..end];
    let sentence = prefix.rfind(". ").or_else(|| prefix.rfind(".\n")).map(|position| position + 1);
    let end_of_cut =
        sentence.filter(|&position| position > end / 2).or_else(|| prefix.rfind(char::is_whitespace)).unwrap_or(end);
    format!("{} …", prefix[..end_of_cut].trim_end())
}

/// Returns an object schema without top-level keywords that providers reject. Alternatives are merged; conditions
/// between them are left to the workflow.
pub(super) fn input_schema(inputs: &Value) -> Value {
    // A schema that excludes objects cannot be met by arguments; it counts as no schema.
    let mut schema = inputs.as_object().filter(|object| can_be_object(object)).cloned().unwrap_or_default();
    let definitions = schema.get("$defs").cloned();
    let mut flattened = FlattenedObject {
        definitions: definitions.as_ref(),
        items_left: MAX_FLATTENED_ITEMS,
        ..FlattenedObject::default()
    };
    flattened.add(inputs, RequiredHandling::Keep, 0);
    let FlattenedObject { properties, required, .. } = flattened;
    for keyword in ["$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const", "type"] {
        schema.remove(keyword);
    }
    if !properties.is_empty() {
        schema.insert("properties".into(), Value::Object(properties));
    }
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    // `type` first, where readers expect it.
    let mut result = Map::new();
    result.insert("type".into(), "object".into());
    result.extend(schema);
    Value::Object(result)
}

/// Whether `type` allows objects.
fn can_be_object(schema: &Map<String, Value>) -> bool {
    schema.get("type").is_none_or(|types| declared_types(Some(types)).any(|name| name == "object"))
}

/// Treatment of the required names of a part.
#[derive(Clone, Copy)]
enum RequiredHandling {
    Keep,
    /// For alternatives: none of them needs to apply.
    Drop,
}

/// Maximum number of schemas and properties that are merged: alternatives that refer to each other give millions at
/// four levels of fifty.
const MAX_FLATTENED_ITEMS: usize = 50_000;

/// One object, merged from the parts of a schema.
#[derive(Default)]
struct FlattenedObject<'a> {
    /// `$defs` for references.
    definitions: Option<&'a Value>,
    items_left: usize,
    properties: Map<String, Value>,
    required: Vec<String>,
    /// The same names, for lookup.
    required_names: HashSet<String>,
}

impl FlattenedObject<'_> {
    /// Merges a schema and its parts, up to four levels deep.
    fn add(&mut self, schema: &Value, required_handling: RequiredHandling, depth: usize) {
        let Some(object) = schema.as_object().filter(|object| depth <= 4 && can_be_object(object)) else { return };
        let properties = object.get("properties").and_then(Value::as_object);
        let required = array_keyword(object, "required");
        let Some(items_left) = self.items_left.checked_sub(1 + properties.map_or(0, Map::len) + required.len()) else {
            return;
        };
        self.items_left = items_left;
        for (name, value) in properties.into_iter().flatten() {
            self.properties.entry(name.as_str()).or_insert_with(|| value.clone());
        }
        for name in required.iter().filter_map(Value::as_str) {
            if matches!(required_handling, RequiredHandling::Keep) && self.required_names.insert(name.to_owned()) {
                self.required.push(name.to_owned());
            }
        }
        if let Some(target) = referenced_definition(object).and_then(|name| self.definitions?.get(name)) {
            self.add(target, required_handling, depth + 1);
        }
        for (keyword, required_handling) in
            [("allOf", required_handling), ("anyOf", RequiredHandling::Drop), ("oneOf", RequiredHandling::Drop)]
        {
            for part in array_keyword(object, keyword).iter().take(50) {
                self.add(part, required_handling, depth + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ArazzoDocument;

    #[test]
    fn a_workflow_becomes_a_tool_with_valid_name_and_object_schema() {
        let name = json!({"type": "string"});
        for (inputs, expected) in [
            (json!(null), json!({"type": "object"})),
            (json!({"type": "string"}), json!({"type": "object"})),
            (json!(true), json!({"type": "object"})),
            (
                json!({"properties": {"name": name}, "required": ["name"]}),
                json!({"type": "object", "properties": {"name": name}, "required": ["name"]}),
            ),
            (json!({"type": ["object", "null"], "description": "d"}), json!({"type": "object", "description": "d"})),
            (
                json!({"allOf": [{"$ref": "#/components/inputs/page"}, {"properties": {"name": name}, "required": ["name"]}],
                    "oneOf": [{"properties": {"x": name}, "required": ["x"]}]}),
                json!({
                    "type": "object",
                    "$defs": {"page": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                    "properties": {"size": {"type": "integer"}, "name": name, "x": name},
                    "required": ["name"],
                }),
            ),
        ] {
            let document = json!({
                "arazzo": "1.0.1",
                "sourceDescriptions": [{"name": "a", "url": "a.json"}],
                "components": {"inputs": {"page": {"type": "object", "properties": {"size": {"type": "integer"}}}}},
                "workflows": [{"workflowId": "buy.pet", "summary": "Buys", "description": "It buys.", "inputs": inputs,
                    "steps": [{"stepId": "s", "operationId": "o"}]}],
            });
            let document = ArazzoDocument::parse(&document).unwrap();
            let tool = build_workflow_tool(&document.workflows[0]);
            assert_eq!(
                tool,
                json!({
                    "name": "buy_pet",
                    "description": "Buys\n\nIt buys.",
                    "inputSchema": expected,
                    "x-toolcrib-backing": {"execution": {"mode": "workflow", "id": "buy.pet"}},
                })
            );
        }
    }

    #[test]
    fn merging_of_recursive_alternatives_is_bounded() {
        let names = |count: usize| (0..count).map(|n| format!("p{n}"));
        let properties: Map<String, Value> = names(40_000).map(|name| (name, json!({}))).collect();
        let parts = |name: &str| vec![json!({"$ref": format!("#/$defs/{name}")}); 50];
        let every = |name: &str| json!({"allOf": parts(name), "anyOf": parts(name), "oneOf": parts(name)});
        let mut schema = every("a");
        schema["$defs"] = json!({"a": every("b"), "b": {"properties": properties}});
        assert_eq!(input_schema(&schema)["properties"].as_object().map(Map::len), Some(40_000));
        let required: Vec<String> = names(40_000).collect();
        assert_eq!(input_schema(&json!({"required": required}))["required"].as_array().map(Vec::len), Some(40_000));
    }

    #[test]
    fn a_long_description_is_cut_after_a_sentence() {
        let text = format!("{}. {}", "a".repeat(700), "word ".repeat(100));
        assert_eq!(shorten_description(text), format!("{}. …", "a".repeat(700)));
        assert_eq!(shorten_description("x ".repeat(600)).chars().count(), 1001);
        assert_eq!(shorten_description("short".into()), "short");
    }
}
