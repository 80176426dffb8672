//! A schema as people read it: a list of arguments, or one line. Whatever a source wrote, this ends and says something.

mod limits;
mod reader;
pub mod schema_walk;

use serde_json::Value;

use crate::text::sanitize_truncated;
pub use limits::describe_limits;
use reader::{MAX_CHOICES, SchemaOutliner, text_prefix};

/// How many characters of a line the arguments get, how many more if they are required, and what the sentence gets.
const MAX_ARGUMENTS_LEN: usize = 90;
const EXTRA_REQUIRED_LEN: usize = 300;
const MAX_SENTENCE_LEN: usize = 120;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentOutline {
    pub name: String,
    pub kind: String,
    pub required: bool,
    pub description: String,
    pub default: Option<String>,
    pub choices: Vec<String>,
    /// What else it must be, in words.
    pub limits: Vec<String>,
    /// The fields of an object, or of the objects in an array.
    pub nested: ArgumentList,
}

/// Arguments in the order of their schema; where not all are told, the required ones come first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArgumentList {
    pub items: Vec<ArgumentOutline>,
    /// How many more there are.
    pub omitted: usize,
}

impl ArgumentList {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.omitted == 0
    }

    /// What to write after the last one, when there are more.
    pub fn omitted_note(&self) -> Option<String> {
        (self.omitted > 0).then(|| format!("… (+{} more)", self.omitted))
    }
}

/// The arguments that a tool's input schema lists.
pub fn list_arguments(schema: &Value) -> ArgumentList {
    list_arguments_with(schema, MAX_CHOICES)
}

/// Like [`arguments`], with up to so many choices of each.
pub fn list_arguments_with(schema: &Value, choices: usize) -> ArgumentList {
    SchemaOutliner::new(schema).with_choices(choices).read_fields(schema, &mut Vec::new())
}

/// `name(required*: type, optional: type)`: everything that is required, then what finds room, then `…+3` for the rest.
pub fn call_signature(name: &str, schema: &Value) -> String {
    call_signature_with(name, schema, &[])
}

/// `name(required*, another*)`: what must be given, by name alone. For tools that come by the hundred and whose schema
/// is looked at before a call in any case.
pub fn short_signature(name: &str, schema: &Value) -> String {
    let mut required = SchemaOutliner::new(schema).top_level_arguments(schema);
    required.retain(|(_, _, required)| *required);
    let mut form = format!("{name}(");
    let room = form.chars().count() + MAX_ARGUMENTS_LEN + EXTRA_REQUIRED_LEN;
    for (index, (name, _, _)) in required.iter().enumerate() {
        let separator = if index > 0 { ", " } else { "" };
        let argument = format!("{separator}{}*", sanitize_truncated(text_prefix(name, 80), 80));
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
pub fn call_signature_with(name: &str, schema: &Value, wanted: &[&str]) -> String {
    let reader = SchemaOutliner::new(schema);
    let mut arguments = reader.top_level_arguments(schema);
    let needed = |name: &str, required: bool| required || wanted.contains(&name);
    arguments.sort_by_key(|(name, _, required)| (!required, !needed(name, *required)));
    let (mut form, mut left) = (format!("{name}("), arguments.len());
    let room = form.chars().count() + MAX_ARGUMENTS_LEN;
    for (name, property, required) in &arguments {
        let room = if needed(name, *required) { room + EXTRA_REQUIRED_LEN } else { room };
        let (name, kind) = (sanitize_truncated(text_prefix(name, 80), 80), reader.short_type(property, 0));
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
    let line = sanitize_truncated(take_sentence(skip_headings(text)).trim_end_matches('.'), 2 * MAX_SENTENCE_LEN);
    if line.chars().count() <= MAX_SENTENCE_LEN {
        return line;
    }
    let cut: String = line.chars().take(MAX_SENTENCE_LEN).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}…", cut[..end].trim_end_matches([',', ';', ':', '.', ' ', '(', '-']))
}

/// Without the lines at its beginning that only announce what follows: `# Usage`, `🎯 Purpose:`.
fn skip_headings(text: &str) -> &str {
    const MAX_HEADING_LEN: usize = 40;
    // White space at the end goes first: looked for after each of many headings, it would be walked over each time.
    let mut rest = text.trim();
    while let Some((line, after)) = rest.split_once('\n') {
        let heading = line.trim_end().ends_with(':') || line.starts_with('#');
        if !heading || line.len() > MAX_HEADING_LEN || after.trim_start().is_empty() {
            break;
        }
        rest = after.trim_start();
    }
    let item = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || "-*•# ".contains(letter));
    // A number may begin a sentence, or count an item of a list.
    item.strip_prefix(". ").unwrap_or_else(|| rest.trim_start_matches(['-', '*', '•', '#', ' ']))
}

/// Up to a full stop that ends a sentence, an empty line or the next item of a list.
fn take_sentence(text: &str) -> &str {
    const ABBREVIATIONS: [&str; 5] = ["e.g", "i.e", "etc", "vs", "incl"];
    let ends = text.match_indices(['.', '\n']).find(|(at, mark)| {
        let (before, after) = (&text[..*at], &text[at + 1..]);
        let next = after.chars().next();
        match *mark {
            "." => next.is_none_or(char::is_whitespace) && !ABBREVIATIONS.iter().any(|word| before.ends_with(word)),
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
pub fn split_first_sentence(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let line = text.lines().next().unwrap_or_default();
    text.split_at(line.find(". ").unwrap_or(line.len()))
}

#[cfg(test)]
mod tests;
