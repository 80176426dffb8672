//! Reading a schema that may be wrong, endless or huge, within bounds.

use std::cell::Cell;
use std::collections::HashSet;

use serde_json::Value;

use super::limits::describe_limits;
use super::schema_walk::{array_at, resolve_references, sole_alternative};
use super::{ArgumentList, ArgumentOutline};
use crate::json;
use crate::schema::type_name;
use crate::text::sanitize_truncated;

/// References and nesting are followed so far, and no further.
pub(super) const MAX_OUTLINE_DEPTH: usize = 4;
pub(super) const MAX_CHOICES: usize = 12;
/// So many choices are told of all arguments together, and then no more than [`MOST_CHOICES`] of each.
const MAX_TOTAL_CHOICES: usize = 2_000;
/// References can make a small schema endless to tell. So many arguments are told in all, after so many looks.
pub(super) const MAX_ARGUMENTS: usize = 500;
const MAX_VISITED_SCHEMAS: usize = 5_000;
/// The types of so many choices are looked at: there are only six.
const MAX_TYPED_CHOICES: usize = 100;
/// So many times as many bytes as may be shown are read of a text.
const BYTES_READ_PER_CHARACTER: usize = 8;

/// Reads one schema; what is open on the way down is its trail, so that a schema which holds itself is told once.
pub(super) struct SchemaOutliner<'a> {
    root: &'a Value,
    /// What is left of the arguments, the looks, and the counts where no look is left.
    arguments_left: Cell<usize>,
    visits_left: Cell<usize>,
    counts_left: Cell<usize>,
    /// How many choices each argument may tell, and how many are left for all.
    max_choices: usize,
    choices_left: Cell<usize>,
}

impl<'a> SchemaOutliner<'a> {
    pub(super) fn new(root: &'a Value) -> SchemaOutliner<'a> {
        let [looks, counts] = [MAX_VISITED_SCHEMAS; 2].map(Cell::new);
        let (arguments, choices) = (Cell::new(MAX_ARGUMENTS), Cell::new(MAX_TOTAL_CHOICES));
        SchemaOutliner {
            root,
            arguments_left: arguments,
            visits_left: looks,
            counts_left: counts,
            max_choices: MAX_CHOICES,
            choices_left: choices,
        }
    }

    pub(super) fn with_choices(self, most_choices: usize) -> SchemaOutliner<'a> {
        SchemaOutliner { max_choices: most_choices, ..self }
    }

    /// Whether there is still a look left; takes it, and as many more as `size` is worth.
    fn try_visit(&self, size: usize) -> bool {
        let left = self.visits_left.get();
        self.visits_left.set(left.saturating_sub(1 + size / 8));
        left > 0
    }

    /// Name, schema and whether it is required, of the arguments themselves and nothing within them.
    pub(super) fn top_level_arguments(&self, schema: &'a Value) -> Vec<(&'a str, &'a Value, bool)> {
        let schema = self.resolve(schema);
        let mut parts = vec![schema];
        let mut met = HashSet::from([std::ptr::from_ref(schema)]);
        let all_of = array_at(schema, "allOf").iter().map(|part| self.resolve(part));
        parts.extend(all_of.filter(|part| met.insert(std::ptr::from_ref(*part))));
        let required = parts.iter().flat_map(|part| array_at(part, "required")).filter_map(Value::as_str);
        let required: HashSet<&str> = required.collect();
        let mut known: HashSet<&str> = HashSet::new();
        let properties = parts.iter().filter_map(|part| part.get("properties")?.as_object()).flatten();
        properties
            .filter(|(name, property)| **property != Value::Bool(false) && known.insert(name.as_str()))
            .map(|(name, property)| (name.as_str(), property, required.contains(name.as_str())))
            .collect()
    }

    /// A type in as few words as will do: `string`, `integer`, `string[]`.
    pub(super) fn short_type(&self, schema: &'a Value, depth: usize) -> String {
        if !self.try_visit(0) {
            return "any".into();
        }
        let schema = self.resolve(schema);
        let alternatives = || array_at(schema, "anyOf").iter().chain(array_at(schema, "oneOf"));
        let named = match schema.get("type") {
            Some(Value::String(name)) => Some(name.as_str()),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
            _ => None,
        };
        match named {
            Some("array") => match schema.get("items") {
                Some(items) if depth < MAX_OUTLINE_DEPTH => format!("{}[]", self.short_type(items, depth + 1)),
                _ => "array".into(),
            },
            Some(name) => sanitize_truncated(text_prefix(name, 20), 20),
            None if depth < MAX_OUTLINE_DEPTH => {
                let kinds = alternatives().map(|alternative| self.short_type(alternative, depth + 1));
                let first = kinds.into_iter().find(|kind| kind != "null" && kind != "any");
                let first = first.or_else(|| Some(type_name(array_at(schema, "enum").first()?).to_owned()));
                first.or_else(|| schema.get("properties").map(|_| "object".into())).unwrap_or_else(|| "any".into())
            }
            None => "any".into(),
        }
    }

    pub(super) fn read_fields(&self, schema: &'a Value, trail: &mut Vec<&'a Value>) -> ArgumentList {
        let (named, more) = self.read_named_fields(schema, trail);
        ArgumentList { items: named.into_iter().map(|(_, argument)| argument).collect(), omitted: more }
    }

    /// Each with its whole name, for the one that is shown may be cut; and how many are not told.
    fn read_named_fields(
        &self,
        schema: &'a Value,
        trail: &mut Vec<&'a Value>,
    ) -> (Vec<(&'a str, ArgumentOutline)>, usize) {
        if self.arguments_left.get() == 0 || !self.try_visit(0) {
            return (Vec::new(), self.count_omitted(schema, trail));
        }
        let schema = self.resolve(schema);
        if is_on_trail(schema, trail) {
            return (Vec::new(), 0);
        }
        let (required, own) = (array_at(schema, "required"), schema.get("properties").and_then(Value::as_object));
        let count = own.map_or(0, |own| own.len());
        if trail.len() > MAX_OUTLINE_DEPTH || !self.try_visit(required.len() + count) {
            return (Vec::new(), count);
        }
        trail.push(schema);
        let required: HashSet<&str> = required.iter().filter_map(Value::as_str).collect();
        // `false` is how a schema says that there is no such argument.
        let own = own.into_iter().flatten().filter(|(_, property)| **property != Value::Bool(false));
        let mut own: Vec<_> = own.collect();
        let mut more = own.len().saturating_sub(self.arguments_left.get());
        if more > 0 {
            own.sort_by_key(|(name, _)| !required.contains(name.as_str()));
            own.truncate(self.arguments_left.get());
        }
        // All of these come before anything within them.
        self.arguments_left.set(self.arguments_left.get() - own.len());
        let mut fields: Vec<(&str, ArgumentOutline)> = own
            .into_iter()
            .map(|(name, property)| (name.as_str(), self.read_argument(name, property, trail)))
            .collect();
        for part in array_at(schema, "allOf") {
            let (others, untold) = self.read_named_fields(part, trail);
            more += untold;
            for (name, field) in others {
                if !fields.iter().any(|(known, _)| *known == name) {
                    fields.push((name, field));
                }
            }
        }
        for (name, field) in &mut fields {
            field.required |= required.contains(name);
        }
        trail.pop();
        (fields, more)
    }

    /// How many fields there are that nobody will look at. References are followed for as many counts as there are.
    fn count_omitted(&self, schema: &'a Value, trail: &[&'a Value]) -> usize {
        let left = self.counts_left.get();
        self.counts_left.set(left.saturating_sub(1));
        let schema = if left > 0 { self.resolve(schema) } else { schema };
        let own = schema.get("properties").and_then(Value::as_object).filter(|_| !is_on_trail(schema, trail));
        own.map_or(0, |own| own.len())
    }

    fn read_argument(&self, name: &str, property: &'a Value, trail: &mut Vec<&'a Value>) -> ArgumentOutline {
        let target = self.resolve(property);
        // What stands beside a reference speaks of this very use of it.
        let said = |key: &str| property.get(key).or_else(|| target.get(key));
        let sole = sole_alternative(self.root, target);
        let items = self.resolve(sole.get("items").unwrap_or(&Value::Null));
        let all = [target, sole, items].into_iter().map(|schema| array_at(schema, "enum")).find(|all| !all.is_empty());
        let again = is_on_trail(target, trail) || is_on_trail(items, trail);
        let kind = self.describe_type(property, 0);
        ArgumentOutline {
            name: sanitize_truncated(text_prefix(name, 80), 80),
            kind: if again { format!("{kind}, as above") } else { kind },
            required: false,
            description: said("description")
                .and_then(Value::as_str)
                .map(|text| sanitize_truncated(text_prefix(text, 600), 600))
                .unwrap_or_default(),
            default: said("default").map(format_value),
            choices: self.list_choices(all.unwrap_or_default()),
            limits: describe_limits(sole, items).into_iter().chain(self.additional_properties_limit(sole)).collect(),
            nested: self.read_nested(target, trail),
        }
    }

    fn list_choices(&self, all: &[Value]) -> Vec<String> {
        let most = self.max_choices.min(self.choices_left.get().max(MAX_CHOICES));
        let mut choices: Vec<String> = all.iter().take(most).map(format_value).collect();
        self.choices_left.set(self.choices_left.get().saturating_sub(choices.len()));
        if all.len() > most {
            let more = all.len() - most;
            choices.push(format!("and {more} more"));
        }
        choices
    }

    /// What values of names that are not listed must be.
    fn additional_properties_limit(&self, schema: &'a Value) -> Option<String> {
        let others = schema.get("additionalProperties").filter(|others| others.is_object())?;
        let kind = self.describe_type(others, 1);
        (kind != "any").then(|| format!("any names, each {kind}"))
    }

    fn read_nested(&self, schema: &'a Value, trail: &mut Vec<&'a Value>) -> ArgumentList {
        let alternatives = array_at(schema, "anyOf").iter().chain(array_at(schema, "oneOf"));
        let places = std::iter::once(schema).chain(schema.get("items")).chain(alternatives);
        places.map(|place| self.read_fields(place, trail)).find(|fields| !fields.is_empty()).unwrap_or_default()
    }

    /// A type in words: `string`, `integer or null`, `array of object`.
    fn describe_type(&self, schema: &'a Value, depth: usize) -> String {
        if depth > MAX_OUTLINE_DEPTH || !self.try_visit(0) {
            return "…".into();
        }
        let schema = self.resolve(schema);
        if let Some(constant) = schema.get("const") {
            return format!("always {}", format_value(constant));
        }
        let mut kinds: Vec<String> = match schema.get("type") {
            Some(Value::String(name)) => vec![text_prefix(name, 80).to_owned()],
            Some(Value::Array(names)) => {
                let names = names.iter().take(MAX_TYPED_CHOICES).filter_map(Value::as_str);
                names.map(|name| text_prefix(name, 80).to_owned()).collect()
            }
            _ => Vec::new(),
        };
        if let (Some(array), Some(items)) = (kinds.iter_mut().find(|kind| *kind == "array"), schema.get("items")) {
            let of = self.describe_type(items, depth + 1);
            *array = if of == "any" { "array".into() } else { format!("array of {of}") };
        }
        if let (Some(text), Some(format)) =
            (kinds.iter_mut().find(|kind| *kind == "string"), schema.get("format").and_then(Value::as_str))
        {
            *text = format!("string ({})", text_prefix(format, 80));
        }
        if kinds.is_empty() {
            let alternatives = array_at(schema, "anyOf").iter().chain(array_at(schema, "oneOf"));
            kinds.extend(alternatives.take(MAX_CHOICES).map(|alternative| self.describe_type(alternative, depth + 1)));
        }
        if kinds.is_empty() && (schema.get("properties").is_some() || schema.get("allOf").is_some()) {
            kinds.push("object".into());
        }
        if kinds.is_empty() {
            kinds.extend(
                array_at(schema, "enum").iter().take(MAX_TYPED_CHOICES).map(|choice| type_name(choice).to_owned()),
            );
        }
        let mut seen: Vec<String> = Vec::new();
        for kind in kinds.into_iter().map(|kind| sanitize_truncated(&kind, 80)) {
            if !seen.contains(&kind) {
                seen.push(kind);
            }
        }
        if seen.is_empty() { "any".into() } else { seen.join(" or ") }
    }

    fn resolve(&self, schema: &'a Value) -> &'a Value {
        resolve_references(self.root, schema)
    }
}

fn is_on_trail(schema: &Value, trail: &[&Value]) -> bool {
    trail.iter().any(|open| std::ptr::eq(*open, schema))
}

/// As much of a text as `limit` characters of it can need.
pub(super) fn text_prefix(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(BYTES_READ_PER_CHARACTER * limit)]
}

fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => sanitize_truncated(text_prefix(text, 80), 80),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            sanitize_truncated(&json::truncated_json(value, BYTES_READ_PER_CHARACTER * 80), 80)
        }
    }
}
