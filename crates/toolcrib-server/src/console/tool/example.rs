//! Arguments that a schema would take: what is required, made up where the schema says nothing better.

use serde_json::{Map, Value, json};

use toolcrib::core::json;
use toolcrib::core::outline::schema_walk::{array_at, non_null_alternatives, resolve_references};

/// Schemas come from outside: so deep, so many values in all, so long a list, a text or a name.
const MAX_EXAMPLE_DEPTH: usize = 8;
const MAX_EXAMPLE_VALUES: usize = 200;
const MAX_EXAMPLE_ITEMS: u64 = 10;
const MAX_EXAMPLE_LEN: usize = 200;
/// How many members of an `allOf` are asked for each name that is required.
const MAX_ALL_OF_MEMBERS: usize = 50;

pub(super) fn example_arguments(schema: &Value) -> Map<String, Value> {
    match (ExampleBuilder { root: schema, remaining: MAX_EXAMPLE_VALUES }).object(resolve_references(schema, schema), 0)
    {
        Value::Object(arguments) => arguments,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// What would do for one of them; `root` is where its references lead.
pub(super) fn example_value(root: &Value, schema: &Value) -> Value {
    ExampleBuilder { root, remaining: MAX_EXAMPLE_VALUES }.value(schema, 0)
}

struct ExampleBuilder<'a> {
    root: &'a Value,
    remaining: usize,
}

impl<'a> ExampleBuilder<'a> {
    fn value(&mut self, schema: &'a Value, depth: usize) -> Value {
        if depth > MAX_EXAMPLE_DEPTH || self.remaining == 0 {
            return Value::Null;
        }
        self.remaining -= 1;
        let target = resolve_references(self.root, schema);
        let said = |key: &str| schema.get(key).or_else(|| target.get(key));
        let told = said("const").or_else(|| said("default").filter(|value| !value.is_null()));
        let told = told.or_else(|| array_at(target, "enum").first()).or_else(|| said("example"));
        if let Some(value) = told.or_else(|| array_at(target, "examples").first()) {
            let short = json::truncated_json(value, MAX_EXAMPLE_LEN + 1).len() <= MAX_EXAMPLE_LEN;
            return if short { value.clone() } else { json!("…") };
        }
        let named = match target.get("type") {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
            Some(name) => name.as_str(),
            None => None,
        };
        match named {
            Some("integer") => json!(example_number(target, true) as i64),
            Some("number") => to_json_number(example_number(target, false)),
            Some("boolean") => json!(true),
            Some("null") => Value::Null,
            Some("array") => self.array(target, depth),
            Some("object") => self.object(target, depth),
            Some(_) => json!(example_text(target)),
            None if target.get("properties").is_some() || target.get("allOf").is_some() => self.object(target, depth),
            None => match non_null_alternatives(self.root, target).first() {
                Some(first) => self.value(first, depth + 1),
                None => json!("…"),
            },
        }
    }

    fn object(&mut self, schema: &'a Value, depth: usize) -> Value {
        let root = self.root;
        let mut parts = vec![schema];
        parts.extend(
            array_at(schema, "allOf").iter().take(MAX_ALL_OF_MEMBERS).map(|part| resolve_references(root, part)),
        );
        // One of several forms is a form of its own.
        parts.extend(non_null_alternatives(root, schema).first().copied());
        let mut fields = Map::new();
        let required = parts.iter().flat_map(|part| array_at(part, "required")).filter_map(Value::as_str);
        for name in required.filter(|name| name.len() <= MAX_EXAMPLE_LEN).take(MAX_EXAMPLE_VALUES) {
            let property = parts.iter().find_map(|part| part.get("properties")?.get(name));
            let value = property.map_or_else(|| json!("…"), |property| self.value(property, depth + 1));
            fields.insert(name.to_owned(), value);
        }
        if let Some(others) = schema.get("additionalProperties").filter(|others| others.is_object())
            && integer_keyword(schema, "minProperties").is_some_and(|least| fields.len() < least as usize)
        {
            fields.insert("name".into(), self.value(others, depth + 1));
        }
        fields.into()
    }

    fn array(&mut self, schema: &'a Value, depth: usize) -> Value {
        let least = integer_keyword(schema, "minItems").unwrap_or(1).clamp(1, MAX_EXAMPLE_ITEMS);
        let none = schema.get("items").is_none() || integer_keyword(schema, "maxItems") == Some(0);
        let items = schema.get("items").filter(|_| !none).into_iter().flat_map(|items| (0..least).map(move |_| items));
        items.map(|items| self.value(items, depth + 1)).collect()
    }
}

fn integer_keyword(schema: &Value, key: &str) -> Option<u64> {
    schema.get(key).and_then(Value::as_u64)
}

fn example_number(schema: &Value, whole: bool) -> f64 {
    let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
    let beyond = |key: &str, inclusive: &str| {
        let old = bound(inclusive).filter(|_| schema.get(key) == Some(&Value::Bool(true)));
        bound(key).or(old)
    };
    let (above, below) = (beyond("exclusiveMinimum", "minimum"), beyond("exclusiveMaximum", "maximum"));
    // Half way between two ends that are both left out.
    let between = match (above, below) {
        (Some(above), Some(below)) => (below - above) / 2.0,
        (Some(_), None) | (None, Some(_)) | (None, None) => 1.0,
    };
    let step = if whole { 1.0 } else { between.min(1.0) };
    let least = above.map(|above| above + step).or_else(|| bound("minimum"));
    let most = below.map(|below| below - step).or_else(|| bound("maximum"));
    let mut number = 1.0_f64.max(least.unwrap_or(1.0));
    if let Some(most) = most.filter(|most| *most < number) {
        number = most;
    }
    match bound("multipleOf").filter(|step| *step > 0.0) {
        Some(step) => {
            let next = (number / step).ceil() * step;
            if most.is_some_and(|most| next > most) { next - step } else { next }
        }
        None if whole => number.ceil(),
        None => number,
    }
}

/// A number as people write it: whole where it is.
fn to_json_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 { json!(number as i64) } else { json!(number) }
}

fn example_text(schema: &Value) -> String {
    let least = integer_keyword(schema, "minLength").unwrap_or_default().min(MAX_EXAMPLE_LEN as u64) as usize;
    let known = match schema.get("format").and_then(Value::as_str).unwrap_or_default() {
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
        _ => return "…".repeat(least.max(1)),
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_passes_the_check_of_its_schema() {
        let line = json!({ "type": "object", "required": ["sku", "quantity"], "properties": {
            "sku": { "type": "string", "minLength": 4 },
            "quantity": { "type": "integer", "minimum": 2, "maximum": 9 },
            "note": { "type": "string" },
        } });
        let kinds = [
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
            kinds.into_iter().enumerate().map(|(index, kind)| (format!("k{index}"), kind)).collect();
        let required: Vec<&String> = properties.keys().collect();
        let schema = json!({
            "type": "object", "required": required, "properties": properties, "$defs": { "line": line },
            "additionalProperties": false,
        });
        let example = Value::Object(example_arguments(&schema));
        let wrong: Vec<String> = jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&example)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert_eq!(wrong, Vec::<String>::new(), "{example}");
        assert_eq!(example["k0"], json!({ "sku": "…………", "quantity": 2 }));
    }

    #[test]
    fn a_schema_without_end_has_an_example_all_the_same() {
        let endless = json!({ "required": ["a"], "properties": { "a": { "$ref": "#" } } });
        let wide = json!({ "$defs": { "n": { "type": "array", "minItems": 10, "items": { "$ref": "#/$defs/n" } } },
            "required": ["n"], "properties": { "n": { "$ref": "#/$defs/n" } } });
        let names: Vec<String> = (0..3_000).map(|number| format!("p{number}")).collect();
        let often = |target: Value| {
            let properties: Map<String, Value> =
                names.iter().map(|name| (name.clone(), json!({ "$ref": "#/$defs/x" }))).collect();
            json!({ "required": names, "properties": properties, "$defs": { "x": target } })
        };
        let long = "x".repeat(100_000);
        let (constant, list, name) =
            (json!({ "const": long }), json!({ "default": vec![0; 50_000] }), json!({ "required": [long] }));
        // Each of many objects would ask thousands of members for names that none of them has.
        let own: Vec<String> = (0..150).map(|number| format!("gone{number}")).chain(["next".into()]).collect();
        let crowd = json!({ "$defs": { "n": { "allOf": vec![json!({}); 40_000], "required": own,
            "properties": { "next": { "type": "array", "minItems": 10, "items": { "$ref": "#/$defs/n" } } } } },
            "required": ["n"], "properties": { "n": { "$ref": "#/$defs/n" } } });
        assert!(json!(example_arguments(&crowd)).to_string().len() < 1_000_000);
        let odd = [endless, wide, json!(null), json!({ "required": 3, "properties": [] })];
        for schema in odd.into_iter().chain([constant, list, name].map(often)) {
            assert!(json!(example_arguments(&schema)).to_string().len() < 10_000);
        }
    }
}
