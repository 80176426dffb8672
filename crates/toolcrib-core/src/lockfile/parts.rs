//! The parts of a tool, each by a short fingerprint, and its schemas without their words: enough to tell how a tool
//! changed on a machine that has never seen it as it was.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::compare::{EXECUTION_FIELD, EffectHints, NormalForm, TaskSupport, WorkBudget, is_hint, original_text};
use crate::execution::ExecutionSpec;
use crate::fingerprint::Fingerprint;
use crate::tool::Tool;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolParts {
    /// Titles and descriptions, those within its schemas too.
    pub text: String,
    /// The input schema without its texts.
    pub input: String,
    /// The output schema without its texts, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What it says about its effects: the names of those hints that hold.
    pub hints: String,
    /// How a call is carried out, where that is known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<String>,
    /// Whether a call may or must become a task; left out where it may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<String>,
    /// All else: fields and annotations that nobody here knows, tags, whether it is deprecated. Older lockfiles have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<String>,
    /// The input schema itself, by its meaning; left out where it is long.
    #[serde(rename = "takes", default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// The same of the output schema.
    #[serde(rename = "gives", default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
}

const FINGERPRINT_DIGITS: usize = 16;
/// A lockfile is read by people too.
const MAX_STORED_SCHEMA_LEN: usize = 2_000;

/// Before the fingerprint of a schema as it is written. It tells that two are the same, for little work.
const VERBATIM_PREFIX: &str = "=";

impl ToolParts {
    /// One allowance for all tools of a list; once it is spent, schemas are known to the letter.
    pub fn from_tool(tool: &Tool, allowance: &mut WorkBudget) -> ToolParts {
        ToolParts::from_tool_comparable_to(tool, None, allowance)
    }

    /// The schemas to the letter where those of the other are.
    pub(crate) fn from_tool_comparable_to(
        tool: &Tool,
        other: Option<&ToolParts>,
        allowance: &mut WorkBudget,
    ) -> ToolParts {
        let mut texts = vec![
            original_text(tool, "title", tool.listing.title.as_deref()).unwrap_or_default(),
            original_text(tool, "description", Some(&tool.listing.description)).unwrap_or_default(),
        ];
        let backing = tool.parse_execution_spec();
        let whole = backing.as_ref().and_then(|backing| backing.input_schema.as_deref());
        let offered = tool.original.get("inputSchema").unwrap_or(&tool.listing.input_schema);
        let (input, takes) =
            normalize_schema(whole.unwrap_or(offered), other.map(|other| other.input.as_str()), allowance, &mut texts);
        let answered = backing.as_ref().and_then(|backing| backing.output_schema.as_deref());
        let output = tool.output_schema.as_deref().or(answered);
        let other_output = other.and_then(|other| other.output.as_deref());
        let output = output.map(|output| normalize_schema(output, other_output, allowance, &mut texts));
        let (output, gives) = output.map_or((None, None), |(output, gives)| (Some(output), gives));
        let execution = backing.as_ref().and_then(|backing| serde_json::to_value(&backing.execution).ok());
        let mut annotations: Value = tool.listing.annotations.as_deref().map(parse_json).unwrap_or_default();
        if let Some(Value::String(title)) = annotations.as_object_mut().and_then(|said| said.shift_remove("title")) {
            texts.push(title);
        }
        ToolParts {
            text: short_fingerprint(&json!(texts)),
            input,
            output,
            hints: EffectHints::from_annotations(tool.listing.annotations.as_deref()).true_names(),
            execution: execution.as_ref().map(|execution| short_fingerprint(&sort_keys(execution))),
            tasks: TaskSupport::from_tool(tool).name().map(str::to_owned),
            rest: Some(fingerprint_rest(tool, annotations, backing.as_ref())),
            input_schema: takes,
            output_schema: gives,
        }
    }

    /// What a tool is recognised by under another name; nothing where it has neither words nor arguments, for then it
    /// is like many others.
    pub(crate) fn identity(&self) -> Option<[&str; 5]> {
        let wordless = self.text == short_fingerprint(&json!(["", ""]));
        let takes_nothing = self.input_schema.as_ref().is_some_and(|schema| schema.get("properties").is_none());
        (!wordless || !takes_nothing).then(|| {
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

/// The fingerprint of a schema's meaning, and the meaning itself where it is short. Texts are handed over in their order.
fn normalize_schema(
    schema: &RawValue,
    other: Option<&str>,
    allowance: &mut WorkBudget,
    texts: &mut Vec<String>,
) -> (String, Option<Value>) {
    let value = parse_json(schema);
    let in_order = sort_keys(&value);
    collect_texts(&in_order, SchemaKeys::Keywords, texts);
    let to_the_letter = || (format!("{VERBATIM_PREFIX}{}", short_fingerprint(&in_order)), None);
    if allowance.is_exhausted() || other.is_some_and(|other| other.starts_with(VERBATIM_PREFIX)) {
        return to_the_letter();
    }
    let plain = NormalForm::with_budget(&value, allowance);
    if !plain.is_complete {
        return to_the_letter();
    }
    let written = plain.schema.to_string();
    (
        Fingerprint::digest(&written).short_hex(FINGERPRINT_DIGITS),
        (written.len() <= MAX_STORED_SCHEMA_LEN).then_some(plain.schema),
    )
}

/// What no other part covers.
fn fingerprint_rest(tool: &Tool, mut annotations: Value, backing: Option<&ExecutionSpec>) -> String {
    if let Value::Object(said) = &mut annotations {
        said.retain(|name, value| !(is_hint(name) && value.is_boolean()));
    }
    let mut fields = Map::new();
    for (name, value) in tool.extra.iter() {
        let mut value = parse_json(value);
        if let (EXECUTION_FIELD, Value::Object(execution)) = (name, &mut value) {
            execution.shift_remove("taskSupport");
            if execution.is_empty() {
                continue;
            }
        }
        fields.insert(name.to_owned(), value);
    }
    let annotations = if annotations == json!({}) { Value::Null } else { annotations };
    let (tags, deprecated) = backing.map(|backing| (&backing.tags, backing.deprecated)).unzip();
    short_fingerprint(&sort_keys(&json!([annotations, fields, tags, deprecated])))
}

fn parse_json(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

fn short_fingerprint(value: &Value) -> String {
    Fingerprint::digest(value.to_string()).short_hex(FINGERPRINT_DIGITS)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SchemaKeys {
    Keywords,
    Names,
}

/// Depth is bounded by what a manifest takes.
fn collect_texts(value: &Value, keys: SchemaKeys, texts: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (keys, key.as_str(), value) {
                    (SchemaKeys::Keywords, "title" | "description" | "$comment", Value::String(text)) => {
                        texts.push(text.clone());
                    }
                    (SchemaKeys::Keywords, "examples" | "example", value) => texts.push(value.to_string()),
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

fn sort_keys(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            Value::Object(fields.into_iter().map(|(key, value)| (key.clone(), sort_keys(value))).collect())
        }
        Value::Array(items) => items.iter().map(sort_keys).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
