//! A schema as people read it: a list of arguments, or one line. Whatever a source wrote, this ends and says something.

mod limits;
mod reader;
pub mod walk;

use serde_json::Value;

use crate::text::shown_short;
pub use limits::limits;
use reader::{MOST_CHOICES, Reader, beginning};

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
    /// What else it must be, in words.
    pub limits: Vec<String>,
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
    arguments_with(schema, MOST_CHOICES)
}

/// Like [`arguments`], with up to so many choices of each.
pub fn arguments_with(schema: &Value, choices: usize) -> Arguments {
    Reader::new(schema).with_choices(choices).fields(schema, &mut Vec::new())
}

/// `name(required*: type, optional: type)`: everything that is required, then what finds room, then `…+3` for the rest.
pub fn call_form(name: &str, schema: &Value) -> String {
    call_form_with(name, schema, &[])
}

/// `name(required*, another*)`: what must be given, by name alone. For tools that come by the hundred and whose schema
/// is looked at before a call in any case.
pub fn short_form(name: &str, schema: &Value) -> String {
    let mut required = Reader::new(schema).outermost(schema);
    required.retain(|(_, _, required)| *required);
    let mut form = format!("{name}(");
    let room = form.chars().count() + ROOM + ROOM_REQUIRED;
    for (index, (name, _, _)) in required.iter().enumerate() {
        let separator = if index > 0 { ", " } else { "" };
        let argument = format!("{separator}{}*", shown_short(beginning(name, 80), 80));
        if form.chars().count() + argument.chars().count() > room {
            form.push_str(&format!("{separator}…+{}", required.len() - index));
            break;
        }
        form.push_str(&argument);
    }
    form.push(')');
    form
}

/// Like [`call_form`], with some arguments that must not be missing.
pub fn call_form_with(name: &str, schema: &Value, wanted: &[&str]) -> String {
    let reader = Reader::new(schema);
    let mut arguments = reader.outermost(schema);
    let needed = |name: &str, required: bool| required || wanted.contains(&name);
    arguments.sort_by_key(|(name, _, required)| (!required, !needed(name, *required)));
    let (mut form, mut left) = (format!("{name}("), arguments.len());
    let room = form.chars().count() + ROOM;
    for (name, property, required) in &arguments {
        let room = if needed(name, *required) { room + ROOM_REQUIRED } else { room };
        let (name, kind) = (shown_short(beginning(name, 80), 80), reader.short_kind(property, 0));
        let separator = if left < arguments.len() { ", " } else { "" };
        let argument = format!("{separator}{name}{}: {kind}", if *required { "*" } else { "" });
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

/// The beginning of a text, up to the end of its first sentence, cut at a word when that is long. Headings before it
/// say nothing, and a line may end in the middle of it.
pub fn first_sentence(text: &str) -> String {
    let line = shown_short(sentence(past_headings(text)).trim_end_matches('.'), 2 * LONGEST_SENTENCE);
    if line.chars().count() <= LONGEST_SENTENCE {
        return line;
    }
    let cut: String = line.chars().take(LONGEST_SENTENCE).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}…", cut[..end].trim_end_matches([',', ';', ':', '.', ' ', '(', '-']))
}

/// Without the lines at its beginning that only announce what follows: `# Usage`, `🎯 Purpose:`.
fn past_headings(text: &str) -> &str {
    const LONGEST_HEADING: usize = 40;
    // White space at the end goes first: looked for after each of many headings, it would be walked over each time.
    let mut rest = text.trim();
    while let Some((line, after)) = rest.split_once('\n') {
        let heading = line.trim_end().ends_with(':') || line.starts_with('#');
        if !heading || line.len() > LONGEST_HEADING || after.trim_start().is_empty() {
            break;
        }
        rest = after.trim_start();
    }
    let item = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || "-*•# ".contains(letter));
    // A number may begin a sentence, or count an item of a list.
    item.strip_prefix(". ").unwrap_or_else(|| rest.trim_start_matches(['-', '*', '•', '#', ' ']))
}

/// Up to a full stop that ends a sentence, an empty line or the next item of a list.
fn sentence(text: &str) -> &str {
    const SHORTENED: [&str; 5] = ["e.g", "i.e", "etc", "vs", "incl"];
    let ends = text.match_indices(['.', '\n']).find(|(at, mark)| {
        let (before, after) = (&text[..*at], &text[at + 1..]);
        let next = after.chars().next();
        match *mark {
            "." => next.is_none_or(char::is_whitespace) && !SHORTENED.iter().any(|word| before.ends_with(word)),
            _ => {
                let line = after.trim_start_matches([' ', '\t']);
                line.is_empty()
                    || line.starts_with(['\n', '\r', '-', '*', '•', '#'])
                    || before.ends_with([':', '!', '?'])
            }
        }
    });
    ends.map_or(text, |(at, _)| &text[..at])
}

/// A text's first sentence, and the rest.
pub fn parted(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let line = text.lines().next().unwrap_or_default();
    text.split_at(line.find(". ").unwrap_or(line.len()))
}

#[cfg(test)]
mod tests;
