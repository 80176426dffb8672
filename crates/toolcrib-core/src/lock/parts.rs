//! The parts of a tool, each by a short fingerprint, and its schemas without their words: enough to tell how a tool
//! changed on a machine that has never seen it as it was.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::compare::{Allowance, EXECUTION, Effects, Plain, Tasks, given, is_hint};
use crate::execution::Backing;
use crate::fingerprint::Fingerprint;
use crate::tool::Tool;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parts {
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takes: Option<Value>,
    /// The same of the output schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives: Option<Value>,
}

const DIGITS: usize = 16;
/// A lockfile is read by people too.
const LONGEST_SCHEMA: usize = 2_000;

/// Before the fingerprint of a schema as it is written. It tells that two are the same, for little work.
const TO_THE_LETTER: &str = "=";

impl Parts {
    /// One allowance for all tools of a list; once it is spent, schemas are known to the letter.
    pub fn of(tool: &Tool, allowance: &mut Allowance) -> Parts {
        Parts::to_compare(tool, None, allowance)
    }

    /// The schemas to the letter where those of the other are.
    pub(crate) fn to_compare(tool: &Tool, other: Option<&Parts>, allowance: &mut Allowance) -> Parts {
        let mut texts = vec![
            given(tool, "title", tool.face.title.as_deref()).unwrap_or_default(),
            given(tool, "description", Some(&tool.face.description)).unwrap_or_default(),
        ];
        let backing = tool.backing();
        let whole = backing.as_ref().and_then(|backing| backing.input_schema.as_deref());
        let offered = tool.original.get("inputSchema").unwrap_or(&tool.face.input_schema);
        let (input, takes) =
            schema(whole.unwrap_or(offered), other.map(|other| other.input.as_str()), allowance, &mut texts);
        let answered = backing.as_ref().and_then(|backing| backing.output_schema.as_deref());
        let output = tool.output_schema.as_deref().or(answered);
        let other_output = other.and_then(|other| other.output.as_deref());
        let output = output.map(|output| schema(output, other_output, allowance, &mut texts));
        let (output, gives) = output.map_or((None, None), |(output, gives)| (Some(output), gives));
        let execution = backing.as_ref().and_then(|backing| serde_json::to_value(&backing.execution).ok());
        let mut annotations: Value = tool.face.annotations.as_deref().map(read).unwrap_or_default();
        if let Some(Value::String(title)) = annotations.as_object_mut().and_then(|said| said.shift_remove("title")) {
            texts.push(title);
        }
        Parts {
            text: short(&json!(texts)),
            input,
            output,
            hints: Effects::of(tool.face.annotations.as_deref()).names(),
            execution: execution.as_ref().map(|execution| short(&sorted(execution))),
            tasks: Tasks::of(tool).name().map(str::to_owned),
            rest: Some(rest(tool, annotations, backing.as_ref())),
            takes,
            gives,
        }
    }

    /// What a tool is recognised by under another name; nothing where it has neither words nor arguments, for then it
    /// is like many others.
    pub(crate) fn mark(&self) -> Option<[&str; 5]> {
        let wordless = self.text == short(&json!(["", ""]));
        let takes_nothing = self.takes.as_ref().is_some_and(|schema| schema.get("properties").is_none());
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
fn schema(
    schema: &RawValue,
    other: Option<&str>,
    allowance: &mut Allowance,
    texts: &mut Vec<String>,
) -> (String, Option<Value>) {
    let value = read(schema);
    let in_order = sorted(&value);
    collect_texts(&in_order, Keys::Keywords, texts);
    let to_the_letter = || (format!("{TO_THE_LETTER}{}", short(&in_order)), None);
    if allowance.is_spent() || other.is_some_and(|other| other.starts_with(TO_THE_LETTER)) {
        return to_the_letter();
    }
    let plain = Plain::of_list(&value, allowance);
    if !plain.is_whole {
        return to_the_letter();
    }
    let written = plain.schema.to_string();
    (Fingerprint::of(&written).short(DIGITS), (written.len() <= LONGEST_SCHEMA).then_some(plain.schema))
}

/// What no other part covers.
fn rest(tool: &Tool, mut annotations: Value, backing: Option<&Backing>) -> String {
    if let Value::Object(said) = &mut annotations {
        said.retain(|name, value| !(is_hint(name) && value.is_boolean()));
    }
    let mut fields = Map::new();
    for (name, value) in tool.extra.iter() {
        let mut value = read(value);
        if let (EXECUTION, Value::Object(execution)) = (name, &mut value) {
            execution.shift_remove("taskSupport");
            if execution.is_empty() {
                continue;
            }
        }
        fields.insert(name.to_owned(), value);
    }
    let annotations = if annotations == json!({}) { Value::Null } else { annotations };
    let (tags, deprecated) = backing.map(|backing| (&backing.tags, backing.deprecated)).unzip();
    short(&sorted(&json!([annotations, fields, tags, deprecated])))
}

fn read(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

fn short(value: &Value) -> String {
    Fingerprint::of(value.to_string()).short(DIGITS)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Keywords,
    Names,
}

/// Depth is bounded by what a manifest takes.
fn collect_texts(value: &Value, keys: Keys, texts: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (keys, key.as_str(), value) {
                    (Keys::Keywords, "title" | "description" | "$comment", Value::String(text)) => {
                        texts.push(text.clone());
                    }
                    (Keys::Keywords, "examples" | "example", value) => texts.push(value.to_string()),
                    (Keys::Keywords, "enum" | "const" | "default" | "required", _) => {}
                    (
                        Keys::Keywords,
                        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                        value,
                    ) => collect_texts(value, Keys::Names, texts),
                    (Keys::Keywords | Keys::Names, _, value) => collect_texts(value, Keys::Keywords, texts),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, Keys::Keywords, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            Value::Object(fields.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
