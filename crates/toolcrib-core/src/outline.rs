//! A schema as people read it: a list of arguments, or one line. Whatever a source wrote, this ends and says something.

use crate::schema::type_name;
use crate::text::shown_short;
use serde_json::Value;

/// References and nesting are followed so far, and no further.
const DEEPEST: usize = 4;
const MOST_CHOICES: usize = 12;
/// How many characters of a line the arguments get, how many more if they are required, and what the sentence gets.
const ROOM: usize = 90;
const ROOM_REQUIRED: usize = 300;
const LONGEST_SENTENCE: usize = 120;

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

/// `name(required*: type, optional: type)`: everything that is required, then what finds room, then `…+3` for the rest.
pub fn call_form(name: &str, schema: &Value) -> String {
    let mut arguments = Reader { root: schema }.outermost(schema);
    arguments.sort_by_key(|(_, _, required)| !required);
    let (mut form, mut left) = (format!("{name}("), arguments.len());
    let room = form.chars().count() + ROOM;
    for (name, kind, required) in &arguments {
        let separator = if left < arguments.len() { ", " } else { "" };
        let argument = format!("{separator}{name}{}: {kind}", if *required { "*" } else { "" });
        let room = if *required { room + ROOM_REQUIRED } else { room };
        if form.chars().count() + argument.chars().count() > room {
            break;
        }
        form.push_str(&argument);
        left -= 1;
    }
    match left {
        0 => form.push(')'),
        all if all == arguments.len() => form.push_str(&format!("…{all})")),
        more => form.push_str(&format!(", …+{more})")),
    }
    form
}

/// The beginning of a text, up to the end of its first sentence, cut at a word when that is long.
pub fn first_sentence(text: &str) -> String {
    let line = shown_short(parted(text).0.trim_end_matches('.'), 2 * LONGEST_SENTENCE);
    if line.chars().count() <= LONGEST_SENTENCE {
        return line;
    }
    let cut: String = line.chars().take(LONGEST_SENTENCE).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}…", cut[..end].trim_end_matches([',', ';', ':', '.', ' ', '(', '-']))
}

/// A text's first sentence, and the rest.
pub fn parted(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let line = text.lines().next().unwrap_or_default();
    text.split_at(line.find(". ").unwrap_or(line.len()))
}

/// Reads one schema; what is open on the way down is its trail, so that a schema which holds itself is told once.
struct Reader<'a> {
    root: &'a Value,
}

impl<'a> Reader<'a> {
    /// Name, short type and whether it is required, of the arguments themselves and nothing within them.
    fn outermost(&self, schema: &'a Value) -> Vec<(String, String, bool)> {
        let schema = self.followed(schema);
        let parts = || std::iter::once(schema).chain(list(schema, "allOf").iter().map(|part| self.followed(part)));
        let required: Vec<&str> = parts().flat_map(|part| list(part, "required")).filter_map(Value::as_str).collect();
        let mut arguments: Vec<(String, String, bool)> = Vec::new();
        for (name, property) in parts().filter_map(|part| part.get("properties")?.as_object()).flatten() {
            let known = arguments.iter().any(|(known, _, _)| known == name);
            if !known && *property != Value::Bool(false) {
                let required = required.contains(&name.as_str());
                arguments.push((shown_short(name, 80), self.short_kind(property, 0), required));
            }
        }
        arguments
    }

    /// A type in as few words as will do: `string`, `integer`, `string[]`.
    fn short_kind(&self, schema: &'a Value, depth: usize) -> String {
        let schema = self.followed(schema);
        let alternatives = || list(schema, "anyOf").iter().chain(list(schema, "oneOf"));
        let named = match schema.get("type") {
            Some(Value::String(name)) => Some(name.as_str()),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
            _ => None,
        };
        match named {
            Some("array") => match schema.get("items") {
                Some(items) if depth < DEEPEST => format!("{}[]", self.short_kind(items, depth + 1)),
                _ => "array".into(),
            },
            Some(name) => shown_short(name, 20),
            None if depth < DEEPEST => {
                let kinds = alternatives().map(|alternative| self.short_kind(alternative, depth + 1));
                let first = kinds.into_iter().find(|kind| kind != "null" && kind != "any");
                let first = first.or_else(|| Some(type_name(list(schema, "enum").first()?).to_owned()));
                first.or_else(|| schema.get("properties").map(|_| "object".into())).unwrap_or_else(|| "any".into())
            }
            None => "any".into(),
        }
    }

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
