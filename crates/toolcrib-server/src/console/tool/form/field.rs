//! One field of an argument form: how it is derived from the schema, and how its submitted text becomes a JSON value.
//!
//! Schemas are untrusted: they may be recursive, or refer to one large definition a thousand times. So the number of
//! fields, their depth, and the size of each text are bounded. Whatever has no field can be entered as JSON.

use serde_json::{Map, Value};
use toolcrib::Result;
use toolcrib::catalog::outline;
use toolcrib::core::json::{self, escape_pointer_token, parse_exact};
use toolcrib::core::text::{sanitize, sanitize_truncated};
use toolcrib::schema::{array_at, follow_references, non_null_alternatives, sole_alternative, type_name};

use super::attributes::InputAttributes;
use super::invalid_input;
use crate::console::form_data::FormData;
use crate::console::tool::example;

/// Maximum number of fields. This and the following limits bound the size of the page, because schemas are untrusted.
const MAX_FIELDS: usize = 80;
/// Maximum depth of nested fieldsets; deeper objects are entered as JSON.
const MAX_GROUP_DEPTH: usize = 3;
/// Maximum number of choices in a select.
const MAX_CHOICES: usize = 500;
/// Maximum length of an argument's name, in bytes. A longer one gets no field.
const MAX_NAME_LEN: usize = 200;
/// Maximum length of a placeholder; the rest is cut off.
const MAX_PLACEHOLDER_LEN: usize = 120;
/// Maximum size of a default value. All fields may refer to one definition, whose default is then repeated for each.
const MAX_DEFAULT_LEN: usize = 4_000;
/// Maximum size of all choices of a select.
const MAX_CHOICES_LEN: usize = 64 * 1024;
/// Maximum length of a description, in bytes. The page shows less; the rest is for guessing the size of the input.
const MAX_DESCRIPTION_LEN: usize = 2_000;
/// A text with a larger `maxLength` gets a multi-line input.
const MAX_SINGLE_LINE_LEN: u64 = 250;

/// A field of the form.
#[derive(Debug)]
pub(super) struct FormField {
    /// Number of the field within the form, for unique ids.
    index: usize,
    pub(super) name: String,
    /// JSON pointer to the argument; also the name of the input.
    pub(super) path: String,
    pub(super) required: bool,
    pub(super) description: String,
    /// Default value as input text.
    pub(super) default: Option<String>,
    /// Example value, shown while the field is empty.
    pub(super) placeholder: Option<String>,
    /// Format of a text, or type of a JSON value.
    note: Option<String>,
    /// Further constraints of the schema, in words.
    pub(super) limits: Vec<String>,
    pub(super) attributes: InputAttributes,
    pub(super) kind: FieldKind,
}

/// How a field is rendered and parsed.
#[derive(Debug)]
pub(super) enum FieldKind {
    /// A string.
    Text(TextSize),
    Number,
    /// Rendered as a select and not as a checkbox, because a missing argument is different from `false`.
    Boolean,
    /// One of the values of an `enum`, which may be of any type.
    Choice(Vec<Value>),
    /// An array of texts or numbers, one per line.
    Lines(ItemKind),
    /// An object with fields of its own.
    Group(Vec<FormField>),
    /// Anything else, entered as JSON.
    Json,
}

/// Size of a text input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextSize {
    SingleLine,
    MultiLine,
}

/// Type of the items of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    Text,
    Number,
}

/// Counts the fields while a form is built.
#[derive(Debug, Default)]
pub(super) struct FieldCount {
    fields: usize,
    /// True when an argument got no field because of a limit.
    pub(super) is_partial: bool,
}

/// Builds the fields for the properties of an object schema; `parent` is the JSON pointer of the object.
pub(super) fn build_fields(
    root: &Value,
    schema: &Value,
    parent: &str,
    depth: usize,
    count: &mut FieldCount,
) -> Vec<FormField> {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut fields = Vec::new();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        // The schema `false` forbids the property.
        if *property == Value::Bool(false) {
            continue;
        }
        if name.len() > MAX_NAME_LEN || count.fields == MAX_FIELDS {
            count.is_partial = true;
            continue;
        }
        // Counted before the fields nested in it, so that ids are unique and the limit holds for the whole form.
        count.fields += 1;
        let index = count.fields;
        let target = follow_references(root, property);
        // The escapes of JSON pointers (RFC 6901).
        let path = format!("{parent}/{}", escape_pointer_token(name));
        // Keywords beside a `$ref` take precedence over those of the referenced schema.
        let keyword = |key: &str| property.get(key).or_else(|| target.get(key));
        let description = keyword("description").and_then(Value::as_str).unwrap_or_default();
        let description = &description[..description.floor_char_boundary(MAX_DESCRIPTION_LEN)];
        // The only alternative besides `null`, if the schema has alternatives.
        let value_schema = sole_alternative(root, target);
        let mut kind = field_kind(root, target, &path, depth, count);
        if let FieldKind::Text(size) = &mut kind {
            *size = text_size(name, description, value_schema);
        }
        // For the limits on the number of items, which the hint of a list states.
        let items = value_schema.get("items").map_or(&Value::Null, |items| follow_references(root, items));
        let type_name = single_type(root, target);
        let note = if let FieldKind::Text(_) = &kind {
            keyword("format").or_else(|| value_schema.get("format")).and_then(Value::as_str)
        } else {
            type_name.filter(|_| matches!(kind, FieldKind::Json))
        };
        fields.push(FormField {
            index,
            required: required.contains(&name.as_str()),
            description: description.to_owned(),
            default: keyword("default")
                .filter(|value| fits_within(value, MAX_DEFAULT_LEN))
                .map(|value| to_input_text(value, &kind)),
            placeholder: find_placeholder(root, property, target, &kind)
                .map(|text| sanitize_truncated(&text, MAX_PLACEHOLDER_LEN)),
            note: note.map(|note| sanitize_truncated(note, 40)),
            limits: outline::describe_limits(value_schema, items),
            attributes: InputAttributes::from_schema(value_schema, type_name),
            name: name.clone(),
            path,
            kind,
        });
    }
    fields
}

/// Chooses the kind of field for a schema. Falls back to JSON for everything that has no obvious input: alternatives,
/// arrays of objects, objects without properties or too deep.
fn field_kind(root: &Value, schema: &Value, path: &str, depth: usize, count: &mut FieldCount) -> FieldKind {
    let choices = [schema, sole_alternative(root, schema)].map(|schema| array_at(schema, "enum"));
    let is_selectable = |choices: &&[Value]| {
        // An equal share for each choice bounds the sum without adding up.
        let max_len = MAX_CHOICES_LEN / choices.len().max(1);
        (1..=MAX_CHOICES).contains(&choices.len()) && choices.iter().all(|choice| fits_within(choice, max_len))
    };
    if let Some(choices) = choices.into_iter().find(is_selectable) {
        return FieldKind::Choice(choices.to_vec());
    }
    match single_type(root, schema) {
        Some("string") => FieldKind::Text(TextSize::SingleLine),
        Some("integer" | "number") => FieldKind::Number,
        Some("boolean") => FieldKind::Boolean,
        Some("array") => {
            match schema
                .get("items")
                .map(|items| follow_references(root, items))
                .and_then(|items| single_type(root, items))
            {
                Some("string") => FieldKind::Lines(ItemKind::Text),
                Some("integer" | "number") => FieldKind::Lines(ItemKind::Number),
                _ => FieldKind::Json,
            }
        }
        Some("object") if depth < MAX_GROUP_DEPTH && schema.get("properties").is_some() => {
            let fields = build_fields(root, schema, path, depth + 1, count);
            if fields.is_empty() { FieldKind::Json } else { FieldKind::Group(fields) }
        }
        _ => FieldKind::Json,
    }
}

/// Returns the only type besides `null` that a schema allows; `None` if there are several. Looks at `type`, else at the
/// types of the alternatives (`anyOf`, `oneOf`).
fn single_type<'a>(root: &'a Value, schema: &'a Value) -> Option<&'a str> {
    let mut names: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => non_null_alternatives(root, schema)
            .iter()
            .filter_map(|alternative| alternative.get("type")?.as_str())
            .collect(),
    };
    names.retain(|name| *name != "null");
    names.dedup();
    match names[..] {
        // Alternatives that are objects or arrays differ in their properties, which a common type does not tell.
        [only] if schema.get("type").is_some() || !matches!(only, "object" | "array") => Some(only),
        _ => None,
    }
}

/// True when a value takes at most `max` bytes as JSON. Stops serialising shortly after the limit.
fn fits_within(value: &Value, max: usize) -> bool {
    json::truncated_json(value, max + 4).len() <= max
}

/// Guesses from name, description and schema whether a text is likely to have several lines.
fn text_size(name: &str, description: &str, schema: &Value) -> TextSize {
    const NAMES: [&str; 9] = ["content", "body", "text", "code", "script", "markdown", "html", "sql", "patch"];
    const WORDS: [&str; 4] = ["multi-line", "multiline", "markdown", "several lines"];
    let name = name.to_lowercase();
    let description = description.to_lowercase();
    let max_length = schema.get("maxLength").and_then(Value::as_u64);
    // An argument `code` with a short limit or a pattern is an identifier and not a program.
    if max_length.is_some_and(|max| max <= MAX_SINGLE_LINE_LEN) || schema.get("pattern").is_some() {
        return TextSize::SingleLine;
    }
    let is_long = max_length.is_some()
        || schema.get("contentMediaType").is_some()
        || NAMES.iter().any(|known| name.split(['_', '-', ' ']).any(|part| part == *known))
        || WORDS.iter().any(|word| description.contains(word));
    if is_long { TextSize::MultiLine } else { TextSize::SingleLine }
}

/// Returns the example of a schema; for JSON values and timestamps without one, a generated example shows the syntax.
fn find_placeholder(root: &Value, property: &Value, target: &Value, kind: &FieldKind) -> Option<String> {
    let example =
        property.get("example").or_else(|| target.get("example")).or_else(|| array_at(target, "examples").first());
    if let Some(example) = example.filter(|value| fits_within(value, MAX_DEFAULT_LEN)) {
        return Some(to_input_text(example, kind));
    }
    let is_timestamp = target.get("format").and_then(Value::as_str) == Some("date-time");
    let needs_example = (matches!(kind, FieldKind::Json) && single_type(root, target).is_some())
        || (matches!(kind, FieldKind::Text(_)) && is_timestamp);
    needs_example.then(|| to_input_text(&example::example_value(root, property), kind))
}

/// Converts a value to the text that a user would enter for it.
fn to_input_text(value: &Value, kind: &FieldKind) -> String {
    match (value, kind) {
        (Value::String(text), FieldKind::Text(_)) => text.clone(),
        (Value::Array(items), FieldKind::Lines(_)) => items.iter().map(json::plain_text).collect::<Vec<_>>().join("\n"),
        (value, _) => json::to_exact_string(value).unwrap_or_default(),
    }
}

impl FormField {
    /// Label of the expected input.
    pub(super) fn kind_label(&self) -> String {
        let kind = match &self.kind {
            FieldKind::Text(_) => "text",
            FieldKind::Number if self.attributes.is_integer() => "whole number",
            FieldKind::Number => "number",
            FieldKind::Boolean => "yes or no",
            FieldKind::Choice(_) => "choice",
            FieldKind::Lines(ItemKind::Text) => "list",
            FieldKind::Lines(ItemKind::Number) => "list of numbers",
            FieldKind::Group(_) => "object",
            FieldKind::Json => "JSON",
        };
        self.note.as_ref().map_or_else(|| kind.to_owned(), |note| format!("{kind} ({note})"))
    }

    /// True when a hint is rendered below the field.
    pub(super) fn has_hint(&self) -> bool {
        !self.description.is_empty() || !self.limits.is_empty()
    }

    /// Id of the hint element.
    pub(super) fn hint_id(&self) -> String {
        format!("hint-{}", self.index)
    }

    /// Parses the submitted value. An empty input is a missing argument, so that validation reports what is required; an
    /// empty text or list can be entered in the JSON field.
    pub(super) fn parse(&self, form_data: &FormData) -> Result<Option<Value>> {
        let text = self.submitted_text(form_data);
        let value = match &self.kind {
            FieldKind::Group(fields) => {
                let mut group = Map::new();
                for field in fields {
                    if let Some(value) = field.parse(form_data)? {
                        group.insert(field.name.clone(), value);
                    }
                }
                // An optional object that has only its defaults was not meant to be sent.
                let is_sent = !group.is_empty() && (self.required || self.is_changed(form_data));
                return Ok(is_sent.then(|| group.into()));
            }
            FieldKind::Text(_) if text.is_empty() => None,
            FieldKind::Text(_) => Some(Value::String(text)),
            FieldKind::Number | FieldKind::Boolean | FieldKind::Choice(_) | FieldKind::Lines(_) | FieldKind::Json
                if text.trim().is_empty() =>
            {
                None
            }
            FieldKind::Lines(item_kind) => {
                Some(text.lines().filter(|line| !line.is_empty()).map(|line| item_kind.parse(line)).collect())
            }
            // A text that is not a number is passed on as a string, so that validation reports the error.
            FieldKind::Number => Some(ItemKind::Number.parse(text.trim())),
            // The select has no other values than `true`, `false` and none.
            FieldKind::Boolean => Some(Value::Bool(text == "true")),
            FieldKind::Choice(_) => Some(parse_exact(&text).unwrap_or(Value::String(text))),
            FieldKind::Json => Some(
                parse_exact(&text)
                    .map_err(|error| invalid_input(format!("`{}` is not valid JSON: {error}", self.name)))?,
            ),
        };
        Ok(value)
    }

    /// Returns the submitted text with the line breaks that browsers send normalised.
    fn submitted_text(&self, form_data: &FormData) -> String {
        form_data.get(&self.path).map(|text| text.replace("\r\n", "\n")).unwrap_or_default()
    }

    /// True when the submitted text differs from the default.
    fn is_changed(&self, form_data: &FormData) -> bool {
        if let FieldKind::Group(fields) = &self.kind {
            return fields.iter().any(|field| field.is_changed(form_data));
        }
        self.submitted_text(form_data) != self.default.as_deref().map(sanitize).unwrap_or_default()
    }
}

impl ItemKind {
    /// Parses one item; a text that is not a number stays a string.
    fn parse(self, text: &str) -> Value {
        let number = match self {
            ItemKind::Number => parse_exact(text).ok().filter(|value| type_name(value) == "number"),
            ItemKind::Text => None,
        };
        number.unwrap_or_else(|| Value::String(text.to_owned()))
    }
}
