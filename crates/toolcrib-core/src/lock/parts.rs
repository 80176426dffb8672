//! The parts of a tool, each by a short fingerprint: enough to tell that only words changed, or that more did.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::compare::{Class, Comparison, given};
use crate::fingerprint::Fingerprint;
use crate::tool::Tool;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Parts {
    /// Titles and descriptions, those within its schemas too.
    pub text: String,
    /// The input schema without its texts.
    pub input: String,
    /// The output schema without its texts, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// What it says about its effects.
    pub hints: String,
    /// How a call is carried out, where that is known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<String>,
}

const DIGITS: usize = 16;

impl Parts {
    pub fn of(tool: &Tool) -> Parts {
        let mut texts = vec![
            given(tool, "title", tool.face.title.as_deref()).unwrap_or_default(),
            given(tool, "description", Some(&tool.face.description)).unwrap_or_default(),
        ];
        let backing = tool.backing();
        let whole = backing.as_ref().and_then(|backing| backing.input_schema.as_deref());
        let offered = tool.original.get("inputSchema").unwrap_or(&tool.face.input_schema);
        let input = meant(whole.unwrap_or(offered), &mut texts);
        let answered = backing.as_ref().and_then(|backing| backing.output_schema.as_deref());
        let output = tool.output_schema.as_deref().or(answered).map(|schema| meant(schema, &mut texts));
        let execution = backing.as_ref().and_then(|backing| serde_json::to_value(&backing.execution).ok());
        let annotations: Value =
            tool.face.annotations.as_deref().and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let hint = |name: &str, assumed: bool| annotations.get(name).and_then(Value::as_bool).unwrap_or(assumed);
        let hints = [
            hint("readOnlyHint", false),
            hint("destructiveHint", true),
            hint("idempotentHint", false),
            hint("openWorldHint", true),
        ];
        Parts {
            text: short(&serde_json::json!(texts)),
            input: short(&input),
            output: output.as_ref().map(short),
            hints: short(&serde_json::json!(hints)),
            execution: execution.as_ref().map(|execution| short(&sorted(execution))),
        }
    }

    /// What can be said about a change when only the parts are known.
    pub fn compare(&self, new: &Parts) -> Comparison {
        let unknown = "changed; how is not known here, for the definition it was locked with is not at hand";
        let pairs = [
            (self.hints != new.hints, Class::HintFlipped, "says otherwise about its effects".to_owned()),
            (self.execution != new.execution, Class::Execution, "how it is carried out changed".to_owned()),
            (self.input != new.input, Class::Other, format!("its input schema {unknown}")),
            (self.output != new.output, Class::Other, format!("its output schema {unknown}")),
            (self.text != new.text, Class::Text, "its title or descriptions changed".to_owned()),
        ];
        let found: Vec<(Class, String)> =
            pairs.into_iter().filter(|(differs, ..)| *differs).map(|(_, class, note)| (class, note)).collect();
        let worst = found.iter().map(|(class, _)| *class).max_by_key(|class| class.rank());
        match worst {
            Some(class) => Comparison { class, notes: found.into_iter().map(|(_, note)| note).collect() },
            None => Comparison { class: Class::Other, notes: vec!["something else about it changed".to_owned()] },
        }
    }
}

fn short(value: &Value) -> String {
    Fingerprint::of(value.to_string()).short(DIGITS)
}

/// A schema without the texts in it, which are handed over in their order; keys sorted.
pub(crate) fn meant(schema: &RawValue, texts: &mut Vec<String>) -> Value {
    let value: Value = serde_json::from_str(schema.get()).unwrap_or_default();
    without_text(&sorted(&value), Keys::Keywords, texts)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Keywords,
    Names,
}

/// Depth is bounded by what a manifest takes.
fn without_text(value: &Value, keys: Keys, texts: &mut Vec<String>) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = serde_json::Map::new();
            for (key, value) in fields {
                match (keys, key.as_str(), value) {
                    (Keys::Keywords, "title" | "description" | "$comment", Value::String(text)) => {
                        texts.push(text.clone());
                    }
                    (Keys::Keywords, "examples" | "example", value) => texts.push(value.to_string()),
                    (Keys::Keywords, "enum" | "const" | "default" | "required", value) => {
                        kept.insert(key.clone(), value.clone());
                    }
                    (
                        Keys::Keywords,
                        "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                        value,
                    ) => {
                        kept.insert(key.clone(), without_text(value, Keys::Names, texts));
                    }
                    (Keys::Keywords | Keys::Names, _, value) => {
                        kept.insert(key.clone(), without_text(value, Keys::Keywords, texts));
                    }
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(|item| without_text(item, Keys::Keywords, texts)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
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
