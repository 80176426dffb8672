//! Input schemas for people: a list of arguments, or a one-line signature. Bounded and total: any schema, also a
//! malformed or recursive one, gives a result.
//!
//! ```text
//! call_signature    github__create_issue(owner*: string, repo*: string, labels: string[], …+3)
//! short_signature   shop__getPet(id*)
//! list_arguments    name, type in words, description, default, choices, limits, nested fields
//! ```
//!
//! Required arguments have an asterisk. Texts come from sources and are sanitised here, so callers print them as they
//! are. Providers get the schema itself (`render`).

mod limits;
mod reader;

use serde_json::Value;

pub use limits::describe_limits;
use reader::{MAX_CHOICES, SchemaOutliner, text_prefix};
use toolcrib_core::text::sanitize_truncated;

/// Maximum length of the arguments in a signature, in characters.
const MAX_ARGUMENTS_LEN: usize = 90;
/// Additional length for required arguments. A call without one of them fails, so they are worth more than a short
/// line.
const EXTRA_REQUIRED_LEN: usize = 300;
/// Maximum length of [`first_sentence`], in characters.
const MAX_SENTENCE_LEN: usize = 120;

/// One argument, described for people. All texts are sanitised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentOutline {
    pub name: String,
    /// Type in words: `string`, `integer or null`, `array of object`. Ends in `, as above` for an object that contains
    /// itself.
    pub kind: String,
    /// By this object or by a part of its `allOf`.
    pub required: bool,
    pub description: String,
    pub default: Option<String>,
    /// Values of `enum`; the last one may be `and 20 more`.
    pub choices: Vec<String>,
    /// Further restrictions in words, see [`describe_limits`].
    pub limits: Vec<String>,
    /// Fields of an object, or of the objects in an array.
    pub nested: ArgumentList,
}

/// Arguments in the order of the schema. If some are omitted, required ones come first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ArgumentList {
    pub items: Vec<ArgumentOutline>,
    /// Number of arguments beyond the limit.
    pub omitted: usize,
    /// Variants of which one applies, besides `items`.
    pub variants: Vec<VariantOutline>,
    /// Number of variants beyond the limit, and of those whose fields the schema leaves out.
    pub omitted_variants: usize,
}

/// One of the alternatives of an object (`anyOf`, `oneOf`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantOutline {
    /// Difference from the others: `kind cat` for a constant, the name `Cat`, or its number.
    pub label: String,
    pub fields: ArgumentList,
}

impl ArgumentList {
    /// Whether there are no arguments at all, not even omitted ones.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.omitted == 0 && self.variants.is_empty() && self.omitted_variants == 0
    }

    /// Note to print after the last argument if some are omitted.
    pub fn omitted_note(&self) -> Option<String> {
        (self.omitted > 0).then(|| format!("… (+{} more)", self.omitted))
    }

    /// Note to print after the last variant if some are omitted.
    pub fn omitted_variants_note(&self) -> Option<String> {
        (self.omitted_variants > 0).then(|| format!("… (+{} more variants)", self.omitted_variants))
    }
}

/// Lists the arguments of an input schema.
pub fn list_arguments(schema: &Value) -> ArgumentList {
    list_arguments_with(schema, MAX_CHOICES)
}

/// Like [`list_arguments`], with up to `choices` values of each `enum`.
pub fn list_arguments_with(schema: &Value, choices: usize) -> ArgumentList {
    SchemaOutliner::new(schema).with_choices(choices).read_fields(schema, &mut Vec::new())
}

/// Formats `name(required*: type, optional: type)`: all required arguments, then as many as fit, then `…+3` for the
/// rest.
pub fn call_signature(name: &str, schema: &Value) -> String {
    call_signature_with(name, schema, &[])
}

/// Formats `name(required*, another*)` with the required arguments only. For sources with hundreds of tools, whose
/// schemas agents read before a call in any case.
pub fn short_signature(name: &str, schema: &Value) -> String {
    let mut required = SchemaOutliner::new(schema).top_level_arguments(schema);
    required.retain(|(_, _, required)| *required);
    let mut signature = format!("{name}(");
    let max_len = signature.chars().count() + MAX_ARGUMENTS_LEN + EXTRA_REQUIRED_LEN;
    for (index, (name, _, _)) in required.iter().enumerate() {
        let separator = if index > 0 { ", " } else { "" };
        let argument = format!("{separator}{}*", sanitize_truncated(text_prefix(name, 80), 80));
        if signature.chars().count() + argument.chars().count() > max_len {
            signature.push_str(&format!("{separator}…+{}", required.len() - index));
            break;
        }
        signature.push_str(&argument);
    }
    signature.push(')');
    signature
}

/// Like [`call_signature`], with some arguments shown in any case.
pub fn call_signature_with(name: &str, schema: &Value, always_shown: &[&str]) -> String {
    let reader = SchemaOutliner::new(schema);
    let mut arguments = reader.top_level_arguments(schema);
    let is_needed = |name: &str, required: bool| required || always_shown.contains(&name);
    // Required ones first, then the requested ones; the sort keeps the order of the schema otherwise.
    arguments.sort_by_key(|(name, _, required)| (!required, !is_needed(name, *required)));
    // `remaining` counts the arguments that are not shown yet.
    let mut signature = format!("{name}(");
    let mut remaining = arguments.len();
    let max_len = signature.chars().count() + MAX_ARGUMENTS_LEN;
    for (name, property, required) in &arguments {
        let max_len = if is_needed(name, *required) { max_len + EXTRA_REQUIRED_LEN } else { max_len };
        let name = sanitize_truncated(text_prefix(name, 80), 80);
        let kind = reader.short_type(property, 0);
        let separator = if remaining < arguments.len() { ", " } else { "" };
        let argument = format!("{separator}{name}{}: {kind}", if *required { "*" } else { "" });
        if signature.chars().count() + argument.chars().count() > max_len {
            break;
        }
        signature.push_str(&argument);
        remaining -= 1;
    }
    match remaining {
        0 => signature.push(')'),
        // Not even the first argument fits.
        all if all == arguments.len() => signature.push_str(&format!("…{all})")),
        more => signature.push_str(&format!(", …+{more})")),
    }
    signature
}

/// Returns the first sentence of a description, without headings before it; a long one is cut at a word. The sentence
/// may span several lines.
pub fn first_sentence(text: &str) -> String {
    let line = sanitize_truncated(take_sentence(skip_headings(text)).trim_end_matches('.'), 2 * MAX_SENTENCE_LEN);
    if line.chars().count() <= MAX_SENTENCE_LEN {
        return line;
    }
    // Punctuation before the ellipsis is removed with the rest of the word.
    let cut: String = line.chars().take(MAX_SENTENCE_LEN).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}…", cut[..end].trim_end_matches([',', ';', ':', '.', ' ', '(', '-']))
}

/// Skips lines that only introduce the text: `# Usage`, `🎯 Purpose:`.
fn skip_headings(text: &str) -> &str {
    const MAX_HEADING_LEN: usize = 40;
    // Trim the end once: trimming after each heading would make many headings before much white space quadratic.
    let mut rest = text.trim();
    while let Some((line, after)) = rest.split_once('\n') {
        let is_heading = line.trim_end().ends_with(':') || line.starts_with('#');
        if !is_heading || line.len() > MAX_HEADING_LEN || after.trim_start().is_empty() {
            break;
        }
        rest = after.trim_start();
    }
    let item = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || "-*•# ".contains(letter));
    // Strip `1. ` of a list item, but keep a number that begins the sentence.
    item.strip_prefix(". ").unwrap_or_else(|| rest.trim_start_matches(['-', '*', '•', '#', ' ']))
}

/// Returns the text up to the full stop that ends the sentence, an empty line or the next list item.
fn take_sentence(text: &str) -> &str {
    // A full stop after these does not end a sentence. The list is short: a wrong cut only shortens a summary.
    const ABBREVIATIONS: [&str; 5] = ["e.g", "i.e", "etc", "vs", "incl"];
    let end = text.match_indices(['.', '\n']).find(|(position, separator)| {
        let before = &text[..*position];
        let after = &text[position + 1..];
        let next = after.chars().next();
        match *separator {
            "." => next.is_none_or(char::is_whitespace) && !ABBREVIATIONS.iter().any(|word| before.ends_with(word)),
            _ => {
                let line = after.trim_start_matches([' ', '\t']);
                line.is_empty()
                    || line.starts_with(['\n', '\r', '-', '*', '•', '#'])
                    || before.ends_with([':', '!', '?'])
            }
        }
    });
    end.map_or(text, |(position, _)| &text[..position])
}

/// Splits the first sentence, as far as it is on the first line, from the rest. Cheaper than [`first_sentence`].
pub fn split_first_sentence(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let line = text.lines().next().unwrap_or_default();
    text.split_at(line.find(". ").unwrap_or(line.len()))
}

#[cfg(test)]
mod tests;
