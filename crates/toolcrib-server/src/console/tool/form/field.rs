//! One field of a form: where its value goes, of what shape it is, and how text becomes that value.

use serde_json::{Map, Value};
use toolcrib::Result;
use toolcrib::core::json;
use toolcrib::core::outline;
use toolcrib::core::outline::schema_walk::{array_at, resolve_references, sole_alternative};
use toolcrib::core::text::{sanitize, sanitize_truncated};

use super::attributes::InputAttributes;
use super::invalid_input;
use crate::console::form_data::FormData;
use crate::console::tool::example;
use crate::console::tool::schema_type::single_type;

/// Schemas come from outside: so many fields, so deep, so many choices.
const MAX_FIELDS: usize = 80;
const MAX_GROUP_DEPTH: usize = 3;
const MAX_CHOICES: usize = 500;
const MAX_NAME_LEN: usize = 200;
const MAX_PLACEHOLDER_LEN: usize = 120;
/// All fields may refer to one definition, whose default or choices are then shown for each.
const MAX_DEFAULT_LEN: usize = 4_000;
const MAX_CHOICES_LEN: usize = 64 * 1024;
const MAX_DESCRIPTION_LEN: usize = 2_000;
/// A text that may be longer than this gets room for several lines.
const MAX_SINGLE_LINE_LEN: u64 = 250;

#[derive(Debug)]
pub(super) struct FormField {
    /// Its place among all fields of the form.
    index: usize,
    pub(super) name: String,
    /// A JSON pointer to where its value goes.
    pub(super) path: String,
    pub(super) required: bool,
    pub(super) description: String,
    /// As it would be typed in.
    pub(super) default: Option<String>,
    /// Something that would do, to be seen while the field is empty.
    pub(super) placeholder: Option<String>,
    /// What kind of text it is, as the schema calls it, or what the JSON has to be.
    note: Option<String>,
    /// What it must be beyond its shape, in words.
    pub(super) limits: Vec<String>,
    pub(super) attributes: InputAttributes,
    pub(super) kind: FieldKind,
}

#[derive(Debug)]
pub(super) enum FieldKind {
    Text(TextSize),
    Number,
    Boolean,
    Choice(Vec<Value>),
    /// A list of plain values; whether they are numbers.
    Lines(ItemKind),
    Group(Vec<FormField>),
    Json,
}

/// What a text is likely to need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextSize {
    SingleLine,
    MultiLine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    Text,
    Number,
}

/// How many fields a form has so far, and whether an argument had to go without one.
#[derive(Debug, Default)]
pub(super) struct FieldCount {
    fields: usize,
    pub(super) is_partial: bool,
}

pub(super) fn build_fields(
    root: &Value,
    schema: &Value,
    at: &str,
    depth: usize,
    count: &mut FieldCount,
) -> Vec<FormField> {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut fields = Vec::new();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        // `false` is how a schema says that there is no such argument.
        if *property == Value::Bool(false) {
            continue;
        }
        if name.len() > MAX_NAME_LEN || count.fields == MAX_FIELDS {
            count.is_partial = true;
            continue;
        }
        count.fields += 1;
        let number = count.fields;
        let target = resolve_references(root, property);
        let path = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        let said = |key: &str| property.get(key).or_else(|| target.get(key));
        let description = said("description").and_then(Value::as_str).unwrap_or_default();
        let description = &description[..description.floor_char_boundary(MAX_DESCRIPTION_LEN)];
        let (value, mut shape) = (sole_alternative(root, target), field_kind(root, target, &path, depth, count));
        if let FieldKind::Text(needed) = &mut shape {
            *needed = text_size(name, description, value);
        }
        let items = value.get("items").map_or(&Value::Null, |items| resolve_references(root, items));
        let kind = single_type(root, target);
        let note = match &shape {
            FieldKind::Text(_) => said("format").or_else(|| value.get("format")).and_then(Value::as_str),
            FieldKind::Json => kind,
            FieldKind::Number
            | FieldKind::Boolean
            | FieldKind::Choice(_)
            | FieldKind::Lines(_)
            | FieldKind::Group(_) => None,
        };
        fields.push(FormField {
            index: number,
            required: required.contains(&name.as_str()),
            description: description.to_owned(),
            default: said("default")
                .filter(|value| fits_within(value, MAX_DEFAULT_LEN))
                .map(|value| to_input_text(value, &shape)),
            placeholder: find_placeholder(root, property, target, &shape)
                .map(|text| sanitize_truncated(&text, MAX_PLACEHOLDER_LEN)),
            note: note.map(|note| sanitize_truncated(note, 40)),
            limits: outline::describe_limits(value, items),
            attributes: InputAttributes::from_schema(value, kind),
            name: name.clone(),
            path,
            kind: shape,
        });
    }
    fields
}

fn field_kind(root: &Value, schema: &Value, path: &str, depth: usize, count: &mut FieldCount) -> FieldKind {
    let choices = [schema, sole_alternative(root, schema)].map(|schema| array_at(schema, "enum"));
    let fits = |choices: &&[Value]| {
        let share = MAX_CHOICES_LEN / choices.len().max(1);
        (1..=MAX_CHOICES).contains(&choices.len()) && choices.iter().all(|choice| fits_within(choice, share))
    };
    if let Some(choices) = choices.into_iter().find(fits) {
        return FieldKind::Choice(choices.to_vec());
    }
    match single_type(root, schema) {
        Some("string") => FieldKind::Text(TextSize::SingleLine),
        Some("integer" | "number") => FieldKind::Number,
        Some("boolean") => FieldKind::Boolean,
        Some("array") => {
            match schema
                .get("items")
                .map(|items| resolve_references(root, items))
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

/// Whether a value takes at most so many bytes.
fn fits_within(value: &Value, most: usize) -> bool {
    json::truncated_json(value, most + 4).len() <= most
}

/// Whether a text is likely to have several lines, by what is said of it.
fn text_size(name: &str, description: &str, schema: &Value) -> TextSize {
    const NAMES: [&str; 9] = ["content", "body", "text", "code", "script", "markdown", "html", "sql", "patch"];
    const WORDS: [&str; 4] = ["multi-line", "multiline", "markdown", "several lines"];
    let (name, description) = (name.to_lowercase(), description.to_lowercase());
    let most = schema.get("maxLength").and_then(Value::as_u64);
    // A code of three letters is no program.
    if most.is_some_and(|most| most <= MAX_SINGLE_LINE_LEN) || schema.get("pattern").is_some() {
        return TextSize::SingleLine;
    }
    let long = most.is_some()
        || schema.get("contentMediaType").is_some()
        || NAMES.iter().any(|known| name.split(['_', '-', ' ']).any(|part| part == *known))
        || WORDS.iter().any(|word| description.contains(word));
    if long { TextSize::MultiLine } else { TextSize::SingleLine }
}

/// What a schema gives as an example; made up where an empty field would say nothing of what belongs there.
fn find_placeholder(root: &Value, property: &Value, target: &Value, shape: &FieldKind) -> Option<String> {
    let given =
        property.get("example").or_else(|| target.get("example")).or_else(|| array_at(target, "examples").first());
    let made_up = || match shape {
        FieldKind::Json if single_type(root, target).is_some() => {
            Some(example::example_value(root, property).to_string())
        }
        FieldKind::Text(_) if target.get("format").and_then(Value::as_str) == Some("date-time") => {
            example::example_value(root, property).as_str().map(str::to_owned)
        }
        FieldKind::Text(_)
        | FieldKind::Number
        | FieldKind::Boolean
        | FieldKind::Choice(_)
        | FieldKind::Lines(_)
        | FieldKind::Group(_)
        | FieldKind::Json => None,
    };
    given.filter(|value| fits_within(value, MAX_DEFAULT_LEN)).map(|value| to_input_text(value, shape)).or_else(made_up)
}

fn to_input_text(value: &Value, shape: &FieldKind) -> String {
    match (value, shape) {
        (Value::String(text), FieldKind::Text(_)) => text.clone(),
        (Value::Array(items), FieldKind::Lines(_)) => items
            .iter()
            .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join("\n"),
        (value, _) => value.to_string(),
    }
}

impl FormField {
    /// What is to be filled in, in a word or two.
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

    /// Whether there is something to say below it.
    pub(super) fn has_hint(&self) -> bool {
        !self.description.is_empty() || !self.limits.is_empty()
    }

    /// The element that says what it is for.
    pub(super) fn hint_id(&self) -> String {
        format!("hint-{}", self.index)
    }

    /// Its value; nothing where nothing was filled in, so that the schema says what is missing. Who means an empty text
    /// or list writes it as JSON.
    pub(super) fn parse(&self, given: &FormData) -> Result<Option<Value>> {
        let text = self.submitted_text(given);
        let read = match &self.kind {
            FieldKind::Group(fields) => {
                let mut group = Map::new();
                for field in fields {
                    if let Some(value) = field.parse(given)? {
                        group.insert(field.name.clone(), value);
                    }
                }
                let wanted = !group.is_empty() && (self.required || self.is_changed(given));
                return Ok(wanted.then(|| group.into()));
            }
            FieldKind::Text(_) if text.is_empty() => None,
            FieldKind::Text(_) => Some(Value::String(text)),
            FieldKind::Number | FieldKind::Boolean | FieldKind::Choice(_) | FieldKind::Lines(_) | FieldKind::Json
                if text.trim().is_empty() =>
            {
                None
            }
            FieldKind::Lines(plain) => {
                Some(text.lines().filter(|line| !line.is_empty()).map(|line| plain.parse(line)).collect())
            }
            // What is no number is sent as it is: the schema's own words say what is wrong with it.
            FieldKind::Number => Some(ItemKind::Number.parse(text.trim())),
            FieldKind::Boolean => Some(Value::Bool(text == "true")),
            FieldKind::Choice(_) => Some(serde_json::from_str(&text).unwrap_or(Value::String(text))),
            FieldKind::Json => Some(
                serde_json::from_str(&text)
                    .map_err(|error| invalid_input(format!("`{}` is no JSON: {error}", self.name)))?,
            ),
        };
        Ok(read)
    }

    fn submitted_text(&self, given: &FormData) -> String {
        given.get(&self.path).map(|text| text.replace("\r\n", "\n")).unwrap_or_default()
    }

    /// Whether somebody wrote something else than stood there.
    fn is_changed(&self, given: &FormData) -> bool {
        match &self.kind {
            FieldKind::Group(fields) => fields.iter().any(|field| field.is_changed(given)),
            FieldKind::Text(_)
            | FieldKind::Number
            | FieldKind::Boolean
            | FieldKind::Choice(_)
            | FieldKind::Lines(_)
            | FieldKind::Json => {
                self.submitted_text(given) != self.default.as_deref().map(sanitize).unwrap_or_default()
            }
        }
    }
}

impl ItemKind {
    fn parse(self, text: &str) -> Value {
        let number = match self {
            ItemKind::Number => serde_json::from_str(text).ok().filter(Value::is_number),
            ItemKind::Text => None,
        };
        number.unwrap_or_else(|| Value::String(text.to_owned()))
    }
}
