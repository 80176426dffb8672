//! Generates example arguments from a schema: the required ones, with values from the schema where it has any.
//!
//! ```json
//! { "required": ["path", "depth"],
//!   "properties": { "path": { "type": "string" }, "depth": { "type": "integer", "minimum": 2 } } }
//! ```
//! gives `{ "path": "…", "depth": 2 }`.
//!
//! The example is meant to be valid for common schemas. Patterns, `not` and conditions are not considered.

use serde_json::{Map, Value, json};
use toolcrib::core::json;
use toolcrib::schema::{array_at, follow_references, non_null_alternatives};

/// Maximum nesting depth. This and the following limits bound the work, because schemas are untrusted.
const MAX_EXAMPLE_DEPTH: usize = 8;
/// Maximum number of values in one example. Beyond it the remaining values are `null`.
const MAX_EXAMPLE_VALUES: usize = 200;
/// Maximum number of items in an array. `minItems` may be any number.
const MAX_EXAMPLE_ITEMS: u64 = 10;
/// Maximum length of a text or a name, in bytes.
const MAX_EXAMPLE_LEN: usize = 200;
/// Maximum number of `allOf` members that are searched for the schema of a required property.
const MAX_ALL_OF_MEMBERS: usize = 50;

/// Generates the arguments of a tool.
pub(super) fn example_arguments(schema: &Value) -> Map<String, Value> {
    let mut builder = ExampleBuilder { root: schema, remaining: MAX_EXAMPLE_VALUES };
    builder.object(follow_references(schema, schema), 0)
}

/// Generates a value for one property; references are resolved in `root`.
pub(super) fn example_value(root: &Value, schema: &Value) -> Value {
    ExampleBuilder { root, remaining: MAX_EXAMPLE_VALUES }.value(schema, 0)
}

/// Generates values within a budget.
struct ExampleBuilder<'a> {
    root: &'a Value,
    /// Number of values that may still be generated.
    remaining: usize,
}

impl<'a> ExampleBuilder<'a> {
    /// Generates a value: one that the schema names, else one of its type.
    fn value(&mut self, schema: &'a Value, depth: usize) -> Value {
        if depth > MAX_EXAMPLE_DEPTH || self.remaining == 0 {
            return Value::Null;
        }
        self.remaining -= 1;
        let target = follow_references(self.root, schema);
        let keyword = |key: &str| schema.get(key).or_else(|| target.get(key));
        // In the order of how likely the value is to be accepted: a constant is the only one, an example is only a
        // suggestion.
        let named_value = keyword("const")
            .or_else(|| keyword("default").filter(|value| !value.is_null()))
            .or_else(|| array_at(target, "enum").first())
            .or_else(|| keyword("example"))
            .or_else(|| array_at(target, "examples").first());
        if let Some(value) = named_value {
            let is_short = json::truncated_json(value, MAX_EXAMPLE_LEN + 1).len() <= MAX_EXAMPLE_LEN;
            return if is_short { value.clone() } else { json!("…") };
        }
        let type_name = match target.get("type") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
            Some(name) => name.as_str(),
            None => None,
        };
        match type_name {
            Some("integer") => json!(example_number(target, true) as i64),
            Some("number") => to_json_number(example_number(target, false)),
            Some("boolean") => json!(true),
            Some("null") => Value::Null,
            Some("array") => self.array(target, depth),
            Some("object") => self.object(target, depth).into(),
            Some(_) => json!(example_text(target)),
            None if target.get("properties").is_some() || target.get("allOf").is_some() => {
                self.object(target, depth).into()
            }
            None => match non_null_alternatives(self.root, target).first() {
                Some(first) => self.value(first, depth + 1),
                None => json!("…"),
            },
        }
    }

    /// Generates an object with the required properties of the schema, its `allOf` members and its first alternative. A
    /// required property without a schema gets an ellipsis.
    fn object(&mut self, schema: &'a Value, depth: usize) -> Map<String, Value> {
        let root = self.root;
        let mut schemas = vec![schema];
        schemas.extend(
            array_at(schema, "allOf").iter().take(MAX_ALL_OF_MEMBERS).map(|member| follow_references(root, member)),
        );
        schemas.extend(non_null_alternatives(root, schema).first().copied());
        let mut fields = Map::new();
        let required = schemas.iter().flat_map(|schema| array_at(schema, "required")).filter_map(Value::as_str);
        for name in required.filter(|name| name.len() <= MAX_EXAMPLE_LEN).take(MAX_EXAMPLE_VALUES) {
            let property = schemas.iter().find_map(|schema| schema.get("properties")?.get(name));
            let value = property.map_or_else(|| json!("…"), |property| self.value(property, depth + 1));
            fields.insert(name.to_owned(), value);
        }
        if let Some(additional) = schema.get("additionalProperties").filter(|additional| additional.is_object())
            && integer_keyword(schema, "minProperties").is_some_and(|min| fields.len() < min as usize)
        {
            fields.insert("name".into(), self.value(additional, depth + 1));
        }
        fields
    }

    /// Generates an array with the minimum number of items, but at least one.
    fn array(&mut self, schema: &'a Value, depth: usize) -> Value {
        let count = integer_keyword(schema, "minItems").unwrap_or(1).clamp(1, MAX_EXAMPLE_ITEMS);
        let is_empty = schema.get("items").is_none() || integer_keyword(schema, "maxItems") == Some(0);
        let items =
            schema.get("items").filter(|_| !is_empty).into_iter().flat_map(|items| (0..count).map(move |_| items));
        items.map(|items| self.value(items, depth + 1)).collect()
    }
}

/// Returns a keyword with a whole number that is not negative.
fn integer_keyword(schema: &Value, key: &str) -> Option<u64> {
    schema.get(key).and_then(Value::as_u64)
}

/// Returns a number near 1 within the bounds of the schema.
fn example_number(schema: &Value, is_integer: bool) -> f64 {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let exclusive_bound = |key: &str, inclusive: &str| {
        // In draft 4 an exclusive bound is a flag beside the inclusive one.
        let draft_4 = bound(inclusive).filter(|_| schema.get(key) == Some(&Value::Bool(true)));
        bound(key).or(draft_4)
    };
    let above = exclusive_bound("exclusiveMinimum", "minimum");
    let below = exclusive_bound("exclusiveMaximum", "maximum");
    // Between two exclusive bounds, half of their distance stays inside.
    let half_range = match (above, below) {
        (Some(above), Some(below)) => (below - above) / 2.0,
        (Some(_), None) | (None, Some(_)) | (None, None) => 1.0,
    };
    let step = if is_integer { 1.0 } else { half_range.min(1.0) };
    // `step` turns an exclusive bound into an inclusive one.
    let min = above.map(|above| above + step).or_else(|| bound("minimum"));
    let max = below.map(|below| below - step).or_else(|| bound("maximum"));
    let mut number = 1.0_f64.max(min.unwrap_or(1.0));
    if let Some(max) = max.filter(|max| *max < number) {
        number = max;
    }
    match bound("multipleOf").filter(|step| *step > 0.0) {
        Some(step) => {
            let next = (number / step).ceil() * step;
            if max.is_some_and(|max| next > max) { next - step } else { next }
        }
        None if is_integer => number.ceil(),
        None => number,
    }
}

/// Converts a float to JSON, without a fraction if it has none.
fn to_json_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 { json!(number as i64) } else { json!(number) }
}

/// Returns a text of the schema's format, or an ellipsis of the minimum length.
fn example_text(schema: &Value) -> String {
    let min_length = integer_keyword(schema, "minLength").unwrap_or_default().min(MAX_EXAMPLE_LEN as u64) as usize;
    let text = match schema.get("format").and_then(Value::as_str).unwrap_or_default() {
        "date" => "2026-01-31",
        "date-time" => "2026-01-31T09:30:00Z",
        "time" => "09:30:00Z",
        "duration" => "PT1H",
        "email" => "name@example.com",
        "uri" | "url" | "uri-reference" | "iri" => "https://example.com/",
        "hostname" => "example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uuid" => "00000000-0000-4000-8000-000000000000",
        _ if integer_keyword(schema, "maxLength") == Some(0) => "",
        _ => return "…".repeat(min_length.max(1)),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_valid_for_its_schema() {
        let line = json!({ "type": "object", "required": ["sku", "quantity"], "properties": {
            "sku": { "type": "string", "minLength": 4 },
            "quantity": { "type": "integer", "minimum": 2, "maximum": 9 },
            "note": { "type": "string" },
        } });
        let schemas = [
            json!({ "$ref": "#/$defs/line" }),
            json!({ "type": "array", "items": { "$ref": "#/$defs/line" }, "minItems": 2 }),
            json!({ "allOf": [{ "$ref": "#/$defs/line" }], "required": ["note"] }),
            json!({ "anyOf": [{ "type": "null" }, { "type": "string", "minLength": 3 }] }),
            json!({ "oneOf": [{ "type": "object", "required": ["a"], "properties": { "a": { "const": 7 } } }] }),
            json!({ "type": ["null", "integer"], "minimum": 5, "multipleOf": 4 }),
            json!({ "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 }),
            json!({ "type": "integer", "maximum": -3 }),
            json!({ "type": "integer", "maximum": -3, "multipleOf": 2 }),
            json!({ "type": "string", "format": "date-time" }),
            json!({ "enum": ["low", "high"] }),
            json!({ "type": "array", "items": { "type": "boolean" } }),
            json!({ "type": "array" }),
            json!({ "type": "object", "minProperties": 1, "additionalProperties": { "type": "integer" } }),
            json!({ "type": "string", "default": "x" }),
            json!({}),
        ];
        let properties: Map<String, Value> =
            schemas.into_iter().enumerate().map(|(index, schema)| (format!("k{index}"), schema)).collect();
        let required: Vec<&String> = properties.keys().collect();
        let schema = json!({
            "type": "object", "required": required, "properties": properties, "$defs": { "line": line },
            "additionalProperties": false,
        });
        let example = Value::Object(example_arguments(&schema));
        let errors: Vec<String> = jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&example)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert_eq!(errors, Vec::<String>::new(), "{example}");
        assert_eq!(example["k0"], json!({ "sku": "…………", "quantity": 2 }));
    }

    #[test]
    fn an_example_of_a_recursive_or_huge_schema_is_bounded() {
        let recursive = json!({ "required": ["a"], "properties": { "a": { "$ref": "#" } } });
        let wide = json!({ "$defs": { "n": { "type": "array", "minItems": 10, "items": { "$ref": "#/$defs/n" } } },
            "required": ["n"], "properties": { "n": { "$ref": "#/$defs/n" } } });
        let names: Vec<String> = (0..3_000).map(|number| format!("p{number}")).collect();
        let shared = |target: Value| {
            let properties: Map<String, Value> =
                names.iter().map(|name| (name.clone(), json!({ "$ref": "#/$defs/x" }))).collect();
            json!({ "required": names, "properties": properties, "$defs": { "x": target } })
        };
        let long = "x".repeat(100_000);
        let long_constant = json!({ "const": long });
        let long_default = json!({ "default": vec![0; 50_000] });
        let long_name = json!({ "required": [long] });
        // Without a limit, each of many objects would search thousands of `allOf` members for missing properties.
        let missing: Vec<String> = (0..150).map(|number| format!("gone{number}")).chain(["next".into()]).collect();
        let many_members = json!({ "$defs": { "n": { "allOf": vec![json!({}); 40_000], "required": missing,
            "properties": { "next": { "type": "array", "minItems": 10, "items": { "$ref": "#/$defs/n" } } } } },
            "required": ["n"], "properties": { "n": { "$ref": "#/$defs/n" } } });
        assert!(json!(example_arguments(&many_members)).to_string().len() < 1_000_000);
        let schemas = [recursive, wide, json!(null), json!({ "required": 3, "properties": [] })];
        for schema in schemas.into_iter().chain([long_constant, long_default, long_name].map(shared)) {
            assert!(json!(example_arguments(&schema)).to_string().len() < 10_000);
        }
    }
}
