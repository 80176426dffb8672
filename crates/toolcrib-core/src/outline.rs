//! A schema as people read it: a list of arguments, or one line. Whatever a source wrote, this ends and says something.

mod reader;

use serde_json::Value;

use crate::text::shown_short;
use reader::{Reader, beginning};

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
    pub nested: Arguments,
}

/// Arguments in the order of their schema; where not all are told, the required ones come first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arguments {
    pub told: Vec<Argument>,
    /// How many more there are.
    pub more: usize,
}

impl Arguments {
    pub fn is_empty(&self) -> bool {
        self.told.is_empty() && self.more == 0
    }

    /// What to write after the last one, when there are more.
    pub fn ending(&self) -> Option<String> {
        (self.more > 0).then(|| format!("… (+{} more)", self.more))
    }
}

/// The arguments that a tool's input schema lists.
pub fn arguments(schema: &Value) -> Arguments {
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
        let (name, kind) = (shown_short(beginning(name, 80), 80), reader.short_kind(property, 0));
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

#[cfg(test)]
mod tests;
