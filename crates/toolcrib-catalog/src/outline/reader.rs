//! Bounded reader of input schemas, which may be malformed, recursive or huge.
//!
//! A schema of a few kilobytes can expand to millions of fields through references, so everything has a budget for the
//! whole schema, not for each level: arguments, visits, choices. Where a budget ends, the number of omitted fields is
//! shown instead. Budgets are [`Cell`]s because reading borrows the schema through `&self`.

use std::cell::Cell;
use std::collections::HashSet;

use serde_json::Value;
use toolcrib_core::json;
use toolcrib_core::text::sanitize_truncated;
use toolcrib_schema::{array_at, follow_references, reference_text, sole_alternative, type_name};

use super::limits::describe_limits;
use super::{ArgumentList, ArgumentOutline, VariantOutline};

/// Maximum nesting of arguments and types. Deeper fields are counted as omitted, deeper types are shown as `…`.
pub(super) const MAX_OUTLINE_DEPTH: usize = 4;
/// Default maximum number of choices per argument.
pub(super) const MAX_CHOICES: usize = 12;
/// Maximum number of choices of all arguments together; beyond it, each argument shows at most [`MAX_CHOICES`].
const MAX_TOTAL_CHOICES: usize = 2_000;
/// Maximum number of arguments, nested ones included. References can make a small schema arbitrarily large.
pub(super) const MAX_ARGUMENTS: usize = 500;
/// Maximum number of variants of one object.
const MAX_VARIANTS: usize = 100;
/// Beginning of the type of a constant.
const CONSTANT_PREFIX: &str = "always ";
/// Maximum number of schema nodes that are visited.
const MAX_VISITED_SCHEMAS: usize = 5_000;
/// Maximum number of choices and type names whose types are collected; there are only seven types.
const MAX_TYPED_CHOICES: usize = 100;
/// Number of bytes of a text that are read per character shown, as sanitising removes characters.
const BYTES_READ_PER_CHARACTER: usize = 8;

/// Reads one schema. Methods take a trail of the nodes that are being read, so that a recursive schema is expanded
/// once.
pub(super) struct SchemaOutliner<'a> {
    /// Schema that local references point into.
    root: &'a Value,
    /// Remaining budgets of [`MAX_ARGUMENTS`] and [`MAX_VISITED_SCHEMAS`].
    arguments_left: Cell<usize>,
    visits_left: Cell<usize>,
    /// Remaining references that are followed to count omitted fields, after the visits are used up.
    counts_left: Cell<usize>,
    /// Number of objects on the trail whose variants are being read.
    variant_level: Cell<usize>,
    /// Maximum number of choices per argument.
    max_choices: usize,
    /// Remaining budget of [`MAX_TOTAL_CHOICES`].
    choices_left: Cell<usize>,
}

impl<'a> SchemaOutliner<'a> {
    /// Creates a reader with the default limits.
    pub(super) fn new(root: &'a Value) -> SchemaOutliner<'a> {
        SchemaOutliner {
            root,
            arguments_left: Cell::new(MAX_ARGUMENTS),
            visits_left: Cell::new(MAX_VISITED_SCHEMAS),
            counts_left: Cell::new(MAX_VISITED_SCHEMAS),
            variant_level: Cell::new(0),
            max_choices: MAX_CHOICES,
            choices_left: Cell::new(MAX_TOTAL_CHOICES),
        }
    }

    /// Sets the maximum number of choices per argument.
    pub(super) fn with_choices(self, max_choices: usize) -> SchemaOutliner<'a> {
        SchemaOutliner { max_choices, ..self }
    }

    /// Spends one visit, and more for a large node of `size` names. Returns whether a visit was left.
    fn try_visit(&self, size: usize) -> bool {
        let left = self.visits_left.get();
        self.visits_left.set(left.saturating_sub(1 + size / 8));
        left > 0
    }

    /// Name, schema and required flag of the top-level arguments, `allOf` parts included. Not counted against the
    /// limits.
    pub(super) fn top_level_arguments(&self, schema: &'a Value) -> Vec<(&'a str, &'a Value, bool)> {
        let schema = self.resolve(schema);
        // Signatures read the top level and its `allOf` parts only, so no budget is needed.
        let mut parts = vec![schema];
        let mut visited = HashSet::from([std::ptr::from_ref(schema)]);
        let all_of = array_at(schema, "allOf").iter().map(|part| self.resolve(part));
        parts.extend(all_of.filter(|part| visited.insert(std::ptr::from_ref(*part))));
        let required = parts.iter().flat_map(|part| array_at(part, "required")).filter_map(Value::as_str);
        let required: HashSet<&str> = required.collect();
        let mut seen: HashSet<&str> = HashSet::new();
        let properties = parts.iter().filter_map(|part| part.get("properties")?.as_object()).flatten();
        properties
            .filter(|(name, property)| **property != Value::Bool(false) && seen.insert(name.as_str()))
            .map(|(name, property)| (name.as_str(), property, required.contains(name.as_str())))
            .collect()
    }

    /// Type in one word: `string`, `integer`, `string[]`; of alternatives, the first that is not null.
    pub(super) fn short_type(&self, schema: &'a Value, depth: usize) -> String {
        if !self.try_visit(0) {
            return "any".into();
        }
        let schema = self.resolve(schema);
        // A nullable value is written as an alternative of a type and null by many generators.
        let alternatives = || array_at(schema, "anyOf").iter().chain(array_at(schema, "oneOf"));
        let declared = match schema.get("type") {
            Some(Value::String(name)) => Some(name.as_str()),
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
            _ => None,
        };
        match declared {
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

    /// Reads the fields of an object schema.
    pub(super) fn read_fields(&self, schema: &'a Value, trail: &mut Vec<&'a Value>) -> ArgumentList {
        let (fields, omitted) = self.read_named_fields(schema, trail);
        let items: Vec<ArgumentOutline> = fields.into_iter().map(|(_, argument)| argument).collect();
        let fields = ArgumentList { items, omitted, ..ArgumentList::default() };
        self.add_variants(fields, schema, trail)
    }

    /// Adds the variants of an object schema that have fields. An only variant of a schema without fields of its own is
    /// the schema itself, as of a nullable object.
    fn add_variants(&self, fields: ArgumentList, schema: &'a Value, trail: &mut Vec<&'a Value>) -> ArgumentList {
        let schema = self.resolve(schema);
        let level = self.variant_level.get();
        if is_on_trail(schema, trail) || level >= MAX_OUTLINE_DEPTH {
            return fields;
        }
        trail.push(schema);
        self.variant_level.set(level + 1);
        let parts = std::iter::once(schema).chain(array_at(schema, "allOf").iter().map(|part| self.resolve(part)));
        let alternatives = parts.flat_map(|part| array_at(part, "anyOf").iter().chain(array_at(part, "oneOf")));
        let mut variants = Vec::new();
        let mut omitted_variants = 0;
        for (index, alternative) in alternatives.enumerate() {
            if index >= MAX_VARIANTS || self.visits_left.get() == 0 {
                omitted_variants += 1;
                continue;
            }
            let variant = self.read_fields(alternative, trail);
            if variant.is_empty() {
                omitted_variants += usize::from(is_pruned(self.resolve(alternative)));
            } else {
                let label = self.variant_label(alternative, &variant);
                variants
                    .push(VariantOutline { label: label.unwrap_or_else(|| (index + 1).to_string()), fields: variant });
            }
        }
        self.variant_level.set(level);
        trail.pop();
        if let (true, [_], 0) = (fields.is_empty(), &variants[..], omitted_variants) {
            return variants.pop().map_or(fields, |variant| variant.fields);
        }
        ArgumentList { variants, omitted_variants, ..fields }
    }

    /// Returns what tells a variant from the others: a field with one value, or the name of its definition.
    fn variant_label(&self, alternative: &'a Value, variant: &ArgumentList) -> Option<String> {
        let constant = variant.items.iter().find_map(|field| {
            let listed = field.choices.first().filter(|_| field.choices.len() == 1).map(String::as_str);
            field.kind.strip_prefix(CONSTANT_PREFIX).or(listed).map(|value| format!("{} {value}", field.name))
        });
        let name = || {
            let title = self.resolve(alternative).get("title").and_then(Value::as_str);
            let name = title.or_else(|| reference_text(alternative)?.rsplit('/').next())?;
            Some(sanitize_truncated(text_prefix(name, 60), 60))
        };
        constant.or_else(name)
    }

    /// Fields with their full names, as displayed names may be truncated, and the number of omitted fields.
    fn read_named_fields(
        &self,
        schema: &'a Value,
        trail: &mut Vec<&'a Value>,
    ) -> (Vec<(&'a str, ArgumentOutline)>, usize) {
        if self.arguments_left.get() == 0 || !self.try_visit(0) {
            return (Vec::new(), self.count_omitted(schema, trail));
        }
        let schema = self.resolve(schema);
        // A recursive schema: its fields are shown where it occurs first.
        if is_on_trail(schema, trail) {
            return (Vec::new(), 0);
        }
        // Large nodes are charged by their names, before any of them is read.
        let required = array_at(schema, "required");
        let properties = schema.get("properties").and_then(Value::as_object);
        let count = properties.map_or(0, |properties| properties.len());
        // A variant is at the level of its object.
        if trail.len() - self.variant_level.get() > MAX_OUTLINE_DEPTH || !self.try_visit(required.len() + count) {
            return (Vec::new(), count);
        }
        trail.push(schema);
        let mut required: HashSet<&str> = required.iter().filter_map(Value::as_str).collect();
        // A property with the schema `false` must not be given.
        let properties = properties.into_iter().flatten().filter(|(_, property)| **property != Value::Bool(false));
        let mut properties: Vec<_> = properties.collect();
        let mut omitted = properties.len().saturating_sub(self.arguments_left.get());
        // With too many fields, required ones take precedence.
        if omitted > 0 {
            properties.sort_by_key(|(name, _)| !required.contains(name.as_str()));
            properties.truncate(self.arguments_left.get());
        }
        // Reserve the budget for these before nested fields use it up.
        self.arguments_left.set(self.arguments_left.get() - properties.len());
        let mut fields: Vec<(&str, ArgumentOutline)> = properties
            .into_iter()
            .map(|(name, property)| (name.as_str(), self.read_argument(name, property, trail)))
            .collect();
        // Of several parts with a field, the first describes it.
        for part in array_at(schema, "allOf") {
            let (more_fields, omitted_there) = self.read_named_fields(part, trail);
            omitted += omitted_there;
            // A part whose fields are left out still says which of them are required.
            if self.visits_left.get() > 0 {
                required.extend(array_at(self.resolve(part), "required").iter().filter_map(Value::as_str));
            }
            for (name, field) in more_fields {
                match fields.iter_mut().find(|(known, _)| *known == name) {
                    // A constant of a variant restricts a field that the part describes and requires.
                    Some((_, known)) => {
                        known.required |= field.required;
                        if known.description.is_empty() {
                            known.description = field.description;
                        }
                    }
                    None => fields.push((name, field)),
                }
            }
        }
        for (name, field) in &mut fields {
            // `required` of this schema also applies to fields that an `allOf` part defines.
            field.required |= required.contains(name);
        }
        trail.pop();
        (fields, omitted)
    }

    /// Counts the fields of a schema that is not read. Resolves references while that budget lasts.
    fn count_omitted(&self, schema: &'a Value, trail: &[&'a Value]) -> usize {
        let left = self.counts_left.get();
        self.counts_left.set(left.saturating_sub(1));
        let schema = if left > 0 { self.resolve(schema) } else { schema };
        let properties = schema.get("properties").and_then(Value::as_object).filter(|_| !is_on_trail(schema, trail));
        properties.map_or(0, |properties| properties.len())
    }

    /// Describes one argument with its nested fields.
    fn read_argument(&self, name: &str, property: &'a Value, trail: &mut Vec<&'a Value>) -> ArgumentOutline {
        let target = self.resolve(property);
        // Keywords beside a reference describe this use of it and take precedence over those of the target.
        let keyword = |key: &str| property.get(key).or_else(|| target.get(key));
        let value_schema = sole_alternative(self.root, target);
        // For `array` the choices may be those of the items.
        let items = self.resolve(value_schema.get("items").unwrap_or(&Value::Null));
        let choices = [target, value_schema, items]
            .into_iter()
            .map(|schema| array_at(schema, "enum"))
            .find(|choices| !choices.is_empty());
        let is_recursive = is_on_trail(target, trail) || is_on_trail(items, trail);
        let kind = self.describe_type(property, 0);
        ArgumentOutline {
            name: sanitize_truncated(text_prefix(name, 80), 80),
            kind: if is_recursive { format!("{kind}, as above") } else { kind },
            required: false,
            description: keyword("description")
                .and_then(Value::as_str)
                .map(|text| sanitize_truncated(text_prefix(text, 600), 600))
                .unwrap_or_default(),
            default: keyword("default").map(format_value),
            choices: self.list_choices(choices.unwrap_or_default()),
            limits: describe_limits(value_schema, items)
                .into_iter()
                .chain(self.additional_properties_limit(value_schema))
                .collect(),
            nested: self.read_nested(target, trail),
        }
    }

    /// Formats up to `max_choices` values, less when the total budget is used up.
    fn list_choices(&self, values: &[Value]) -> Vec<String> {
        // At least the default number for each argument, even when the total is used up.
        let max = self.max_choices.min(self.choices_left.get().max(MAX_CHOICES));
        let mut choices: Vec<String> = values.iter().take(max).map(format_value).collect();
        self.choices_left.set(self.choices_left.get().saturating_sub(choices.len()));
        if values.len() > max {
            let omitted = values.len() - max;
            choices.push(format!("and {omitted} more"));
        }
        choices
    }

    /// Describes `additionalProperties`, i.e. the values of fields with arbitrary names.
    fn additional_properties_limit(&self, schema: &'a Value) -> Option<String> {
        let schema = schema.get("additionalProperties").filter(|schema| schema.is_object())?;
        let kind = self.describe_type(schema, 1);
        (kind != "any").then(|| format!("any names, each {kind}"))
    }

    /// Fields inside an argument: its own with those of its variants, or those of its items.
    fn read_nested(&self, schema: &'a Value, trail: &mut Vec<&'a Value>) -> ArgumentList {
        let candidates = std::iter::once(schema).chain(schema.get("items"));
        candidates
            .map(|candidate| self.read_fields(candidate, trail))
            .find(|fields| !fields.is_empty())
            .unwrap_or_default()
    }

    /// Type in words: `string`, `integer or null`, `array of object`.
    fn describe_type(&self, schema: &'a Value, depth: usize) -> String {
        if depth > MAX_OUTLINE_DEPTH || !self.try_visit(0) {
            return "…".into();
        }
        let schema = self.resolve(schema);
        // The only possible value says more than its type.
        if let Some(constant) = schema.get("const") {
            return format!("{CONSTANT_PREFIX}{}", format_value(constant));
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
            let item_type = self.describe_type(items, depth + 1);
            *array = if item_type == "any" { "array".into() } else { format!("array of {item_type}") };
        }
        if let (Some(text), Some(format)) =
            (kinds.iter_mut().find(|kind| *kind == "string"), schema.get("format").and_then(Value::as_str))
        {
            *text = format!("string ({})", text_prefix(format, 80));
        }
        // Without `type`, alternatives, then properties, then listed values imply it.
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
        let mut distinct: Vec<String> = Vec::new();
        for kind in kinds.into_iter().map(|kind| sanitize_truncated(&kind, 80)) {
            if !distinct.contains(&kind) {
                distinct.push(kind);
            }
        }
        if distinct.is_empty() { "any".into() } else { distinct.join(" or ") }
    }

    /// Follows local references.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        follow_references(self.root, schema)
    }
}

/// Whether a schema leaves out fields that the full one has. OpenAPI sources mark such schemas.
fn is_pruned(schema: &Value) -> bool {
    schema.get("$comment").and_then(Value::as_str) == Some("pruned")
}

/// Whether a node is being read already. Compares addresses: equal schemas at other places are no recursion.
fn is_on_trail(schema: &Value, trail: &[&Value]) -> bool {
    trail.iter().any(|open| std::ptr::eq(*open, schema))
}

/// Prefix of a text that is long enough to show `limit` characters after sanitising.
pub(super) fn text_prefix(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(BYTES_READ_PER_CHARACTER * limit)]
}

/// Formats a value: strings without quotes, others as JSON, truncated.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => {
            sanitize_truncated(text_prefix(json::long_integer(value).unwrap_or(text), 80), 80)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            sanitize_truncated(&json::truncated_json(value, BYTES_READ_PER_CHARACTER * 80), 80)
        }
    }
}
