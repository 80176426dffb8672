//! A schema as people read it: a list of arguments, or one line. Whatever a source wrote, this ends and says something.

use crate::schema::type_name;
use crate::text::shown_short;
use serde_json::Value;

/// References and nesting are followed so far, and no further.
const DEEPEST: usize = 4;
const MOST_CHOICES: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    pub name: String,
    pub kind: String,
    pub required: bool,
    pub description: String,
    pub default: Option<String>,
    pub choices: Vec<String>,
    /// The fields of an object, or of the objects in an array.
    pub nested: Vec<Argument>,
}

/// The arguments that a tool's input schema lists, in its order.
pub fn arguments(schema: &Value) -> Vec<Argument> {
    Reader { root: schema }.fields(schema, &mut Vec::new())
}

/// `name(required*: type, optional: type) — first sentence`.
pub fn signature(name: &str, description: &str, schema: &Value) -> String {
    format!("{} — {}", call_form(name, schema), first_sentence(description))
}

/// `name(required*: type, optional: type)`.
pub fn call_form(name: &str, schema: &Value) -> String {
    let arguments: Vec<String> = arguments(schema)
        .iter()
        .map(|argument| format!("{}{}: {}", argument.name, if argument.required { "*" } else { "" }, argument.kind))
        .collect();
    format!("{name}({})", arguments.join(", "))
}

/// The beginning of a text, up to the end of its first sentence.
pub fn first_sentence(text: &str) -> String {
    let line = text.trim_start().lines().next().unwrap_or_default();
    let end = line.find(". ").unwrap_or(line.len());
    shown_short(line[..end].trim_end_matches('.'), 160)
}

/// Reads one schema; what is open on the way down is its trail, so that a schema which holds itself is told once.
struct Reader<'a> {
    root: &'a Value,
}

impl<'a> Reader<'a> {
    fn fields(&self, schema: &'a Value, trail: &mut Vec<&'a Value>) -> Vec<Argument> {
        let schema = self.followed(schema);
        if trail.len() > DEEPEST || is_open(schema, trail) {
            return Vec::new();
        }
        trail.push(schema);
        let required = list(schema, "required");
        let is_required = |name: &str| required.iter().any(|wanted| wanted.as_str() == Some(name));
        let own = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let mut fields: Vec<Argument> = own
            // `false` is how a schema says that there is no such argument.
            .filter(|(_, property)| **property != Value::Bool(false))
            .map(|(name, property)| self.argument(name, property, trail))
            .collect();
        for part in list(schema, "allOf") {
            for field in self.fields(part, trail) {
                if !fields.iter().any(|known| known.name == field.name) {
                    fields.push(field);
                }
            }
        }
        for field in &mut fields {
            field.required |= is_required(&field.name);
        }
        trail.pop();
        fields
    }

    fn argument(&self, name: &str, property: &'a Value, trail: &mut Vec<&'a Value>) -> Argument {
        let target = self.followed(property);
        // What stands beside a reference speaks of this very use of it.
        let said = |key: &str| property.get(key).or_else(|| target.get(key));
        let items = self.followed(target.get("items").unwrap_or(&Value::Null));
        let choices = [target, items].into_iter().map(|schema| list(schema, "enum")).find(|all| !all.is_empty());
        let mut choices: Vec<String> = choices.unwrap_or_default().iter().map(value).collect();
        if choices.len() > MOST_CHOICES {
            let more = choices.len() - MOST_CHOICES;
            choices.truncate(MOST_CHOICES);
            choices.push(format!("and {more} more"));
        }
        let again = is_open(target, trail) || is_open(items, trail);
        let kind = self.kind(property, 0);
        Argument {
            name: shown_short(name, 80),
            kind: if again { format!("{kind}, as above") } else { kind },
            required: false,
            description: said("description")
                .and_then(Value::as_str)
                .map(|text| shown_short(text, 600))
                .unwrap_or_default(),
            default: said("default").map(value),
            choices,
            nested: self.nested(target, trail),
        }
    }

    fn nested(&self, schema: &'a Value, trail: &mut Vec<&'a Value>) -> Vec<Argument> {
        let alternatives = list(schema, "anyOf").iter().chain(list(schema, "oneOf"));
        let places = std::iter::once(schema).chain(schema.get("items")).chain(alternatives);
        places.map(|place| self.fields(place, trail)).find(|fields| !fields.is_empty()).unwrap_or_default()
    }

    /// A type in words: `string`, `integer or null`, `array of object`.
    fn kind(&self, schema: &'a Value, depth: usize) -> String {
        let schema = self.followed(schema);
        if depth > DEEPEST {
            return "…".into();
        }
        if let Some(constant) = schema.get("const") {
            return format!("always {}", value(constant));
        }
        let mut kinds: Vec<String> = match schema.get("type") {
            Some(Value::String(name)) => vec![name.clone()],
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        if let (Some(array), Some(items)) = (kinds.iter_mut().find(|kind| *kind == "array"), schema.get("items")) {
            let of = self.kind(items, depth + 1);
            *array = if of == "any" { "array".into() } else { format!("array of {of}") };
        }
        if let (Some(text), Some(format)) =
            (kinds.iter_mut().find(|kind| *kind == "string"), schema.get("format").and_then(Value::as_str))
        {
            *text = format!("string ({format})");
        }
        if kinds.is_empty() {
            let alternatives = list(schema, "anyOf").iter().chain(list(schema, "oneOf"));
            kinds.extend(alternatives.take(MOST_CHOICES).map(|alternative| self.kind(alternative, depth + 1)));
        }
        if kinds.is_empty() && (schema.get("properties").is_some() || schema.get("allOf").is_some()) {
            kinds.push("object".into());
        }
        if kinds.is_empty() {
            kinds.extend(list(schema, "enum").iter().map(|choice| type_name(choice).to_owned()));
        }
        let mut seen: Vec<String> = Vec::new();
        for kind in kinds.into_iter().map(|kind| shown_short(&kind, 80)) {
            if !seen.contains(&kind) {
                seen.push(kind);
            }
        }
        if seen.is_empty() { "any".into() } else { seen.join(" or ") }
    }

    /// Where local references lead; the schema itself where they lead nowhere.
    fn followed(&self, schema: &'a Value) -> &'a Value {
        const HOPS: usize = 8;
        let mut at = schema;
        for _ in 0..HOPS {
            let reference = at.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
            match reference.and_then(|pointer| self.root.pointer(pointer)) {
                Some(target) => at = target,
                None => return at,
            }
        }
        at
    }
}

fn is_open(schema: &Value, trail: &[&Value]) -> bool {
    trail.iter().any(|open| std::ptr::eq(*open, schema))
}

fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn value(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => shown_short(text, 80),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            shown_short(&value.to_string(), 80)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, expected: &[&str]) {
        fn lines(arguments: &[Argument], indent: usize, into: &mut Vec<String>) {
            for argument in arguments {
                let Argument { name, kind, required, default, choices, .. } = argument;
                let mark = if *required { "*" } else { "" };
                let default = default.as_ref().map(|default| format!(" = {default}")).unwrap_or_default();
                let choices = if choices.is_empty() { String::new() } else { format!(" [{}]", choices.join(", ")) };
                into.push(format!("{}{name}{mark}: {kind}{default}{choices}", " ".repeat(indent)));
                lines(&argument.nested, indent + 1, into);
            }
        }
        let mut found = Vec::new();
        lines(&arguments(schema), 0, &mut found);
        assert_eq!(found, expected, "{schema}");
    }

    #[test]
    fn arguments_are_listed_with_their_types() {
        check(
            &json!({
                "type": "object",
                "required": ["a", 7, "gone"],
                "properties": {
                    "a": {"type": "string", "format": "date"},
                    "b": {"type": ["integer", "null"], "default": 5},
                    "c": {"type": "array", "items": {"enum": ["x", "y"]}},
                    "d": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "string"}]},
                    "e": {"const": 1}, "f": true, "g": false, "h": {}, "i": {"enum": [1, "x"]}
                }
            }),
            &[
                "a*: string (date)",
                "b: integer or null = 5",
                "c: array of string [x, y]",
                "d: string or number",
                "e: always 1",
                "f: any",
                "h: any",
                "i: number or string [1, x]",
            ],
        );
    }

    #[test]
    fn objects_and_references_are_followed() {
        check(
            &json!({
                "allOf": [{"properties": {"late": {"type": "string"}}}],
                "required": ["late"],
                "properties": {
                    "to": {"$ref": "#/$defs/place"},
                    "stops": {"type": "array", "items": {"$ref": "#/$defs/place"}},
                    "broken": {"$ref": "#/$defs/none"}
                },
                "$defs": {"place": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}}
            }),
            &[
                "to: object",
                " city*: string",
                "stops: array of object",
                " city*: string",
                "broken: any",
                "late*: string",
            ],
        );
    }

    #[test]
    fn a_schema_that_holds_itself_ends() {
        let schema = json!({
            "properties": {"node": {"$ref": "#"}, "loop": {"$ref": "#/properties/loop"}, "list": {"$ref": "#/$defs/l"}},
            "$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}, "u": {"anyOf": [{"$ref": "#/$defs/u"}]}}
        });
        check(
            &schema,
            &["node: object, as above", "loop: any", "list: array of array of array of array of array of …"],
        );
        for odd in [json!(null), json!(true), json!([]), json!({"properties": [1], "required": "a", "allOf": 3})] {
            check(&odd, &[]);
        }
    }

    #[test]
    fn one_line_says_what_a_tool_is() {
        let schema = json!({"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a"]});
        let line = signature("git__push", "Pushes. Then rests.\nMore.", &schema);
        assert_eq!(line, "git__push(a*: string, n: integer) — Pushes");
    }
}
