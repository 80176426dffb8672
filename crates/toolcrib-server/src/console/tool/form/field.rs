//! One field of a form: where its value goes, of what shape it is, and how text becomes that value.

use serde_json::{Map, Value};
use toolcrib::Result;
use toolcrib::core::json;
use toolcrib::core::outline;
use toolcrib::core::outline::walk::{followed, list, sole};
use toolcrib::core::text::{shown, shown_short};

use super::attributes::Attributes;
use super::wrong;
use crate::console::fields::Fields;
use crate::console::tool::example;
use crate::console::tool::schema::type_of;

/// Schemas come from outside: so many fields, so deep, so many choices.
const MOST: usize = 80;
const DEEPEST: usize = 3;
const MOST_CHOICES: usize = 500;
const LONGEST_NAME: usize = 200;
const LONGEST_EXAMPLE: usize = 120;
/// All fields may refer to one definition, whose default or choices are then shown for each.
const MAX_DEFAULT_LEN: usize = 4_000;
const MAX_CHOICES_LEN: usize = 64 * 1024;
const MAX_DESCRIPTION_LEN: usize = 2_000;
/// A text that may be longer than this gets room for several lines.
const ONE_LINE: u64 = 250;

#[derive(Debug)]
pub(super) struct Field {
    /// Its place among all fields of the form.
    number: usize,
    pub(super) name: String,
    /// A JSON pointer to where its value goes.
    pub(super) path: String,
    pub(super) required: bool,
    pub(super) description: String,
    /// As it would be typed in.
    pub(super) default: Option<String>,
    /// Something that would do, to be seen while the field is empty.
    pub(super) example: Option<String>,
    /// What kind of text it is, as the schema calls it, or what the JSON has to be.
    note: Option<String>,
    /// What it must be beyond its shape, in words.
    pub(super) limits: Vec<String>,
    pub(super) attributes: Attributes,
    pub(super) shape: Shape,
}

#[derive(Debug)]
pub(super) enum Shape {
    Text(Room),
    Number,
    Boolean,
    Choice(Vec<Value>),
    /// A list of plain values; whether they are numbers.
    Lines(Plain),
    Group(Vec<Field>),
    Json,
}

/// What a text is likely to need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Line,
    Lines,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plain {
    Text,
    Number,
}

/// How many fields a form has so far, and whether an argument had to go without one.
#[derive(Debug, Default)]
pub(super) struct Count {
    fields: usize,
    pub(super) partial: bool,
}

pub(super) fn fields(root: &Value, schema: &Value, at: &str, depth: usize, count: &mut Count) -> Vec<Field> {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut fields = Vec::new();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        // `false` is how a schema says that there is no such argument.
        if *property == Value::Bool(false) {
            continue;
        }
        if name.len() > LONGEST_NAME || count.fields == MOST {
            count.partial = true;
            continue;
        }
        count.fields += 1;
        let number = count.fields;
        let target = followed(root, property);
        let path = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        let said = |key: &str| property.get(key).or_else(|| target.get(key));
        let description = said("description").and_then(Value::as_str).unwrap_or_default();
        let description = &description[..description.floor_char_boundary(MAX_DESCRIPTION_LEN)];
        let (value, mut shape) = (sole(root, target), shape(root, target, &path, depth, count));
        if let Shape::Text(needed) = &mut shape {
            *needed = room(name, description, value);
        }
        let items = value.get("items").map_or(&Value::Null, |items| followed(root, items));
        let kind = type_of(root, target);
        let note = match &shape {
            Shape::Text(_) => said("format").or_else(|| value.get("format")).and_then(Value::as_str),
            Shape::Json => kind,
            Shape::Number | Shape::Boolean | Shape::Choice(_) | Shape::Lines(_) | Shape::Group(_) => None,
        };
        fields.push(Field {
            number,
            required: required.contains(&name.as_str()),
            description: description.to_owned(),
            default: said("default")
                .filter(|value| is_short(value, MAX_DEFAULT_LEN))
                .map(|value| typed_in(value, &shape)),
            example: example(root, property, target, &shape).map(|text| shown_short(&text, LONGEST_EXAMPLE)),
            note: note.map(|note| shown_short(note, 40)),
            limits: outline::limits(value, items),
            attributes: Attributes::of(value, kind),
            name: name.clone(),
            path,
            shape,
        });
    }
    fields
}

fn shape(root: &Value, schema: &Value, path: &str, depth: usize, count: &mut Count) -> Shape {
    let choices = [schema, sole(root, schema)].map(|schema| list(schema, "enum"));
    let fits = |choices: &&[Value]| {
        let share = MAX_CHOICES_LEN / choices.len().max(1);
        (1..=MOST_CHOICES).contains(&choices.len()) && choices.iter().all(|choice| is_short(choice, share))
    };
    if let Some(choices) = choices.into_iter().find(fits) {
        return Shape::Choice(choices.to_vec());
    }
    match type_of(root, schema) {
        Some("string") => Shape::Text(Room::Line),
        Some("integer" | "number") => Shape::Number,
        Some("boolean") => Shape::Boolean,
        Some("array") => {
            match schema.get("items").map(|items| followed(root, items)).and_then(|items| type_of(root, items)) {
                Some("string") => Shape::Lines(Plain::Text),
                Some("integer" | "number") => Shape::Lines(Plain::Number),
                _ => Shape::Json,
            }
        }
        Some("object") if depth < DEEPEST && schema.get("properties").is_some() => {
            let fields = fields(root, schema, path, depth + 1, count);
            if fields.is_empty() { Shape::Json } else { Shape::Group(fields) }
        }
        _ => Shape::Json,
    }
}

/// Whether a value takes at most so many bytes.
fn is_short(value: &Value, most: usize) -> bool {
    json::beginning(value, most + 4).len() <= most
}

/// Whether a text is likely to have several lines, by what is said of it.
fn room(name: &str, description: &str, schema: &Value) -> Room {
    const NAMES: [&str; 9] = ["content", "body", "text", "code", "script", "markdown", "html", "sql", "patch"];
    const WORDS: [&str; 4] = ["multi-line", "multiline", "markdown", "several lines"];
    let (name, description) = (name.to_lowercase(), description.to_lowercase());
    let most = schema.get("maxLength").and_then(Value::as_u64);
    // A code of three letters is no program.
    if most.is_some_and(|most| most <= ONE_LINE) || schema.get("pattern").is_some() {
        return Room::Line;
    }
    let long = most.is_some()
        || schema.get("contentMediaType").is_some()
        || NAMES.iter().any(|known| name.split(['_', '-', ' ']).any(|part| part == *known))
        || WORDS.iter().any(|word| description.contains(word));
    if long { Room::Lines } else { Room::Line }
}

/// What a schema gives as an example; made up where an empty field would say nothing of what belongs there.
fn example(root: &Value, property: &Value, target: &Value, shape: &Shape) -> Option<String> {
    let given = property.get("example").or_else(|| target.get("example")).or_else(|| list(target, "examples").first());
    let made_up = || match shape {
        Shape::Json if type_of(root, target).is_some() => Some(example::value(root, property).to_string()),
        Shape::Text(_) if target.get("format").and_then(Value::as_str) == Some("date-time") => {
            example::value(root, property).as_str().map(str::to_owned)
        }
        Shape::Text(_)
        | Shape::Number
        | Shape::Boolean
        | Shape::Choice(_)
        | Shape::Lines(_)
        | Shape::Group(_)
        | Shape::Json => None,
    };
    given.filter(|value| is_short(value, MAX_DEFAULT_LEN)).map(|value| typed_in(value, shape)).or_else(made_up)
}

fn typed_in(value: &Value, shape: &Shape) -> String {
    match (value, shape) {
        (Value::String(text), Shape::Text(_)) => text.clone(),
        (Value::Array(items), Shape::Lines(_)) => items
            .iter()
            .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join("\n"),
        (value, _) => value.to_string(),
    }
}

impl Field {
    /// What is to be filled in, in a word or two.
    pub(super) fn kind(&self) -> String {
        let kind = match &self.shape {
            Shape::Text(_) => "text",
            Shape::Number if self.attributes.is_whole() => "whole number",
            Shape::Number => "number",
            Shape::Boolean => "yes or no",
            Shape::Choice(_) => "choice",
            Shape::Lines(Plain::Text) => "list",
            Shape::Lines(Plain::Number) => "list of numbers",
            Shape::Group(_) => "object",
            Shape::Json => "JSON",
        };
        self.note.as_ref().map_or_else(|| kind.to_owned(), |note| format!("{kind} ({note})"))
    }

    /// Whether there is something to say below it.
    pub(super) fn has_hint(&self) -> bool {
        !self.description.is_empty() || !self.limits.is_empty()
    }

    /// The element that says what it is for.
    pub(super) fn hint_id(&self) -> String {
        format!("hint-{}", self.number)
    }

    /// Its value; nothing where nothing was filled in, so that the schema says what is missing. Who means an empty text
    /// or list writes it as JSON.
    pub(super) fn read(&self, given: &Fields) -> Result<Option<Value>> {
        let text = self.text(given);
        let read = match &self.shape {
            Shape::Group(fields) => {
                let mut group = Map::new();
                for field in fields {
                    if let Some(value) = field.read(given)? {
                        group.insert(field.name.clone(), value);
                    }
                }
                let wanted = !group.is_empty() && (self.required || self.is_touched(given));
                return Ok(wanted.then(|| group.into()));
            }
            Shape::Text(_) if text.is_empty() => None,
            Shape::Text(_) => Some(Value::String(text)),
            Shape::Number | Shape::Boolean | Shape::Choice(_) | Shape::Lines(_) | Shape::Json
                if text.trim().is_empty() =>
            {
                None
            }
            Shape::Lines(plain) => {
                Some(text.lines().filter(|line| !line.is_empty()).map(|line| plain.read(line)).collect())
            }
            // What is no number is sent as it is: the schema's own words say what is wrong with it.
            Shape::Number => Some(Plain::Number.read(text.trim())),
            Shape::Boolean => Some(Value::Bool(text == "true")),
            Shape::Choice(_) => Some(serde_json::from_str(&text).unwrap_or(Value::String(text))),
            Shape::Json => Some(
                serde_json::from_str(&text).map_err(|error| wrong(format!("`{}` is no JSON: {error}", self.name)))?,
            ),
        };
        Ok(read)
    }

    fn text(&self, given: &Fields) -> String {
        given.get(&self.path).map(|text| text.replace("\r\n", "\n")).unwrap_or_default()
    }

    /// Whether somebody wrote something else than stood there.
    fn is_touched(&self, given: &Fields) -> bool {
        match &self.shape {
            Shape::Group(fields) => fields.iter().any(|field| field.is_touched(given)),
            Shape::Text(_) | Shape::Number | Shape::Boolean | Shape::Choice(_) | Shape::Lines(_) | Shape::Json => {
                self.text(given) != self.default.as_deref().map(shown).unwrap_or_default()
            }
        }
    }
}

impl Plain {
    fn read(self, text: &str) -> Value {
        let number = match self {
            Plain::Number => serde_json::from_str(text).ok().filter(Value::is_number),
            Plain::Text => None,
        };
        number.unwrap_or_else(|| Value::String(text.to_owned()))
    }
}
