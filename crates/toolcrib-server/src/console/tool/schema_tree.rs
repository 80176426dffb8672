//! Renders a schema as a tree: names, types, required marks, choices, limits and descriptions.
//!
//! The outline of the schema is bounded in depth and size by `core::outline`, which notes what it leaves out.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::catalog::outline::{self, ArgumentList, ArgumentOutline};

use crate::console::history::render_code_spans;
use crate::console::text::format_count;

/// Maximum number of choices in a line; the others are in a disclosure.
const MAX_INLINE_CHOICES: usize = 12;
/// Maximum number of choices that are rendered at all.
const MAX_CHOICES: usize = 500;

/// Renders the properties of a schema, or `empty_text` if it has none.
pub(super) fn render_schema(schema: &Value, empty_text: &str) -> Markup {
    let arguments = outline::list_arguments_with(schema, MAX_CHOICES);
    html! { @if arguments.is_empty() { p.faint { (empty_text) } } @else { (render_level(&arguments)) } }
}

/// Renders the arguments at one level of nesting.
fn render_level(arguments: &ArgumentList) -> Markup {
    html! {
        ul.tree {
            @for argument in &arguments.items { (render_argument(argument)) }
            @if let Some(note) = arguments.omitted_note() { li.faint { (note) } }
            @for variant in &arguments.variants {
                li { p { span.faint { "variant " } (variant.label) } (render_level(&variant.fields)) }
            }
            @if let Some(note) = arguments.omitted_variants_note() { li.faint { (note) } }
        }
    }
}

/// Renders one argument and, below it, those nested in it.
fn render_argument(argument: &ArgumentOutline) -> Markup {
    html! {
        li {
            p {
                code.key { (argument.name) } " "
                span.type { (argument.kind) @for limit in &argument.limits { ", " (render_code_spans(limit)) } }
                @if argument.required { " " span.tag.needed { "required" } }
            }
            @if !argument.description.is_empty() { p.said { (render_code_spans(&argument.description)) } }
            @if !argument.choices.is_empty() { (render_choices(&argument.choices)) }
            @if let Some(default) = &argument.default { p.choices { span.faint { "default " } code { (default) } } }
            @if !argument.nested.is_empty() { (render_level(&argument.nested)) }
        }
    }
}

/// Renders the first choices in a line and the others in a disclosure.
fn render_choices(choices: &[String]) -> Markup {
    let (inline, others) = choices.split_at(choices.len().min(MAX_INLINE_CHOICES));
    let render = |choices: &[String]| html! { @for choice in choices { code { (choice) } " " } };
    html! {
        p.choices { span.faint { "one of " } (render(inline)) }
        @if !others.is_empty() {
            details.choices { summary { (format_count(others.len(), "more choice")) } (render(others)) }
        }
    }
}
