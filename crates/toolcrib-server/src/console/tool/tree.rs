//! A schema as a tree that people read: names, types, what must be given, choices, and what each is for.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::outline::{self, Argument, Arguments};

use crate::console::past::named;

pub(super) fn of(schema: &Value, nothing: &str) -> Markup {
    let arguments = outline::arguments(schema);
    html! { @if arguments.is_empty() { p.faint { (nothing) } } @else { (level(&arguments)) } }
}

fn level(arguments: &Arguments) -> Markup {
    html! {
        ul.tree {
            @for argument in &arguments.told { (one(argument)) }
            @if let Some(ending) = arguments.ending() { li.faint { (ending) } }
        }
    }
}

fn one(argument: &Argument) -> Markup {
    html! {
        li {
            p {
                code.key { (argument.name) } " " span.type { (argument.kind) }
                @if argument.required { " " span.tag.needed { "required" } }
            }
            @if !argument.description.is_empty() { p.said { (named(&argument.description)) } }
            @if !argument.choices.is_empty() {
                p.choices { span.faint { "one of " } @for choice in &argument.choices { code { (choice) } " " } }
            }
            @if let Some(default) = &argument.default { p.choices { span.faint { "default " } code { (default) } } }
            @if !argument.nested.is_empty() { (level(&argument.nested)) }
        }
    }
}
