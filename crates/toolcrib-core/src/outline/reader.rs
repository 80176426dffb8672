//! Reading a schema that may be wrong, endless or huge, within bounds.

use std::cell::Cell;
use std::collections::HashSet;

use serde_json::Value;

use super::limits::limits;
use super::walk::{followed, list, sole};
use super::{Argument, Arguments};
use crate::json;
use crate::schema::type_name;
use crate::text::shown_short;

/// References and nesting are followed so far, and no further.
pub(super) const DEEPEST: usize = 4;
pub(super) const MOST_CHOICES: usize = 12;
/// So many choices are told of all arguments together, and then no more than [`MOST_CHOICES`] of each.
const ALL_CHOICES: usize = 2_000;
/// References can make a small schema endless to tell. So many arguments are told in all, after so many looks.
pub(super) const MOST_ARGUMENTS: usize = 500;
const MOST_LOOKS: usize = 5_000;
/// The types of so many choices are looked at: there are only six.
const MOST_TYPED: usize = 100;
/// So many times as many bytes as may be shown are read of a text.
const READ_AHEAD: usize = 8;

/// Reads one schema; what is open on the way down is its trail, so that a schema which holds itself is told once.
pub(super) struct Reader<'a> {
    root: &'a Value,
    /// What is left of the arguments, the looks, and the counts where no look is left.
    arguments: Cell<usize>,
    looks: Cell<usize>,
    counts: Cell<usize>,
    /// How many choices each argument may tell, and how many are left for all.
    most_choices: usize,
    choices: Cell<usize>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(root: &'a Value) -> Reader<'a> {
        let [looks, counts] = [MOST_LOOKS; 2].map(Cell::new);
        let (arguments, choices) = (Cell::new(MOST_ARGUMENTS), Cell::new(ALL_CHOICES));
        Reader { root, arguments, looks, counts, most_choices: MOST_CHOICES, choices }
    }

    pub(super) fn with_choices(self, most_choices: usize) -> Reader<'a> {
        Reader { most_choices, ..self }
    }

    /// Whether there is still a look left; takes it, and as many more as `size` is worth.
    fn look(&self, size: usize) -> bool {
        let left = self.looks.get();
        self.looks.set(left.saturating_sub(1 + size / 8));
        left > 0
    }

    /// Name, schema and whether it is required, of the arguments themselves and nothing within them.
    pub(super) fn outermost(&self, schema: &'a Value) -> Vec<(&'a str, &'a Value, bool)> {
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
    pub(super) fn short_kind(&self, schema: &'a Value, depth: usize) -> String {
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
            Some(name) => shown_short(beginning(name, 20), 20),
            None if depth < DEEPEST => {
                let kinds = alternatives().map(|alternative| self.short_kind(alternative, depth + 1));
                let first = kinds.into_iter().find(|kind| kind != "null" && kind != "any");
                let first = first.or_else(|| Some(type_name(list(schema, "enum").first()?).to_owned()));
                first.or_else(|| schema.get("properties").map(|_| "object".into())).unwrap_or_else(|| "any".into())
            }
            None => "any".into(),
        }
    }

    pub(super) fn fields(&self, schema: &'a Value, trail: &mut Vec<&'a Value>) -> Arguments {
        let (named, more) = self.named_fields(schema, trail);
        Arguments { told: named.into_iter().map(|(_, argument)| argument).collect(), more }
    }

    /// Each with its whole name, for the one that is shown may be cut; and how many are not told.
    fn named_fields(&self, schema: &'a Value, trail: &mut Vec<&'a Value>) -> (Vec<(&'a str, Argument)>, usize) {
        if self.arguments.get() == 0 || !self.look(0) {
            return (Vec::new(), self.untold(schema, trail));
        }
        let schema = self.followed(schema);
        if is_open(schema, trail) {
            return (Vec::new(), 0);
        }
        let (required, own) = (list(schema, "required"), schema.get("properties").and_then(Value::as_object));
        let count = own.map_or(0, |own| own.len());
        if trail.len() > DEEPEST || !self.look(required.len() + count) {
            return (Vec::new(), count);
        }
        trail.push(schema);
        let required: HashSet<&str> = required.iter().filter_map(Value::as_str).collect();
        // `false` is how a schema says that there is no such argument.
        let own = own.into_iter().flatten().filter(|(_, property)| **property != Value::Bool(false));
        let mut own: Vec<_> = own.collect();
        let mut more = own.len().saturating_sub(self.arguments.get());
        if more > 0 {
            own.sort_by_key(|(name, _)| !required.contains(name.as_str()));
            own.truncate(self.arguments.get());
        }
        // All of these come before anything within them.
        self.arguments.set(self.arguments.get() - own.len());
        let mut fields: Vec<(&str, Argument)> =
            own.into_iter().map(|(name, property)| (name.as_str(), self.argument(name, property, trail))).collect();
        for part in list(schema, "allOf") {
            let (others, untold) = self.named_fields(part, trail);
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
    fn untold(&self, schema: &'a Value, trail: &[&'a Value]) -> usize {
        let left = self.counts.get();
        self.counts.set(left.saturating_sub(1));
        let schema = if left > 0 { self.followed(schema) } else { schema };
        let own = schema.get("properties").and_then(Value::as_object).filter(|_| !is_open(schema, trail));
        own.map_or(0, |own| own.len())
    }

    fn argument(&self, name: &str, property: &'a Value, trail: &mut Vec<&'a Value>) -> Argument {
        let target = self.followed(property);
        // What stands beside a reference speaks of this very use of it.
        let said = |key: &str| property.get(key).or_else(|| target.get(key));
        let sole = sole(self.root, target);
        let items = self.followed(sole.get("items").unwrap_or(&Value::Null));
        let all = [target, sole, items].into_iter().map(|schema| list(schema, "enum")).find(|all| !all.is_empty());
        let again = is_open(target, trail) || is_open(items, trail);
        let kind = self.kind(property, 0);
        Argument {
            name: shown_short(beginning(name, 80), 80),
            kind: if again { format!("{kind}, as above") } else { kind },
            required: false,
            description: said("description")
                .and_then(Value::as_str)
                .map(|text| shown_short(beginning(text, 600), 600))
                .unwrap_or_default(),
            default: said("default").map(value),
            choices: self.told_choices(all.unwrap_or_default()),
            limits: limits(sole, items).into_iter().chain(self.further(sole)).collect(),
            nested: self.nested(target, trail),
        }
    }

    fn told_choices(&self, all: &[Value]) -> Vec<String> {
        let most = self.most_choices.min(self.choices.get().max(MOST_CHOICES));
        let mut choices: Vec<String> = all.iter().take(most).map(value).collect();
        self.choices.set(self.choices.get().saturating_sub(choices.len()));
        if all.len() > most {
            let more = all.len() - most;
            choices.push(format!("and {more} more"));
        }
        choices
    }

    /// What values of names that are not listed must be.
    fn further(&self, schema: &'a Value) -> Option<String> {
        let others = schema.get("additionalProperties").filter(|others| others.is_object())?;
        let kind = self.kind(others, 1);
        (kind != "any").then(|| format!("any names, each {kind}"))
    }

    fn nested(&self, schema: &'a Value, trail: &mut Vec<&'a Value>) -> Arguments {
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
            Some(Value::String(name)) => vec![beginning(name, 80).to_owned()],
            Some(Value::Array(names)) => {
                let names = names.iter().take(MOST_TYPED).filter_map(Value::as_str);
                names.map(|name| beginning(name, 80).to_owned()).collect()
            }
            _ => Vec::new(),
        };
        if let (Some(array), Some(items)) = (kinds.iter_mut().find(|kind| *kind == "array"), schema.get("items")) {
            let of = self.kind(items, depth + 1);
            *array = if of == "any" { "array".into() } else { format!("array of {of}") };
        }
        if let (Some(text), Some(format)) =
            (kinds.iter_mut().find(|kind| *kind == "string"), schema.get("format").and_then(Value::as_str))
        {
            *text = format!("string ({})", beginning(format, 80));
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

    fn followed(&self, schema: &'a Value) -> &'a Value {
        followed(self.root, schema)
    }
}

fn is_open(schema: &Value, trail: &[&Value]) -> bool {
    trail.iter().any(|open| std::ptr::eq(*open, schema))
}

/// As much of a text as `limit` characters of it can need.
pub(super) fn beginning(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(READ_AHEAD * limit)]
}

fn value(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => shown_short(beginning(text, 80), 80),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            shown_short(&json::beginning(value, READ_AHEAD * 80), 80)
        }
    }
}
