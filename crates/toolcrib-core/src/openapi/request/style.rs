//! The styles of the specification: a value as one text (paths and headers), or as pairs of names and values (queries,
//! cookies and forms). RFC 6570 says what is undefined: null, an empty array, an empty object, and they leave no trace.

use serde_json::{Map, Value};

use super::escape::Escape;
use super::{plain, refused};
use crate::error::{Error, Result};
use crate::execution::Style;

/// A value laid out flat. What is nested deeper, for which no style says anything, is JSON text.
enum Shape<'a> {
    Undefined,
    Single(String),
    List(Vec<String>),
    Object(Vec<(&'a str, &'a Value)>),
}

/// How one parameter is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing<'a> {
    /// For who reads the error.
    pub(super) argument: &'a str,
    pub(super) name: &'a str,
    pub(super) style: Style,
    pub(super) explode: bool,
    pub(super) escape: Escape,
    /// How many bytes of names and values may come of it. Names repeat, so a small argument could make a huge request.
    pub(super) room: usize,
}

impl Writing<'_> {
    /// Simple, label, matrix. Nothing where the value is undefined.
    pub(super) fn text(&self, value: &Value) -> Result<Option<String>> {
        let shape = Shape::of(value);
        let prefix = match self.style {
            Style::Label => ".",
            Style::Matrix => ";",
            Style::Simple
            | Style::Form
            | Style::SpaceDelimited
            | Style::PipeDelimited
            | Style::TabDelimited
            | Style::DeepObject
            | Style::Cookie => "",
        };
        // An exploded value repeats what stands before it.
        let pieces = match shape {
            Shape::Undefined => return Ok(None),
            Shape::Single(text) => vec![self.named(&self.escape.item(&text, prefix))],
            Shape::List(items) if self.explode && !prefix.is_empty() => {
                self.check_room(self.name.len().saturating_mul(items.len()))?;
                items.iter().map(|item| self.named(&self.escape.item(item, prefix))).collect()
            }
            Shape::List(items) => vec![self.named(&self.join(&items))],
            Shape::Object(properties) if self.explode => {
                properties.iter().map(|(key, value)| self.property(key, value)).collect()
            }
            Shape::Object(properties) => vec![self.named(&self.join(&flat(&properties)))],
        };
        let separator = if prefix.is_empty() { "," } else { prefix };
        Ok(Some(format!("{prefix}{}", pieces.join(separator))))
    }

    /// Form and its kin, each name and value encoded.
    pub(super) fn pairs(&self, value: &Value) -> Result<Vec<(String, String)>> {
        let mut pairs = Pairs { argument: self.argument, room: self.room, names: self.room, list: Vec::new() };
        let name = self.escape.name(self.name);
        if self.style == Style::DeepObject {
            self.deep(self.name, value, &mut pairs)?;
            return Ok(pairs.list);
        }
        match Shape::of(value) {
            Shape::Undefined => {}
            Shape::Single(text) => pairs.push(name, self.escape.value(&text))?,
            Shape::List(items) if self.explode => {
                for item in items {
                    pairs.push(name.clone(), self.escape.value(&item))?;
                }
            }
            Shape::List(items) => pairs.push(name, self.join(&items))?,
            Shape::Object(properties) if self.explode => {
                for (key, value) in properties {
                    self.exploded_property(key, value, &mut pairs)?;
                }
            }
            Shape::Object(properties) => pairs.push(name, self.join(&flat(&properties)))?,
        }
        Ok(pairs.list)
    }

    /// Each property of an exploded object is a parameter of its own, so one that is an array is repeated.
    fn exploded_property(&self, key: &str, value: &Value, pairs: &mut Pairs<'_>) -> Result<()> {
        let items: &[Value] = if let Value::Array(items) = value { items } else { std::slice::from_ref(value) };
        for item in items.iter().filter(|item| !item.is_null()) {
            pairs.push(self.escape.name(key), self.escape.value(&plain(item)))?;
        }
        Ok(())
    }

    /// `q[a]=1`. What the specification leaves open: nested objects go on in brackets, an array of single values has empty
    /// brackets, for those who read such names (Rails, PHP, Stripe) keep one value of a name that is merely repeated; any
    /// other array has its indices.
    fn deep(&self, name: &str, value: &Value, pairs: &mut Pairs<'_>) -> Result<()> {
        match value {
            Value::Null => Ok(()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                pairs.push(self.escape.name(name), self.escape.value(&plain(value)))
            }
            Value::Object(properties) => {
                pairs.repeat(name, properties.len())?;
                properties.iter().try_for_each(|(key, value)| self.deep(&format!("{name}[{key}]"), value, pairs))
            }
            Value::Array(items) if items.iter().all(is_single) => {
                pairs.repeat(name, items.len())?;
                items.iter().try_for_each(|item| self.deep(&format!("{name}[]"), item, pairs))
            }
            Value::Array(items) => {
                pairs.repeat(name, items.len())?;
                let mut indexed = items.iter().enumerate();
                indexed.try_for_each(|(index, item)| self.deep(&format!("{name}[{index}]"), item, pairs))
            }
        }
    }

    /// A matrix has the name before the value.
    fn named(&self, value: &str) -> String {
        if self.style == Style::Matrix { assigned(&self.escape.name(self.name), value) } else { value.to_owned() }
    }

    /// `key=value`, as paths and headers have it.
    fn property(&self, key: &str, value: &Value) -> String {
        let (name, value) = (self.escape.name(key), self.escape.item(&plain(value), ",;"));
        if self.style == Style::Matrix { assigned(&name, &value) } else { format!("{name}={value}") }
    }

    fn join(&self, items: &[String]) -> String {
        let delimiter = self.delimiter();
        let between = match delimiter {
            _ if self.escape == Escape::Nothing => delimiter.to_owned(),
            "," => delimiter.to_owned(),
            // RFC 3986 has no `|`, so the specification encodes this delimiter. Where an item has one too, only the bare
            // character tells them apart.
            "|" if items.iter().any(|item| item.contains(delimiter)) => delimiter.to_owned(),
            _other => Escape::Unreserved.value(delimiter),
        };
        let delimiters = if self.style == Style::Matrix { ",;" } else { delimiter };
        let items: Vec<String> = items.iter().map(|item| self.escape.item(item, delimiters)).collect();
        items.join(&between)
    }

    fn check_room(&self, size: usize) -> Result<()> {
        if size > self.room { Err(too_large(self.argument)) } else { Ok(()) }
    }

    fn delimiter(&self) -> &'static str {
        match self.style {
            Style::SpaceDelimited => " ",
            Style::PipeDelimited => "|",
            Style::TabDelimited => "\t",
            Style::Simple | Style::Label | Style::Matrix | Style::Form | Style::DeepObject | Style::Cookie => ",",
        }
    }
}

impl<'a> Shape<'a> {
    fn of(value: &'a Value) -> Shape<'a> {
        match value {
            Value::Null => Shape::Undefined,
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Shape::Single(plain(value)),
            Value::Array(items) => match defined_items(items) {
                items if items.is_empty() => Shape::Undefined,
                items => Shape::List(items),
            },
            Value::Object(properties) => match defined_properties(properties) {
                properties if properties.is_empty() => Shape::Undefined,
                properties => Shape::Object(properties),
            },
        }
    }
}

struct Pairs<'a> {
    argument: &'a str,
    room: usize,
    /// What is left for names on the way down, of which an object without values leaves nothing in the list.
    names: usize,
    list: Vec<(String, String)>,
}

impl Pairs<'_> {
    fn push(&mut self, name: String, value: String) -> Result<()> {
        let Some(room) = self.room.checked_sub(name.len() + value.len() + 2) else {
            return Err(too_large(self.argument));
        };
        self.room = room;
        self.list.push((name, value));
        Ok(())
    }

    fn repeat(&mut self, name: &str, times: usize) -> Result<()> {
        let names = self.names.checked_sub(name.len().saturating_mul(times));
        self.names = names.ok_or_else(|| too_large(self.argument))?;
        Ok(())
    }
}

fn too_large(argument: &str) -> Error {
    refused(argument, "makes the request too large; give it less")
}

fn defined_items(items: &[Value]) -> Vec<String> {
    items.iter().filter(|item| !item.is_null()).map(plain).collect()
}

fn defined_properties(properties: &Map<String, Value>) -> Vec<(&str, &Value)> {
    properties.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.as_str(), value)).collect()
}

fn flat(pairs: &[(&str, &Value)]) -> Vec<String> {
    pairs.iter().flat_map(|(key, value)| [(*key).to_owned(), plain(value)]).collect()
}

/// RFC 6570 leaves the equals sign out where a path-style value is empty.
fn assigned(name: &str, value: &str) -> String {
    if value.is_empty() { name.to_owned() } else { format!("{name}={value}") }
}

fn is_single(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}
