//! The parts of a tool in a lockfile: short fingerprints and normalised schemas. They suffice to tell how a tool
//! changed on a machine that never had the old version.
//! Everything but the name is covered by one part, so that a change is neither missed nor reported twice:
//!
//! ```text
//! text         titles, descriptions, comments and examples, also inside schemas
//! input        input schema without those texts, in normal form
//! hints        readOnlyHint and the like
//! execution    request of an OpenAPI operation
//! rest         everything else
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolcrib_core::execution::ExecutionSpec;
use toolcrib_core::fingerprint::Fingerprint;
use toolcrib_core::tool::Tool;
use toolcrib_schema::{NormalForm, WorkBudget};

use crate::compare::{
    EXECUTION_FIELD, EffectHints, TaskSupport, input_schema, is_hint, original_description, original_title,
    output_schema, parse_json,
};

/// Fingerprints of the parts of a tool. The field names are the keys of the lockfile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolParts {
    /// Fingerprint of all titles and descriptions, including those within schemas.
    pub text: String,
    /// Fingerprint of the input schema without annotations.
    pub input: String,
    /// Fingerprint of the output schema without annotations, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Names of the effect hints that are true.
    pub hints: String,
    /// Fingerprint of the execution specification, if the tool has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<String>,
    /// MCP's `taskSupport`; left out if forbidden, the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<String>,
    /// Fingerprint of everything else: unknown fields and annotations, tags, deprecation. Older lockfiles have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<String>,
    /// Normal form of the input schema; left out if long.
    #[serde(rename = "takes", default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// Normal form of the output schema; left out if long.
    #[serde(rename = "gives", default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

/// Hexadecimal digits of a fingerprint: 64 bits, enough to notice changes.
const FINGERPRINT_DIGITS: usize = 16;
/// Maximum length of a stored schema. People review lockfiles, and longer lines hide the rest.
const MAX_STORED_SCHEMA_LEN: usize = 2_000;

/// Prefix of the fingerprint of a schema as it is written, not normalised. Costs little work, but any other notation of
/// the same schema counts as a change. A digest never starts with it, so old and new fingerprints can be told apart.
const VERBATIM_PREFIX: &str = "=";

impl ToolParts {
    /// Computes the parts of a tool. All tools of a list share a budget; once it is spent, schemas get a verbatim
    /// fingerprint. For comparison with `other`, they get one where `other` has one as well: fingerprints of different
    /// kinds would never be equal, and each tool would look changed.
    pub fn from_tool(tool: &Tool, other: Option<&ToolParts>, budget: &mut WorkBudget) -> ToolParts {
        let mut texts = vec![original_title(tool).unwrap_or_default(), original_description(tool).unwrap_or_default()];
        let spec = tool.parse_execution_spec();
        let other_input = other.map(|other| other.input.as_str());
        let input = parse_json(input_schema(tool, spec.as_ref()));
        let (input, input_schema) = normalize_schema(input, other_input, budget, &mut texts);
        let other_output = other.and_then(|other| other.output.as_deref());
        let output = output_schema(tool, spec.as_ref())
            .map(|output| normalize_schema(parse_json(Some(output)), other_output, budget, &mut texts));
        let (output, output_schema) = output.unzip();
        let execution = spec.as_ref().and_then(|spec| serde_json::to_value(&spec.execution).ok());
        // A title among the annotations counts as text, not as a change of annotations.
        let mut annotations = parse_json(tool.listing.annotations.as_deref());
        if let Some(Value::String(title)) = annotations.as_object_mut().and_then(|object| object.shift_remove("title"))
        {
            texts.push(title);
        }
        ToolParts {
            text: short_fingerprint(&json!(texts)),
            input,
            output,
            hints: EffectHints::from_annotations(tool.listing.annotations.as_deref()).true_names(),
            execution: execution.map(|execution| short_fingerprint(&sort_keys(execution))),
            tasks: TaskSupport::from_tool(tool).name().map(str::to_owned),
            rest: Some(fingerprint_rest(tool, annotations, spec.as_ref())),
            input_schema,
            output_schema: output_schema.flatten(),
        }
    }

    /// Returns what identifies a tool under another name. `None` for a tool without texts and arguments, since many
    /// others look the same.
    pub(crate) fn identity(&self) -> Option<[&str; 5]> {
        let has_no_texts = self.text == short_fingerprint(&json!(["", ""]));
        let has_no_arguments = self.input_schema.as_ref().is_some_and(|schema| schema.get("properties").is_none());
        (!has_no_texts || !has_no_arguments).then(|| {
            [
                self.text.as_str(),
                self.input.as_str(),
                self.output.as_deref().unwrap_or_default(),
                self.hints.as_str(),
                self.execution.as_deref().unwrap_or_default(),
            ]
        })
    }
}

/// Returns the fingerprint of a schema's normal form, and the form itself if it is short. Appends the texts of the
/// schema to `texts`, in the order of its sorted keys.
fn normalize_schema(
    schema: Value,
    other: Option<&str>,
    budget: &mut WorkBudget,
    texts: &mut Vec<String>,
) -> (String, Option<Value>) {
    let sorted = sort_keys(schema.clone());
    collect_texts(&sorted, SchemaKeys::Keywords, texts);
    // The texts are collected in any case: the budget bounds normalisation only.
    let verbatim = || (format!("{VERBATIM_PREFIX}{}", short_fingerprint(&sorted)), None);
    if budget.is_exhausted() || other.is_some_and(|other| other.starts_with(VERBATIM_PREFIX)) {
        return verbatim();
    }
    let form = NormalForm::with_budget(&schema, budget);
    if !form.is_complete {
        return verbatim();
    }
    let text = form.schema.to_string();
    (
        Fingerprint::digest(&text).short_hex(FINGERPRINT_DIGITS),
        (text.len() <= MAX_STORED_SCHEMA_LEN).then_some(form.schema),
    )
}

/// Returns the fingerprint of everything that no other part covers.
fn fingerprint_rest(tool: &Tool, mut annotations: Value, spec: Option<&ExecutionSpec>) -> String {
    if let Value::Object(object) = &mut annotations {
        // `hints` covers these.
        object.retain(|name, value| !(is_hint(name) && value.is_boolean()));
    }
    let mut fields = Map::new();
    for (name, value) in tool.extra.iter() {
        let mut value = parse_json(Some(value));
        if let (EXECUTION_FIELD, Value::Object(execution)) = (name, &mut value) {
            execution.shift_remove("taskSupport");
            if execution.is_empty() {
                continue;
            }
        }
        fields.insert(name.to_owned(), value);
    }
    let annotations = if annotations == json!({}) { Value::Null } else { annotations };
    let (tags, deprecated) = spec.map(|spec| (&spec.tags, spec.deprecated)).unzip();
    short_fingerprint(&sort_keys(json!([annotations, fields, tags, deprecated])))
}

/// Returns the first digits of the fingerprint of a value's JSON text.
fn short_fingerprint(value: &Value) -> String {
    Fingerprint::digest(value.to_string()).short_hex(FINGERPRINT_DIGITS)
}

/// Kind of the keys of an object within a schema. A property may be named `title`, so the same word is an annotation in
/// one place and a name in another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaKeys {
    Keywords,
    Names,
}

/// Collects titles, descriptions, comments and examples. The recursion is bounded by the depth that a manifest accepts.
fn collect_texts(value: &Value, keys: SchemaKeys, texts: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (keys, key.as_str(), value) {
                    (SchemaKeys::Keywords, "title" | "description" | "$comment", Value::String(text)) => {
                        texts.push(text.clone());
                    }
                    (SchemaKeys::Keywords, "examples" | "example", value) => texts.push(value.to_string()),
                    // Plain data: a `title` within it is not an annotation.
                    (SchemaKeys::Keywords, "enum" | "const" | "default" | "required", _) => {}
                    (
                        SchemaKeys::Keywords,
                        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                        value,
                    ) => collect_texts(value, SchemaKeys::Names, texts),
                    (SchemaKeys::Keywords | SchemaKeys::Names, _, value) => {
                        collect_texts(value, SchemaKeys::Keywords, texts)
                    }
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, SchemaKeys::Keywords, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns a value with all its keys sorted.
fn sort_keys(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}
