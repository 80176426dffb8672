//! A schema as a tree that people read: names, types, what must be given, choices, limits, and what each is for.

use maud::{Markup, html};
use serde_json::Value;
use toolcrib::core::outline::{self, Argument, Arguments};

use crate::console::past::named;
use crate::console::words::counted;

/// So many choices stand in a line; the others are a click away.
const IN_A_LINE: usize = 12;
const MOST_CHOICES: usize = 500;

pub(super) fn of(schema: &Value, nothing: &str) -> Markup {
    let arguments = outline::arguments_with(schema, MOST_CHOICES);
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
                code.key { (argument.name) } " "
                span.type { (argument.kind) @for limit in &argument.limits { ", " (named(limit)) } }
                @if argument.required { " " span.tag.needed { "required" } }
            }
            @if !argument.description.is_empty() { p.said { (named(&argument.description)) } }
            @if !argument.choices.is_empty() { (choices(&argument.choices)) }
            @if let Some(default) = &argument.default { p.choices { span.faint { "default " } code { (default) } } }
            @if !argument.nested.is_empty() { (level(&argument.nested)) }
        }
    }
}

fn choices(all: &[String]) -> Markup {
    let (first, others) = all.split_at(all.len().min(IN_A_LINE));
    let shown = |choices: &[String]| html! { @for choice in choices { code { (choice) } " " } };
    html! {
        p.choices { span.faint { "one of " } (shown(first)) }
        @if !others.is_empty() {
            details.choices { summary { (counted(others.len(), "more choice")) } (shown(others)) }
        }
    }
}
