//! A schema as people read it: a list of arguments, or one line. Whatever a source wrote, this ends and says something.

use std::cell::Cell;
use std::collections::HashSet;

use crate::schema::type_name;
use crate::text::shown_short;
use serde_json::Value;

/// References and nesting are followed so far, and no further.
const DEEPEST: usize = 4;
const MOST_CHOICES: usize = 12;
/// References can make a small schema endless to tell. So many arguments are told in all, after so many looks.
const MOST_ARGUMENTS: usize = 500;
const MOST_LOOKS: usize = 5_000;
/// The types of so many choices are looked at: there are only six.
const MOST_TYPED: usize = 100;
/// So many times as many bytes as may be shown are read of a text.
const READ_AHEAD: usize = 8;
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
    Reader::new(schema).fields(schema, &mut Vec::new())
}

/// `name(required*: type, optional: type)`: everything that is required, then what finds room, then `…+3` for the rest.
pub fn call_form(name: &str, schema: &Value) -> String {
    let reader = Reader::new(schema);
    let mut arguments = reader.outermost(schema);
    arguments.sort_by_key(|(_, _, required)| !required);
    let (mut form, mut left) = (format!("{name}("), arguments.len());
    let room = form.chars().count() + ROOM;
    for (name, property, required) in &arguments {
        let (name, kind) = (shown_short(name, 80), reader.short_kind(property, 0));
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
    /// What is left of the arguments and the looks.
    arguments: Cell<usize>,
    looks: Cell<usize>,
}

impl<'a> Reader<'a> {
    fn new(root: &'a Value) -> Reader<'a> {
        Reader { root, arguments: Cell::new(MOST_ARGUMENTS), looks: Cell::new(MOST_LOOKS) }
    }

    /// Whether there is still a look left; takes it, and as many more as `size` is worth.
    fn look(&self, size: usize) -> bool {
        let left = self.looks.get();
        self.looks.set(left.saturating_sub(1 + size / 8));
        left > 0
    }

    /// Name, schema and whether it is required, of the arguments themselves and nothing within them.
    fn outermost(&self, schema: &'a Value) -> Vec<(&'a str, &'a Value, bool)> {
        let schema = self.followed(schema);
        let mut parts = vec![schema];
        let mut met = HashSet::from([std::ptr::from_ref(schema)]);
        let all_of = list(schema, "allOf").iter().map(|part| self.followed(part));
        parts.extend(all_of.filter(|part| met.insert(std::ptr::from_ref(*part))));
        let required = parts.iter().flat_map(|part| list(part, "required")).filter_map(Value::as_str);
        let required: HashSet<&str> = required.collect();
        let mut known: HashSet<&str> = HashSet::new();
        let properties = parts.iter().filter_map(|part| part.get("properties")?.as_object()).flatten();
        properties
            .filter(|(name, property)| **property != Value::Bool(false) && known.insert(name.as_str()))
            .map(|(name, property)| (name.as_str(), property, required.contains(name.as_str())))
            .collect()
    }

    /// A type in as few words as will do: `string`, `integer`, `string[]`.
    fn short_kind(&self, schema: &'a Value, depth: usize) -> String {
        if !self.look(0) {
            return "any".into();
        }
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
        if self.arguments.get() == 0 || !self.look(0) {
            return Vec::new();
        }
        let schema = self.followed(schema);
        let (required, own) = (list(schema, "required"), schema.get("properties").and_then(Value::as_object));
        let size = required.len() + own.map_or(0, |own| own.len());
        if trail.len() > DEEPEST || is_open(schema, trail) || !self.look(size) {
            return Vec::new();
        }
        trail.push(schema);
        let required: HashSet<&str> = required.iter().filter_map(Value::as_str).collect();
        // `false` is how a schema says that there is no such argument.
        let own = own.into_iter().flatten().filter(|(_, property)| **property != Value::Bool(false));
        // All of these come before anything within them.
        let own: Vec<_> = own.take(self.arguments.get()).collect();
        self.arguments.set(self.arguments.get() - own.len());
        let mut fields: Vec<Argument> =
            own.into_iter().map(|(name, property)| self.argument(name, property, trail)).collect();
        for part in list(schema, "allOf") {
            for field in self.fields(part, trail) {
                if !fields.iter().any(|known| known.name == field.name) {
                    fields.push(field);
                }
            }
        }
        for field in &mut fields {
            field.required |= required.contains(field.name.as_str());
        }
        trail.pop();
        fields
    }

    fn argument(&self, name: &str, property: &'a Value, trail: &mut Vec<&'a Value>) -> Argument {
        let target = self.followed(property);
        // What stands beside a reference speaks of this very use of it.
        let said = |key: &str| property.get(key).or_else(|| target.get(key));
        let items = self.followed(target.get("items").unwrap_or(&Value::Null));
        let all = [target, items].into_iter().map(|schema| list(schema, "enum")).find(|all| !all.is_empty());
        let all = all.unwrap_or_default();
        let mut choices: Vec<String> = all.iter().take(MOST_CHOICES).map(value).collect();
        if all.len() > MOST_CHOICES {
            let more = all.len() - MOST_CHOICES;
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
                .map(|text| shown_short(beginning(text, 600), 600))
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
        if depth > DEEPEST || !self.look(0) {
            return "…".into();
        }
        let schema = self.followed(schema);
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
            kinds.extend(list(schema, "enum").iter().take(MOST_TYPED).map(|choice| type_name(choice).to_owned()));
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

/// As much of a text as `limit` characters of it can need.
fn beginning(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(READ_AHEAD * limit)]
}

fn value(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => shown_short(beginning(text, 80), 80),
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
        assert_eq!(call_form("git__push", &schema), "git__push(a*: string, n: integer)");
        assert_eq!(first_sentence("Pushes. Then rests.\nMore."), "Pushes");
    }

    /// Four definitions, each of which leads to the next in every one of its `wide` branches.
    fn fan(wide: usize, branches: impl Fn(Vec<Value>) -> Value) -> Value {
        let level = |next: usize| branches(vec![json!({"$ref": format!("#/$defs/d{next}")}); wide]);
        let mut root = json!({"properties": {"first": level(0)}});
        root["$defs"] = json!({"d0": level(1), "d1": level(2), "d2": level(3), "d3": level(4), "d4": {}});
        root
    }

    #[test]
    fn a_small_schema_that_unfolds_without_measure_is_told_in_part() {
        fn counted(arguments: &[Argument]) -> usize {
            arguments.iter().map(|argument| 1 + counted(&argument.nested)).sum()
        }
        let properties = |all: Vec<Value>| {
            let named = all.into_iter().enumerate().map(|(index, schema)| (format!("p{index}"), schema));
            json!({"properties": named.collect::<serde_json::Map<_, _>>()})
        };
        let started = std::time::Instant::now();
        assert_eq!(counted(&arguments(&fan(40, properties))), MOST_ARGUMENTS);
        for key in ["anyOf", "oneOf", "allOf"] {
            let schema = fan(200, |all| json!({ key: all }));
            assert_eq!(counted(&arguments(&schema)), 1, "{key}");
            assert_eq!(call_form("t", &schema), "t(first: any)", "{key}");
        }
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    }

    #[test]
    fn twenty_thousand_arguments_are_called_at_once() {
        let names: Vec<String> = (0..20_000).map(|index| format!("p{index}")).collect();
        let properties: serde_json::Map<_, _> = names.iter().map(|name| (name.clone(), json!({}))).collect();
        let schema = json!({"properties": properties, "required": names});
        let started = std::time::Instant::now();
        assert!(call_form("t", &schema).starts_with("t(p0*: any, p1*: any, "));
        assert_eq!(arguments(&schema).len(), MOST_ARGUMENTS);
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    }

    #[test]
    fn a_long_name_that_is_given_twice_is_one_argument() {
        let long = "n".repeat(100);
        let part = json!({"properties": {&long: {"type": "string"}}});
        let line = call_form("t", &json!({"properties": {&long: {"type": "string"}}, "allOf": [part]}));
        assert!(line.ends_with("…: string)"), "{line}");
    }
}
